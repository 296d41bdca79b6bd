"""The time of an expert on a processor: the common part of GPU and CPU.

An expert of w weights (3 x hidden x intermediate) in W bytes makes 2 w products and sums for each of its t
tokens. Without a table of measured times:

- GPU: see `ndpsim.inference.processors.gpu`
- CPU: see `ndpsim.inference.processors.cpu`

A table has the times of one shape of expert; other experts have the times of the roofline.

With fewer bits there are fewer bytes, but equally many products. A GPU with peaks for narrower numbers
multiplies them faster; else weights are multiplied as 16 bits.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import ClassVar

from ndpsim.base.arguments import instance, number, whole_number
from ndpsim.base.reported import Reported, quantity
from ndpsim.dimm.layout import ExpertFormat, ExpertWeights, expert_format
from ndpsim.inference.processors.table import ExpertTable
from ndpsim.workload.models import Expert

#: Maximum number of tokens of an expert.
MAX_TOKENS = 1 << 24


def weight_bytes(expert: Expert, bits: int | ExpertFormat) -> int:
    """Bytes of an expert, scales and zero points included; each matrix in whole bytes.

    Raises:
        InputError: weights cannot have this many bits.
    """
    return _bytes_in(expert, expert_format(bits, expert.gated))


@functools.lru_cache(maxsize=256)
def _bytes_in(expert: Expert, form: ExpertFormat) -> int:
    matrices = ExpertWeights(expert.hidden, expert.intermediate, form).matrix_bits()
    return sum(-(-bits // 8) for bits in matrices)


@dataclass(frozen=True, repr=False, eq=False)
class ExpertTime(Reported):
    """The time of one expert on a processor.

    Attributes:
        time_ns: the whole time.
        bound: "compute", "memory", or "measured" if a table has the time.
        compute_ns, weight_read_ns, overhead_ns: parts of the roofline: computing and reading overlap, and the
            overhead is added; None if they are not known, as with a table.
        holds_weight_read: whether `time_ns` includes the reading of weights from the processor's own memory
            (for a CPU, the host's). If not, weights are read beside it.
        tflops: reached throughput, at two operations for each weight and token.
        peak_fraction: share of the peak.
        source: where the time comes from.
    """

    processor: str
    tokens: int = field(metadata=quantity("tokens"))
    time_ns: float = field(metadata=quantity("time"))
    bound: str = field(metadata=quantity("bottleneck"))
    compute_ns: float | None = field(metadata=quantity("computing"))
    weight_read_ns: float | None = field(metadata=quantity("reading weights"))
    overhead_ns: float | None = field(metadata=quantity("overhead"))
    weight_bytes: int = field(metadata=quantity("weights"))
    holds_weight_read: bool
    tflops: float = field(metadata=quantity("compute throughput"))
    peak_fraction: float = field(metadata=quantity("share of the peak"))
    source: str


@dataclass(frozen=True)
class Processor:
    """Base of GPU and CPU: `peak_tflops` of the matrix units, and `tables` of measured times.

    Without a table, the time of an expert comes from the roofline. `roofline_power`: how the times of
    computing and reading combine; None: to the longer one.
    """

    name: ClassVar[str]

    peak_tflops: float
    compute_efficiency: float
    tables: tuple[ExpertTable, ...]
    roofline_power: float | None = field(default=None, kw_only=True)

    def expert_time(
        self, expert: Expert, tokens: int, bits: int | ExpertFormat = 16, share: float = 1.0
    ) -> ExpertTime:
        """The time of an expert with `tokens` tokens and weights of `bits` bits.

        Args:
            share: share of its intermediate columns, rounded to whole ones; a measured time is scaled by it.

        Raises:
            InputError: `tokens` is not a whole number from 1, weights have no such bits, there is no such
                share, or the table was not measured for this many tokens.
        """
        whole = instance(expert, "expert", Expert)
        tokens, share = whole_number(tokens, "tokens", 1, MAX_TOKENS), number(share, "share", 0, 1)
        form = expert_format(bits)
        columns = max(1, round(share * whole.intermediate))
        part = Expert(whole.hidden, columns)
        size = weight_bytes(part, form)
        table = next((table for table in self.tables if table.is_of(whole, form)), None)
        parts: tuple[float | None, float | None, float | None]
        parts = compute_ns, read_ns, overhead_ns = self._roofline(part, tokens, size, form.most_bits)
        time_ns = self.together_ns(compute_ns, read_ns or 0.0) + overhead_ns
        bound = "compute" if read_ns is None or compute_ns >= read_ns else "memory"
        holds, source = read_ns is not None, "roofline"
        if table is not None:
            measured_ns = table.time_ns(tokens) * columns / whole.intermediate
            holds, source = table.holds_weight_read, f"{table.file}: {table.source}"
            if table.goes_on_by_roofline(tokens) and compute_ns > measured_ns:
                time_ns, bound, parts = compute_ns, "compute", (compute_ns, None, None)
                source += f"; by the roofline beyond {table.tokens[-1]} tokens"
            else:
                time_ns, bound, parts = measured_ns, "measured", (None, None, None)
        elif self.tables:
            source += f", as there is no table of {whole.hidden} x {whole.intermediate} with these bits"
        tflops = 2.0 * part.weights * tokens / time_ns / 1e3
        return ExpertTime(
            self.name, tokens, time_ns, bound, parts[0], parts[1], parts[2], size,
            holds, tflops, tflops / self.peak_tflops, source,
        )  # fmt: skip

    def compute_ns(self, flops: float, efficiency: float | None = None) -> float:
        """The time of `flops` operations, by default with the efficiency of matrix products."""
        return flops / ((efficiency or self.compute_efficiency) * self.peak_tflops * 1e3)

    def together_ns(self, compute_ns: float, memory_ns: float, power: float | None = None) -> float:
        """The time of overlapping compute and memory: at least the longer of both, at most their sum.

        power: in place of `roofline_power`.
        """
        longer, power = max(compute_ns, memory_ns), power or self.roofline_power
        if power is None or longer == 0:
            return longer
        shorter = min(compute_ns, memory_ns)
        return float(longer * (1 + (shorter / longer) ** power) ** (1 / power))

    def _roofline(
        self, expert: Expert, tokens: int, size: int, bits: int
    ) -> tuple[float, float | None, float]:
        """Times of an expert of `size` bytes whose widest weight has `bits`.

        Times in ns of computing, of reading (None: not part of the time), and of the overhead.
        """
        raise NotImplementedError
