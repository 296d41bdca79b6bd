"""Static batching: sequences are admitted together, and the next ones after all of them have ended.

This is serving before continuous batching (Yu et al., "Orca", OSDI 2022, section 2): prompts come first, in
chunks within the step's budget of tokens, then all sequences are decoded together. The place of an ended
sequence remains empty. Blocks are reserved for all tokens of a sequence when it is admitted, so that none is
preempted.
"""

from __future__ import annotations

from ndpsim.inference.serving.scheduler import Chunk, Scheduler


class Static(Scheduler):
    """A batch to its end, then the next one."""

    name = "static"

    def schedule(self) -> list[Chunk]:
        """Prompts of the batch within the budget, or after them all its sequences."""
        self.preempted = []
        if not self.running:
            self._take_in()
        budget = self.limits.tokens
        prompts = [one for one in self.running if not one.is_decoding]
        chunks: list[Chunk] = []
        for sequence in prompts or self.running:
            tokens = min(sequence.missing, budget)
            if tokens:
                chunks.append(Chunk(sequence, tokens))
            budget -= tokens
        return chunks

    def _take_in(self) -> None:
        """Admit waiting sequences while there is room for all tokens of each."""
        while self.waiting and len(self.running) < self.limits.sequences:
            sequence = self.waiting[0]
            found = self.kv.found(sequence)
            computed = len(found) * self.kv.block_tokens
            whole = sequence.prompt_tokens + sequence.output_tokens
            if not self.kv.allocate(sequence, whole - computed, found):
                break
            sequence.computed = sequence.reused_tokens = computed
            self.running.append(self.waiting.popleft())


SCHEDULER = Static
