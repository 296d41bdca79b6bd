"""The hardware description, typed: what every key of a hardware file is called, means and may be.

Frozen, strict (no "4" for 4, no true for 1), no unknown keys, no NaN or infinity. The unit of a field
stands in its ``json_schema_extra["unit"]``. GB/s = 1e9 B/s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from ndpsim.errors import nearest
from ndpsim.plugins import option_names
from ndpsim.units import exact

__all__ = [
    "ADDRESS_FIELDS",
    "MULTIPLIERS",
    "UNITS",
    "Activation",
    "AddressMapping",
    "Cxl",
    "Dimm",
    "Dram",
    "Gemv",
    "Gpu",
    "Host",
    "Link",
    "Multiplier",
    "Ndp",
    "Pcie",
    "Power",
    "Published",
    "Relayout",
    "System",
    "Systolic",
    "allowed",
    "field_at",
    "leaves",
    "refusal",
    "section_of",
    "unit_of",
]


def _thousandths(value: float) -> float:
    # Finer clocks have no common tick with the DRAM clock that 64-bit counters could hold.
    if round(value, 3) != value:
        raise ValueError("has more than three decimals")
    return value


#: The fields an address is made of.
ADDRESS_FIELDS = ("channel", "rank", "bankgroup", "bank", "row", "column")

#: The units of the `ndp` section that may stand in files of their own.
UNITS = ("gemv", "systolic", "activation", "relayout")

_FIELD = f"({'|'.join(ADDRESS_FIELDS)})"
_PART = rf"{_FIELD}(:[1-9][0-9]?)?"
_TARGET = rf"{_FIELD}(:[0-9][0-9]?)?"
_SOURCE = rf"{_FIELD}:[0-9][0-9]?(-[0-9][0-9]?)?"


def _word(word: str, pattern: str, form: str) -> str:
    """The field that `word` begins with; ValueError where it is not of the form."""
    field = word.partition(":")[0]
    if not re.fullmatch(pattern, word):
        guess = nearest(field, ADDRESS_FIELDS) if field not in ADDRESS_FIELDS else None
        hint = f"; did you mean '{guess}'?" if guess else ""
        raise ValueError(f"'{word[:60]}' is not {form}{hint} (fields: {', '.join(ADDRESS_FIELDS)})")
    return field


def _order(parts: list[str]) -> list[str]:
    complete: list[str] = []
    used = set()
    for part in parts:
        field = _word(part, _PART, "FIELD or FIELD:BITS")
        if field in complete:
            raise ValueError(f"'{part}' comes after '{field}', which takes all the field has left")
        used.add(field)
        if part == field:
            complete.append(field)
    for field in ADDRESS_FIELDS:
        if field not in complete and (field in used or field != "channel"):
            raise ValueError(f"leaves out bits of the {field}: end its parts with '{field}'")
    return parts


def _xor(xor: dict[str, list[str]]) -> dict[str, list[str]]:
    targets = {_word(target, _TARGET, "FIELD or FIELD:BIT") for target in xor}
    for source in (source for sources in xor.values() for source in sources):
        field = _word(source, _SOURCE, "FIELD:BIT or FIELD:LOW-HIGH")
        low, _, high = source.partition(":")[2].partition("-")
        if high and int(high) < int(low):
            raise ValueError(f"'{source}' ends before it begins")
        if field in targets:
            raise ValueError(f"'{source}' is of a field that is XORed itself: addresses could coincide")
    return xor


def _unit(unit: str) -> Any:
    return Field(json_schema_extra={"unit": unit})


def _pattern(pattern: str) -> Any:
    return Field(json_schema_extra={"pattern": f"^{pattern}$"})


Name = Annotated[str, Field(min_length=1, max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=500)]
Positive = Annotated[float, Field(gt=0, le=1e6)]
Gbps = Annotated[Positive, _unit("GB/s")]
WireGbps = Annotated[Positive, AfterValidator(_thousandths), _unit("GB/s")]
Tflops = Annotated[Positive, _unit("TFLOPS")]
ClockMhz = Annotated[float, Field(ge=1, le=10_000), AfterValidator(_thousandths), _unit("MHz")]
Clocks = Annotated[int, Field(ge=1, le=1_000_000), _unit("clocks")]
Kib = Annotated[int, Field(ge=1, le=1 << 20), _unit("KiB")]
Cycles = Annotated[int, Field(ge=1, le=10_000), _unit("cycles")]
Latency = Annotated[int, Field(ge=0, le=10_000), _unit("cycles")]
Bits = Annotated[int, Field(ge=1, le=64), _unit("bit")]
Count = Annotated[int, Field(ge=1, le=65_536)]
LinkLatency = Annotated[float, Field(ge=0, le=1e6), AfterValidator(_thousandths), _unit("ns")]
PacketBytes = Annotated[int, Field(ge=1, le=1 << 20), _unit("B")]
Side = Annotated[int, Field(ge=1, le=256)]
HeaderBytes = Annotated[int, Field(ge=0, le=4096), _unit("B")]
Slots = Annotated[int, Field(ge=1, le=1024), _unit("requests")]
Milliamps = Annotated[float, Field(ge=0, le=10_000), _unit("mA")]
Volts = Annotated[float, Field(gt=0, le=10), _unit("V")]
Nanoseconds = Annotated[float, Field(gt=0, le=10_000), _unit("ns")]
Ohms = Annotated[float, Field(gt=0, le=10_000), _unit("ohm")]
Picojoules = Annotated[float, Field(ge=0, le=1e6), _unit("pJ")]
PicojoulesPerByte = Annotated[float, Field(ge=0, le=1e6), _unit("pJ/B")]
PicojoulesPerBit = Annotated[float, Field(ge=0, le=1e6), _unit("pJ/bit")]
Milliwatts = Annotated[float, Field(ge=0, le=1e6), _unit("mW")]
Area = Annotated[Positive, _unit("mm2")]
# Keys that several units have.
StaticMw = Annotated[Milliwatts | None, Field(description="power of the unit, whatever it does")]
AreaMm2 = Annotated[Area | None, Field(description="area of the unit")]
ProductPj = Annotated[
    Picojoules | None, Field(description="energy of a product of native bits and its place in the sum")
]
BufferPj = Annotated[
    PicojoulesPerByte | None, Field(description="energy of a byte of activations read from the buffer")
]
FifoPj = Annotated[
    PicojoulesPerByte | None, Field(description="energy of a byte of weights through a FIFO, in and out")
]
Order = Annotated[list[Annotated[str, _pattern(_PART)]], AfterValidator(_order)]
Xor = Annotated[dict[str, list[Annotated[str, _pattern(_SOURCE)]]], AfterValidator(_xor)]


#: The policies that there are.
ROW_POLICIES = option_names("dram/row_policies", "open")
REFRESH_POLICIES = option_names("dram/refresh_policies", "all-bank")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class AddressMapping(_Section):
    """An address mapping as data, over the address of a burst: a byte address without the bits inside it.

    `order` names the fields from the least significant bit up. ``FIELD:BITS`` takes that many of the bits
    the field has left, lowest first, ``FIELD`` all of them; so each field ends with its bare name.
    `channel` may be left out: it then stands lowest, consecutive bursts on consecutive channels.

    `xor` says what is XORed onto a field afterwards: onto its bit 0 and up (``FIELD``) or bit B and up
    (``FIELD:B``) go the bits of ``SOURCE:LOW-HIGH``, or the one of ``SOURCE:BIT``, of every source in the
    list. A source is a field that is not XORed itself. Bits that a device does not have are left out.
    """

    order: Order = Field(description="fields from the least significant bit up: column:2, rank, ..., row")
    xor: Xor = Field(
        default={},
        description="bits XORed onto a field: bankgroup: [row:0-1]",
        json_schema_extra={"propertyNames": {"pattern": f"^{_TARGET}$"}},
    )


class Power(_Section):
    """What a DRAM chip draws, over the data sheet that is known of it (`ndpsim.energy.Currents`)."""

    VDD: Volts | None = Field(default=None, description="supply of the core")
    VDDQ: Volts | None = Field(default=None, description="supply of the data pins")
    VPP: Volts | None = Field(default=None, description="supply of the word lines")
    IDD0: Milliamps | None = Field(default=None, description="one bank, ACT and PRE")
    IDD2N: Milliamps | None = Field(default=None, description="standby, all banks closed")
    IDD3N: Milliamps | None = Field(default=None, description="standby, all banks open")
    IDD4R: Milliamps | None = Field(default=None, description="burst after burst read")
    IDD4W: Milliamps | None = Field(default=None, description="burst after burst written")
    IDD5B: Milliamps | None = Field(default=None, description="refresh after refresh")
    IDD5C: Milliamps | None = Field(default=None, description="same-bank refresh after refresh")
    IPP0: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD0")
    IPP2N: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD2N")
    IPP3N: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD3N")
    IPP4R: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD4R")
    IPP4W: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD4W")
    IPP5B: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD5B")
    activate_ns: Nanoseconds | None = Field(default=None, description="tRAS of the IDD0 loop")
    precharge_ns: Nanoseconds | None = Field(default=None, description="tRP of the IDD0 loop")
    refresh_ns: Nanoseconds | None = Field(default=None, description="tRFC of the IDD5B loop")
    same_bank_refresh_ns: Nanoseconds | None = Field(default=None, description="tRFCsb of the IDD5C loop")
    driver_ohm: Ohms | None = Field(default=None, description="driver of a data pin")
    termination_ohm: Ohms | None = Field(default=None, description="termination of a data line, to VDDQ")


class Dram(_Section):
    """The DRAM behind every lane or channel, by the names of `ndpsim.spec`, and its controller."""

    standard: Name = Field(description="DRAM standard, for instance DDR5")
    org: Name = Field(description="organisation preset: density and width of a device")
    timing: Name = Field(description="speed preset: data rate and bin")
    overrides: dict[str, Clocks] = Field(default={}, description="clocks by JEDEC name, over the preset")
    mapper: Literal["RoBaRaCoCh", "ChRaBaRoCo", "MOP4CLXOR", "custom"] = Field(
        default="RoBaRaCoCh", description="address mapping; custom: as mapping says"
    )
    mapping: AddressMapping | None = Field(default=None, description="the address mapping of mapper: custom")
    scheduler: Literal["FRFCFS", "FRFCFS-RowHit"] = Field(
        default="FRFCFS", description="which request's command comes next"
    )
    row_policy: Literal[ROW_POLICIES] = Field(  # type: ignore[valid-type]
        default="open", description="rows stay open, or are closed after row_cap column accesses"
    )
    row_cap: int = Field(
        default=4,
        ge=1,
        le=1_000_000,
        description="column accesses after which closed-cap closes a row",
        json_schema_extra={"unit": "accesses"},
    )
    refresh: Literal[REFRESH_POLICIES] = Field(  # type: ignore[valid-type]
        default="all-bank", description="refresh mode"
    )
    read_buffer: Slots = Field(default=32, description="reads a controller chooses among")
    write_buffer: Slots = Field(default=32, description="writes a controller chooses among")
    power: Power | None = None


class Dimm(_Section):
    """The DIMMs; with an `ndp` section, each has an NDP unit on its buffer chip.

    A memory device on a CXL link is one DIMM whose sub-channels are all channels of the device.
    """

    count: int = Field(default=1, ge=1, le=1024, description="DIMMs in the system")
    ranks: int = Field(default=1, ge=1, le=16, description="ranks on a DIMM")
    subchannels: int = Field(
        default=1, ge=1, le=64, description="independent channels of a DIMM (DDR5: two) or device"
    )
    command_bus: Literal["private", "shared", "broadcast"] = Field(
        default="private",
        description=(
            "between the buffer chip and the ranks of a sub-channel: private, a bus for every rank; shared, "
            "one on which they take turns; broadcast, one whose commands all of them obey together"
        ),
    )


class Host(_Section):
    """The CPU and its memory system."""

    channels: int = Field(default=1, ge=1, le=64, description="memory channels of the host")
    memory_bandwidth_gbps: Gbps | None = Field(
        default=None, description="memory bandwidth of the host over all channels"
    )
    memory_tb: Annotated[Positive, _unit("TB")] | None = Field(
        default=None, description="memory capacity of the host"
    )
    cpu_tflops: Tflops | None = Field(default=None, description="peak of the CPU's matrix units")


class Gpu(_Section):
    """The GPU and its link to the host."""

    tflops: Tflops = Field(description="peak of the GPU")
    memory_gb: Annotated[Positive, _unit("GB")] = Field(description="capacity of the GPU's memory")
    memory_tbps: Annotated[Positive, _unit("TB/s")] = Field(description="bandwidth of the GPU's memory")
    pcie_gbps: Gbps = Field(description="PCIe bandwidth between host and GPU, one direction")


class Link(_Section):
    """The links between DIMMs; each carries packets both ways at once, at `link_gbps` each way."""

    lanes: int = Field(ge=1, le=256, description="serial lanes of a link")
    lane_gbit_s: Annotated[Positive, _unit("Gb/s")] = Field(description="rate of a lane")
    link_gbps: WireGbps = Field(description="bandwidth of a link, one direction")
    pj_per_bit: PicojoulesPerBit | None = Field(default=None, description="energy of a link, both ends")
    topology: Literal["chain", "ring", "mesh", "full", "groups"] = Field(
        description="which DIMMs are linked; groups: chains of group_dimms, bridged over the host's channels"
    )
    ports: int = Field(ge=1, le=1023, description="links a DIMM can have")
    hop_latency_ns: LinkLatency = Field(
        description="latency of a hop, from the last byte sent to it being ready to go on"
    )
    packet_bytes: PacketBytes = Field(description="payload of a packet, at most")
    header_bytes: HeaderBytes = Field(description="what a packet carries beside its payload")
    group_dimms: int = Field(default=1, ge=1, le=1024, description="DIMMs in a group, with topology: groups")
    host_latency_ns: LinkLatency = Field(
        default=0.0, description="latency of a packet in the host, with topology: groups"
    )


class Pcie(_Section):
    """The PCIe link between host and GPU."""

    gbps: WireGbps = Field(description="bandwidth in one direction, after line coding, headers included")
    latency_ns: LinkLatency = Field(description="latency of a packet")
    copy_engines: int = Field(ge=1, le=64, description="copies under way at once; they share the link")
    packet_bytes: PacketBytes = Field(description="payload of a packet, at most")
    header_bytes: HeaderBytes = Field(description="what a packet carries beside its payload")
    pj_per_bit: PicojoulesPerBit | None = Field(default=None, description="energy of the link, both ends")


class Cxl(_Section):
    """The CXL link between host or GPU and a memory that computes."""

    gbps: WireGbps = Field(description="bandwidth in one direction, headers included")
    latency_ns: LinkLatency = Field(description="latency of a packet")
    packet_bytes: PacketBytes = Field(description="payload of a packet, at most")
    header_bytes: HeaderBytes = Field(description="what a packet carries beside its payload")
    pj_per_bit: PicojoulesPerBit | None = Field(default=None, description="energy of the link, both ends")


class Multiplier(_Section):
    """A unit that multiplies; `ndp` has one.

    What a subclass says of itself is all that configuration knows of it; `ndpsim.ndp` has a module of its
    name in the section `ndp`.
    """

    called: ClassVar[str]
    peak_formula: ClassVar[str]

    @property
    def peak_gflops(self) -> float:
        """At native precision, of the whole unit: a product and a sum are two."""
        raise NotImplementedError

    def problem(self, system: System) -> tuple[str, str] | None:
        """What keeps it from being in a system: a key and what is wrong with it."""
        return None


class Gemv(Multiplier):
    """The matrix-vector unit of a DIMM."""

    called: ClassVar[str] = "GEMV unit"
    peak_formula: ClassVar[str] = "multipliers x values_per_multiplier / bit_serial_cycles x 2 x clock_mhz"

    multipliers: Count = Field(description="multipliers of the unit")
    values_per_multiplier: int = Field(ge=1, le=1024, description="products a multiplier works on at once")
    native_bits: Bits = Field(description="bits of a value the multiplier is built for")
    bit_serial_cycles: Cycles = Field(description="cycles a multiplier takes for native values")
    adder_tree_cycles: Latency = Field(description="latency of the adder tree")
    clock_mhz: ClockMhz = Field(description="clock of the unit")
    buffer_kib: Kib = Field(description="buffer for activations and partial sums")
    activation_bytes: Annotated[int, Field(ge=1, le=8), _unit("B")] = Field(description="one activation")
    fifo_bursts: Annotated[int, Field(ge=2, le=4096), _unit("bursts")] = Field(
        description="weight FIFO of each lane, in DRAM bursts"
    )
    product_pj: ProductPj = None
    buffer_pj_per_byte: BufferPj = None
    fifo_pj_per_byte: FifoPj = None
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None

    @property
    def peak_gflops(self) -> float:
        """See `Multiplier.peak_gflops`."""
        products = Fraction(self.multipliers * self.values_per_multiplier, self.bit_serial_cycles)
        return float(2 * products * exact(self.clock_mhz) / 1000)


class Systolic(Multiplier):
    """The systolic arrays of a memory device, before all its channels."""

    called: ClassVar[str] = "systolic arrays"
    peak_formula: ClassVar[str] = "arrays x rows x columns x 2 x clock_mhz"

    arrays: Count = Field(description="arrays of the device")
    rows: Side = Field(description="rows of processing elements in an array")
    columns: Side = Field(description="columns of processing elements in an array")
    clock_mhz: ClockMhz = Field(description="clock of the arrays")
    dataflow: Literal["output-stationary", "weight-stationary"] = Field(
        description="what stays in a processing element while the rest moves: its sum, or its weight"
    )
    low_bit_throughput: Literal["fixed", "inverse-bits"] = Field(
        description="products of an element a cycle: one, or native_bits over the bits of a weight"
    )
    native_bits: Bits = Field(description="bits of a weight that takes an element a cycle")
    stationary_registers: int = Field(
        ge=1,
        le=2,
        description="sums or weights an element has room for; with 2 a tile fills while another drains",
    )
    load_rows: Side = Field(description="rows that take weights from outside at once, if weight-stationary")
    buffer_kib: Kib = Field(description="buffer for activations and partial sums")
    activation_bytes: Annotated[int, Field(ge=1, le=8), _unit("B")] = Field(description="one activation")
    fifo_bursts: Annotated[int, Field(ge=2, le=4096), _unit("bursts")] = Field(
        description="weight FIFO of each lane, in DRAM bursts"
    )
    product_pj: ProductPj = None
    buffer_pj_per_byte: BufferPj = None
    fifo_pj_per_byte: FifoPj = None
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None

    @property
    def peak_gflops(self) -> float:
        """See `Multiplier.peak_gflops`."""
        return float(2 * self.arrays * self.rows * self.columns * exact(self.clock_mhz) / 1000)

    def problem(self, system: System) -> tuple[str, str] | None:
        """See `Multiplier.problem`."""
        if system.cxl is None:
            return "cxl", "is missing: systolic arrays stand in a device behind a CXL link"
        if self.load_rows > self.rows:
            problem = f"{self.load_rows} is more than the {self.rows} rows of an array"
            return "ndp.systolic.load_rows", problem
        return None


class Activation(_Section):
    """The unit for non-linear functions beside the multipliers."""

    units: Count = Field(description="values worked on side by side")
    cycles_per_value: Cycles = Field(description="cycles from one value to the next in a unit")
    latency_cycles: Latency = Field(description="cycles from a value to its result")
    clock_mhz: ClockMhz = Field(description="clock of the unit")
    value_pj: Picojoules | None = Field(default=None, description="energy of a value")
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None


class Relayout(_Section):
    """The engine that moves experts between DIMMs and layouts."""

    clock_mhz: ClockMhz = Field(description="clock of the engine")
    buffer_kib: Kib = Field(description="staging buffer of the engine")
    concurrent_experts: int = Field(ge=1, le=1024, description="experts in migration at once, at most")
    pj_per_byte: PicojoulesPerByte | None = Field(
        default=None, description="energy of a byte through the engine, in and out"
    )
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None


class Published(_Section):
    """Figures of an NDP unit as published: cross-checks, used by no simulation."""

    gflops: Annotated[Positive, _unit("GFLOPS")] | None = Field(default=None, description="peak of a unit")
    bandwidth_gbps: Gbps | None = Field(
        default=None, description="memory bandwidth inside its DIMM or device"
    )
    memory_gb: Annotated[Positive, _unit("GB")] | None = Field(
        default=None, description="capacity of its DIMM or device"
    )
    area_mm2: Area | None = Field(default=None, description="area of all units of a DIMM")


class Ndp(_Section):
    """The near-data processing of a DIMM by a `gemv` unit, or of a device on a CXL link by `systolic` arrays.

    Each unit is a mapping, or the name of a file in ``rtl_params/``.
    """

    gemv: Gemv | None = None
    systolic: Systolic | None = None
    activation: Activation
    relayout: Relayout | None = None
    published: Published = Published()

    @property
    def multiplier(self) -> tuple[str, Gemv | Systolic]:
        """The unit that multiplies: its name, and what the file says of it."""
        return next((name, getattr(self, name)) for name in MULTIPLIERS if getattr(self, name) is not None)


#: The units of the `ndp` section that multiply, by name.
MULTIPLIERS: dict[str, type[Multiplier]] = {
    name: kind
    for name, field in Ndp.model_fields.items()
    for kind in get_args(field.annotation)
    if isinstance(kind, type) and issubclass(kind, Multiplier)
}


class System(_Section):
    """A hardware file: a memory, and what stands around it: a host, a GPU, DIMMs that compute.

    A section that is None is not there.
    """

    name: Name = Field(description="short name of the hardware")
    title: Text | None = Field(default=None, description="what it is, in one line")
    paper: Text | None = Field(default=None, description="the publication its numbers come from")
    dram: Dram
    dimm: Dimm = Dimm()
    host: Host = Host()
    gpu: Gpu | None = None
    link: Link | None = None
    pcie: Pcie | None = None
    cxl: Cxl | None = None
    ndp: Ndp | None = None


def _parts(field: FieldInfo) -> list[FieldInfo]:
    """`field` and, for an optional one, what it is when it is there."""
    inner = [arg for arg in get_args(field.annotation) if arg is not type(None)]
    optional = type(None) in get_args(field.annotation)
    return [field, *(FieldInfo.from_annotation(arg) for arg in inner if optional)]


def section_of(field: FieldInfo) -> type[_Section] | None:
    """The model of `field` where it is a section, there or not; None where it is a leaf."""
    kind = _parts(field)[-1].annotation
    return kind if isinstance(kind, type) and issubclass(kind, _Section) else None


def _entry(field: FieldInfo) -> FieldInfo | None:
    """What each entry of a mapping or list must be; None where `field` is neither."""
    if get_origin(field.annotation) not in (dict, list):
        return None
    return FieldInfo.from_annotation(get_args(field.annotation)[-1])


def field_at(path: tuple[str, ...]) -> FieldInfo | None:
    """The field that the keys of `path` lead to in a `System`, None where they lead nowhere."""
    model: type[_Section] | None = System
    field: FieldInfo | None = None
    for key in path:
        if model is not None:
            field = model.model_fields.get(key)
        else:
            field = _entry(field) if field is not None else None
        if field is None:
            return None
        model = section_of(field)
    return field


def leaves(section: BaseModel, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key path under `section` with its value, in the order of declaration."""
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if value is None and section_of(field) is not None:
            continue
        if isinstance(value, BaseModel):
            yield from leaves(value, (*path, key))
        elif isinstance(value, dict):
            yield from (((*path, key, name), entry) for name, entry in value.items())
        else:
            yield (*path, key), value


def unit_of(path: tuple[str, ...]) -> str:
    """The unit of the leaf at `path`, empty where it has none."""
    field = field_at(path)
    for part in _parts(field) if field is not None else ():
        if isinstance(part.json_schema_extra, dict) and "unit" in part.json_schema_extra:
            return str(part.json_schema_extra["unit"])
    return ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def allowed(field: FieldInfo) -> str:
    """What a leaf may be, in words: ``a whole number from 1 to 16``."""
    part = _parts(field)[-1]
    if section_of(part) is not None:
        return "a mapping of keys to values"
    if get_origin(part.annotation) is list:
        return "a list of words"
    if get_origin(part.annotation) is dict:
        entry = get_origin(get_args(part.annotation)[1])
        return "a mapping of words to lists" if entry is list else "a mapping of timing names to clocks"
    if get_origin(part.annotation) is Literal:
        return f"one of {', '.join(map(str, get_args(part.annotation)))}"
    names = ("gt", "ge", "le")
    limits = {name: getattr(item, name) for item in part.metadata for name in names if hasattr(item, name)}
    if part.annotation is str:
        return "a text of reasonable length, not empty"
    kind = "a whole number" if part.annotation is int else "a number"
    low = f"from {_number(limits['ge'])} to" if "ge" in limits else f"above {_number(limits['gt'])}, up to"
    return f"{kind} {low} {_number(limits['le'])}"


def refusal(path: tuple[str, ...], value: Any) -> str | None:
    """Why the leaf at `path` cannot be `value`, in words; None where it can.

    Raises:
        KeyError: there is nothing at `path`.
    """
    field = field_at(path)
    if field is None:
        raise KeyError(path)
    leaf: dict[str, Any] = {"value": (field.annotation, field)}
    try:
        create_model("Leaf", __base__=_Section, **leaf).model_validate({"value": value})
    except ValidationError:
        return f"{value!r} is not {allowed(field)}"
    return None
