"""Programs that run a model on a CPU and a GPU, as data.

The machine has the rates. A program decides which processor computes which experts, how many tokens of a
prompt are computed at once, whether copies to the GPU come from pinned memory, and which instructions kernels
use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ndpsim.base.arguments import choice
from ndpsim.workload.models import MoeShape


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        policy: policy of the experts, a name of `ndpsim list policies`.
        chunk: default number of prompt tokens that are computed at once.
        offload_tokens: mean number of tokens of an expert from which a chunk's experts are copied to the GPU;
            0: a chunk of 32 tokens is enough; None: never.
        pinned: whether copies come from pinned memory; if not, the CPU first copies weights to a pinned
            buffer.
        matrix_units: whether its kernels for the weights' format use AMX if the CPU has it.
        kernels: program whose kernels, measured by format, stand for those of its own; None: they were not.
        copies: whether each socket reads a copy of the weights in its own memory.
        source: the source of these values.
    """

    policy: str
    chunk: int
    offload_tokens: int | None
    pinned: bool
    matrix_units: bool
    kernels: str | None
    copies: bool
    source: str

    def asked_policy(self, model: MoeShape, cpu_layers: int | None) -> str:
        """The policy with its parameters; `cpu_layers`: layers whose experts are in the host's memory."""
        if self.policy != "llama-cpp":
            if cpu_layers is None:
                return self.policy
            on_cpu = cpu_layers - sum(layer < cpu_layers for layer in model.dense_layers)
            share = max(0.0, 1 - on_cpu / model.moe_layers)
            return f"{self.policy}:strategy=front-loading,gpu_share={share:.6g}"
        parameters = [] if cpu_layers is None else [f"n_cpu_moe={cpu_layers}"]
        if self.offload_tokens is None:
            parameters.append("offload=false")
        elif self.offload_tokens:
            tokens = -(-self.offload_tokens * model.routed_experts // model.experts_per_token)
            parameters.append(f"offload_tokens={tokens}")
        return ":".join(["llama-cpp", ",".join(parameters)]) if parameters else "llama-cpp"


#: By name.
PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {
        "ik_llama.cpp": Program(
            "llama-cpp", 512, 32, False, False, "ik_llama.cpp", False,
            "ikawrakow/ik_llama.cpp 8337e4c: ggml-cuda.cu (op offload from 32 x experts / experts of a token "
            "on), common.h (n_ubatch 512); weights are mapped from their file",
        ),
        "ik_llama.cpp-repacked": Program(
            "llama-cpp", 512, None, False, False, "ik_llama.cpp-repacked", False,
            "ikawrakow/ik_llama.cpp 8337e4c: weights repacked for the CPU (_R4 files, -rtr) stay there",
        ),
        "llama.cpp": Program(
            "llama-cpp", 512, 0, False, False, "llama.cpp", False,
            "ggml-org/llama.cpp 0054c01: ggml-backend.cpp, GGML_OP_OFFLOAD_MIN_BATCH 32; common.h (n_ubatch "
            "512); weights are mapped from their file",
        ),
        "ktransformers": Program(
            "ktransformers", 8192, None, True, False, "ik_llama.cpp", True,
            "kvcache-ai/ktransformers 95009ea: doc/en/DeepseekR1_V3_tutorial.md, llamafile kernels for GGUF "
            "weights, which are an older form of ik_llama.cpp's; chunk_size 8192; a copy of the weights for "
            "each socket (USE_NUMA)",
        ),
        "ktransformers-amx": Program(
            "ktransformers", 8192, None, True, True, None, True,
            "kvcache-ai/ktransformers 95009ea: doc/en/AMX.md, AMX kernels for weights of its own formats",
        ),
        "streaming": Program(
            "llama-cpp", 20_000, 0, True, False, None, False,
            "brontoguana/krasis 2a419dc, README: a prefill goes through the GPU layer after layer, decode "
            "computes experts on the CPU",
        ),
    }
)  # fmt: skip


def program_of(name: str) -> Program:
    """The program of that name.

    Raises:
        InputError: there is none.
    """
    return PROGRAMS[choice(name, "program", PROGRAMS, "program")]
