"""Parameters of a generated routing beside its SPEC."""

from __future__ import annotations

from ndpsim.parameters.kinds import Whole
from ndpsim.parameters.table import Parameter

MOST = 1 << 24  #: Steps, sequences, or tokens of a prompt.

BATCH = Parameter("batch", "Sequences decoded together.", Whole(1, MOST), 512)
STEPS = Parameter("steps", "Decode steps.", Whole(0, MOST), 16)
SEED = Parameter("seed", "The same seed, the same result.", Whole(0, (1 << 63) - 1), 1)
PROMPT = Parameter("prompt", "Prompt tokens of each sequence; 0: none.", Whole(0, MOST), 0)
