"""Lines with an operation in words and a decimal address: ``read 4096``."""

from ndpsim.dram.traces.request_format import Field, RequestFormat

FORMAT = RequestFormat(
    name="spaced",
    example="read 4096",
    expects="read or write and a decimal address",
    fields=(Field("operation"), Field("address", base=10)),
    reads=("read",),
    writes=("write",),
)
