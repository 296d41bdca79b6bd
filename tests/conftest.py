"""What holds for every test: its environment, how examples are drawn, and that none has to be drawn quickly."""

from __future__ import annotations

import os

from hypothesis import settings

# Kernels compile within the first example, so that no time for one is right. Where CI is set, the examples of a
# test follow from the test alone: what fails there fails everywhere.
settings.register_profile("local", settings.get_profile("default"), deadline=None)
settings.register_profile("ci", settings.get_profile("default"), deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Where the tests run does not change what they print: the workers of pytest-xdist have 80 columns, for one.
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "MPLBACKEND"):
    os.environ.pop(name, None)
