"""Block formats: the size of a block of weights in a file.

Sizes of K-, I- and legacy quants are those of the structures in ``ggml/src/ggml-common.h`` of
ggml-org/llama.cpp at 01243c5, where comments state the bits of a weight of most formats. NVFP4, Q1_0 and the
ternary TQ quants are as in `GGML_QUANT_SIZES` of the package gguf 0.19.0. Those of the IQ_K,
IQ_KS and IQ_KT quants are of the same file of ikawrakow/ik_llama.cpp at 8337e4c; their additional bytes of a
row are ``row_meta_size`` of its ``ggml/src/ggml.c``. INT4 and INT8 are GPTQ's groups of 128 with a scale of
16 bits; FP8 is without its scales, one of 32 bits for 128 x 128 weights (0.02% of its bits).

Repacked variants (``_R4``, ``_R8``) interleave rows and have the bits of the plain ones, except for IQ1_S and
IQ1_M, whose R4 variants are formats of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType


@dataclass(frozen=True)
class Block:
    """A format of weights.

    Attributes:
        name: the name of llama.cpp in lower case.
        weights: number of weights of a block, along a row.
        bytes: the bytes of a block.
        group: weights that share a scale; 0: there are no scales.
        minimum: a group has a minimum beside its scale.
        zero_point_bits: bits of the minimum, or of a zero point; None: as many as the scale has.
        row_bytes: additional bytes of a row.
        fallback: the format of rows that are not divisible into whole blocks; "": F16.
    """

    name: str
    weights: int
    bytes: int
    group: int = 0
    minimum: bool = False
    zero_point_bits: int | None = None
    row_bytes: int = 0
    fallback: str = ""

    @property
    def bits(self) -> Fraction:
        """Bits of a weight, without the additional bytes of a row."""
        return Fraction(8 * self.bytes, self.weights)

    def row_size(self, columns: int) -> int:
        """Bytes of a row, of `columns` weights in whole blocks."""
        return columns // self.weights * self.bytes + self.row_bytes

    def size(self, rows: int, columns: int) -> int:
        """Bytes of `rows` rows of `columns` weights; the last block may be a part of one."""
        return -(-rows * columns * self.bytes // self.weights) + rows * self.row_bytes


def grouped(
    name: str, bits: int, group: int = 0, scale_bits: int = 0, zero_point_bits: int = 0, rows: int = 1
) -> Block:
    """A format with a scale and a zero point for `group` weights of a row, in `rows` rows.

    A `group` of 0 is a whole row: its scale is among the bytes of the row. Without bits of a scale there is
    none.
    """
    of_group = scale_bits + zero_point_bits
    if not group or not of_group:
        return Block(name, 8, bits, row_bytes=-(-of_group // 8))
    return Block(
        name,
        8 * group * rows,
        group * rows * bits + of_group,
        group,
        zero_point_bits > 0,
        zero_point_bits if zero_point_bits else None,
    )


_K = 256

_ALL = (
    Block("f32", 1, 4),
    Block("f16", 1, 2),
    Block("bf16", 1, 2),
    Block("fp8", 1, 1),
    Block("int8", 128, 128 + 2, 128),
    Block("int4", 128, 64 + 2, 128),
    Block("q4_0", 32, 2 + 16, 32),
    Block("q4_1", 32, 2 + 2 + 16, 32, minimum=True),
    Block("q5_0", 32, 2 + 4 + 16, 32),
    Block("q5_1", 32, 2 + 2 + 4 + 16, 32, minimum=True),
    Block("q6_0", 32, 2 + 8 + 16, 32),
    Block("q8_0", 32, 2 + 32, 32),
    Block("mxfp4", 32, 1 + 16, 32),
    Block("nvfp4", 64, 4 + 32, 16),
    Block("q1_0", 128, 2 + 16, 128),
    Block("tq1_0", _K, 2 + 48 + 4, _K, fallback="q4_0"),
    Block("tq2_0", _K, 2 + 64, _K, fallback="q4_0"),
    Block("q2_k", _K, 2 + 2 + 16 + 64, 16, minimum=True, fallback="q4_0"),
    Block("q3_k", _K, 2 + 64 + 32 + 12, 16, fallback="q4_0"),
    Block("q4_k", _K, 2 + 2 + 12 + 128, 32, minimum=True, fallback="q5_0"),
    Block("q5_k", _K, 2 + 2 + 12 + 128 + 32, 32, minimum=True, fallback="q5_1"),
    Block("q6_k", _K, 2 + 16 + 192, 16, fallback="q8_0"),
    Block("iq1_s", _K, 2 + 32 + 16, 32, fallback="iq4_nl"),
    Block("iq1_m", _K, 32 + 16 + 8, 16, fallback="iq4_nl"),
    Block("iq2_xxs", _K, 2 + 64, 32, fallback="iq4_nl"),
    Block("iq2_xs", _K, 2 + 64 + 8, 16, fallback="iq4_nl"),
    Block("iq2_s", _K, 2 + 64 + 16, 16, fallback="iq4_nl"),
    Block("iq3_xxs", _K, 2 + 96, 32, fallback="iq4_nl"),
    Block("iq3_s", _K, 2 + 104 + 4, 32, fallback="iq4_nl"),
    Block("iq4_nl", 32, 2 + 16, 32),
    Block("iq4_xs", _K, 2 + 2 + 4 + 128, 32, fallback="iq4_nl"),
    Block("iq2_k", _K, 2 + 2 + 8 + 64, 16, fallback="iq4_nl"),
    Block("iq3_k", _K, 2 + 4 + 8 + 64 + 32, 16, fallback="iq4_nl"),
    Block("iq4_k", _K, 2 + 2 + 12 + 128, 16, fallback="q5_0"),
    Block("iq5_k", _K, 2 + 2 + 12 + 128 + 32, 16, fallback="q6_0"),
    Block("iq6_k", _K, 2 + 2 + 16 + 128 + 64, 16, fallback="q8_0"),
    Block("iq2_ks", _K, 2 + 4 + 64, 32, row_bytes=2, fallback="iq4_nl"),
    Block("iq2_kl", _K, 2 + 4 + 64 + 16, 32, row_bytes=2, fallback="iq4_nl"),
    Block("iq3_ks", _K, 2 + 4 + 64 + 32, 32, row_bytes=2, fallback="iq4_nl"),
    Block("iq4_kss", _K, 128, 32, row_bytes=4, fallback="iq4_nl"),
    Block("iq4_ks", _K, 8 + 128, 32, row_bytes=4, fallback="iq4_nl"),
    Block("iq5_ks", _K, 8 + 128 + 32, 32, row_bytes=4, fallback="q5_0"),
    Block("iq1_kt", _K, 8 + 32 + 16, 32, row_bytes=4, fallback="iq4_nl"),
    Block("iq2_kt", _K, 4 + 64, 32, row_bytes=4, fallback="iq4_nl"),
    Block("iq3_kt", _K, 4 + 64 + 32, 32, row_bytes=4, fallback="iq4_nl"),
    Block("iq4_kt", _K, 128, 32, row_bytes=4, fallback="iq4_nl"),
    Block("iq1_s_r4", 32, 24 // 4, 32, row_bytes=2),
    Block("iq1_m_r4", 32, 28 // 4, 32, row_bytes=2),
)

#: By name.
BLOCKS: Mapping[str, Block] = MappingProxyType({block.name: block for block in _ALL})
