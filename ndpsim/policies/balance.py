"""How many experts the GPU takes: equations 1 to 3 of the edge paper, solved exactly.

Wu et al., "A Scheduling Framework for Efficient MoE Inference on Edge GPU-NDP Systems", Sections III-C and
III-D. Equation 1 is equation 2 for one token.
"""

from __future__ import annotations

from dataclasses import dataclass

_ROUNDING = 1e-12  # of a fraction


@dataclass(frozen=True)
class Balance:
    """What the equations balance.

    Attributes:
        transfer_ns: T_w, an expert's weights on their way to the GPU.
        gpu_ns: T_g, an expert on the GPU.
        vector_ns: T_a, a token's vector.
        ndp_ns: T_n, an expert on all NDP units together.
        units: N, the NDP units.
        tokens: S, the tokens of the layer.
        experts: those to be shared out, E_g + E_n.
    """

    transfer_ns: float
    gpu_ns: float
    vector_ns: float
    ndp_ns: float
    units: int
    tokens: int
    experts: int

    def unhidden(self, on_gpu: float) -> float:
        """E_g' of E_g: one N-th of its fractional part; 1 / N where E_g is a multiple of N."""
        return (on_gpu % 1.0 if on_gpu % self.units else 1.0) / self.units

    def gpu_side_ns(self, on_gpu: float) -> float:
        """The left side of equation 2, of equation 1 where there is one token."""
        sent = (self.tokens - 1) * self.vector_ns * self.units
        return self.transfer_ns * on_gpu + self.gpu_ns * self.unhidden(on_gpu) + sent

    def ndp_side_ns(self, on_gpu: float) -> float:
        """The right side of equations 1 and 2."""
        return (self.units + 1) * self.vector_ns + self.ndp_ns * (self.experts - on_gpu)

    def on_gpu(self) -> float:
        """E_g, from 0 to all experts.

        Between whole numbers the left side grows evenly; at each that is no multiple of N it falls by
        T_g / N, so that there may be several solutions: this is the largest one, with which the layer ends
        first. Where there is none, all experts go to the side that ends before the other even so.
        """
        both = self.transfer_ns + self.ndp_ns
        # What is left to share out once the vectors of both sides have been sent.
        vectors = self.units + 1 - (self.tokens - 1) * self.units
        left = vectors * self.vector_ns + self.ndp_ns * self.experts
        if left <= 0:
            return 0.0
        for whole in range(int(min(left // both, self.experts)), -1, -1):
            fraction = (left - both * whole) / (both + self.gpu_ns / self.units)
            if fraction > 1 + _ROUNDING:
                break
            found = whole + fraction
            # At a multiple of N, E_g' is not the 0 that the fraction says.
            at_a_jump = int(found) == whole and found % self.units == 0
            if fraction >= 0 and found <= self.experts and not at_a_jump:
                return found
        return float(self.experts)

    def most_present(self) -> float:
        """E_max of equation 3: experts in the GPU's memory that it computes at most."""
        vectors = (1 + self.units) * self.vector_ns
        return (self.experts * self.ndp_ns + vectors) / (self.gpu_ns + self.ndp_ns)
