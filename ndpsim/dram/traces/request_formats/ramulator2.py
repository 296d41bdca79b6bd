"""Ramulator 2's load/store trace: ``LD`` or ``ST`` and an address, decimal or hexadecimal with 0x.

Source: CMU-SAFARI/ramulator2, `LoadStoreTrace`. It takes exactly one space between the two; more blanks are
accepted here.
"""

from __future__ import annotations

from ndpsim.dram.traces.request_format import Field, RequestFormat

FORMAT = RequestFormat(
    name="ramulator2",
    example="LD 0x12340",
    expects="LD or ST and an address",
    fields=(Field("operation"), Field("address", base=0)),
    reads=("LD",),
    writes=("ST",),
)
