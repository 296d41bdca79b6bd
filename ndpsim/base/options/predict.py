"""``predict``: tokens/s of a machine put together from parts."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.base.arguments import Sets
from ndpsim.base.options.hardware import SET, YAML, model_of
from ndpsim.base.options.moe import MOE, ROUTING, SIMULATED, WEIGHTS
from ndpsim.base.options.routing import SEED
from ndpsim.base.options.settings import NEEDED, Settings, like, option, table_of
from ndpsim.base.options.table import Flag, Kind, Real, Whole

MOST_TOKENS = 1 << 20  #: Maximum number of tokens of a prompt, or of generated tokens.
_PART = "NAME|FILE"

_MACHINE, _PROGRAM = "Machine", "Program"


class PredictSettings(Settings):
    """A machine of parts, a model, and how much it computes."""

    sections = _MACHINE, SIMULATED, WEIGHTS, _PROGRAM, ROUTING

    cpu: str = option(
        NEEDED,
        Kind(),
        "CPU: a part of ndpsim list parts.",
        _MACHINE,
        form=_PART,
        names="parts:cpus",
        files=YAML,
        required=True,
    )
    memory: str = option(
        NEEDED,
        Kind(),
        "Memory: a part, and the number of DIMMs over all sockets.",
        _MACHINE,
        form="NAMExDIMMS",
        names="dimms",
        required=True,
    )
    gpu: str = option(
        NEEDED,
        Kind(),
        "GPU: a part; none: the CPU computes the whole model.",
        _MACHINE,
        form=_PART,
        names="parts:gpus none",
        files=YAML,
        required=True,
    )
    model: str = like(model_of("deepseek-v3"), SIMULATED)
    weights: str | None = option(
        None,
        Kind(form="NAME"),
        "Weight file: a name of ndpsim list weights.",
        WEIGHTS,
        otherwise="as the model's own file says, else q4_k_m",
        names="weights",
    )
    prompt: int = option(512, Whole(1, MOST_TOKENS), "Tokens of the prompt.", ROUTING)
    sockets: int = option(1, Whole(1, 8), "Number of CPUs; each reads from its own memory.", _MACHINE)
    link: str = option(
        "pcie-4-x16",
        Kind(),
        "Link between CPU and GPU: a part.",
        _MACHINE,
        form=_PART,
        names="parts:links",
        files=YAML,
    )
    generated: int = option(
        128,
        Whole(1, MOST_TOKENS),
        "Tokens generated after the prompt.",
        ROUTING,
        told="tokens after the prompt; a decoded one attends to the prompt and half of these",
    )
    program: str = option(
        "ik_llama.cpp", Kind(form="NAME"), "Program that runs the model.", _PROGRAM, names="programs"
    )
    chunk: int | None = option(
        None, Whole(1), "Prompt tokens that are computed at once.", _PROGRAM, otherwise="the program's"
    )
    n_cpu_moe: int | None = option(
        None,
        Whole(0, 1 << 20),
        "Number of layers, from the first, whose experts are in host memory.",
        _PROGRAM,
        otherwise="the smallest that fits",
        form="LAYERS",
    )
    memory_gb: float | None = option(
        None,
        Real(0, form="GB"),
        "Capacity of all DIMMs together.",
        _MACHINE,
        otherwise="what the model needs",
    )
    kv_bits: int = like(MOE["kv-bits"], WEIGHTS)
    sets: Sets = like(SET, SIMULATED, default=(), accepts="Sets")
    upgrades: bool = option(
        True,
        Flag(),
        "Do not simulate upgrades.",
        _PROGRAM,
        told="whether to run the machine with each part changed, too",
        name="no-upgrades",
        stated=None,
        negates=True,
    )
    seed: int = like(replace(SEED, help="Seed of the choice of experts."), ROUTING)


PREDICT = table_of(PredictSettings)
