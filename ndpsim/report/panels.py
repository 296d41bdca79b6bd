"""The size and the panels of a picture.

They are separate from the pictures so that arguments are checked before matplotlib is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ndpsim.base.errors import InputError, unknown


@dataclass(frozen=True)
class Size:
    """The size of a picture and its text.

    Attributes:
        width_in, height_in: in inches, as printed; without a height, the panels determine it.
        font_pt: font size; numbers at ticks are half a point smaller.
        line_pt: width of lines.
        dpi: dots an inch, for formats with pixels.
        columns: number of columns of panels.
    """

    width_in: float
    height_in: float | None
    font_pt: float
    line_pt: float
    dpi: int
    columns: int = 1


#: One or both columns of a paper in two columns on letter paper, and a slide of 16:9.
SIZES = {
    "column": Size(3.5, None, 7.0, 0.8, 600),
    "two-columns": Size(7.16, None, 8.0, 1.0, 300),
    "slide": Size(40 / 3, 7.5, 14.0, 2.0, 150, columns=2),
}
DEFAULT_SIZE = "two-columns"

#: The panels of each picture, from top to bottom.
PANELS = {
    "expert": ("bandwidth", "phases", "bus", "energy"),
    "contention": ("bandwidth", "phases", "time", "energy"),
    "host-read": ("bandwidth", "bus", "energy"),
    "banks": ("bandwidth", "commands"),
    "relayout": ("bandwidth", "links", "dram", "energy"),
    "topologies": ("bandwidth", "time", "busy", "energy"),
    "latencies": ("tail", "histogram", "energy"),
    "sweep": ("latency",),
    "routing": ("ranks", "active", "layers", "reuse"),
    "moe": ("speedup", "layers", "engines", "migrations", "jobs"),
    "serve": ("sequences", "tokens", "blocks", "latencies"),
    "rates": ("ttft", "tpot", "throughput"),
    "layout": ("lanes", "first", "down"),
    "bank-layout": ("banks",),
    "bench": ("rows",),
    "predict": ("prefill", "decode", "upgrades"),
}


def chosen_size(name: str) -> Size:
    """The size with this name.

    Raises:
        InputError: no size has this name.
    """
    if name not in SIZES:
        raise unknown(name, SIZES, "size", key="size")
    return SIZES[name]


def chosen_panels(names: Sequence[str] | None, picture: str) -> tuple[str, ...]:
    """The chosen panels of a picture (a key of `PANELS`), in its order; None chooses all.

    Raises:
        InputError: the picture has no panel of a chosen name, or no panel is chosen.
    """
    if names is None:
        return PANELS[picture]
    for name in names:
        if name not in PANELS[picture]:
            raise unknown(name, PANELS[picture], "panel", key="panels")
    if not names:
        raise InputError(f"chooses no panel of {', '.join(PANELS[picture])}", "missing", key="panels")
    return tuple(name for name in PANELS[picture] if name in names)
