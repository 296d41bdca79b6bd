"""The hardware description, typed: what every key of a hardware file is called, means and may be.

What values may be, and their units, is in `quantities`; the memory in `dram`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from ndpsim.config import multipliers
from ndpsim.config.dram import Dram
from ndpsim.config.multiplier import Multiplier
from ndpsim.config.quantities import (
    Area,
    AreaMm2,
    ClockMhz,
    Count,
    Cycles,
    ExpertTimes,
    Gbps,
    HeaderBytes,
    Kib,
    Latency,
    LinkLatency,
    MegaTransfers,
    Microseconds,
    Name,
    PacketBytes,
    PartName,
    Picojoules,
    PicojoulesPerBit,
    PicojoulesPerByte,
    Positive,
    Section,
    Share,
    StaticMw,
    Tables,
    Text,
    Tflops,
    WireGbps,
    unit,
)
from ndpsim.parameters.dram import MAPPERS
from ndpsim.plugins import plugins

#: The units of the `ndp` section that multiply, by name.
MULTIPLIERS: dict[str, type[Multiplier]] = {
    kind.__module__.rpartition(".")[2]: kind for kind in plugins(multipliers, "SECTION")
}
#: The units of the `ndp` section that may stand in files of their own.
UNITS = (*MULTIPLIERS, "activation", "relayout")


#: What a GPU of the `gpu` section may be: architectures that parts are of.
GPU_FAMILIES = (
    "ada", "ampere", "blackwell", "cdna2", "cdna3", "cdna4", "h20", "hopper", "pascal", "rdna3", "rdna4",
    "turing", "volta", "xe",
)  # fmt: skip

CopyOverhead = Annotated[
    Microseconds,
    Field(description="what a copy takes besides its packets: driver, engine, signal of its end"),
]


class Dimm(Section):
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


class HostMemory(Section):
    """Plain DIMMs of the host, on channels of their own beside those of the DIMMs that compute."""

    part: PartName = None
    standard: Name = Field(description="DRAM standard, for instance DDR5")
    org: Name = Field(description="organisation preset: density and width of a device")
    timing: Name = Field(description="speed preset: data rate and bin")
    channels: int = Field(ge=1, le=64, description="memory channels of these DIMMs")
    dimms: int = Field(ge=1, le=1024, description="DIMMs on these channels")
    ranks: int = Field(default=1, ge=1, le=16, description="ranks on a DIMM")


class Host(Section):
    """The CPU and its memory system."""

    part: PartName = None
    channels: int = Field(default=1, ge=1, le=64, description="memory channels of the host")
    memory: HostMemory | None = Field(
        default=None,
        description=(
            "memory apart from the DIMMs that compute: it has a copy of every expert and the KV cache, "
            "and what CPU and GPU read comes from it; none: they read the DIMMs that compute"
        ),
    )
    memory_bandwidth_gbps: Gbps | None = Field(
        default=None,
        description="memory bandwidth of the host, as published; a cross-check",
    )
    memory_tb: Annotated[Positive, unit("TB")] | None = Field(
        default=None, description="memory capacity of the host, as published; a cross-check"
    )
    mapper: Literal[(*MAPPERS, "dram")] = Field(  # type: ignore[valid-type]
        default="RoBaCoRaCoBgCh",
        description="address mapping of the traffic beside an expert; dram: as dram.mapper says",
    )
    cpu_tflops: Tflops | None = Field(
        default=None,
        description="peak of a CPU's matrix units; none: what cpu_cores, cpu_clock_ghz and cpu_isa make",
    )
    cpu_compute_efficiency: Share | None = Field(
        default=None, description="share of cpu_tflops that an expert of many tokens reaches"
    )
    cpu_added_tokens: int = Field(
        default=0,
        ge=0,
        le=65_536,
        description="an expert takes as long as if it had so many tokens more",
        json_schema_extra={"unit": "tokens"},
    )
    cpu_read_gbps: Gbps | None = Field(
        default=None, description="what the CPU reads of an expert's weights in a ns at most"
    )
    cpu_read_share: Share | None = Field(
        default=None, description="share of the channels' peak that the reading of weights by the CPU reaches"
    )
    cpu_expert_overhead_us: Microseconds = Field(
        default=0.0, description="what an expert on the CPU takes besides: handing its parts to the threads"
    )
    cpu_layer_overhead_us: Microseconds = Field(
        default=0.0,
        description="what a layer with experts on the CPU takes besides: waking threads, waiting for the GPU",
    )
    cpu_sockets: int = Field(default=1, ge=1, le=64, description="CPUs that compute experts")
    cpu_cores: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="cores of a CPU; fewer threads than cores make that share of the peak",
    )
    cpu_clock_ghz: Annotated[Positive, unit("GHz")] | None = Field(
        default=None,
        description="clock of all cores under load, as the data sheet has it: the base clock where it says "
        "no other",
    )
    cpu_isa: Literal["avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx"] | None = Field(
        default=None, description="widest instructions that kernels use on the CPU"
    )
    cpu_family: (
        Literal[
            "zen2",
            "zen3",
            "zen4",
            "zen5",
            "broadwell",
            "skylake",
            "ice-lake",
            "sapphire-rapids",
            "emerald-rapids",
            "granite-rapids",
            "raptor-lake",
            "other",
        ]
        | None
    ) = Field(default=None, description="microarchitecture, by which the fitted rates of reading are chosen")
    cpu_memory_channels: int | None = Field(
        default=None, ge=1, le=64, description="memory channels of a socket, of 64 bits each"
    )
    cpu_memory_mtps: MegaTransfers | None = Field(
        default=None, description="highest rate of the memory with one DIMM on a channel"
    )
    cpu_memory_mtps_2dpc: MegaTransfers | None = Field(
        default=None, description="highest rate of the memory with two DIMMs on a channel"
    )
    cpu_fabric_gbps: Gbps | None = Field(
        default=None, description="what the fabric between cores and memory controllers carries of reads"
    )
    cpu_sockets_most: Literal[1, 2, 4, 8] | None = Field(
        default=None, description="sockets that the CPU can share a system with, its own counted"
    )
    cpu_threads: int | None = Field(
        default=None, ge=1, le=65_536, description="threads that compute experts on the CPU"
    )
    cpu_expert_times: ExpertTimes = None
    measured_power: Annotated[
        Tables,
        Field(description="power of CPU and GPU while a model runs: tables by their names, or .csv files"),
    ] = None


class Gpu(Section):
    """The GPU and its link to the host."""

    part: PartName = None
    tflops: Tflops = Field(description="peak of the GPU")
    memory_gb: Annotated[Positive, unit("GB")] = Field(description="capacity of the GPU's memory")
    memory_tbps: Annotated[Positive, unit("TB/s")] = Field(description="bandwidth of the GPU's memory")
    pcie_gbps: Gbps = Field(description="PCIe bandwidth between host and GPU, one direction")
    compute_efficiency: Share | None = Field(
        default=None, description="share of tflops that matrix products of many tokens reach"
    )
    attention_efficiency: Share | None = Field(
        default=None, description="share of tflops that queries with keys and values reach"
    )
    memory_efficiency: Share | None = Field(
        default=None, description="share of memory_tbps that the reading of weights and caches reaches"
    )
    family: Literal[GPU_FAMILIES] | None = Field(  # type: ignore[valid-type]
        default=None, description="architecture, whose fitted values stand for keys that are not given"
    )
    fused_efficiency: Share | None = Field(
        default=None,
        description="share of tflops that one call for all experts reaches; none: compute_efficiency",
    )
    roofline_power: Annotated[float, Field(ge=1, le=64)] | None = Field(
        default=None,
        description=("compute c and memory m together take (c^p + m^p)^(1/p); none: the longer of both"),
    )
    tile_tokens: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="tokens of an expert are multiplied in whole tiles of so many",
        json_schema_extra={"unit": "tokens"},
    )
    expert_calls: Literal["single", "fused"] = Field(
        default="single",
        description="single: each expert is launched by itself; fused: one call for those of a layer",
    )
    expert_overhead_us: Microseconds = Field(
        default=0.0,
        description=(
            "what an expert that is launched by itself takes besides: launches, gathering and scattering"
        ),
    )
    call_overhead_us: Microseconds = Field(
        default=0.0, description="what a fused call takes besides its experts"
    )
    slice_us: Microseconds = Field(
        default=0.0, description="what each expert, or slice of one, of a fused call takes besides"
    )
    kernel_overhead_us: Microseconds = Field(
        default=0.0, description="what every kernel of dense parts and attention takes besides"
    )
    attention_overhead_us: Microseconds | None = Field(
        default=None,
        description="what queries with keys and values take besides; none: kernel_overhead_us",
    )
    expert_times: ExpertTimes = None
    reserved_gb: Annotated[float, Field(ge=0, le=1e6), unit("GB")] = Field(
        default=0.0, description="memory left to driver, libraries and fragmentation"
    )
    expert_buffers: int = Field(
        default=2,
        ge=0,
        le=65_536,
        description="experts arriving over PCIe that the memory has room for",
        json_schema_extra={"unit": "experts"},
    )


class Link(Section):
    """The links between DIMMs; each carries `link_gbps` each way at once, and a bus as much in all."""

    lanes: int = Field(ge=1, le=256, description="serial lanes of a link")
    lane_gbit_s: Annotated[Positive, unit("Gb/s")] = Field(description="rate of a lane")
    link_gbps: WireGbps = Field(description="bandwidth of a link, one direction")
    pj_per_bit: PicojoulesPerBit | None = Field(default=None, description="energy of a link, both ends")
    topology: Literal["chain", "ring", "mesh", "full", "bus", "groups"] = Field(
        description=(
            "which DIMMs are linked; bus: all, by one wire that carries a packet at a time; groups: chains "
            "of group_dimms, bridged over the host's channels"
        )
    )
    ports: int = Field(ge=1, le=1023, description="links a DIMM can have")
    hop_latency_ns: LinkLatency = Field(
        description="latency of a hop, from the last byte sent to it being ready to go on"
    )
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    group_dimms: int = Field(default=1, ge=1, le=1024, description="DIMMs in a group, with topology: groups")
    host_latency_ns: LinkLatency = Field(
        default=0.0, description="latency of a packet in the host, with topology: groups"
    )


class Pcie(Section):
    """The PCIe link between host and GPU."""

    part: PartName = None
    gbps: WireGbps = Field(description="bandwidth in one direction, after line coding, headers included")
    latency_ns: LinkLatency = Field(description="latency of a packet")
    copy_engines: int = Field(ge=1, le=64, description="copies under way at once; they share the link")
    copy_overhead_us: CopyOverhead = 0.0
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    pj_per_bit: PicojoulesPerBit | None = Field(default=None, description="energy of the link, both ends")


class Cxl(Section):
    """The CXL link between host or GPU and a memory that computes."""

    gbps: WireGbps = Field(description="bandwidth in one direction, headers included")
    latency_ns: LinkLatency = Field(description="latency of a packet")
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    copy_engines: int = Field(
        default=1, ge=1, le=64, description="copies to a GPU under way at once; they share the link"
    )
    copy_overhead_us: CopyOverhead = 0.0
    pj_per_bit: PicojoulesPerBit | None = Field(default=None, description="energy of the link, both ends")


class Activation(Section):
    """The unit for non-linear functions beside the multipliers."""

    units: Count = Field(description="values worked on side by side")
    cycles_per_value: Cycles = Field(description="cycles from one value to the next in a unit")
    latency_cycles: Latency = Field(description="cycles from a value to its result")
    clock_mhz: ClockMhz = Field(description="clock of the unit")
    value_pj: Picojoules | None = Field(default=None, description="energy of a value")
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None


class Relayout(Section):
    """The engine that moves experts between DIMMs and layouts."""

    clock_mhz: ClockMhz = Field(description="clock of the engine")
    buffer_kib: Kib = Field(description="staging buffer of the engine")
    concurrent_experts: int = Field(ge=1, le=1024, description="experts in migration at once, at most")
    pj_per_byte: PicojoulesPerByte | None = Field(
        default=None, description="energy of a byte through the engine, in and out"
    )
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None


class Published(Section):
    """Figures of an NDP unit as published: cross-checks, used by no simulation."""

    gflops: Annotated[Positive, unit("GFLOPS")] | None = Field(default=None, description="peak of a unit")
    bandwidth_gbps: Gbps | None = Field(
        default=None, description="memory bandwidth inside its DIMM or device"
    )
    memory_gb: Annotated[Positive, unit("GB")] | None = Field(
        default=None, description="capacity of its DIMM or device"
    )
    area_mm2: Area | None = Field(default=None, description="area of all units of a DIMM")


_MULTIPLIERS: dict[str, Any] = {name: (kind | None, None) for name, kind in MULTIPLIERS.items()}
_Multipliers: Any = create_model("_Multipliers", __base__=Section, **_MULTIPLIERS)


class Ndp(_Multipliers):  # type: ignore[misc]
    """The near-data processing of a DIMM, or of a device on a CXL link: one unit that multiplies, and others.

    Each unit is a mapping, or the name of a file in ``rtl_params/``.
    """

    activation: Activation
    relayout: Relayout | None = None
    published: Published = Published()

    @property
    def multiplier(self) -> tuple[str, Multiplier]:
        """The unit that multiplies: its name, and what the file says of it."""
        return next((name, getattr(self, name)) for name in MULTIPLIERS if getattr(self, name) is not None)


class System(Section):
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
