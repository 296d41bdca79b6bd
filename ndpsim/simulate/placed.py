"""Where a machine's DIMMs hold an expert: a layout with the names that it was asked for by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ndpsim.config import Hardware, load_hardware
from ndpsim.layout import MATRICES, ExpertFormat, Layout, make_layout
from ndpsim.moe import Expert
from ndpsim.simulate.geometry import geometry_of
from ndpsim.simulate.weights import describe_weights, named_weights

__all__ = ["PlacedExpert", "place_expert"]


@dataclass(frozen=True, eq=False)
class PlacedExpert:
    """An expert's weights on the DIMMs of a machine.

    Attributes:
        layout: maps weights to addresses and back.
        hardware: the machine's name.
        described: model, shape and bits, as results say them.
    """

    layout: Layout
    hardware: str
    described: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: bytes by matrix, DIMM and lane, scales and zero points included."""
        layout, geometry = self.layout, self.layout.geometry
        held = layout.lane_bits()
        return {
            "layout": layout.name,
            "hardware": self.hardware,
            **self.described,
            "bytes": layout.bytes,
            "bursts": layout.bursts,
            "burst_bytes": geometry.device.burst_bytes,
            "matrix_bytes": _by_matrix(held.sum(axis=(0, 1))),
            "dimm_capacity_bytes": geometry.dimm_bytes,
            "dimms": [
                {
                    "dimm": dimm,
                    "channel": dimm % geometry.channels,
                    "matrix_bytes": _by_matrix(held[dimm].sum(axis=0)),
                    "lanes": [
                        {
                            "lane": lane,
                            "rank": lane // geometry.subchannels,
                            "subchannel": lane % geometry.subchannels,
                            "matrix_bytes": _by_matrix(held[dimm, lane]),
                        }
                        for lane in range(geometry.lanes)
                    ],
                }
                for dimm in layout.dimms
            ],
        }


def _by_matrix(bits: Sequence[int]) -> dict[str, int | float]:
    return {
        name: int(count) // 8 if count % 8 == 0 else int(count) / 8
        for name, count in zip(MATRICES, bits, strict=True)
    }


def place_expert(
    hw: str | Hardware = "trimoe",
    model: str | Expert = "qwen3-235b-a22b",
    layout: str = "localized",
    bits: int | ExpertFormat = 16,
    sets: Sequence[str] = (),
) -> PlacedExpert:
    """Lay an expert out on the DIMMs of a machine, from the first DIMM on.

    Args:
        hw: a bundled hardware name, a path of a hardware file, or a loaded `Hardware`.
        model: a bundled model name, a path of a Hugging Face config.json, or an `Expert`.
        layout: "localized", "striped" or "sharded:N".
        bits: bits of a weight, 16, 8, 4, 3, 2 or 1, or the format of each matrix.
        sets: changes to the hardware, "dimm.ranks=2".

    Raises:
        InputError: an argument, the hardware or the model makes no sense, or the expert does not fit.
    """
    hardware = load_hardware(hw, sets)
    weights, name = named_weights(model, bits)
    laid = make_layout(layout, geometry_of(hardware), weights)
    return PlacedExpert(laid, hardware.system.name, describe_weights(weights, name))
