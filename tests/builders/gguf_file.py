"""Writes GGUF files: a header by the published layout, and room for the data of its tensors."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

#: Numbers of formats, and weights and bytes of their blocks.
F32, F16, Q8_0, Q4_K, Q6_K, MXFP4, IQ4_K = (
    (0, 1, 4),
    (1, 1, 2),
    (8, 32, 34),
    (12, 256, 144),
    (14, 256, 210),
    (39, 32, 17),
    (139, 256, 144),
)


class Stored(NamedTuple):
    """A tensor: its name, its format and its sizes, the length of a row first."""

    name: str
    format: tuple[int, int, int]
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        count = 1
        for size in self.sizes:
            count *= size
        return count * self.format[2] // self.format[1]


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words.encode())) + words.encode()


def value(content: Any) -> bytes:
    """A value with its type: a number of 32 bits, a flag, a text, or a list of one of them."""
    if isinstance(content, list):
        kind = 8 if isinstance(content[0], str) else 7 if isinstance(content[0], bool) else 4
        return struct.pack("<IIQ", 9, kind, len(content)) + b"".join(value(each)[4:] for each in content)
    if isinstance(content, bool):
        return struct.pack("<I?", 7, content)
    return (
        struct.pack("<I", 8) + text(content) if isinstance(content, str) else struct.pack("<II", 4, content)
    )


def header(metadata: Mapping[str, Any], tensors: Sequence[Stored]) -> bytes:
    """The header, with each tensor at the next multiple of 32 bytes."""
    written = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    written += b"".join(text(key) + value(content) for key, content in metadata.items())
    offset = 0
    for tensor in tensors:
        written += text(tensor.name) + struct.pack(
            f"<I{len(tensor.sizes)}Q", len(tensor.sizes), *tensor.sizes
        )
        written += struct.pack("<IQ", tensor.format[0], offset)
        offset += -(-tensor.bytes // 32) * 32
    return written


def write(path: Path, metadata: Mapping[str, Any], tensors: Sequence[Stored]) -> Path:
    """Write a file whose data are a hole of the right length."""
    written = header(metadata, tensors)
    data = sum(-(-tensor.bytes // 32) * 32 for tensor in tensors)
    with path.open("wb") as file:
        file.write(written)
        file.truncate(-(-len(written) // 32) * 32 + data)
    return path


HIDDEN, INTER, EXPERTS, LAYERS = 512, 256, 4, 3

METADATA = {
    "general.architecture": "qwen3moe",
    "qwen3moe.block_count": LAYERS,
    "qwen3moe.embedding_length": HIDDEN,
    "qwen3moe.expert_count": EXPERTS,
    "qwen3moe.expert_used_count": 2,
    "qwen3moe.attention.head_count": 8,
    "qwen3moe.attention.head_count_kv": 2,
    "qwen3moe.attention.key_length": 128,
    "qwen3moe.attention.value_length": 128,
    "qwen3moe.context_length": 4096,
    "tokenizer.ggml.tokens": [f"t{number}" for number in range(100)],
}


def layer(number: int, down: tuple[int, int, int] = Q6_K) -> list[Stored]:
    """The tensors of a layer with experts."""
    tensors = {
        "attn_norm": (F32, (HIDDEN,)),
        "attn_q": (Q8_0, (HIDDEN, 8 * 128)),
        "attn_k": (Q8_0, (HIDDEN, 2 * 128)),
        "attn_v": (Q8_0, (HIDDEN, 2 * 128)),
        "attn_output": (Q8_0, (8 * 128, HIDDEN)),
        "ffn_norm": (F32, (HIDDEN,)),
        "ffn_gate_inp": (F32, (HIDDEN, EXPERTS)),
        "ffn_gate_exps": (Q4_K, (HIDDEN, INTER, EXPERTS)),
        "ffn_up_exps": (Q4_K, (HIDDEN, INTER, EXPERTS)),
        "ffn_down_exps": (down, (INTER, HIDDEN, EXPERTS)),
    }
    return [Stored(f"blk.{number}.{name}.weight", *content) for name, content in tensors.items()]


def dense_layer(number: int) -> list[Stored]:
    """The tensors of a layer without experts."""
    kept = [tensor for tensor in layer(number) if "exps" not in tensor.name and "gate_inp" not in tensor.name]
    sizes = {"gate": (HIDDEN, 1024), "up": (HIDDEN, 1024), "down": (1024, HIDDEN)}
    return kept + [
        Stored(f"blk.{number}.ffn_{name}.weight", Q4_K, content) for name, content in sizes.items()
    ]


OUTER = [
    Stored("token_embd.weight", Q4_K, (HIDDEN, 100)),
    Stored("output.weight", Q6_K, (HIDDEN, 100)),
    Stored("output_norm.weight", F32, (HIDDEN,)),
]


def small() -> list[Stored]:
    """A model of three layers, the first of them dense."""
    return [*OUTER, *dense_layer(0), *layer(1), *layer(2, Q4_K)]
