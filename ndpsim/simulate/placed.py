"""The location of an expert on a machine's DIMMs: a layout with the names from its request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any

from ndpsim.base.arguments import text
from ndpsim.base.reported import Reported, quantity
from ndpsim.base.units import format_bytes
from ndpsim.config import Hardware, load_hardware
from ndpsim.dimm.layout import MATRICES, ExpertFormat, Layout, make_layout
from ndpsim.dimm.units import find_unit
from ndpsim.simulate.machine import geometry_of
from ndpsim.simulate.weights import describe_weights, named_weights
from ndpsim.workload.models import Expert, MoeShape


@dataclass(frozen=True)
class LanePart:
    """The weights of an expert on a lane of a DIMM.

    Attributes:
        lane, rank, subchannel: their numbers on the DIMM.
        matrix_bytes: bytes of each matrix, scales and zero points included.
    """

    lane: int
    rank: int
    subchannel: int
    matrix_bytes: dict[str, int | float] = field(metadata=quantity("weights of a lane"))


@dataclass(frozen=True)
class DimmPart:
    """The weights of an expert on a DIMM; see `LanePart`."""

    dimm: int = field(metadata=quantity("DIMM"))
    channel: int = field(metadata=quantity("channel"))
    matrix_bytes: dict[str, int | float] = field(metadata=quantity("weights"))
    lanes: list[LanePart]


@dataclass(frozen=True, eq=False, repr=False)
class PlacedExpert(Reported):
    """An expert's weights on the DIMMs of a machine.

    Attributes:
        layout: maps weights to addresses and back.
        hardware: the machine's name.
        described: model, shape and bits, as in results.
    """

    layout: Layout
    hardware: str
    described: dict[str, Any]

    @property
    def dimms(self) -> list[DimmPart]:
        """The part of each DIMM that holds weights."""
        geometry, held = self.layout.geometry, self.layout.lane_bits()
        return [
            DimmPart(
                dimm,
                dimm % geometry.channels,
                _by_matrix(held[dimm].sum(axis=0)),
                [
                    LanePart(lane, *divmod(lane, geometry.subchannels), _by_matrix(held[dimm, lane]))
                    for lane in range(geometry.lanes)
                ],
            )
            for dimm in self.layout.dimms
        ]

    def _plain(self) -> dict[str, Any]:
        """Bytes by matrix, DIMM and lane, scales and zero points included."""
        layout, geometry = self.layout, self.layout.geometry
        return {
            "layout": layout.name,
            "hardware": self.hardware,
            **self.described,
            "bytes": layout.bytes,
            "bursts": layout.bursts,
            "burst_bytes": geometry.device.burst_bytes,
            "matrix_bytes": _by_matrix(layout.lane_bits().sum(axis=(0, 1))),
            "dimm_capacity_bytes": geometry.dimm_bytes,
            "dimms": [asdict(one) for one in self.dimms],
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlacedExpert):
            return NotImplemented
        mine, others = (
            (one.layout.name, one.layout.base, one.layout.geometry, one.layout.weights, one.described)
            for one in (self, other)
        )
        return self.hardware == other.hardware and mine == others

    def _title(self) -> str:
        return f"PlacedExpert of {self.described['model'] or 'a shape'} on {self.hardware}"

    def _rows(self) -> list[tuple[str, str]]:
        layout, geometry = self.layout, self.layout.geometry
        hidden, intermediate = layout.weights.hidden, layout.weights.intermediate
        dimms = ", ".join(map(str, layout.dimms[:8])) + (", ..." if len(layout.dimms) > 8 else "")
        return [
            ("layout", layout.name),
            ("shape", f"{hidden} x {intermediate}, {self.described['bits']} bits"),
            ("bytes", f"{layout.bytes} ({format_bytes(layout.bytes)})"),
            ("bursts", f"{layout.bursts} of {geometry.device.burst_bytes} bytes"),
            ("dimms", f"{len(layout.dimms)} of {geometry.dimms}: {dimms}"),
            ("lanes", f"{geometry.lanes} of each DIMM"),
        ]


def _by_matrix(bits: Sequence[int]) -> dict[str, int | float]:
    return {
        name: int(count) // 8 if count % 8 == 0 else int(count) / 8
        for name, count in zip(MATRICES, bits, strict=True)
    }


def place_expert(
    hw: str | PathLike[str] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
    layout: str = "localized",
    bits: int | ExpertFormat = 16,
    sets: Sequence[str] = (),
) -> PlacedExpert:
    """Place an expert on the DIMMs of a machine, from the first DIMM on.

    Args:
        hw, model, bits, sets: as in `simulate_expert`.
        layout: "localized", "striped" or "sharded:N". On a device with systolic arrays, "localized" stores
            weights tile by tile.

    Raises:
        InputError: an argument, the hardware or the model is invalid, or the expert does not fit.
    """
    layout = text(layout, "layout")
    hardware = load_hardware(hw, sets)
    weights, name = named_weights(model, bits)
    if hardware.system.ndp is None:
        laid = make_layout(layout, geometry_of(hardware), weights)
    else:
        unit_name, section = hardware.system.ndp.multiplier
        with hardware.errors_at_origins():
            unit = find_unit(unit_name, section.model_dump())
            laid = unit.place(layout, geometry_of(hardware), weights, base=0)
    return PlacedExpert(laid, hardware.system.name, describe_weights(weights, name))
