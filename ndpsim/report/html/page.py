"""Writes a page: a title, sections, and a content security policy."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata

from jinja2 import Environment, PackageLoader, StrictUndefined

from ndpsim.base.files import replacing
from ndpsim.report.html.parts import Section, Table
from ndpsim.simulate.results.cache import version

_LOADER = PackageLoader("ndpsim.report.html")
_TEMPLATES = Environment(
    loader=_LOADER, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def _clipped(text: str, most: int) -> str:
    """A text of a bounded length."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)"


_TEMPLATES.filters["clipped"] = _clipped


def source(name: str) -> str:
    """The text of a file of the templates: ``script.js``, ``style.css``."""
    return _LOADER.get_source(_TEMPLATES, name)[0]


def provenance(more: Mapping[str, str] | None = None) -> Section:
    """The origin of the result and `more`, by name, without date and host: equal results are equal."""

    def installed(name: str) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return "not installed"

    made = {
        "ndpsim": installed("ndpsim"),
        "version": f"{version()} (digest of the simulator's sources, Python, NumPy and Numba)",
        "Python": platform.python_version(),
        "NumPy": installed("numpy"),
        "Numba": installed("numba"),
    }
    return Section("Provenance", Table((), [*made.items(), *(more or {}).items()]))


def write_page(path: str, title: str, subtitle: str, sections: Sequence[Section]) -> None:
    """Write a page, whole or not at all.

    Args:
        path: the path of the file.
        title, subtitle: plain text.
        sections: in order; those without parts are left out.

    Raises:
        InputError: the file cannot be written.
    """
    script = source("script.js")
    page = _TEMPLATES.get_template("page.html").render(
        title=title,
        subtitle=subtitle.splitlines(),
        parts=sections,
        style=source("style.css"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    with replacing(path) as file:
        file.write(page.encode("utf-8", "replace"))
