"""A page: a title, sections, and the policy under which browsers show it."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Mapping, Sequence
from html import escape
from importlib import metadata

from ndpsim.files import replacing
from ndpsim.report.html.script import SCRIPT
from ndpsim.report.html.style import STYLE
from ndpsim.report.html.tables import facts_table
from ndpsim.results.cache import version

_LONGEST = 2000  # characters of a text
_MOST_NOTES = 100


def clipped(text: str, most: int = _LONGEST) -> str:
    """A text as it may stand in a page: escaped, and of a bounded length."""
    return escape(text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more characters)")


def section(title: str, *parts: str) -> str:
    """Parts, which are HTML, under a title; nothing where there are none."""
    inner = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{clipped(title)}</h2>\n{inner}\n</section>" if inner else ""


def folded(title: str, *parts: str) -> str:
    """Parts, which are HTML, behind a title that opens them."""
    inner = "\n".join(part for part in parts if part)
    return f"<details>\n<summary>{clipped(title)}</summary>\n{inner}\n</details>" if inner else ""


def listed_notes(notes: Sequence[str]) -> str:
    """Sentences as a list."""
    items = [f"<li>{clipped(note)}</li>" for note in notes[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        items.append(f"<li>and {len(notes) - _MOST_NOTES:,} more</li>")
    return f"<ul>{''.join(items)}</ul>" if items else ""


def provenance(more: Mapping[str, str] | None = None) -> str:
    """What made the result: all that equal files have in common, and so neither date nor host.

    Args:
        more: of this result, by what it is.
    """

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
    return section("Provenance", facts_table({**made, **(more or {})}.items()))


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_page(path: str, title: str, subtitle: str, sections: Sequence[str]) -> None:
    """Write a page, whole or not at all.

    The policy lets nothing be loaded, and no script run but the page's own, which its digest names.

    Args:
        path: of the file.
        title, subtitle: as plain text.
        sections: as HTML, from `section`.

    Raises:
        InputError: the file cannot be written.
    """
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{_digest(SCRIPT)}'; base-uri 'none'; form-action 'none'"
    )
    lines = "".join(f"<p class=subtitle>{clipped(line)}</p>\n" for line in subtitle.splitlines())
    body = "\n".join(part for part in sections if part)
    page = (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{clipped(title, 200)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{clipped(title)}</h1>\n{lines}</header>\n<main>\n{body}\n</main>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
    with replacing(path) as file:
        file.write(page.encode("utf-8", "replace"))
