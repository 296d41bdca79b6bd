"""Public calls with an argument of any type: refused in one line, or done."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ndpsim
from fuzz.outcomes import attempt, examples
from fuzz.values import ODD
from mistakes import refused
from ndpsim.dram.traces import HEADER
from ndpsim.inference.processors.operations import Step
from ndpsim.studies.sweeps.values import Definition
from ndpsim.workload.models import CompressedAttention, Index
from ndpsim.workload.models.recurrent import StateSpace
from test_python_face import CALLS, DEVICE, TRACE

RECORDS = (
    *ndpsim.load_model("qwen3-next-80b-a3b").attention_kinds,
    CompressedAttention(64, 512, 1536, 8, 1024, 128, 4, Index(512, 64, 128)),
    Index(64, 4, 128, pool=16),
    StateSpace(1, 8, 64, 64, 4),
    ndpsim.load_model("gpt-oss-120b").attention,
    ndpsim.load_model("deepseek-v2"),
    ndpsim.CommandBuses(),
    ndpsim.weight_file("q4_k_m", "deepseek-v2"),
    ndpsim.load_processors(),
    ndpsim.load_hardware("trimoe"),
    ndpsim.load_bank_hardware("aim"),
    DEVICE,
)
SWEPT = ndpsim.SweepResult(
    Definition("gemv", varied={"tokens": [1, 2]}),
    [
        {"tokens": n, "status": "ok", "reason": None, "time_ns": 90.0 * n, "version": "1", "config": "{}"}
        for n in (1, 2)
    ],
)
DENSE = ndpsim.load_processors().dense_time("deepseek-v2", 2, 5)
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
    "UnitCommands": (ndpsim.UnitCommands, {"columns": np.zeros((9, 1), int), "names": ["MAC"]}),
    "SweepResult": (type(SWEPT), {"definition": SWEPT.definition, "rows": SWEPT.rows}),
    "InputError": (ndpsim.InputError, {"problem": "is wrong"}),
    **{
        type(one).__name__: (type(one), {f.name: getattr(one, f.name) for f in fields(one)})
        for one in RECORDS
    },
}
#: Arguments of methods that have no default.
_GIVEN = {
    **dict.fromkeys(("context", "position", "hidden", "tokens", "queries"), 64),
    **{"new_tokens": 1, "kv_bits": 16, "lanes": 4, "layer": 0, "number": 0, "most": 3, "ranks": 1},
    **{
        "latency": "nCL",
        "metrics": ["time_ns"],
        "group": "attention",
        "problem": "is wrong",
        "size_bytes": 1,
    },
    **{"model": "deepseek-v2", "part": "deepseek-v2", "expert": ndpsim.Expert(64, 64)},
    **{"sequences": 1, "step": Step(1, 64), "places": [0], "names": ["ACT"]},
}
_METHODS = {
    f"{type(one).__name__}.{name}": method
    for one in (*RECORDS, SWEPT, DENSE, TRACE, ndpsim.InputError("is wrong"))
    for name, method in inspect.getmembers(one, inspect.ismethod)
    if not name.startswith("_")
    and inspect.signature(method).parameters
    and name not in ("of", "with_traceback")
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


@pytest.mark.parametrize("name", _METHODS)
def test_no_argument_of_a_method_takes_an_odd_value_with_a_traceback(name, here):
    method = _METHODS[name]
    parameters = inspect.signature(method).parameters.values()
    usual = {one.name: _GIVEN[one.name] for one in parameters if one.default is one.empty}
    assert attempt(method, **usual) is None or name == "DenseTime.plot"  # it has no picture
    for parameter in parameters:
        for value in ODD.values():
            attempt(method, **{**usual, parameter.name: value()})


def test_numbers_of_records_and_their_methods_are_in_range():
    attention = ndpsim.Attention(8, 2, 64, 64)
    assert attention.kept_bits(np.int32(3), kv_bits=np.int64(16)) == 3 * 2 * 128 * 16
    for wrong in (0, -1, 1 << 49, 10**5000, True, 2.0):
        with refused("range heads" if type(wrong) is int else "type heads"):
            ndpsim.Attention(wrong, 2, 64, 64)
    with refused("range kv_bits"):
        attention.fixed_bits(-1)
    with refused("range of_layer"):
        ndpsim.MixedAttention((attention,), (0, 1))
