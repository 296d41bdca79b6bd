"""Pictures within a page."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

from matplotlib.figure import Figure

from ndpsim.errors import InputError
from ndpsim.report.panels import DEFAULT_SIZE
from ndpsim.report.pictures.canvas import rendered

_MOST_BYTES = 4_000_000
_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_SIZE = re.compile(r'(<svg\b[^>]*?) width="[^"]*"', re.DOTALL)
_HEIGHT = re.compile(r'(<svg\b[^>]*?) height="[^"]*"', re.DOTALL)
_NAMESPACES = re.compile(r'\s+xmlns(?::\w+)?="[^"]*"')


def inline(svg: str, name: str) -> str:
    """An SVG file as part of an HTML page, as wide as its place.

    Without namespaces, which parsers of HTML have no use for, and with `name` in front of all ids, so that
    several pictures on a page do not take each other's.
    """
    for pattern in (_HEAD, _COMMENT, _METADATA, _NAMESPACES):
        svg = pattern.sub("", svg)
    for pattern in (_SIZE, _HEIGHT):
        svg = pattern.sub(r"\1", svg, count=1)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'(?<=\s)id="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    return re.sub(r"url\(#", f"url(#{name}-", svg)


def picture(name: str, draw: Callable[[], Figure], words: str) -> str:
    """A figure as inline SVG; where it cannot be drawn, or would be too large, why.

    Args:
        name: unlike those of other pictures on the page, for ids.
        draw: makes the figure, in the default size.
        words: what is seen, for who does not see it.
    """
    try:
        svg = rendered(draw(), "svg", DEFAULT_SIZE).decode()
    except InputError as error:
        return f"<p class=note>no picture: {escape(error.problem)}</p>"
    found = inline(svg, name)
    if len(found) > _MOST_BYTES:
        size = f"{len(found) / 1e6:.0f} MB"
        return f"<p class=note>no picture: it would take {size}; --plot FILE.png draws it</p>"
    label = f'<svg role="img" aria-label="{escape(words[:300])}"'
    return f"<figure class=picture>{found.replace('<svg', label, 1)}</figure>"
