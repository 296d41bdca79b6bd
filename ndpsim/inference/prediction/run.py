"""``predict``: tokens/s of a machine built from parts, and of the same machine with better parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from ndpsim.base.arguments import progress_function, setting_texts
from ndpsim.base.errors import InputError
from ndpsim.base.options.predict import PredictSettings
from ndpsim.base.options.settings import called_with
from ndpsim.config import Hardware
from ndpsim.inference.prediction.band import band_of, is_known
from ndpsim.inference.prediction.kernels import kernels_of
from ndpsim.inference.prediction.machine import NO_GPU, OwnMachine, parse_memory
from ndpsim.inference.prediction.phases import Workload, decode, prefill
from ndpsim.inference.prediction.programs import PROGRAMS, program_of
from ndpsim.inference.prediction.upgrades import UPGRADES, Upgraded
from ndpsim.simulate.results.prediction import PhasePrediction, Prediction, Upgrade
from ndpsim.workload.models import MoeShape, load_model
from ndpsim.workload.models.stored import Tensor, WeightFile
from ndpsim.workload.models.weights import OWN, own_weight_file, weight_file

EXPERT_CLASSES = ("gate", "up", "down")
NOT_MULTIPLIED = ("embedding", "norms", "mla_copies", "others")

_USUAL = "q4_k_m"  # the file of a model that has none of its own
_ALL_OF_IT = 1.1  # factor of the weights' size, for the KV cache and work space on a CPU alone


@called_with(PredictSettings)
def predict(
    settings: PredictSettings, *, progress: Callable[[float], None] | bool | None = None
) -> Prediction:
    """Predict tokens/s of one sequence in prefill and decode, and the gain from upgrades.

    Every number comes from `run_moe` on a machine with the rates of its parts.

    >>> ndpsim.predict("ryzen-9-7950x", "ddr5-5200x2", "rtx-4090", "deepseek-v3")  # doctest: +SKIP

    Args:
        progress: called with the share of the work that is done.

    Raises:
        InputError: a part, model or weight file does not exist, or the model does not fit.
    """
    progress = progress_function(progress)
    shape = load_model(settings.model)
    name, dimms = parse_memory(settings.memory)
    chosen = program_of(settings.program)
    weights = _own_or_usual(shape) if settings.weights is None else settings.weights
    machine = OwnMachine(
        cpu=settings.cpu,
        sockets=settings.sockets,
        memory=name,
        dimms=dimms,
        gpu=settings.gpu,
        link=settings.link,
        memory_gb=settings.memory_gb,
        pinned=chosen.pinned,
        matrix_units=chosen.matrix_units,
        kernels=kernels_of(chosen.kernels, _on_cpu(weight_file(weights, shape), settings.gpu)),
        copies=chosen.copies,
        sets=setting_texts(settings.sets),
    )
    n_cpu_moe, upgrades = settings.n_cpu_moe, settings.upgrades
    if not shape.has_experts and n_cpu_moe is not None:
        raise InputError(f"does not apply to {shape.name}, which has no experts", "conflict", key="n_cpu_moe")
    if machine.cpu_alone:
        chosen, n_cpu_moe, upgrades = PROGRAMS["llama.cpp"], None, False
    work = Workload(
        model=settings.model,
        policy=chosen.asked_policy(shape, n_cpu_moe) if shape.has_experts else "",
        prompt=settings.prompt,
        generated=settings.generated,
        chunk=chosen.chunk if settings.chunk is None else settings.chunk,
        weights={
            "weights": weights,
            "kv_bits": settings.kv_bits,
        },
        seed=settings.seed,
    )
    asked = _upgrades_of(shape) if upgrades else {}

    def part_of(number: int) -> Callable[[float], None]:
        return lambda share: progress((number + share) / (1 + len(asked)))

    base = _phases(machine, work, part_of(0))
    found = [
        _upgraded(upgrade, machine, work, base, part_of(number)) for number, upgrade in enumerate(asked, 1)
    ]
    return replace(base, upgrades=tuple(found))


def _own_or_usual(model: MoeShape) -> str:
    """The weights of a model that is given without a name of a weight file."""
    return _USUAL if own_weight_file(model) is None else OWN


def _on_cpu(file: WeightFile, gpu: str) -> list[Tensor]:
    """The tensors that the CPU multiplies: the experts beside a GPU, else all but the embedding."""
    experts = _of_experts(file)
    alone = [tensor for tensor in file.tensors if tensor.group not in NOT_MULTIPLIED]
    return alone if gpu == NO_GPU or not experts else experts


def _of_experts(file: WeightFile) -> list[Tensor]:
    return [tensor for group in EXPERT_CLASSES for tensor in file.of_class(group)]


def _upgrades_of(model: MoeShape) -> Mapping[str, Callable[[OwnMachine], Upgraded]]:
    """The upgrades that may help a model; units in DIMMs compute only experts."""
    return {name: upgrade for name, upgrade in UPGRADES.items() if model.has_experts or name != "ndp"}


def _phases(machine: OwnMachine, work: Workload, progress: Callable[[float], None]) -> Prediction:
    """Simulate the machine without upgrades."""
    # Memory for all experts, including those on the GPU: programs map the whole file.
    file = weight_file(work.weights["weights"], load_model(work.model))
    experts = sum(tensor.bytes for tensor in _of_experts(file))
    needed = _ALL_OF_IT * file.bytes if machine.cpu_alone else experts
    hardware = machine.hardware(max(needed, 1))
    done = decode(hardware, work)
    progress(0.5)
    prompt_ns, prompt_parts = prefill(hardware, work, lambda share: progress(0.5 + share / 2))
    gpu_bytes, host_bytes, step_parts = done.config["gpu_bytes"], done.host_bytes, done.parts_ns
    if machine.cpu_alone:
        gpu_bytes, host_bytes = {}, sum(gpu_bytes.values()) + experts
        prompt_parts, step_parts = _on_the_cpu(prompt_parts), _on_the_cpu(step_parts)
    return Prediction(
        config=_config(machine, work, hardware, done.config),
        title=f"{work.model} on {machine.title}",
        prefill=_phase(machine.kind, "prefill", work.prompt, prompt_ns, prompt_parts),
        decode=_phase(machine.kind, "decode", 1, done.step_ns, step_parts),
        gpu_bytes=gpu_bytes,
        host_bytes=host_bytes,
        upgrades=(),
    )


def _on_the_cpu(parts_ns: Mapping[str, float]) -> dict[str, float]:
    """Parts of the time if the CPU replaces the GPU."""
    return {name.replace("on the GPU", "on the CPU"): ns for name, ns in parts_ns.items()}


def _phase(
    kind: str, name: str, tokens: int, time_ns: float, parts_ns: Mapping[str, float]
) -> PhasePrediction:
    rate = tokens / time_ns * 1e9
    ordered = dict(sorted(parts_ns.items(), key=lambda part: -part[1]))
    known = rate if is_known(kind, name) else None
    return PhasePrediction(known, time_ns, ordered, next(iter(ordered)), band_of(kind, name, rate))


def _config(
    machine: OwnMachine, work: Workload, hardware: Hardware, of_run: Mapping[str, Any]
) -> Mapping[str, Any]:
    return {
        "machine": {
            **asdict(machine),
            "kernels": machine.kernels._asdict(),
            "sets": list(machine.sets),
            "kind": machine.kind,
        },
        "work": {**asdict(work), "weights": dict(work.weights)},
        "hardware": of_run["hardware"],
        "rates": {row.key: [row.value, row.unit, row.origin] for row in hardware.rows() if _is_rate(row.key)},
    }


def _is_rate(key: str) -> bool:
    return key.startswith(("host.cpu_", "gpu.", "pcie.", "derived.host_memory"))


def _upgraded(
    name: str, machine: OwnMachine, work: Workload, base: Prediction, progress: Callable[[float], None]
) -> Upgrade:
    """One of the upgrades, or the reason why it is not possible."""
    try:
        change, better, others = UPGRADES[name](machine)
        found = _phases(better, replace(work, **others), progress)
    except InputError as error:
        return Upgrade(name, "", problem=str(error))
    return Upgrade(
        name,
        change,
        found.prefill.tokens_per_s,
        found.decode.tokens_per_s,
        base.prefill.time_ns / found.prefill.time_ns,
        base.decode.time_ns / found.decode.time_ns,
    )
