"""Ramulator 1's memory trace: a hexadecimal address, with or without 0x, and ``R`` or ``W``.

Source: CMU-SAFARI/ramulator, `Trace::get_dramtrace_request`. It takes a line without R or W for a read and
looks at the first letter of longer words; both are refused here.
"""

from __future__ import annotations

from ndpsim.dram.traces.request_format import Field, RequestFormat

FORMAT = RequestFormat(
    name="ramulator1",
    example="0x12345680 R",
    expects="a hexadecimal address and R or W",
    fields=(Field("address", base=16), Field("operation")),
    reads=("R",),
    writes=("W",),
)
