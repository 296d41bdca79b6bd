"""The version of a build: that of the last tag, vX.Y.Z, and how far the commit is behind it.

A tree without tags or without git has `NEXT`; an archive of sources has the version that it was made with.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

NEXT = "0.2.0"  #: The release that is next, or, after its tag, the last one.

_ROOT = Path(__file__).resolve().parent


def version() -> str:
    """The version by PEP 440: ``0.2.0`` at its tag, ``0.2.0+3.g0123456`` three commits later."""
    about = _ROOT / "PKG-INFO"
    if about.is_file():
        stated = re.search(r"(?m)^Version: (\S+)$", about.read_text(encoding="utf-8"))
        return NEXT if stated is None else stated[1]
    described = re.fullmatch(r"v(\d[^-]*)-(\d+)-(g[0-9a-f]+)", _described())
    if described is None:
        return NEXT
    number, distance, commit = described.groups()
    return number if distance == "0" else f"{number}+{distance}.{commit}"


def _described() -> str:
    """What git says of the commit; empty without git, or if this tree is a folder of another repository."""
    try:
        top, *rest = (
            subprocess.run(
                ["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (
                ("rev-parse", "--show-toplevel"),
                ("describe", "--tags", "--long", "--match", "v[0-9]*"),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return rest[0] if Path(top).resolve() == _ROOT else ""


if __name__ == "__main__":
    print(version())
