"""Types of values in a hardware file: numbers with their limits and units, words of address mappings.

The unit of a field stands in its ``json_schema_extra["unit"]``. GB/s = 1e9 B/s.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from ndpsim.base.errors import did_you_mean, shown


def _thousandths(value: float) -> float:
    # Finer clocks and the DRAM clock have no common tick that fits 64-bit counters.
    if round(value, 3) != value:
        raise ValueError("has more than three decimals")
    return value


#: The fields an address is made of.
ADDRESS_FIELDS = ("channel", "rank", "stack", "bankgroup", "bank", "row", "column")

_FIELD = f"({'|'.join(ADDRESS_FIELDS)})"
_PART = rf"{_FIELD}(:[1-9][0-9]?)?"
XOR_TARGET = rf"{_FIELD}(:[0-9][0-9]?)?"
_SOURCE = rf"{_FIELD}:[0-9][0-9]?(-[0-9][0-9]?)?"


def _word(word: str, pattern: str, form: str) -> str:
    """The field that `word` begins with; ValueError if it has another form."""
    field = word.partition(":")[0]
    if not re.fullmatch(pattern, word):
        hint = "" if field in ADDRESS_FIELDS else did_you_mean(field, ADDRESS_FIELDS)
        raise ValueError(f"{shown(word)} is not {form}{hint} (fields: {', '.join(ADDRESS_FIELDS)})")
    return field


def _order(parts: list[str]) -> list[str]:
    complete: list[str] = []
    used = set()
    for part in parts:
        field = _word(part, _PART, "FIELD or FIELD:BITS")
        if field in complete:
            raise ValueError(f"'{part}' comes after '{field}', which takes all remaining bits")
        used.add(field)
        if part == field:
            complete.append(field)
    for field in ADDRESS_FIELDS:
        if field not in complete and (field in used or field not in ("channel", "stack")):
            raise ValueError(f"leaves out bits of the {field}: end its parts with '{field}'")
    return parts


def _xor(xor: dict[str, list[str]]) -> dict[str, list[str]]:
    targets = {_word(target, XOR_TARGET, "FIELD or FIELD:BIT") for target in xor}
    for source in (source for sources in xor.values() for source in sources):
        field = _word(source, _SOURCE, "FIELD:BIT or FIELD:LOW-HIGH")
        low, _, high = source.partition(":")[2].partition("-")
        if high and int(high) < int(low):
            raise ValueError(f"'{source}' ends before it begins")
        if field in targets:
            raise ValueError(f"'{source}' is a bit of a target: addresses could coincide")
    return xor


def unit(unit: str) -> Any:
    """The metadata of a field with this unit."""
    return Field(json_schema_extra={"unit": unit})


def key(description: str, default: Any = ..., *, unit: str | None = None, **limits: Any) -> Any:
    """A key of a section; without a default it is required."""
    if unit is not None:
        limits["json_schema_extra"] = {"unit": unit}
    return Field(default, description=description, **limits)


def _pattern(pattern: str) -> Any:
    return Field(json_schema_extra={"pattern": f"^{pattern}$"})


Name = Annotated[str, Field(min_length=1, max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=500)]
Positive = Annotated[float, Field(gt=0, le=1e6)]
Gbps = Annotated[Positive, unit("GB/s")]
WireGbps = Annotated[Positive, AfterValidator(_thousandths), unit("GB/s")]
Tflops = Annotated[Positive, unit("TFLOPS")]
ClockMhz = Annotated[float, Field(ge=1, le=10_000), AfterValidator(_thousandths), unit("MHz")]
_MOST_CLOCKS = 1_000_000
_TIME = r"[0-9]{1,9}(\.[0-9]{1,9})? ?(ps|ns|us)"


def _clocks_or_time(value: Any) -> int | str:
    if isinstance(value, str) and re.fullmatch(_TIME, value, re.ASCII):
        return value
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= _MOST_CLOCKS:
        raise PydanticCustomError("range" if whole else "int_type", "not a timing")
    return int(value)


#: Clocks, or a time that the standard's rule rounds to clocks.
Timing = Annotated[
    Any,
    PlainValidator(_clocks_or_time),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": _MOST_CLOCKS},
                {"type": "string", "pattern": f"^{_TIME}$"},
            ]
        }
    ),
    unit("clocks"),
]
Kib = Annotated[int, Field(ge=1, le=1 << 20), unit("KiB")]
Cycles = Annotated[int, Field(ge=1, le=10_000), unit("cycles")]
Latency = Annotated[int, Field(ge=0, le=10_000), unit("cycles")]
Bits = Annotated[int, Field(ge=1, le=64), unit("bit")]
Count = Annotated[int, Field(ge=1, le=65_536)]
LinkLatency = Annotated[float, Field(ge=0, le=1e6), AfterValidator(_thousandths), unit("ns")]
PacketBytes = Annotated[int, Field(ge=1, le=1 << 20, description="maximum payload of a packet"), unit("B")]
Side = Annotated[int, Field(ge=1, le=256)]
HeaderBytes = Annotated[int, Field(ge=0, le=4096, description="header of a packet"), unit("B")]
MegaTransfers = Annotated[int, Field(ge=1, le=100_000), unit("MT/s")]
Slots = Annotated[int, Field(ge=1, le=1024), unit("requests")]
Size = Annotated[int, Field(ge=1, le=1 << 24)]
Banks = Annotated[int, Field(ge=1, le=1024), unit("banks")]
Milliamps = Annotated[float, Field(ge=0, le=10_000), unit("mA")]
Volts = Annotated[float, Field(gt=0, le=10), unit("V")]
Nanoseconds = Annotated[float, Field(gt=0, le=10_000), unit("ns")]
Ohms = Annotated[float, Field(gt=0, le=10_000), unit("ohm")]
Picojoules = Annotated[float, Field(ge=0, le=1e6), unit("pJ")]
PicojoulesPerByte = Annotated[float, Field(ge=0, le=1e6), unit("pJ/B")]
PicojoulesPerBit = Annotated[float, Field(ge=0, le=1e6), unit("pJ/bit")]
Share = Annotated[float, Field(gt=0, le=1)]
Microseconds = Annotated[float, Field(ge=0, le=1e6), unit("us")]
Tables = Annotated[
    list[Name] | None,
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value, Name | list[Name] | None),
]
# Excluded from dumps: hardware with equal values is equal, whichever file they come from.
PartName = Annotated[
    Name | None,
    Field(
        exclude=True,
        description="part with values for keys that this file lacks: a bundled name, or a .yaml file",
    ),
]
# Tables of measured times, on the GPU and on the CPU.
ExpertTimes = Annotated[
    Tables,
    Field(
        description=(
            "measured times of experts, which replace the roofline for models with such an expert: names of "
            "tables, or .csv files"
        )
    ),
]
Milliwatts = Annotated[float, Field(ge=0, le=1e6), unit("mW")]
Area = Annotated[Positive, unit("mm2")]
# Keys that several units have.
StaticMw = Annotated[Milliwatts | None, Field(description="static power of the unit")]
AreaMm2 = Annotated[Area | None, Field(description="area of the unit")]
BufferKib = Annotated[Kib, Field(description="buffer for activations and partial sums")]
ActivationBytes = Annotated[int, Field(ge=1, le=8, description="size of one activation"), unit("B")]
FifoBursts = Annotated[
    int, Field(ge=2, le=4096, description="weight FIFO of each lane, in DRAM bursts"), unit("bursts")
]
ProductPj = Annotated[
    Picojoules | None,
    Field(description="energy of a multiplication of native bits and the addition to the sum"),
]
BufferPj = Annotated[
    PicojoulesPerByte | None, Field(description="energy of a byte of activations read from the buffer")
]
FifoPj = Annotated[
    PicojoulesPerByte | None, Field(description="energy of a byte of weights that enters and leaves a FIFO")
]
Order = Annotated[list[Annotated[str, _pattern(_PART)]], AfterValidator(_order)]
Xor = Annotated[dict[str, list[Annotated[str, _pattern(_SOURCE)]]], AfterValidator(_xor)]


class Section(BaseModel):
    """A mapping of a hardware file: frozen, strict (no "4" for 4, no true for 1), no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
