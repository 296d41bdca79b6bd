"""LPDDR5X SDRAM, JESD209-5B and later: LPDDR5 (`lpddr5.py`: its commands and rules) at 7500 and 8533 MT/s.

Values are those of x16 devices with bank groups, without link ECC, DVFSC and read DBI, as public controller
software quotes JESD209-5B: read latency Table 201, write latency (set A) Table 200, nWR Table 225, the least
clock of 8533 MT/s Table 442, tRRD of 3.75 ns and tFAW of 15 ns Table 386; tRCD and tRPpb 18 ns, tRPab 21 ns,
tRAS 42 ns, tRC 60 ns, tWR 34 ns, tWTR_S 6.25 ns, tWTR_L 12 ns, tpbR2act 7.5 ns and tRBTP 7.5 ns less two
clocks, rounded up; nRTP is a burst (2) and tRBTP. As LPDDR5's at 6400 MT/s, for want of a source: nCS, nCAS.
Ramulator 2.1 has no preset of these grades. Rows of 2 KiB: a device of 32 Gb has twice the rows of 16 Gb.
"""

from dataclasses import replace

from ndpsim.spec.standard import Organisation
from ndpsim.spec.standards.lpddr5 import STANDARD as _OF_LPDDR5

# Stated below, where LPDDR5 derives them.
_STATED = ("nRRDS", "nRRDL", "nFAW")
_AT_BOTH = dict(
    nBL_min=2, nBL_max=4, nRTP=8, nPPD=2, nCCDS=2, nCCDL=4, nCCDS_WR=2, nCCDL_WR=4, nRRDS=4, nRRDL=4,
    nWCKPST=1, nCAS=0, nAAD=8, nCS=2, nPBR2ACT=8,
)  # fmt: skip

STANDARD = replace(
    _OF_LPDDR5,
    name="LPDDR5X",
    source="JESD209-5B",
    organisations={
        "LPDDR5X_16Gb_x16": Organisation(16384, 16, 4, 4, 1 << 16, 1024),
        "LPDDR5X_32Gb_x16": Organisation(32768, 16, 4, 4, 1 << 17, 1024),
    },
    speeds={
        "LPDDR5X_7500": dict(
            rate=7500, tCK_ps=1067, nCL=20, nRCD=17, nRP=17, nRPab=20, nRAS=40, nRC=57, nWR=32, nCWL=11,
            nWTRS=6, nWTRL=12, nFAW=15, **_AT_BOTH,
        ),
        "LPDDR5X_8533": dict(
            rate=8533, tCK_ps=938, nCL=23, nRCD=20, nRP=20, nRPab=23, nRAS=45, nRC=64, nWR=37, nCWL=12,
            nWTRS=7, nWTRL=13, nFAW=16, **_AT_BOTH,
        ),
    },
    derived={name: of for name, of in _OF_LPDDR5.derived.items() if name not in _STATED},
    reference=dict(
        {name: of for name, of in _OF_LPDDR5.reference.items() if name not in ("organisations", "speeds")},
        derived={name: of for name, of in _OF_LPDDR5.reference["derived"].items() if name not in _STATED},
    ),
)  # fmt: skip
