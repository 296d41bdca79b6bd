"""The commands that can be swept: each is a module here, with a `SweptCommand` called ``COMMAND``."""

from __future__ import annotations

import functools

from ndpsim.base.plugins import plugins_by_name
from ndpsim.studies.sweeps import commands as _folder
from ndpsim.studies.sweeps.command import SweptCommand


@functools.cache
def swept_commands() -> dict[str, SweptCommand]:
    """All commands by name."""
    return plugins_by_name(_folder, "COMMAND")
