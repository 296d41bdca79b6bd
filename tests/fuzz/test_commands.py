"""Every command, option and variable with long or odd texts: one line of at most 1,000 bytes, or done."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from calls import GIVEN
from fuzz.outcomes import attempt_command, check_line
from fuzz.values import LONG
from ndpsim.base.errors import InputError
from ndpsim.cli.main import cli

TEXTS = {
    "long": "x" * LONG,
    "wide": "\U0001f600" * LONG,
    "words": "a b " * (LONG // 4),
    "digits": "9" * LONG,
    "setting": f"{'k' * LONG}=1",
    "value": f"dimm.ranks={'v' * LONG}",
    "path": "a/" * (LONG // 2),
    "half a pair": "\udcff",
}
#: Arguments with which a command comes far, by its name; others get the text.
_USUAL = {
    "dram": ["requests.trace"],
    "check": ["commands.csv", "--hw", "trimoe"],
    "import": ["dramsim3.ini"],
    "sweep": ["sweep.yaml"],
    "optimize": ["optimize.yaml"],
    "pim": ["unit.csv"],
    "show hw": ["trimoe"],
    "show model": ["olmoe-1b-7b"],
}


def commands(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands by their names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*names, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*names, name))


COMMANDS = dict(commands(cli))
_OPTIONS = [
    (name, option.opts[-1])
    for name, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option) and not option.is_flag
]


@pytest.fixture
def files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with valid files; nothing is simulated."""
    for path in GIVEN.iterdir():
        shutil.copy(path, here)

    def ran(*arguments: object, **options: object) -> None:
        raise InputError("it is taken", "invalid")

    monkeypatch.setattr("ndpsim.simulate.lane.run_channel", ran)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_and_options_that_there_are_not(name):
    attempt_command(*name.split(), TEXTS["half a pair"])
    attempt_command(*name.split(), f"--{TEXTS['long']}")


def _attempt_option(pair: tuple[str, str], text: str) -> None:
    name, option = pair
    attempt_command(*name.split(), *_USUAL.get(name, ()), option, TEXTS[text])


@pytest.mark.usefixtures("files")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(_OPTIONS), st.sampled_from(sorted(TEXTS)))
@example(("gemv", "--set"), "setting")
@example(("gemv", "--set"), "value")
@example(("sweep", "--vary"), "words")
@example(("sweep", "--cluster"), "path")
@example(("moe", "--policy"), "long")
def test_values_of_options(pair, text):
    _attempt_option(pair, text)


@pytest.mark.long
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("pair", _OPTIONS, ids=[" ".join(pair) for pair in _OPTIONS])
def test_all_texts_as_values_of_options(pair):
    for text in TEXTS:
        _attempt_option(pair, text)


@pytest.mark.usefixtures("files")
def test_the_length_of_a_long_value_is_said():
    said = attempt_command("gemv", "--layout", TEXTS["long"])
    assert "(100,000 characters)" in said
    assert "localized" in said


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "key", ["model_type", "hidden_act", "dtype", "torch_dtype", "rope_scaling", "architectures"]
)
def test_texts_of_a_model(key):
    model = json.loads(Path("config.json").read_text())
    for text in TEXTS.values():
        Path("m.json").write_text(json.dumps({**model, key: text}))
        attempt_command("show", "model", "m.json")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("where", ["at import", "when it is asked"])
def test_texts_of_a_policy_of_ones_own(where):
    error = f"raise ValueError({TEXTS['long']!r})"
    body = error if where == "at import" else "pass"
    Path("mine.py").write_text(f"{body}\n")
    attempt_command("check", "--policy", "mine.py")
    attempt_command("moe", "--policy", "mine.py", "--model", "olmoe-1b-7b")


@pytest.mark.parametrize(
    "name", ["NDPSIM_CACHE_DIR", "NDPSIM_MEMORY_GIB", "XDG_CACHE_HOME", "TMPDIR", "COLUMNS"]
)
def test_variables_of_the_environment(name, here, monkeypatch):
    for text in TEXTS.values():
        monkeypatch.setenv(name, text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"))
        attempt_command("cache")
        attempt_command("requests", "generate", "poisson:requests=3", "-o", "r.csv")


def test_variables_that_are_read_at_the_start(here):
    long = "x" * LONG
    variables = {
        "NUMBA_OPT": long,
        "NUMBA_CPU_FEATURES": long,
        "NUMBA_NUM_THREADS": "9" * LONG,
        "NDPSIM_PUBLIC_NUMBA": long,
    }
    done = subprocess.run(
        [sys.executable, "-m", "ndpsim", "cache"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(here), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 2)
    for line in done.stderr.splitlines():
        check_line(line)
