"""Continuous batching as in vLLM 0.19, engine V1, with its defaults.

It follows `Scheduler.schedule` of vllm/v1/core/sched/scheduler.py, first come first served:

- Running sequences come first, in the order of admission. Each gets all its missing tokens (one in decode)
  within the step's budget of tokens, so that prompts are computed in chunks.
- If a running sequence finds no free block, the running sequence that was admitted last is preempted,
possibly
  itself. It becomes the first waiting sequence, and is recomputed from its first token; or its blocks are
  moved to the host's memory and back, as in vLLM's engine V0 (`PreemptionMode.SWAP`, vllm/core/scheduler.py).
  If that memory is full, vLLM stops with an error; here the sequence is recomputed.
- If none was preempted, waiting sequences follow, within the budget and the maximum number of sequences. Each
  begins after its tokens in the KV cache. The first one without room ends the step.

- A step may be formed while the previous one runs: see `ndpsim.inference.serving.engine`.

Not modelled: priorities, speculative decoding, long_prefill_token_threshold, encoders.
"""

from __future__ import annotations

from ndpsim.inference.serving.scheduler import Chunk, Scheduler
from ndpsim.inference.serving.sequence import Sequence


class Vllm(Scheduler):
    """Continuous batching with chunks of prompts, as in vLLM 0.19."""

    name = "vllm"
    works_ahead = True

    def schedule(self) -> list[Chunk]:
        """Running sequences, then waiting ones."""
        chunks: list[Chunk] = []
        self.preempted, budget = [], self.limits.tokens
        place = 0
        while place < len(self.running) and budget:
            sequence = self.running[place]
            if sequence.is_over:
                place += 1
                continue
            tokens = min(sequence.missing, budget)
            if not self._has_room(sequence, tokens):
                break
            chunks.append(Chunk(sequence, tokens))
            budget -= tokens
            place += 1
        while self.waiting and budget and not self.preempted and len(self.running) < self.limits.sequences:
            chunk = self.admit(budget)
            if chunk is None:
                break
            chunks.append(chunk)
            budget -= chunk.tokens
        return chunks

    def _has_room(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for tokens of a running sequence by preemption. False if it was preempted itself."""
        while not self.kv.allocate(sequence, tokens):
            last = self.running[-1]
            self.preempt(last)
            if last is sequence:
                return False
        return True


SCHEDULER = Vllm
