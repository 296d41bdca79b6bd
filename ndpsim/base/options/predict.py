"""``predict``: tokens/s of a machine put together from parts."""

from __future__ import annotations

from dataclasses import replace

from ndpsim.base.options.generated import SEED
from ndpsim.base.options.hardware import SET, YAML, model_of
from ndpsim.base.options.kinds import Flag, Kind, Real, Whole
from ndpsim.base.options.moe import MOE
from ndpsim.base.options.table import Parameter, table

MOST_TOKENS = 1 << 20  #: Maximum number of tokens of a prompt, or of generated tokens.
_PART = "NAME|FILE"

PREDICT = table(
    {
        "Machine": (
            Parameter(
                "cpu",
                "CPU: a part of ndpsim list parts.",
                form=_PART,
                names="parts:cpus",
                files=YAML,
                required=True,
            ),
            Parameter("sockets", "Number of CPUs.", Whole(1, 8), 1),
            Parameter(
                "memory",
                "Memory: a part, and the number of DIMMs over all sockets.",
                form="NAMExDIMMS",
                names="dimms",
                required=True,
            ),
            Parameter(
                "memory-gb",
                "Capacity of all DIMMs together.",
                Real(0, form="GB"),
                otherwise="what the model needs",
            ),
            Parameter(
                "gpu",
                "GPU: a part; none: the CPU computes the whole model.",
                form=_PART,
                names="parts:gpus none",
                files=YAML,
                required=True,
            ),
            Parameter(
                "link",
                "Link between CPU and GPU: a part.",
                default="pcie-4-x16",
                form=_PART,
                names="parts:links",
                files=YAML,
            ),
        ),
        "What is simulated": (model_of("deepseek-v3"), SET),
        "Weights": (
            Parameter(
                "weights",
                "Weight file: a name of ndpsim list weights.",
                Kind(form="NAME"),
                "q4_k_m",
                names="weights",
            ),
            MOE["kv-bits"],
        ),
        "Program": (
            Parameter(
                "program", "Program that runs the model.", Kind(form="NAME"), "ik_llama.cpp", names="programs"
            ),
            Parameter(
                "chunk", "Prompt tokens that are computed at once.", Whole(1), otherwise="the program's"
            ),
            Parameter(
                "n-cpu-moe",
                "Number of layers, from the first, whose experts are in host memory.",
                Whole(0, 1 << 20),
                otherwise="the smallest that fits",
                form="LAYERS",
            ),
            Parameter("no-upgrades", "Do not simulate upgrades.", Flag()),
        ),
        "Routing": (
            Parameter("prompt", "Tokens of the prompt.", Whole(1, MOST_TOKENS), 512),
            Parameter("generated", "Tokens generated after the prompt.", Whole(1, MOST_TOKENS), 128),
            replace(SEED, help="Seed of the choice of experts."),
        ),
    }
)
