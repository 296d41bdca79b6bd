"""Layouts of an expert's weights."""

from __future__ import annotations

#: Layouts by the names they have on the command line.
LAYOUTS = ("localized", "sharded:N", "striped")
OFFERED = tuple(name.removesuffix("N") for name in LAYOUTS)  #: For the shell, which goes on behind the colon.
