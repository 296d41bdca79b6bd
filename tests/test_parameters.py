"""Tables of parameters: the command line, sweeps and Python refuse the same values and have the same defaults."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ndpsim
from calls import refused_call
from mistakes import mistake_of
from ndpsim.base.errors import InputError
from ndpsim.base.options import Choice, Flag, Parameter, Several, Table, Whole, table
from ndpsim.base.options.gemv import GEMV
from ndpsim.base.options.moe import CHECKS, MOE
from ndpsim.base.options.relayout import RELAYOUT
from ndpsim.base.options.routing import GENERATED
from ndpsim.base.options.serve import ServiceLevel, service_level
from ndpsim.base.options.swept import SWEPT
from ndpsim.cli.command import as_typed
from ndpsim.cli.sweep import keys_as_typed
from ndpsim.simulate import simulate_contention, simulate_expert
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.values import one_value

OF_PYTHON: list[tuple[Table, Callable[..., Any]]] = [
    (GEMV, simulate_expert),
    (GEMV, simulate_contention),
    (CHECKS, ndpsim.run_moe),
    (GENERATED, ndpsim.generate_routing),
]


@pytest.mark.parametrize(("parameters", "function"), OF_PYTHON)
def test_python_has_the_defaults_of_the_tables(parameters, function):
    signature = inspect.signature(function).parameters
    for one in parameters.values():
        if one.argument in signature and one.default is not None and one.name != "model":
            assert signature[one.argument].default in (one.default, None, inspect.Parameter.empty), one.name


@pytest.mark.parametrize(
    ("command", "name", "value", "call"),
    [
        ("moe", "batch", 0, lambda: ndpsim.run_moe(batch=0)),
        ("moe", "prefix", -1, lambda: ndpsim.run_moe(prefix=-1)),
        ("moe", "kv", "dimm", lambda: ndpsim.run_moe(kv="dimm")),
        ("gemv", "tokens", 16385, lambda: simulate_expert(tokens=16385)),
        ("gemv", "release-ns", -1, lambda: simulate_expert(release_ns=-1)),
        ("gemv", "start-clock", 0, lambda: simulate_expert(start_clock=0)),
        ("gemv", "host-reads", 1.5, lambda: simulate_contention(host_gbps=1, read_share=1.5)),
        ("relayout", "experts", 65, lambda: ndpsim.simulate_relayout(experts=65)),
        ("dram", "row-cap", 0, lambda: ndpsim.Memory(DEVICE, ndpsim.simulate.ControllerOptions(row_cap=0))),
        (
            "dram",
            "scheduler",
            "none",
            lambda: ndpsim.Memory(DEVICE, ndpsim.simulate.ControllerOptions("none")),
        ),
    ],
)
def test_the_same_value_is_refused_everywhere_by_its_name_there(command, name, value, call):
    one = SWEPT[command][name]
    with pytest.raises(InputError) as python:
        call()
    with pytest.raises(InputError) as typed:
        one.take(str(value), one.typed)
    with pytest.raises(InputError) as swept, keys_as_typed({"vary": (f"{name}={value}",)}):
        one_value(swept_commands()[command], name, value)
    assert python.value.code == typed.value.code == swept.value.code != "invalid"
    assert (python.value.key, typed.value.key) == (one.argument, f"--{name}")
    assert swept.value.key == f"--vary {name}"


DEVICE = ndpsim.Memory.named().device


def test_a_mistake_in_an_argument_is_one_in_the_option_unless_it_is_in_a_file():
    wrong = InputError("is wrong", key="source_dimms")
    assert as_typed(wrong, RELAYOUT).key == "--from-dimms"
    assert as_typed(InputError("is wrong", key="source_dimms", file="x"), RELAYOUT).key == "source_dimms"


def test_texts_numbers_and_numpys_are_the_same_value():
    whole = Parameter("n", "A number.", Whole(1, 1000))
    assert [whole.take(value) for value in ("8", 8, " 8 ", np.int64(8))] == [8, 8, 8, 8]
    for wrong in ("8.5", "x", "", True, None, 0, 1001):
        with pytest.raises(InputError):
            whole.take(wrong)
    several = Parameter("n", "Numbers.", Several(Whole(1)))
    assert [several.take(value) for value in ("8", "3,1", [3, 1], 2)] == [8, [3, 1], [3, 1], 2]
    assert Parameter("f", "A flag.", Flag()).take("true") is True


WRITTEN_AS_REAL = [
    ("gemv", "tokens", "1e3", 1e3),
    ("gemv", "bits", "16.0", 16.0),
    ("relayout", "experts", "4.0", 4.0),
]


@pytest.mark.parametrize(("command", "name", "written", "value"), WRITTEN_AS_REAL)
def test_a_whole_number_is_written_in_digits_everywhere(command, name, written, value):
    python = {"gemv": simulate_expert, "relayout": ndpsim.simulate_relayout}[command]
    assert mistake_of(python, **{name: value}).split()[1] == name
    assert refused_call(command, f"--{name}", written).split()[1] == f"--{name}"
    assert refused_call("sweep", command, "--vary", f"{name}={written}").split()[1:] == ["--vary", name]
    for given in (written, value):
        assert mistake_of(one_value, swept_commands()[command], name, given).split()[1] == name


def test_layers_and_steps_are_read_as_they_are_written():
    assert MOE["layers"].take("3,0-2") == [0, 1, 2, 3]
    assert CHECKS["check-layer"].take("3, 12") == (3, 12)


def test_limits_of_a_service_level_are_nanoseconds_and_may_be_reached():
    assert service_level("ttft=1.5s,tpot=50ms") == ServiceLevel(1.5e9, 50e6)
    assert service_level("tpot=200us") == ServiceLevel(None, 200e3)
    level = ServiceLevel(10.0, 2.0)
    assert [level.is_met(*times) for times in ((10.0, 2.0), (10.0, None), (10.1, 2.0), (10.0, 2.1))] == [
        True,
        True,
        False,
        False,
    ]


def test_what_needs_another_option_is_refused_without_it():
    parameters = table({"": (Parameter("a", "A."), Parameter("b", "B.", needs="a=x"), Parameter("c", "C."))})
    for given, refused in (
        ({"b": 1}, True),
        ({"a": "y", "b": 1}, True),
        ({"a": "x", "b": 1}, False),
        ({"c": 1}, False),
    ):
        if refused:
            with pytest.raises(InputError) as caught:
                parameters.check_needs(given)
            assert (caught.value.key, caught.value.code) == ("b", "conflict")
        else:
            parameters.check_needs(given)


def test_every_need_is_of_an_option_that_is_there_and_every_default_is_allowed():
    for name, parameters in SWEPT.items():
        for one in parameters.values():
            for needed, _, value in (either.partition("=") for either in one.needs.split()):
                assert needed in parameters, (name, one.name)
                assert not value or value in getattr(parameters[needed].kind, "names", (value,))
            assert one.default is None or one.take(one.default) == one.default, (name, one.name)
            assert not isinstance(one.kind, Choice) or len(set(one.kind.names)) == len(one.kind.names)


def test_tables_import_nothing_that_takes_its_time():
    code = """
import sys, ndpsim.base.options.swept, ndpsim.base.options.predict, ndpsim.base.options.dram, ndpsim.base.options.show
print(*{"numba", "numpy", "pydantic", "matplotlib", "yaml"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
