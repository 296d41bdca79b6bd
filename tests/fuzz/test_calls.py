"""Public calls with an argument of any type: refused in one line, or done."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ndpsim
from fuzz.outcomes import attempt, examples
from fuzz.values import ODD
from ndpsim.dram.traces import HEADER
from test_python_face import CALLS

_WRONG = {name: [key for key, values in wrong.items() if values] for name, (*_, wrong) in CALLS.items()}
_PAIRS = [(name, argument) for name, arguments in _WRONG.items() for argument in arguments]
#: Constructors of inputs: class, and arguments with which it succeeds.
_INPUTS = {
    "Requests": (ndpsim.Requests, {"address": [0], "write": [0]}),
    "CommandTrace": (
        ndpsim.CommandTrace,
        {name: [1] for name in HEADER},
    ),
    "Routing": (ndpsim.Routing, {"experts": 2, "layers": [0], "ids": [[[[0]]]]}),
    "Probe": (ndpsim.Probe, {}),
    "ResultCache": (ndpsim.ResultCache, {}),
    "ExpertFormat": (ndpsim.ExpertFormat.of, {"bits": 16}),
    "Expert": (ndpsim.Expert, {"hidden": 64, "intermediate": 64}),
}


def _attempt(name: str, argument: str, value: str) -> None:
    function, given_arguments, _ = CALLS[name]
    named = {"run_rows": {"row": "rows"}, "parse_layout": {"layout": "name"}}.get(name, {})
    attempt(function, **{**given_arguments, named.get(argument, argument): ODD[value]()})


@pytest.mark.parametrize("name", [name for name, arguments in _WRONG.items() if arguments])
def test_no_argument_of_a_call_takes_an_odd_value_with_a_traceback(name, here):
    values = list(ODD)
    for number, argument in enumerate(_WRONG[name]):
        for step in range(3):  # each value is tried by many arguments, and each argument several
            _attempt(name, argument, values[(7 * number + 11 * step) % len(values)])


@pytest.mark.long
@settings(max_examples=examples(20_000))
@given(st.sampled_from(_PAIRS), st.sampled_from(sorted(ODD)))
@example(("run_trace", "refresh"), "a generator")
@example(("run_trace", "requests"), "half a surrogate pair")
@example(("load_model", "model"), "a failing object")
@example(("run_moe", "policies"), "a table")
def test_every_argument_with_every_odd_value(pair, value):
    _attempt(*pair, value)


@pytest.mark.parametrize("name", _INPUTS)
def test_no_field_of_an_input_takes_an_odd_value_with_a_traceback(name, here):
    made, usual = _INPUTS[name]
    for argument in inspect.signature(made).parameters:
        for value in ODD.values():
            attempt(made, **{**usual, argument: value()})
