"""LPDDR5X SDRAM, JESD209-5B and later: LPDDR5 (`lpddr5.py`: its commands and rules) above 6400 MT/s.

Values are those of x16 devices with bank groups, without link ECC, DVFSC and read DBI, as public controller
software quotes JESD209-5B (`cited`). The standard has grades of 7500 and 8533 MT/s. As LPDDR5's at 6400
MT/s, for want of a source: nCS, nCAS, nWCKPST. Ramulator 2.1 has no preset of these grades. Rows of 2 KiB:
a device of 32 Gb has twice the rows of 16 Gb.
"""

from dataclasses import replace

from ndpsim.dram.spec.standard import Organisation
from ndpsim.dram.spec.standards.lpddr5 import CITED
from ndpsim.dram.spec.standards.lpddr5 import STANDARD as LPDDR5

# Stated below, where LPDDR5 derives them.
_STATED = ("nRRDS", "nRRDL", "nFAW")
_REPLACED = ("derived", "organisations", "speeds")
_SHARED = dict(
    nBL_min=2, nBL_max=4, nRTP=8, nPPD=2, nCCDS=2, nCCDL=4, nCCDS_WR=2, nCCDL_WR=4, nRRDS=4, nRRDL=4,
    nWCKPST=1, nCAS=0, nAAD=8, nCS=2, nPBR2ACT=8,
)  # fmt: skip
_LPDDR5X_8533 = dict(
    rate=8533, tCK_ps=938, nCL=23, nRCD=20, nRP=20, nRPab=23, nRAS=45, nRC=64, nWR=37, nCWL=12, nWTRS=7,
    nWTRL=13, nFAW=16, **_SHARED,
)  # fmt: skip

STANDARD = replace(
    LPDDR5,
    name="LPDDR5X",
    source="JESD209-5B",
    organisations={
        "LPDDR5X_16Gb_x16": Organisation(16384, 16, 4, 4, 1 << 16, 1024),
        "LPDDR5X_32Gb_x16": Organisation(32768, 16, 4, 4, 1 << 17, 1024),
    },
    speeds={
        "LPDDR5X_7500": dict(
            rate=7500, tCK_ps=1067, nCL=20, nRCD=17, nRP=17, nRPab=20, nRAS=40, nRC=57, nWR=32, nCWL=11,
            nWTRS=6, nWTRL=12, nFAW=15, **_SHARED,
        ),
        "LPDDR5X_8533": _LPDDR5X_8533,
    },
    refused={
        "LPDDR5X_8000": "8000 MT/s is no grade of JESD209-5B: a device of 8533 MT/s runs at it, with clocks "
        "that no public source states; LPDDR5X_7500 and LPDDR5X_8533 are grades",
        "LPDDR5X_9600": "no public source of its read and write latency, nWR, nRBTP and tRRD is known; "
        "LPDDR5X_8533 is the fastest grade",
    },
    derived={name: value for name, value in LPDDR5.derived.items() if name not in _STATED},
    cited=CITED | {
        "rate": "JESD209-5B, Table 442",
        "tCK_ps": "JESD209-5B, Table 442",
        "nCL": "JESD209-5B, Table 201",
        "nCWL": "write latency set A; JESD209-5B, Table 200",
        "nWR": "34 ns, as a register has it; JESD209-5B, Table 225",
        "nRCD": "18 ns; JESD209-5B",
        "nRP": "tRPpb, 18 ns; JESD209-5B",
        "nRPab": "21 ns; JESD209-5B",
        "nRAS": "42 ns; JESD209-5B",
        "nRC": "60 ns; JESD209-5B",
        "nWTRS": "6.25 ns; JESD209-5B",
        "nWTRL": "12 ns; JESD209-5B",
        "nRTP": "BL/n_min + nRBTP of 7.5 ns less two clocks; JESD209-5B",
        "nRRDS": "3.75 ns; JESD209-5B, Table 386",
        "nRRDL": "3.75 ns; JESD209-5B, Table 386",
        "nFAW": "15 ns; JESD209-5B, Table 386",
        "nPBR2ACT": "7.5 ns; JESD209-5B",
    },
    reference=dict(
        {name: value for name, value in LPDDR5.reference.items() if name not in _REPLACED},
        derived={name: value for name, value in LPDDR5.reference["derived"].items() if name not in _STATED},
    ),
)  # fmt: skip
