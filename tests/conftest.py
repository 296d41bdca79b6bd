"""What holds for every test: its environment, how examples are drawn, and that none has to be drawn quickly."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Kernels compile within the first example, so that no time for one is right. Where CI is set, the examples of a
# test follow from the test alone: what fails there fails everywhere.
settings.register_profile("local", settings.get_profile("default"), deadline=None)
settings.register_profile("ci", settings.get_profile("default"), deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Where the tests run does not change what they print: the workers of pytest-xdist have 80 columns, for one.
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "MPLBACKEND"):
    os.environ.pop(name, None)


@pytest.fixture(scope="session")
def reversed_banks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A refresh policy of one more file: the banks from the last to the first, one rank after the other."""
    from ndpsim.dram import refresh_policies

    folder: Path = tmp_path_factory.mktemp("refresh_policies")
    (folder / "reversed_banks.py").write_text(
        "from ndpsim.dram.refresh_policies import Turn\n"
        "from ndpsim.spec.standard import REFSB\n"
        "def turns(ranks, banks, interval):\n"
        "    count = ranks * banks\n"
        "    return [\n"
        "        Turn((n + 1) * interval // count, REFSB, rank=n % ranks, bank=banks - 1 - n // ranks)\n"
        "        for n in range(count)\n"
        "    ]\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refresh_policies, "__path__", [*refresh_policies.__path__, str(folder)])
        patch.setattr(refresh_policies, "NAMES", (*refresh_policies.NAMES, "reversed-banks"))
        yield "reversed-banks"
        sys.modules.pop("ndpsim.dram.refresh_policies.reversed_banks", None)
