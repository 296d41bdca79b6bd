"""Layouts of an expert's weights."""

from __future__ import annotations

#: The names of layouts.
LAYOUTS = ("localized", "sharded:N", "striped")
OFFERED = tuple(name.removesuffix("N") for name in LAYOUTS)  #: For completion of the part before N.
