"""Makes layouts by name:

- `localized`: the expert is on one DIMM, its bursts interleaved over the DIMM's lanes. Best for NDP units.
- `striped`: its bursts are interleaved over the lanes of all DIMMs: channel by channel, then over the
  sub-channels, then over the DIMMs of a channel, then over their ranks. Best for the host.
- `sharded:N`: tensor-parallel over N DIMMs. DIMM k has slice k of the `intermediate` dimension: those rows
  of gate and up (columns of the weights as frameworks that store inputs first write them), and the matching
  columns of down. It computes alone up to the sums of down, which the host adds. Slices differ by at most
  one weight, or by one group if weights of down have groups: no group is divided. Each slice is stored on its
  DIMM like a `localized` expert.
"""

from __future__ import annotations

from ndpsim.base.arguments import text
from ndpsim.base.choices import LAYOUTS
from ndpsim.base.errors import InputError, unknown
from ndpsim.dimm.layout.formats import ExpertWeights
from ndpsim.dimm.layout.geometry import Geometry
from ndpsim.dimm.layout.layouts import Layout


def localized(geometry: Geometry, weights: ExpertWeights, dimm: int = 0, base: int = 0) -> Layout:
    """An expert on one DIMM; see `Layout`."""
    return Layout("localized", geometry, weights, [_all_lanes(geometry, dimm)], base)


def striped(geometry: Geometry, weights: ExpertWeights, base: int = 0) -> Layout:
    """An expert over all DIMMs; see `Layout`."""
    order = sorted(
        ((dimm, lane) for dimm in range(geometry.dimms) for lane in range(geometry.lanes)),
        key=lambda lane: (
            lane[1] // geometry.subchannels,
            lane[0] // geometry.channels,
            lane[1] % geometry.subchannels,
            lane[0] % geometry.channels,
        ),
    )
    return Layout("striped", geometry, weights, [order], base)


def sharded(
    geometry: Geometry, weights: ExpertWeights, count: int, first_dimm: int = 0, base: int = 0
) -> Layout:
    """An expert over `count` DIMMs, `first_dimm` and the next ones; see `Layout`.

    Raises:
        InputError: there are not this many DIMMs, or they do not all get weights.
    """
    if not 1 <= count <= geometry.dimms - first_dimm:
        problem = f"sharded:{count} from DIMM {first_dimm} on is not possible with {geometry.dimms} DIMMs"
        raise InputError(problem, "range", key="layout")
    over = [_all_lanes(geometry, first_dimm + n) for n in range(count)]
    return Layout(f"sharded:{count}", geometry, weights, over, base)


def _all_lanes(geometry: Geometry, dimm: int) -> list[tuple[int, int]]:
    if not 0 <= dimm < geometry.dimms:
        raise InputError(f"{dimm} is not a DIMM, 0 to {geometry.dimms - 1}", "range", key="dimm")
    return [(dimm, lane) for lane in range(geometry.lanes)]


def parse_layout(name: str) -> tuple[str, int]:
    """The kind of a layout's name, and the number of DIMMs of "sharded:N" (else 0).

    Raises:
        InputError: there is no such layout.
    """
    kind, colon, count = text(name, "layout").partition(":")
    if kind == "sharded" and count.isascii() and count.isdecimal() and 0 < len(count) < 10:
        return kind, int(count)
    if kind == "sharded":
        problem = f"'{name}' needs a number of DIMMs: sharded:2, sharded:4, ..."
        raise InputError(problem, "missing", key="layout")
    if colon or kind not in LAYOUTS:
        raise unknown(name, LAYOUTS, "layout", key="layout")
    return kind, 0


def make_layout(
    name: str, geometry: Geometry, weights: ExpertWeights, dimm: int = 0, base: int = 0
) -> Layout:
    """A layout by its name; `dimm`: its first DIMM (`striped` uses all).

    Raises:
        InputError: there is no such layout, or the weights do not fit.
    """
    kind, count = parse_layout(name)
    if kind == "sharded":
        return sharded(geometry, weights, count, dimm, base)
    if kind == "localized":
        return localized(geometry, weights, dimm, base)
    return striped(geometry, weights, base)
