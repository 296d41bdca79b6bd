"""DRAMSys's trace (.stl): ``cycle: read|write hexadecimal-address [data]``, with ``#`` comment lines.

Source: tukl-msd/DRAMSys, "Trace Files" of `configs/README.md` and `StlPlayer`. Cycles are those of the
device that sends the requests, at its `clkMhz`; here they are clocks of the DRAM. A request whose cycle is
before that of the last one is overdue, and is sent at once. The data of a write is skipped. Not supported,
and refused: a length of its own for a request, ``(128)``, because every request is one burst; and relative
times (.rstl), which count from the end of the request before.
"""

from __future__ import annotations

from ndpsim.dram.traces.request_format import Field, RequestFormat

FORMAT = RequestFormat(
    name="dramsys",
    example="31: read 0x400140",
    expects="a cycle and ':', read or write, and a hexadecimal address",
    fields=(
        Field("cycle", after=": "),
        Field("operation"),
        Field("address", base=16),
        Field("data", base=16),
    ),
    reads=("read",),
    writes=("write",),
    comments=True,
    blank_lines=True,
    overdue=True,
    refused={
        r"^\s*\d+:\s*\(": "a length of its own, as in '(128)', is not supported: a request is one burst"
    },
    refused_suffixes={
        ".rstl": "relative times (.rstl) are not supported: they depend on when the request before ended"
    },
)
