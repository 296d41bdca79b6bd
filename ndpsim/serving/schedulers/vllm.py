"""Continuous batching as in vLLM 0.19, engine V1, with its defaults.

What `Scheduler.schedule` of vllm/v1/core/sched/scheduler.py does, first come first served:

- Running sequences come first, in the order in which they were taken in. Each has all tokens that it lacks,
  one in decode, as far as the step's budget of tokens reaches; a prompt is thus computed in chunks.
- A running sequence that finds no free block takes those of the running sequence that came last, maybe its
  own. That one is the first of those that wait, and is computed again from its first token. Or its blocks are
  moved to the host's memory and back, as in vLLM's engine V0 (`PreemptionMode.SWAP`, vllm/core/scheduler.py),
  which stops with an error where that memory is full. Here the sequence is computed again then.
- If none was preempted, waiting sequences follow, while there is budget, and while fewer than the most
  sequences are running. Each begins behind what the KV cache has of its tokens. The first one without room
  ends the step.

- Its steps may be formed while the one before them runs: see `ndpsim.serving.engine`.

Not modelled: priorities, speculative decoding, long_prefill_token_threshold, encoders.
"""

from __future__ import annotations

from ndpsim.serving.scheduler import Chunk, Scheduler
from ndpsim.serving.sequence import Sequence


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
        """Make room for tokens of a running sequence by preempting others. False: it was preempted itself."""
        while not self.kv.allocate(sequence, tokens):
            last = self.running[-1]
            self.preempt(last)
            if last is sequence:
                return False
        return True


SCHEDULER = Vllm
