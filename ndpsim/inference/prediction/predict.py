"""``predict``: tokens/s of a machine built from parts, and of the same machine with better parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from ndpsim.base.arguments import flag, progress_function, several, text
from ndpsim.base.errors import InputError
from ndpsim.base.options.predict import PREDICT
from ndpsim.config import Hardware
from ndpsim.inference.prediction.band import band_of
from ndpsim.inference.prediction.machine import OwnMachine, parse_memory
from ndpsim.inference.prediction.phases import Work, decode, prefill
from ndpsim.inference.prediction.programs import PROGRAMS, program_of
from ndpsim.inference.prediction.upgrades import UPGRADES
from ndpsim.simulate.results.prediction import PhasePrediction, Prediction, Upgrade
from ndpsim.workload.models import load_model, load_moe_model
from ndpsim.workload.models.weights import weight_file

_ALL_OF_IT = 1.1  # factor of the weights' size, for the KV cache and work space on a CPU alone


def predict(
    cpu: str,
    memory: str,
    gpu: str,
    model: str,
    weights: str = "q4_k_m",
    prompt: int = 512,
    sockets: int = 1,
    link: str = "pcie-4-x16",
    generated: int = 128,
    program: str = "ik_llama.cpp",
    chunk: int | None = None,
    n_cpu_moe: int | None = None,
    memory_gb: float | None = None,
    kv_bits: int = 16,
    sets: tuple[str, ...] = (),
    upgrades: bool = True,
    seed: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Prediction:
    """Predict tokens/s of one sequence in prefill and decode, and the gain from upgrades.

    Every number comes from `run_moe` on a machine with the rates of its parts.

    Args:
        cpu, gpu, link: names of parts, or paths of part files; gpu "none": the CPU computes the whole model.
        memory: PARTxDIMMS, for instance ``ddr5-4800x16``, over all sockets.
        model: as in `load_model`.
        weights: the name of a weight file (`ndpsim list weights`).
        prompt, generated: tokens; a decoded token attends to the prompt and half of the generated ones.
        sockets: number of CPUs; each reads weights from its own memory.
        program: the program that runs the model, of `ndpsim.inference.prediction.programs`.
        chunk: prompt tokens that are computed at once; None: as the program does by default.
        n_cpu_moe: number of layers, from the first, whose experts are in host memory; None: the smallest that
            fits the GPU's memory.
        memory_gb: size of the host's memory; None: as much as the model needs.
        kv_bits: bits of a value in the KV cache.
        sets: changes of the machine, KEY=VALUE, as in `load_hardware`.
        upgrades: also run the machine with each part changed.
        seed: the seed of the tokens' choice of experts.
        progress: called with the share of the work that is done.

    Raises:
        InputError: a part, model or weight file does not exist, or the model does not fit.
    """
    progress = progress_function(progress)
    shape = load_moe_model(model)
    name, dimms = parse_memory(text(memory, "memory"))
    chosen = program_of(program)
    machine = OwnMachine(
        cpu=text(cpu, "cpu"),
        sockets=PREDICT["sockets"].checked(sockets),
        memory=name,
        dimms=dimms,
        gpu=text(gpu, "gpu"),
        link=text(link, "link"),
        memory_gb=None if memory_gb is None else PREDICT["memory-gb"].checked(memory_gb),
        pinned=chosen.pinned,
        matrix_units=chosen.matrix_units,
        sets=several(sets, "sets", text),
    )
    upgrades = flag(upgrades, "upgrades")
    if n_cpu_moe is not None:
        n_cpu_moe = PREDICT["n-cpu-moe"].checked(n_cpu_moe)
    if machine.cpu_alone:
        chosen, n_cpu_moe, upgrades = PROGRAMS["llama.cpp"], None, False
    work = Work(
        model=model,
        policy=chosen.asked_policy(shape, n_cpu_moe),
        prompt=PREDICT["prompt"].checked(prompt),
        generated=PREDICT["generated"].checked(generated),
        chunk=chosen.chunk if chunk is None else PREDICT["chunk"].checked(chunk),
        weights={"weights": weights, "kv_bits": kv_bits},
        seed=seed,
    )
    asked = UPGRADES if upgrades else {}

    def part_of(place: int) -> Callable[[float], None]:
        return lambda share: progress((place + share) / (1 + len(asked)))

    base = _phases(machine, work, part_of(0))
    found = [
        _upgraded(upgrade, machine, work, base, part_of(place + 1)) for place, upgrade in enumerate(asked)
    ]
    return replace(base, upgrades=tuple(found))


def _phases(machine: OwnMachine, work: Work, progress: Callable[[float], None]) -> Prediction:
    """Simulate the machine without upgrades."""
    # Memory for all experts, including those on the GPU: programs map the whole file.
    file = weight_file(work.weights["weights"], load_model(work.model))
    experts = sum(tensor.bytes for group in ("gate", "up", "down") for tensor in file.of_class(group))
    hardware = machine.hardware(_ALL_OF_IT * file.bytes if machine.cpu_alone else experts)
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
        prefill=_phase("prefill", work.prompt, prompt_ns, prompt_parts),
        decode=_phase("decode", 1, done.step_ns, step_parts),
        gpu_bytes=gpu_bytes,
        host_bytes=host_bytes,
        upgrades=(),
    )


def _on_the_cpu(parts_ns: Mapping[str, float]) -> dict[str, float]:
    """Parts of the time if the CPU replaces the GPU."""
    return {name.replace("on the GPU", "on the CPU"): ns for name, ns in parts_ns.items()}


def _phase(name: str, tokens: int, time_ns: float, parts_ns: Mapping[str, float]) -> PhasePrediction:
    rate = tokens / time_ns * 1e9
    ordered = dict(sorted(parts_ns.items(), key=lambda part: -part[1]))
    return PhasePrediction(rate, time_ns, ordered, next(iter(ordered)), band_of(name, rate))


def _config(
    machine: OwnMachine, work: Work, hardware: Hardware, of_run: Mapping[str, Any]
) -> Mapping[str, Any]:
    return {
        "machine": {**asdict(machine), "sets": list(machine.sets)},
        "work": {**asdict(work), "weights": dict(work.weights)},
        "hardware": of_run["hardware"],
        "rates": {row.key: [row.value, row.unit, row.origin] for row in hardware.rows() if _is_rate(row.key)},
    }


def _is_rate(key: str) -> bool:
    return key.startswith(("host.cpu_", "gpu.", "pcie.", "derived.host_memory"))


def _upgraded(
    name: str, machine: OwnMachine, work: Work, base: Prediction, progress: Callable[[float], None]
) -> Upgrade:
    """One of the upgrades, or the reason why it is not possible."""
    try:
        change, better, policy = UPGRADES[name](machine)
        found = _phases(better, work if policy is None else replace(work, policy=policy), progress)
    except InputError as error:
        return Upgrade(name, "", problem=str(error))
    return Upgrade(
        name,
        change,
        found.prefill.tokens_per_s,
        found.decode.tokens_per_s,
        found.prefill.tokens_per_s / base.prefill.tokens_per_s,
        found.decode.tokens_per_s / base.decode.tokens_per_s,
    )
