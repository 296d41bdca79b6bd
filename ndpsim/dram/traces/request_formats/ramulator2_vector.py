"""Ramulator 2's read/write trace: ``R`` or ``W`` and the coordinates of a burst, separated by commas.

Source: CMU-SAFARI/ramulator2, `ReadWriteTrace`. There a vector has the levels of the simulated standard;
the six levels of DDR4 and DDR5 are supported. A column counts bursts, not columns of one device.
"""

from __future__ import annotations

from ndpsim.dram.traces.request_format import COORDINATES, Field, RequestFormat

FORMAT = RequestFormat(
    name="ramulator2-vector",
    example="R 0,0,1,3,9674,61",
    expects=f"R or W and the six numbers {','.join(COORDINATES)}",
    fields=(
        Field("operation"),
        *(Field(name, after=",") for name in COORDINATES[:-1]),
        Field(COORDINATES[-1]),
    ),
    reads=("R",),
    writes=("W",),
)
