"""The typed hardware description: name, meaning and allowed values of every key of a hardware file.

`quantities` has the types of values with their units, and `dram` the sections of the memory.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from ndpsim.base.options.dram import MAPPERS
from ndpsim.base.plugins import plugins_by_module
from ndpsim.config import multipliers
from ndpsim.config.dram import Dram, DramNames
from ndpsim.config.multipliers import Multiplier
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

#: The units of the `ndp` section that multiply, by name.
MULTIPLIERS: dict[str, type[Multiplier]] = {
    name.replace("-", "_"): kind for name, kind in plugins_by_module(multipliers, "SECTION").items()
}
#: The units of the `ndp` section that may have files of their own.
UNITS = (*MULTIPLIERS, "activation", "relayout")


#: The families of CPUs in the `host` section.
CPU_FAMILIES = (
    "zen2", "zen3", "zen4", "zen5", "broadwell", "skylake", "ice-lake", "sapphire-rapids", "emerald-rapids",
    "granite-rapids", "raptor-lake", "other",
)  # fmt: skip

#: The families of GPUs in the `gpu` section: the architectures of the bundled parts.
GPU_FAMILIES = (
    "ada", "ampere", "b200", "blackwell", "cdna2", "cdna3", "cdna4", "h20", "hopper", "pascal", "rdna3",
    "rdna4", "turing", "volta", "xe",
)  # fmt: skip

#: Keys of the `gpu` section for which the fitted values of a family may stand.
GPU_FITTED = (
    "compute_efficiency", "fused_efficiency", "attention_efficiency", "memory_efficiency", "roofline_power",
    "tile_tokens", "expert_overhead_us", "call_overhead_us", "slice_us", "kernel_overhead_us",
    "attention_overhead_us", "attention_memory_efficiency", "attention_power", "softmax_operations",
    "latent_efficiency", "fused_memory_efficiency", "fp8_efficiency", "fp4_efficiency",
)  # fmt: skip

CopyOverhead = Annotated[
    Microseconds,
    Field(description="additional time of a copy: driver, copy engine, signal of its end"),
]


class Dimm(Section):
    """The DIMMs. With an `ndp` section, each DIMM has an NDP unit on its buffer chip.

    A memory device on a CXL link is one DIMM whose sub-channels are all channels of the device.
    """

    count: int = key("DIMMs in the system", 1, ge=1, le=1024)
    ranks: int = key("ranks on a DIMM", 1, ge=1, le=16)
    subchannels: int = key("independent channels of a DIMM (DDR5: two) or device", 1, ge=1, le=64)
    command_bus: Literal["private", "shared", "broadcast"] = key(
        "command buses between the buffer chip and the ranks of a sub-channel; private: a bus for every "
        "rank; shared: the ranks take turns on one bus; broadcast: all ranks receive the commands of one bus",
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
        "memory besides the DIMMs that compute: it has a copy of every expert and the KV cache, and CPU and "
        "GPU read from it; null: they read the DIMMs that compute",
        None,
    )
    memory_bandwidth_gbps: Gbps | None = key(
        "published memory bandwidth of the host, for a cross-check", None
    )
    memory_tb: Annotated[Positive, unit("TB")] | None = key(
        "published memory capacity of the host, as papers print it (2^40 B), for a cross-check", None
    )
    mapper: Literal[(*MAPPERS, "dram")] = key(  # type: ignore[valid-type]
        "address mapping of host traffic beside an expert; dram: the mapping of dram.mapper", "RoBaCoRaCoBgCh"
    )
    cpu_tflops: Tflops | None = key(
        "peak of a CPU's matrix units; null: computed from cpu_cores, cpu_clock_ghz and cpu_isa", None
    )
    cpu_compute_efficiency: Share | None = key(
        "share of cpu_tflops that an expert of many tokens reaches", None
    )
    cpu_added_tokens: float = key(
        "tokens that are added to an expert's tokens in the computation of its time: unpacking of weights, "
        "partly filled tiles; below 0: the first token is computed while weights are read",
        0.0,
        ge=-1,
        le=65_536,
        unit="tokens",
    )
    cpu_roofline_power: Annotated[float, Field(ge=1, le=64)] | None = key(
        "p: computing c and reading r of an expert combine to (c^p + r^p)^(1/p), with 1 to their sum; null: "
        "the longer one",
        None,
    )
    cpu_memory_gbps: Gbps | None = key(
        "what the memory gives when all cores read; of it, programs read the fitted share of cpu_family", None
    )
    cpu_read_gbps: Gbps | None = key("highest rate at which the program reads an expert's weights", None)
    cpu_read_share: Share | None = key(
        "share of the channels' peak that the program reaches when it reads weights", None
    )
    cpu_expert_overhead_us: Microseconds = key(
        "additional time of an expert on the CPU: distribution of its parts to threads", 0.0
    )
    cpu_layer_overhead_us: Microseconds = key(
        "additional time of a layer with experts on the CPU: start of threads, wait for the GPU", 0.0
    )
    cpu_thread_overhead_us: Microseconds = key(
        "additional time of a layer for each thread of the CPU: threads wait for each other after every "
        "operation",
        0.0,
    )
    cpu_sockets: int = key("CPUs that compute experts", 1, ge=1, le=64)
    cpu_cores: int | None = key(
        "cores of a CPU; with fewer threads than cores, the peak is proportionally lower",
        None,
        ge=1,
        le=65_536,
    )
    cpu_clock_ghz: Annotated[Positive, unit("GHz")] | None = key(
        "clock of all cores under load in the data sheet; the base clock if the data sheet has no other", None
    )
    cpu_isa: Literal["avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx"] | None = key(
        "widest instructions that kernels use on the CPU", None
    )
    cpu_family: Literal[CPU_FAMILIES] | None = key(  # type: ignore[valid-type]
        "microarchitecture, which selects the fitted read rates", None
    )
    cpu_memory_channels: int | None = key("memory channels of a socket, of 64 bits each", None, ge=1, le=64)
    cpu_memory_mtps: MegaTransfers | None = key("highest rate of the memory with one DIMM on a channel", None)
    cpu_memory_mtps_2dpc: MegaTransfers | None = key(
        "highest rate of the memory with two DIMMs on a channel", None
    )
    cpu_fabric_gbps: Gbps | None = key("read limit of the fabric between cores and memory controllers", None)
    cpu_sockets_most: Literal[1, 2, 4, 8] | None = key(
        "maximum number of sockets of a system with this CPU", None
    )
    cpu_threads: int | None = key("threads that compute experts on the CPU", None, ge=1, le=65_536)
    cpu_expert_times: ExpertTimes = None
    measured_power: Annotated[
        Tables,
        Field(description="measured power of CPU and GPU while a model runs: names of tables, or .csv files"),
    ] = None


class Gpu(Section):
    """The GPU and its link to the host."""

    part: PartName = None
    tflops: Tflops = key("peak of the GPU")
    memory_gb: Annotated[Positive, unit("GB")] = key("capacity of the GPU's memory")
    memory_tbps: Annotated[Positive, unit("TB/s")] = key("bandwidth of the GPU's memory")
    pcie_gbps: Gbps = key("PCIe bandwidth between host and GPU, one direction")
    compute_efficiency: Share | None = key(
        "share of tflops that matrix multiplications with many tokens reach", None
    )
    attention_efficiency: Share | None = key(
        "share of tflops that attention (queries with keys and values) reaches", None
    )
    attention_memory_efficiency: Share | None = key(
        "share of memory_tbps at which attention reads its queries and writes its results; null: "
        "memory_efficiency",
        None,
    )
    attention_power: Annotated[float, Field(ge=1, le=64)] | None = key(
        "p of roofline_power for attention; null: roofline_power", None
    )
    softmax_operations: Annotated[float, Field(ge=0, le=1e4)] | None = key(
        "operations that tflops makes in the time of one exponential; attention needs one for each query and "
        "key; null: none",
        None,
    )
    latent_efficiency: Share | None = key(
        "share of tflops that queries with cached latent vectors (MLA) reach; null: attention_efficiency",
        None,
    )
    memory_efficiency: Share | None = key("share of memory_tbps that reads of weights and caches reach", None)
    family: Literal[GPU_FAMILIES] | None = key(  # type: ignore[valid-type]
        "architecture; its fitted values replace keys that are not given", None
    )
    fused_efficiency: Share | None = key(
        "share of tflops that one call for all experts reaches; null: compute_efficiency", None
    )
    fused_memory_efficiency: Share | None = key(
        "share of memory_tbps that one call for all experts reaches; null: memory_efficiency", None
    )
    fp8_tflops: Tflops | None = key(
        "peak for numbers of 8 bits: experts of 8 bits or fewer are multiplied so; null: as 16 bits", None
    )
    fp8_efficiency: Share | None = key(
        "share of fp8_tflops that experts reach; null: their share of tflops", None
    )
    fp4_tflops: Tflops | None = key(
        "peak for numbers of 4 bits: experts of 4 bits or fewer are multiplied so; null: as 8 or 16 bits",
        None,
    )
    fp4_efficiency: Share | None = key(
        "share of fp4_tflops that experts reach; null: their share of tflops", None
    )
    roofline_power: Annotated[float, Field(ge=1, le=64)] | None = key(
        "p: compute time c and memory time m combine to (c^p + m^p)^(1/p); null: the longer one", None
    )
    tile_tokens: int = key(
        "tokens of a tile; the tokens of an expert are rounded up to whole tiles",
        1,
        ge=1,
        le=1024,
        unit="tokens",
    )
    expert_calls: Literal["single", "fused"] = key(
        "single: one launch for each expert; fused: one call for all experts of a layer", "single"
    )
    expert_overhead_us: Microseconds = key(
        "additional time of an expert with a launch of its own: launch, gather and scatter", 0.0
    )
    call_overhead_us: Microseconds = key("additional time of a fused call", 0.0)
    slice_us: Microseconds = key(
        "additional time of each expert, or slice of an expert, in a fused call", 0.0
    )
    kernel_overhead_us: Microseconds = key(
        "additional time of every kernel of dense parts and attention", 0.0
    )
    attention_overhead_us: Microseconds | None = key(
        "additional time of attention (queries with keys and values); null: kernel_overhead_us", None
    )
    expert_times: ExpertTimes = None
    reserved_gb: Annotated[float, Field(ge=0, le=1e6), unit("GB")] = key(
        "memory reserved for driver, libraries and fragmentation", 0.0
    )
    count: int = key(
        "number of GPUs, each with this memory, these rates and a link to the host", 1, ge=1, le=64
    )
    link_gbps: Gbps | None = key(
        "bandwidth of a GPU's link to other GPUs, in one direction; null: pcie_gbps", None
    )
    link_latency_us: Microseconds = key("additional time of an exchange between GPUs", 20.0)
    expert_buffers: int = key(
        "buffers in the GPU's memory for experts that arrive over PCIe", 2, ge=0, le=65_536, unit="experts"
    )


class Link(Section):
    """The links between DIMMs. A link has `link_gbps` in each direction; a bus has `link_gbps` in total."""

    lanes: int = key("serial lanes of a link", ge=1, le=256)
    lane_gbit_s: Annotated[Positive, unit("Gb/s")] = key("rate of a lane")
    link_gbps: WireGbps = key("bandwidth of a link, one direction")
    pj_per_bit: PicojoulesPerBit | None = key("energy of a link, both ends", None)
    topology: Literal["chain", "ring", "mesh", "full", "bus", "groups"] = key(
        "which DIMMs are linked; bus: one wire links all DIMMs and carries one packet at a time; groups: "
        "chains of group_dimms, with bridges over the host's channels"
    )
    ports: int = key("maximum number of links of a DIMM", ge=1, le=1023)
    hop_latency_ns: LinkLatency = key("latency of a hop, from the last byte sent until it can be forwarded")
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    group_dimms: int = key("DIMMs in a group, with topology: groups", 1, ge=1, le=1024)
    host_latency_ns: LinkLatency = key("latency of a packet in the host, with topology: groups", 0.0)


class Pcie(Section):
    """The PCIe link between host and GPU."""

    part: PartName = None
    gbps: WireGbps = key("bandwidth in one direction after line coding; it includes headers")
    latency_ns: LinkLatency = key("latency of a packet")
    copy_engines: int = key("number of copies at once; they share the link", ge=1, le=64)
    copy_overhead_us: CopyOverhead = 0.0
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    pj_per_bit: PicojoulesPerBit | None = key("energy of the link, both ends", None)


class Cxl(Section):
    """The CXL link between a memory device that computes, and host or GPU."""

    gbps: WireGbps = key("bandwidth in one direction; it includes headers")
    latency_ns: LinkLatency = key("latency of a packet")
    packet_bytes: PacketBytes
    header_bytes: HeaderBytes
    copy_engines: int = key("number of copies to a GPU at once; they share the link", 1, ge=1, le=64)
    copy_overhead_us: CopyOverhead = 0.0
    pj_per_bit: PicojoulesPerBit | None = key("energy of the link, both ends", None)


class Banks(Section):
    """Devices with units in their banks, which compute attention, or experts as well."""

    device: Text = key("device with units in its banks: a name of ndpsim list pim-hw, or the path of a file")
    count: int = key("number of these devices: stacks, cards", 1, ge=1, le=1024)
    level: Literal["bank", "bankgroup", "buffer"] | None = key(
        "place of the units, where the device has several; null: as its file says", None
    )
    computes: Literal["attention", "experts"] = key(
        "what they compute: attention; or experts, too: the DIMMs of the file are then these devices",
        "attention",
    )
    link_gbps: WireGbps | None = key(
        "bandwidth between the GPU and all devices in one direction; null: they are on the link of the GPU "
        "to the host",
        None,
    )
    link_latency_ns: LinkLatency = key("latency of that link", 0.0)


class Activation(Section):
    """The unit for non-linear functions beside the multipliers."""

    units: Count = key("number of values computed in parallel")
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
    concurrent_experts: int = key("maximum number of experts that move at once", ge=1, le=1024)
    pj_per_byte: PicojoulesPerByte | None = key("energy of a byte that enters and leaves the engine", None)
    static_mw: StaticMw = None
    area_mm2: AreaMm2 = None


class Published(Section):
    """Published figures of an NDP unit, for cross-checks; no simulation uses them."""

    gflops: Annotated[Positive, unit("GFLOPS")] | None = key("peak of a unit", None)
    bandwidth_gbps: Gbps | None = key("memory bandwidth inside its DIMM or device", None)
    memory_gb: Annotated[Positive, unit("GB")] | None = key(
        "capacity of its DIMM or device, as papers print it (2^30 B)", None
    )
    area_mm2: Area | None = key("area of all units of a DIMM", None)


_MULTIPLIERS: dict[str, Any] = {name: (kind | None, None) for name, kind in MULTIPLIERS.items()}
_Multipliers: Any = create_model("_Multipliers", __base__=Section, **_MULTIPLIERS)


class Ndp(_Multipliers):  # type: ignore[misc]
    """The NDP units of a DIMM, or of a device on a CXL link: one multiplier unit, and others.

    Each unit is a mapping, or the name of a file in ``rtl_params/``.
    """

    activation: Activation
    relayout: Relayout | None = None
    published: Published = Published()

    @property
    def multiplier(self) -> tuple[str, Multiplier]:
        """The multiplier unit: its name and its section."""
        return next((name, getattr(self, name)) for name in MULTIPLIERS if getattr(self, name) is not None)


class System(Section):
    """A hardware file: the memory, the host, a GPU, and DIMMs that compute.

    If a section is None, the machine does not have it.
    """

    name: Name = key("short name of the hardware")
    title: Text | None = key("description in one line", None)
    paper: Text | None = key("the publication with its numbers", None)
    dram: Dram
    dimm: Dimm = Dimm()
    host: Host = Host()
    gpu: Gpu | None = None
    link: Link | None = None
    pcie: Pcie | None = None
    cxl: Cxl | None = None
    ndp: Ndp | None = None
    banks: Banks | None = None
