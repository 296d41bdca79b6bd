"""The hardware description, typed: what every key of a hardware file is called, means and may be.

What values may be, and their units, is in `quantities`; the memory in `dram`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from ndpsim.config import multipliers
from ndpsim.config.dram import Dram, DramNames
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
    key,
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


#: What a CPU of the `host` section may be.
CPU_FAMILIES = (
    "zen2", "zen3", "zen4", "zen5", "broadwell", "skylake", "ice-lake", "sapphire-rapids", "emerald-rapids",
    "granite-rapids", "raptor-lake", "other",
)  # fmt: skip

#: What a GPU of the `gpu` section may be: architectures that parts are of.
GPU_FAMILIES = (
    "ada", "ampere", "blackwell", "cdna2", "cdna3", "cdna4", "h20", "hopper", "pascal", "rdna3", "rdna4",
    "turing", "volta", "xe",
)  # fmt: skip

CopyOverhead = Annotated[
    Microseconds,
    Field(description="additional time of a copy: driver, engine, signal of its end"),
]


class Dimm(Section):
    """The DIMMs; with an `ndp` section, each has an NDP unit on its buffer chip.

    A memory device on a CXL link is one DIMM whose sub-channels are all channels of the device.
    """

    count: int = key("DIMMs in the system", 1, ge=1, le=1024)
    ranks: int = key("ranks on a DIMM", 1, ge=1, le=16)
    subchannels: int = key("independent channels of a DIMM (DDR5: two) or device", 1, ge=1, le=64)
    command_bus: Literal["private", "shared", "broadcast"] = key(
        "between the buffer chip and the ranks of a sub-channel: private, a bus for every rank; shared, one "
        "on which they take turns; broadcast, one whose commands all of them obey together",
        "private",
    )


class HostMemory(DramNames):
    """Plain DIMMs of the host, on channels of their own beside those of the DIMMs that compute."""

    channels: int = key("memory channels of these DIMMs", ge=1, le=64)
    dimms: int = key("DIMMs on these channels", ge=1, le=1024)
    ranks: int = key("ranks on a DIMM", 1, ge=1, le=16)


class Host(Section):
    """The CPU and its memory system."""

    part: PartName = None
    channels: int = key("memory channels of the host", 1, ge=1, le=64)
    memory: HostMemory | None = key(
        "memory apart from the DIMMs that compute: it has a copy of every expert and the KV cache, and what "
        "CPU and GPU read comes from it; none: they read the DIMMs that compute",
        None,
    )
    memory_bandwidth_gbps: Gbps | None = key(
        "memory bandwidth of the host, as published; a cross-check", None
    )
    memory_tb: Annotated[Positive, unit("TB")] | None = key(
        "memory capacity of the host, as published; a cross-check", None
    )
    mapper: Literal[(*MAPPERS, "dram")] = key(  # type: ignore[valid-type]
        "address mapping of the traffic beside an expert; dram: as dram.mapper says", "RoBaCoRaCoBgCh"
    )
    cpu_tflops: Tflops | None = key(
        "peak of a CPU's matrix units; none: from cpu_cores, cpu_clock_ghz and cpu_isa", None
    )
    cpu_compute_efficiency: Share | None = key(
        "share of cpu_tflops that an expert of many tokens reaches", None
    )
    cpu_added_tokens: int = key(
        "tokens added to those of an expert when its time is computed", 0, ge=0, le=65_536, unit="tokens"
    )
    cpu_read_gbps: Gbps | None = key("highest rate at which the CPU reads an expert's weights", None)
    cpu_read_share: Share | None = key(
        "share of the channels' peak that the reading of weights by the CPU reaches", None
    )
    cpu_expert_overhead_us: Microseconds = key(
        "additional time of an expert on the CPU: handing its parts to the threads", 0.0
    )
    cpu_layer_overhead_us: Microseconds = key(
        "additional time of a layer with experts on the CPU: waking threads, waiting for the GPU", 0.0
    )
    cpu_sockets: int = key("CPUs that compute experts", 1, ge=1, le=64)
    cpu_cores: int | None = key(
        "cores of a CPU; fewer threads than cores make that share of the peak", None, ge=1, le=65_536
    )
    cpu_clock_ghz: Annotated[Positive, unit("GHz")] | None = key(
        "clock of all cores under load by the data sheet; the base clock if it gives no other", None
    )
    cpu_isa: Literal["avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx"] | None = key(
        "widest instructions that kernels use on the CPU", None
    )
    cpu_family: Literal[CPU_FAMILIES] | None = key(  # type: ignore[valid-type]
        "microarchitecture, by which the fitted rates of reading are chosen", None
    )
    cpu_memory_channels: int | None = key("memory channels of a socket, of 64 bits each", None, ge=1, le=64)
    cpu_memory_mtps: MegaTransfers | None = key("highest rate of the memory with one DIMM on a channel", None)
    cpu_memory_mtps_2dpc: MegaTransfers | None = key(
        "highest rate of the memory with two DIMMs on a channel", None
    )
    cpu_fabric_gbps: Gbps | None = key(
        "limit of the fabric between cores and memory controllers for reads", None
    )
    cpu_sockets_most: Literal[1, 2, 4, 8] | None = key("most sockets of a system with this CPU", None)
    cpu_threads: int | None = key("threads that compute experts on the CPU", None, ge=1, le=65_536)
    cpu_expert_times: ExpertTimes = None
    measured_power: Annotated[
        Tables,
        Field(description="power of CPU and GPU while a model runs: tables by their names, or .csv files"),
    ] = None


class Gpu(Section):
    """The GPU and its link to the host."""

    part: PartName = None
    tflops: Tflops = key("peak of the GPU")
    memory_gb: Annotated[Positive, unit("GB")] = key("capacity of the GPU's memory")
    memory_tbps: Annotated[Positive, unit("TB/s")] = key("bandwidth of the GPU's memory")
    pcie_gbps: Gbps = key("PCIe bandwidth between host and GPU, one direction")
    compute_efficiency: Share | None = key("share of tflops that matrix products of many tokens reach", None)
    attention_efficiency: Share | None = key("share of tflops that queries with keys and values reach", None)
    memory_efficiency: Share | None = key(
        "share of memory_tbps that the reading of weights and caches reaches", None
    )
    family: Literal[GPU_FAMILIES] | None = key(  # type: ignore[valid-type]
        "architecture; its fitted values are used for keys that are not given", None
    )
    fused_efficiency: Share | None = key(
        "share of tflops that one call for all experts reaches; none: compute_efficiency", None
    )
    roofline_power: Annotated[float, Field(ge=1, le=64)] | None = key(
        "compute c and memory m together take (c^p + m^p)^(1/p); none: the longer of both", None
    )
    tile_tokens: int = key(
        "tokens of a tile; an expert's tokens are multiplied in whole tiles", 1, ge=1, le=1024, unit="tokens"
    )
    expert_calls: Literal["single", "fused"] = key(
        "single: each expert is launched by itself; fused: one call for those of a layer", "single"
    )
    expert_overhead_us: Microseconds = key(
        "additional time of an expert that is launched by itself: launches, gathering and scattering", 0.0
    )
    call_overhead_us: Microseconds = key("additional time of a fused call", 0.0)
    slice_us: Microseconds = key("additional time of each expert, or slice of one, in a fused call", 0.0)
    kernel_overhead_us: Microseconds = key(
        "additional time of every kernel of dense parts and attention", 0.0
    )
    attention_overhead_us: Microseconds | None = key(
        "additional time of queries with keys and values; none: kernel_overhead_us", None
    )
    expert_times: ExpertTimes = None
    reserved_gb: Annotated[float, Field(ge=0, le=1e6), unit("GB")] = key(
        "memory reserved for driver, libraries and fragmentation", 0.0
    )
    count: int = key("GPUs, each with this memory and these rates; for serving", 1, ge=1, le=64)
    link_gbps: Gbps | None = key("bandwidth of a GPU's link to others, one direction; none: pcie_gbps", None)
    link_latency_us: Microseconds = key("additional time of an exchange between GPUs", 20.0)
    expert_buffers: int = key("room for experts that arrive over PCIe", 2, ge=0, le=65_536, unit="experts")


class Link(Section):
    """The links between DIMMs; each carries `link_gbps` each way at once, and a bus as much in all."""

    lanes: int = key("serial lanes of a link", ge=1, le=256)
    lane_gbit_s: Annotated[Positive, unit("Gb/s")] = key("rate of a lane")
    link_gbps: WireGbps = key("bandwidth of a link, one direction")
    pj_per_bit: PicojoulesPerBit | None = key("energy of a link, both ends", None)
    topology: Literal["chain", "ring", "mesh", "full", "bus", "groups"] = key(
        "which DIMMs are linked; bus: all, by one wire that carries a packet at a time; groups: chains of "
        "group_dimms, bridged over the host's channels"
    )
    ports: int = key("links a DIMM can have", ge=1, le=1023)
    hop_latency_ns: LinkLatency = key("latency of a hop, from the last byte sent to it being ready to go on")
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    group_dimms: int = key("DIMMs in a group, with topology: groups", 1, ge=1, le=1024)
    host_latency_ns: LinkLatency = key("latency of a packet in the host, with topology: groups", 0.0)


class Pcie(Section):
    """The PCIe link between host and GPU."""

    part: PartName = None
    gbps: WireGbps = key("bandwidth in one direction, after line coding, headers included")
    latency_ns: LinkLatency = key("latency of a packet")
    copy_engines: int = key("copies under way at once; they share the link", ge=1, le=64)
    copy_overhead_us: CopyOverhead = 0.0
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    pj_per_bit: PicojoulesPerBit | None = key("energy of the link, both ends", None)


class Cxl(Section):
    """The CXL link between host or GPU and a memory that computes."""

    gbps: WireGbps = key("bandwidth in one direction, headers included")
    latency_ns: LinkLatency = key("latency of a packet")
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    copy_engines: int = key("copies to a GPU under way at once; they share the link", 1, ge=1, le=64)
    copy_overhead_us: CopyOverhead = 0.0
    pj_per_bit: PicojoulesPerBit | None = key("energy of the link, both ends", None)


class Activation(Section):
    """The unit for non-linear functions beside the multipliers."""

    units: Count = key("values computed in parallel")
    cycles_per_value: Cycles = key("cycles from one value to the next in a unit")
    latency_cycles: Latency = key("cycles from a value to its result")
    clock_mhz: ClockMhz = key("clock of the unit")
    value_pj: Picojoules | None = key("energy of a value", None)
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None


class Relayout(Section):
    """The engine that moves experts between DIMMs and layouts."""

    clock_mhz: ClockMhz = key("clock of the engine")
    buffer_kib: Kib = key("staging buffer of the engine")
    concurrent_experts: int = key("experts in migration at once, at most", ge=1, le=1024)
    pj_per_byte: PicojoulesPerByte | None = key("energy of a byte through the engine, in and out", None)
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None


class Published(Section):
    """Figures of an NDP unit as published: cross-checks, used by no simulation."""

    gflops: Annotated[Positive, unit("GFLOPS")] | None = key("peak of a unit", None)
    bandwidth_gbps: Gbps | None = key("memory bandwidth inside its DIMM or device", None)
    memory_gb: Annotated[Positive, unit("GB")] | None = key("capacity of its DIMM or device", None)
    area_mm2: Area | None = key("area of all units of a DIMM", None)


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

    name: Name = key("short name of the hardware")
    title: Text | None = key("what it is, in one line", None)
    paper: Text | None = key("the publication its numbers come from", None)
    dram: Dram
    dimm: Dimm = Dimm()
    host: Host = Host()
    gpu: Gpu | None = None
    link: Link | None = None
    pcie: Pcie | None = None
    cxl: Cxl | None = None
    ndp: Ndp | None = None
