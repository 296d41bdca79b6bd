"""DRAMsim3's trace: a hexadecimal address, with or without 0x, an operation, and a decimal cycle.

The request is made in that cycle or, when the memory does not take it then, as soon as it does. Source:
umd-memsys/DRAMsim3, the Transaction reader of `src/common.cc` and `TraceBasedCPU`. There every word that is
no write is a read; here only the reads of DRAMsim2 and DRAMsim3 are, and other words are refused.
"""

from __future__ import annotations

from ndpsim.dram.traces.request_format import Field, RequestFormat

_READS = ("READ", "read", "P_MEM_RD", "P_FETCH")
_WRITES = ("WRITE", "write", "P_MEM_WR", "BOFF")

FORMAT = RequestFormat(
    name="dramsim3",
    example="0x2000D5C0 READ 30",
    expects=f"a hexadecimal address, an operation ({', '.join(_READS + _WRITES)}) and a cycle",
    fields=(Field("address", base=16), Field("operation"), Field("cycle")),
    reads=_READS,
    writes=_WRITES,
    blank_lines=True,
)
