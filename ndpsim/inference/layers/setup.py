"""A machine that is set up once for all policies of a call: costs, times and sizes of memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ndpsim.base.arguments import whole_number
from ndpsim.base.errors import InputError
from ndpsim.base.options.moe import MoeSettings
from ndpsim.base.options.serve import ServeSettings
from ndpsim.base.units import shortfall
from ndpsim.config import Hardware
from ndpsim.inference.layers.beside_host import checked_traffic
from ndpsim.inference.layers.bounds import Bounds
from ndpsim.inference.layers.costs import Costs
from ndpsim.inference.layers.estimates import estimates_of
from ndpsim.inference.layers.placement import check_total
from ndpsim.inference.layers.transfers import Transfers
from ndpsim.inference.layers.weights import RunWeights
from ndpsim.inference.processors import DenseTime, GpuMemory, Processors
from ndpsim.inference.processors.banks import AttentionDevices
from ndpsim.inference.processors.dense import attention_of
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.policies.choose import ChosenPolicy
from ndpsim.policies.views import Estimates, Machine
from ndpsim.simulate.machine import geometry_of
from ndpsim.workload.models import MoeShape
from ndpsim.workload.routing import Routing


class RunSize(NamedTuple):
    """The layers of a run, and how much they have to do.

    Attributes:
        layers: the model's layers, including dense ones.
        batch: sequences that are decoded together; the maximum if it changes.
        prefill_tokens: prompt tokens of a step; the maximum if it changes.
        most_tokens: maximum number of tokens of a layer in a step.
    """

    layers: tuple[int, ...]
    batch: int
    prefill_tokens: int
    most_tokens: int


@dataclass(frozen=True, eq=False)
class Setup:
    """A machine that is set up once; runs do not affect each other.

    Attributes:
        weights: the bits of all weights.
        memory: the contents of the GPU's memory.
        decode, prefill: times of attention and dense parts; `prefill` is None without one of known length.
        offline: the routing from which policies may learn.
        trace: the routing of the run; None if that follows from requests.
        bounds: None if they were not requested.
        devices: those that compute attention in their banks; None: the GPU does.
        bank_kv_bytes: the size of the KV cache on all of them.
    """

    processors: Processors
    weights: RunWeights
    memory: GpuMemory
    decode: DenseTime
    offline: Routing
    size: RunSize
    costs: Costs
    machine: Machine
    estimates: Estimates
    transfers: Transfers
    trace: Routing | None = None
    prefill: DenseTime | None = None
    bounds: Bounds | None = None
    devices: AttentionDevices | None = None
    bank_kv_bytes: int = 0

    @property
    def hardware(self) -> Hardware:
        """The hardware."""
        return self.processors.hardware

    @property
    def known_trace(self) -> Routing:
        """`trace` of a run that has one."""
        assert self.trace is not None
        return self.trace

    @property
    def dimm_kv_bytes(self) -> int:
        """Bytes of the KV cache on the DIMMs that compute."""
        return _dimm_kv_bytes(self.hardware, self.memory, self.bank_kv_bytes)


def check_link(hardware: Hardware, check_layer: object, arbitration: str) -> None:
    """Refuse settings that need host channels if the memory is behind a CXL link."""
    if check_layer is not None and hardware.experts_in_banks:
        problem = "not supported with experts in banks: sessions are of units on buffer chips"
        raise InputError(problem, "unsupported", key="check_layer")
    if hardware.system.cxl is None:
        return
    if hardware.system.dimm.count > 1:
        problem = f"{hardware.system.dimm.count} are not supported: there is one memory device on a CXL link"
        raise hardware.origins["dimm.count"].error(problem, "dimm.count", "unsupported")
    if arbitration != "host-first":
        problem = f"{arbitration} is for DIMMs on channels of a host, and the memory is on a CXL link"
        raise InputError(problem, "conflict", key="arbitration")
    if check_layer is not None:
        problem = "not supported with memory on a CXL link: sessions are of a host's channels"
        raise InputError(problem, "unsupported", key="check_layer")
    if Processors(hardware).has_cpu:
        key = "host.cpu_isa" if hardware.system.host.cpu_tflops is None else "host.cpu_tflops"
        problem = "a CPU that computes experts needs channels to memory, and there is a CXL link"
        raise hardware.origins[key].error(problem, key, "conflict")


def check_gpus(hardware: Hardware, attention: str) -> None:
    """Refuse several GPUs that would share one link, or devices with units in their banks."""
    gpu = hardware.system.gpu
    if gpu is None or gpu.count == 1:
        return
    problem = None
    if hardware.system.cxl is not None:
        problem = "have a PCIe link each, and there is one CXL link"
    elif hardware.experts_in_banks or attention == "ndp":
        problem = "are not supported beside units in banks"
    if problem is not None:
        raise hardware.origins["gpu.count"].error(f"{gpu.count} {problem}", "gpu.count", "unsupported")


def decode_context(settings: MoeSettings) -> int:
    """Tokens that a decoded token attends to, with all that is before it."""
    return max(settings.context, settings.prefix + (settings.prompt or 0))


def attention_devices(
    settings: MoeSettings | ServeSettings, hardware: Hardware, shape: MoeShape
) -> AttentionDevices | None:
    """The devices that compute attention in their banks; None: the GPU does.

    Raises:
        InputError: there are none, they cannot compute this attention, or the KV cache is to be elsewhere.
    """
    if settings.attention == "gpu":
        return None
    if settings.kv != "auto":
        problem = f"{settings.kv} is not possible: with attention=ndp the devices have the KV cache"
        raise InputError(problem, "conflict", key="kv")
    return AttentionDevices(hardware, shape, attention_of(shape), settings.kv_bits, settings.cache)


class CheckedMachine(NamedTuple):
    """A machine that has passed all checks that need no simulation."""

    machine: Machine
    costs: Costs
    transfers: Transfers


def check_machine(
    settings: MoeSettings | ServeSettings,
    processors: Processors,
    shape: MoeShape,
    weights: RunWeights,
    memory: GpuMemory,
    moe_layers: tuple[int, ...],
    bank_kv_bytes: int,
    policies: Iterable[ChosenPolicy],
) -> CheckedMachine:
    """The machine for policies. Everything is refused here that needs no simulation to be found.

    Args:
        settings: of the GPU's experts, the host's traffic, the arbitration and the cache of costs.
        moe_layers: the layers with experts.
        bank_kv_bytes: bytes of the KV cache on devices with units in their banks.
        policies: those that were asked for by name.

    Raises:
        InputError: something does not fit into memory, or does not go together.
    """
    hardware = processors.hardware
    traffic = checked_traffic(hardware, settings.host_gbps)
    costs = Costs(hardware, shape, weights.expert, settings.arbitration, settings.cache, traffic)
    if hardware.has_units:
        costs.check()
    geometry, own_memory = geometry_of(hardware), not hardware.host_reads_dimms
    channels = 1 if own_memory else geometry.channels
    channel = tuple(dimm % channels for dimm in range(geometry.dimms))
    transfers = Transfers(hardware, costs, channel)
    units = geometry.dimms if hardware.has_units else 0
    machine = Machine(
        shape,
        moe_layers,
        costs.expert_bytes,
        units,
        channel[:units],
        _room(settings.gpu_experts, shape, len(moe_layers), memory),
        processors.gpu.expert_buffers,
        hardware.system.name,
        processors.has_cpu,
        hardware.system.link is not None,
        weights.bits,
        weights.format,
        settings.attention,
    )
    if own_memory:
        experts = machine.expert_bytes * shape.routed_experts * len(moe_layers)
        _check_host_memory(hardware, shape, experts, memory.host_kv_bytes)
    on_dimms = _dimm_kv_bytes(hardware, memory, bank_kv_bytes)
    check_total(machine, hardware.system.dimm.count, hardware.dimm_bytes, on_dimms)
    for policy in policies:
        policy.check(machine)
    return CheckedMachine(machine, costs, transfers)


def set_up_machine(
    checked: CheckedMachine,
    processors: Processors,
    weights: RunWeights,
    memory: GpuMemory,
    decode: DenseTime,
    offline: Routing,
    size: RunSize,
    devices: AttentionDevices | None = None,
    bank_kv_bytes: int = 0,
) -> Setup:
    """Set up a machine for policies, with simulated costs.

    Args:
        decode: expected times of attention and dense parts, for estimates.
        devices: see `attention_devices`.
        bank_kv_bytes: see `check_machine`.
    """
    machine, costs, transfers = checked
    estimates = estimates_of(processors, costs, transfers, machine, decode, size.most_tokens)
    return Setup(
        processors,
        weights,
        memory,
        decode,
        offline,
        size,
        costs,
        machine,
        estimates,
        transfers,
        devices=devices,
        bank_kv_bytes=bank_kv_bytes,
    )


def _dimm_kv_bytes(hardware: Hardware, memory: GpuMemory, bank_kv_bytes: int) -> int:
    """Bytes of the KV cache on the DIMMs that compute."""
    if hardware.experts_in_banks:
        return bank_kv_bytes
    return memory.host_kv_bytes if hardware.host_reads_dimms else 0


def host_room_bytes(setup: Setup, replicas: Sequence[int]) -> int:
    """Bytes of the host's memory (its own, or the DIMMs) beside the experts.

    replicas: bits of a weight of further copies of every expert.
    """
    machine, hardware = setup.machine, setup.hardware
    layers, experts = machine.shape
    sizes = [weight_bytes(machine.model.expert, bits) for bits in replicas]
    dimms = hardware.system.dimm.count * hardware.dimm_bytes
    capacity = dimms if hardware.host_reads_dimms else hardware.host_memory.capacity_bytes
    return max(capacity - layers * experts * (machine.expert_bytes + sum(sizes)), 0)


def _room(gpu_experts: int | None, shape: MoeShape, layers: int, memory: GpuMemory) -> int:
    """Number of experts that fit the GPU's memory, over this number of layers."""
    if gpu_experts is None:
        return memory.experts * layers // shape.moe_layers
    asked = whole_number(gpu_experts, "gpu_experts", 0, shape.routed_experts) * layers
    if asked > memory.experts:
        problem = (
            f"{gpu_experts} experts of each of {layers} layers do not fit: the room for experts in the GPU's "
            f"memory {shortfall(asked * memory.expert_bytes, memory.experts_bytes)}"
        )
        raise InputError(problem, "too-large", key="gpu_experts")
    return asked


def _check_host_memory(hardware: Hardware, shape: MoeShape, experts: int, kv: int) -> None:
    """Make sure that the host's own memory has room for experts and KV cache, in bytes."""
    room = hardware.host_memory.capacity_bytes
    if experts + kv > room:
        problem = (
            f"{shape.name} does not fit: the host's memory {shortfall(experts + kv, room)}. "
            "Use more memory, fewer bits or a shorter context"
        )
        raise hardware.origins["host.memory.dimms"].error(problem, "host.memory", "too-large")
