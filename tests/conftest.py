"""What holds for every test: how examples are drawn, and that none of them has to be drawn quickly."""

from __future__ import annotations

import os

from hypothesis import settings

# Kernels compile within the first example, so that no time for one is right. Where CI is set, the examples of a
# test follow from the test alone: what fails there fails everywhere.
settings.register_profile("local", settings.get_profile("default"), deadline=None)
settings.register_profile("ci", settings.get_profile("default"), deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
