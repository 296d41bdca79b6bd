"""``attention`` on a machine: a layer's attention of decoded tokens on its devices, or on its GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from ndpsim.base.arguments import Sets, setting_texts
from ndpsim.base.errors import InputError
from ndpsim.base.options.pim import ATTENTION
from ndpsim.base.reported import Reported, quantity
from ndpsim.config import Hardware, load_hardware
from ndpsim.inference.processors.banks import AttentionDevices
from ndpsim.inference.processors.dense import attention_of
from ndpsim.inference.processors.machine import Processors
from ndpsim.inference.processors.operations import Step
from ndpsim.simulate.results.cache import ResultCache
from ndpsim.workload.models import MoeShape, load_model

_ON_GPU = "gpu"


@dataclass(frozen=True, eq=False, repr=False)
class LayerAttention(Reported):
    """Queries with keys and values of a layer: scores, softmax and context, without projections.

    Attributes:
        engine: "gpu", or the place of the units in the banks.
        time_ns: its time: that of the engine, and of transfers to and from devices.
        engine_ns: the time of the GPU, or of the device with the most to do.
        in_bytes, out_bytes: to all devices and back; 0 on the GPU.
        kv_bytes: keys and values that are read, once each.
        config: everything that was used.
    """

    engine: str
    time_ns: float = field(metadata=quantity("time"))
    engine_ns: float = field(metadata=quantity("time of the engine"))
    in_bytes: int = field(metadata=quantity("bytes to the devices"))
    out_bytes: int = field(metadata=quantity("bytes from the devices"))
    kv_bytes: int = field(metadata=quantity("bytes of keys and values"))
    config: Mapping[str, Any] = field(repr=False)


def simulate_layer_attention(
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware,
    model: str | PathLike[str] | MoeShape,
    context: int,
    batch: int = 1,
    engine: str | None = None,
    sets: Sets = (),
    cache: bool | ResultCache = True,
) -> LayerAttention:
    """Simulate a layer's attention of decoded tokens on a machine: on all of its devices, or on its GPU.

    The time of the GPU is that of its roofline (`Processors.step_time`).

    >>> ndpsim.simulate_layer_attention("dgx-attacc", "mixtral-8x7b", context=64, engine="gpu").engine
    'gpu'

    Args:
        hw: a machine with devices with units in their banks, or with "gpu" any machine with a GPU.
        model: a model; of layers of different kinds, the first kind.
        context: tokens in the cache of a sequence, with the new one.
        batch: sequences.
        engine: "gpu", or the place of the units: "bank", "bankgroup", "buffer"; None: as the hardware says.
        sets: as in `load_hardware`.
        cache: as in `simulate_expert`.

    Raises:
        InputError: an argument is wrong, or the machine has no such engine.
    """
    ATTENTION["context"].checked(context)
    ATTENTION["batch"].checked(batch)
    sets = setting_texts(sets)
    engine = None if engine is None else ATTENTION["engine"].checked(engine)
    places = () if engine in (None, _ON_GPU) else (f"banks.level={engine}",)
    if places and isinstance(hw, Hardware):
        raise InputError("is set by the hardware file: banks.level", "conflict", key="engine")
    hardware, shape, step = load_hardware(hw, (*sets, *places)), load_model(model), Step(batch, context)
    kinds = attention_of(shape)
    config = {"hardware": hardware.to_dict(), "model": shape.name, "context": context, "batch": batch}
    read = step.read_bytes(kinds[0])
    if engine == _ON_GPU:
        done = Processors(hardware).step_time(shape, step).operations
        ns = sum(one.time_ns for one in done if one.name in ("attend", "delta_rule") and one.kind == 0)
        return LayerAttention(_ON_GPU, ns, ns, 0, 0, read, config)
    devices = AttentionDevices(hardware, shape, kinds, 16, cache)
    devices.check_lengths(context)
    if not devices.holds(0):
        raise InputError(
            f"the first layers of {shape.name} have linear attention", "unsupported", key="model"
        )
    found, section = devices.attention(0, step, 0.0, 0.0), hardware.system.banks
    assert section is not None
    link, latency_ns = section.link_gbps, section.link_latency_ns
    if link is None:
        host = hardware.gpu_link
        link, latency_ns = (float("inf"), 0.0) if host is None else (host.gbps, host.latency_ns)
    transfers_ns = 2 * latency_ns + (found.in_bytes + found.out_bytes) / link
    level = devices.device.unit.get("level", "bank")
    return LayerAttention(
        level, found.time_ns + transfers_ns, found.time_ns, found.in_bytes, found.out_bytes, read, config
    )
