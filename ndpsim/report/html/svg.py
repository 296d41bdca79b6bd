"""Pictures in a page."""

from __future__ import annotations

import re
from collections.abc import Callable

from matplotlib.figure import Figure

from ndpsim.base.errors import InputError
from ndpsim.report.html.parts import Picture
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import rendered

_MOST_BYTES = 4_000_000
# The head of the file, comments, metadata and namespaces, which HTML does not need.
_DROPPED = re.compile(
    r'^.*?(?=<svg)|<!--.*?-->|<metadata>.*?</metadata>|\s+xmlns(?::\w+)?="[^"]*"', re.DOTALL
)
_SIZE = re.compile(r'(<svg\b[^>]*?) (?:width|height)="[^"]*"')


def inline(svg: str, name: str) -> str:
    """An SVG file as part of an HTML page, as wide as its place.

    `name` is the prefix of all ids, so that ids of several pictures on a page differ.
    """
    svg = _DROPPED.sub("", svg).replace("xlink:href=", "href=")
    for _ in ("width", "height"):
        svg = _SIZE.sub(r"\1", svg, count=1)
    svg = re.sub(r'(?<=\s)id="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    return re.sub(r"url\(#", f"url(#{name}-", svg)


def picture(name: str, draw: Callable[[], Figure], words: str) -> Picture | str:
    """A figure as inline SVG, or the reason why it cannot be drawn or is too large.

    Args:
        name: prefix for ids, unique on the page.
        draw: makes the figure in the default size.
        words: a description for readers who cannot see it.
    """
    try:
        svg = rendered(draw(), "svg", DEFAULT_SIZE).decode()
    except InputError as error:
        return f"no picture: {error.problem}"
    found = inline(svg, name)
    if len(found) > _MOST_BYTES:
        size = f"{len(found) / 1e6:.0f} MB"
        return f"no picture: it would take {size}; --plot FILE.png draws it"
    return Picture(found, words)
