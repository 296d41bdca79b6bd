"""The package as Python users meet it: names, arguments of any type, results that show, compare and convert."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import os
import pickle
import rlcompleter
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import ndpsim
import ndpsim.simulate
from mistakes import refused
from ndpsim.base.errors import InputError, shown
from ndpsim.config.files import data_folder
from ndpsim.dimm.layout import Geometry, make_layout, parse_layout
from ndpsim.dram.traces import check_command_form
from ndpsim.dram.traces.unit_commands import UnitCommands
from ndpsim.studies.bench import run_rows
from ndpsim.workload.models import parse_shape
from ndpsim.workload.requests import Measured, Requests

SMALL = ndpsim.Expert(256, 128)
DEVICE = ndpsim.resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
TRACE = ndpsim.CommandTrace([1, 40], [0, 2], [0, 0], [1, 1], [2, 2], [3, 3], [-1, 5])
REQUESTS = ndpsim.Requests.of([0, 64, 128], [0, 1, 0])
PROGRAM = Path(__file__).parents[1] / "examples/banks/aim_gemv.csv"
SKEWED = ndpsim.generate_routing("skewed", "mixtral-8x7b", 2, 1)
AIM = ndpsim.load_bank_hardware("aim").device
UNIT_COMMANDS = UnitCommands(np.array([[1, 0, 0, -1, -1, 0, 0, 5, -1]]).T, AIM.names)


MADE: dict[str, Callable[[], Any]] = {
    "expert": lambda: ndpsim.simulate_expert(model=SMALL, record_commands=True),
    "contention": lambda: ndpsim.simulate_contention(model=SMALL),
    "host read": lambda: ndpsim.simulate_host_read(model=SMALL),
    "relayout": lambda: ndpsim.simulate_relayout(model=SMALL),
    "trace": lambda: ndpsim.run_requests(REQUESTS, ndpsim.Memory(DEVICE)),
    "placed": lambda: ndpsim.place_expert(model=SMALL),
}


@cache
def results() -> dict[str, Any]:
    """One result of each kind, small."""
    return {kind: make() for kind, make in MADE.items()}


# Names.


def test_names_are_shown_once_in_dir_and_by_completion():
    assert dir(ndpsim) == sorted(set(ndpsim.__all__))
    completer = rlcompleter.Completer({"ndpsim": ndpsim})
    found = []
    while (match := completer.complete("ndpsim.", len(found))) is not None:
        found.append(match.partition("(")[0])
    public = [name for name in found if not name.startswith("ndpsim.__")]
    assert sorted(public) == [f"ndpsim.{name}" for name in dir(ndpsim)]
    assert {"MismatchError", "ExpertFormat", "read_requests", "run_requests", "sweep_load", "Memory"} <= set(
        dir(ndpsim)
    )


def test_a_name_that_is_not_there_says_so():
    with pytest.raises(AttributeError, match="'ndpsim.simulate' has no attribute 'simulate_nothing'"):
        ndpsim.simulate.simulate_nothing  # noqa: B018


def test_importing_reads_no_numpy():
    code = "import sys, ndpsim; dir(ndpsim); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public callables by name: of the package, of `simulate`, and the methods of their classes."""
    for module in (ndpsim, ndpsim.simulate):
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                for method, of_class in inspect.getmembers(value, inspect.isroutine):
                    own = "ndpsim" in str(getattr(of_class, "__module__", "")) and callable(of_class)
                    if own and not method.startswith("_"):
                        yield f"{module.__name__}.{name}.{method}", of_class


def test_signatures_and_docstrings_can_be_read():
    for name, function in functions():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.default is not parameter.empty:
                shown = repr(parameter.default)
                assert len(shown) <= 40, (name, parameter.name)
                assert "<" not in shown, (name, parameter.name)
        assert (inspect.getdoc(function) or "").strip(), name


def test_docstrings_say_what_is_raised():
    for name in ndpsim.__all__:
        function = getattr(ndpsim, name)
        if inspect.isfunction(function) and not name.endswith("_names"):
            words = inspect.getdoc(function) or ""
            assert "Raises:" in words, name
            assert "InputError" in words, name


# Arguments.

NOTHING, PAIR, LONG = object(), np.array([1, 2]), "x" * 5000
WRONG = (
    None,
    [],
    {},
    NOTHING,
    b"trimoe",
    float("nan"),
    -1,
    True,
    1.5,
    "",
    "nonsense",
    [None],
    {"a": 1},
    10**5000,
    PAIR,
    LONG,
)


def but(*fine: Any) -> list[Any]:
    """The wrong values without those that are allowed here."""
    return [value for value in WRONG if not any(value is one or _alike(value, one) for one in fine)]


def _alike(value: Any, other: Any) -> bool:
    return type(value) is type(other) and not isinstance(value, np.ndarray) and bool(value == other)


_HW = {
    "hw": but({}),
    "model": but(),
    "sets": [*but([], {}), "dimm.ranks=2", [2], np.array(1), {"dimm.ranks"}, {2: 2}],
}
_FLAG = [*but(True), 1, 0, "yes", np.array([True])]
_PROGRESS = but(None, True)
_COUNT = [*but(), 0, 2.0, np.float64(2), np.bool_(True), "1"]
_COUNT_OR_NONE = [one for one in _COUNT if one is not None]
_BITS = [*but(), 7, 16.0, "16", np.array([16])]
_RUN = {
    "layout": but(),
    "bits": _BITS,
    "record_commands": _FLAG,
    "progress": _PROGRESS,
    "cache": _FLAG,
}
_CHANNEL = {
    "standard": but(),
    "org": but(),
    "timing": but(),
    "ranks": [*_COUNT, 65],
    "rules": but(),
    "overrides": [*but(None, {}), {"nCL": 0}, {"nCL": True}, {"nCL": "40"}, {3: 40}, {"nCLL": 40}],
}

_IN_BANKS = {
    "hw": but(),
    "sets": [*but([], {}), "channels=2", [2], np.array(1), {"channels"}],
    "rules": but(),
}

#: How the points of a sweep or a search are run.
_POINTS = {
    "out": but(None, "nonsense"),
    "jobs": [*but(None), 0, 1.0, "1"],
    "cluster": but(None, "nonsense", LONG),
    "retry_failed": _FLAG,
    "force": _FLAG,
    "progress": _PROGRESS,
}
_ROUTING = {
    "routing": but(),
    "model": but(None),
    "batch": _COUNT_OR_NONE,
    "steps": [*but(None), 2.0],
    "prompt": [*but(), 2.0],
    "seed": [*but(), 1.0, "1"],
    "offline": _FLAG,
}

# By name: the call, with all that has no default, and the wrong values of each of its arguments.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, list[Any]]]] = {
    "simulate_expert": (
        ndpsim.simulate_expert,
        {"model": SMALL},
        {
            **_HW,
            "tokens": [*(one for one in _COUNT if one is not PAIR), 16385, [], [1, 0], [2.0]],
            "release_ns": [*but(1.5), -1, 1e10, [], [0, 1], [-1.0], "5"],
            "start_clock": [*_COUNT, (1 << 48) + 1],
            "refresh_phases": [*but(None), 0, 2.0, 1025, "1"],
            **_RUN,
            "exact_check": _FLAG,
            "rtl": but(None),
            "vcd": but(None),
        },
    ),
    "load_processors": (ndpsim.load_processors, {}, {"hw": _HW["hw"], "sets": _HW["sets"]}),
    "simulate_contention": (
        ndpsim.simulate_contention,
        {"model": SMALL},
        {
            **_HW,
            "tokens": [*(one for one in _COUNT if one is not PAIR), 16385, [], [1, 0], [2.0]],
            "release_ns": [*but(1.5), -1, 1e10, [], [0, 1], [-1.0], "5"],
            **_RUN,
            "host_gbps": [*but(1.5), 1e9, "5"],
            "read_share": [*but(), 2, "0.5"],
            "pattern": but(),
            "arbitration": but(),
            "slice_clocks": _COUNT,
        },
    ),
    "simulate_dimm": (
        ndpsim.simulate_dimm,
        {"experts": [{"model": SMALL}]},
        {
            "hw": but(),
            "experts": [*but([]), [3], [{"token": 3}]],
            "host": [*but([]), [{"rate": 3}]],
            "host_reads": [*but([]), [{"gbps": 3, "from": 0}]],
            "relayout": but(None, {}),
            "until_ns": but(None, 1.5, True, 10**5000),
            "dimms": [*but(None), 0, 3, "1"],
            "arbitration": but(),
            "slice_clocks": _COUNT,
            "start_clock": _COUNT,
            "open_rows": [*but([]), [(0, 0, 0)], [(9, 0, 0, 0)]],
            "sets": [*but([], {}), "dimm.ranks=2"],
            "record_commands": _FLAG,
        },
    ),
    "simulate_host_read": (
        ndpsim.simulate_host_read,
        {"model": SMALL},
        {
            **_HW,
            **_RUN,
            "exact_check": _FLAG,
        },
    ),
    "simulate_relayout": (
        ndpsim.simulate_relayout,
        {"model": SMALL},
        {
            **_HW,
            "experts": [*_COUNT, 65],
            "source": but(),
            "target": but(),
            "source_dimms": [*but(None), "0", ["0"], [True], [16], [0, 1], {0}],
            "target_dimms": [*but(None), [1.0]],
            "bits": _BITS,
            "host": _FLAG,
            "other_dimms": _FLAG,
            "record_commands": _FLAG,
            "progress": _PROGRESS,
            "cache": _FLAG,
        },
    ),
    "place_expert": (ndpsim.place_expert, {"model": SMALL}, {**_HW, "layout": but(), "bits": _BITS}),
    "run_moe": (
        ndpsim.run_moe,
        {"model": "deepseek-moe-16b", "layers": (1,), "batch": 2, "steps": 1, "policies": ("monde",)},
        {
            **_HW,
            "policies": [*but(), (3,)],
            "batch": _COUNT_OR_NONE,
            "steps": _COUNT_OR_NONE,
            "routing": but(None),
            "seed": [*but(), 1.0, "1"],
            "prompt": [*but(None), 0, 1.0],
            "prefix": [*but(), 1.0],
            "layers": [*but(None, PAIR), 0, (0,), (28,), (1.0,)],
            "bits": [*but(None), 7, 16.0, "16"],
            "dense_bits": [*but(None), 0, 33, 16.0, "16"],
            "weights": but(None),
            "kv": but(),
            "attention": but(),
            "kv_bits": [*but(), 0, 33, 16.0, "16"],
            "context": _COUNT,
            "gpu_experts": [*but(None), -1, 1.0],
            "host_gbps": [*but(None, 1.5), 1e9, "5"],
            "arbitration": but(),
            "observer": but(None),
            "check_layer": [*but(None), (0,), (0, 99), (1, 1)],
            "check_limit": [*but(1.5, True), -0.1, "1"],
            "bounds": _FLAG,
            "progress": _PROGRESS,
            "cache": _FLAG,
        },
    ),
    "find_rate": (
        ndpsim.find_rate,
        {"slo": "ttft=1s", "requests": "poisson:requests=2", "model": "deepseek-moe-16b", "policy": "monde"},
        {"slo": but(), "attainment": [*but(0.5, 1), 1.5, "1"], "progress": _PROGRESS},
    ),
    "run_serving": (
        ndpsim.run_serving,
        {
            "model": "deepseek-moe-16b",
            "requests": Requests(np.zeros(1), np.ones(1, int), np.ones(1, int)),
            "policy": "monde",
        },
        {
            **_HW,
            "requests": but(LONG),
            "policy": but(None),
            "rate": [*but(None, 1.5, 1, 3), 0, -1.0],
            "slo": but(None),
            "scheduler": but(),
            "parallel": but(None),
            "async_scheduling": _FLAG,
            "step_overhead_us": [*but(1.5), -1.0, "a"],
            "max_batch": _COUNT,
            "max_tokens": _COUNT,
            "preemption": but(),
            "kv": but(),
            "attention": but(),
            "kv_bits": [*but(), 0, 33, 16.0, "16"],
            "kv_blocks": [*but(None), 0, 1.0],
            "block_tokens": _COUNT,
            "prefix_cache": _FLAG,
            "routing": but(None),
            "seed": [*but(), 1.0, "1"],
            "bits": [*but(None), 7, 16.0, "16"],
            "dense_bits": [*but(None), 0, 33, 16.0, "16"],
            "weights": but(None),
            "gpu_experts": [*but(None), -1, 1.0],
            "host_gbps": [*but(None, 1.5), 1e9, "5"],
            "arbitration": but(),
            "log": but(None),
            "observer": but(None),
            "progress": _PROGRESS,
            "cache": _FLAG,
        },
    ),
    "predict": (
        ndpsim.predict,
        {"cpu": "ryzen-9-7950x", "memory": "ddr5-4800x2", "gpu": "rtx-4090", "model": "deepseek-moe-16b"},
        {
            **{name: but() for name in ("cpu", "memory", "gpu", "model", "link", "program")},
            "weights": but(None),
            **dict.fromkeys(("prompt", "generated"), _COUNT),
            "sockets": [*_COUNT, 9],
            "chunk": [*but(None, 10**5000), 0, 1.0],
            "n_cpu_moe": [*but(None), 1.0],
            "memory_gb": [*but(None, 1.5), -0.1, "64"],
            "kv_bits": [*but(), 0, 33],
            "sets": _HW["sets"],
            "upgrades": _FLAG,
            "seed": [*but(), 1.0],
            "progress": _PROGRESS,
        },
    ),
    "sweep": (
        ndpsim.sweep,
        {"command": "gemv", "vary": {"tokens": [1]}, "fixed": {"shape": "256,128"}},
        {
            "command": but(),
            "vary": [*but(), {"tokens": []}, {"tokens": [0]}, {"tokens": NOTHING}, {3: [1]}],
            "fixed": [*but(None, {}), {"tokens": 0}, {"dimm.ranks": "two"}],
            "zip": [*but(True, []), ["tokens"], [["token"]]],
            "baseline": [*but(None, {}), {"tokens": 2}],
            **_POINTS,
        },
    ),
    "check_schedule": (
        ndpsim.check_schedule,
        {"path": "log.jsonl"},
        {"path": but(LONG), "limit": [*but(), -1, 1.0, "1"]},
    ),
    "check_serving": (
        ndpsim.check_serving,
        {"path": "log.jsonl"},
        {"path": but(LONG), "limit": [*but(), -1, 1.0, "1"]},
    ),
    "generate_requests": (
        ndpsim.generate_requests,
        {},
        {"requests": but(), "seed": [*but(), -1, 1.0]},
    ),
    "import_requests": (
        ndpsim.import_requests,
        {"file": "none.csv"},
        {"file": but(LONG), "format": but(None), "first": [*but(None), 0], "run": [*but(None), 0]},
    ),
    "load_requests": (
        ndpsim.load_requests,
        {"requests": "poisson"},
        {"requests": but(), "seed": [*but(), -1, 1.0]},
    ),
    "save_requests": (
        ndpsim.save_requests,
        {"requests": ndpsim.generate_requests("poisson:requests=1"), "path": "none/r.csv"},
        {"requests": but(), "path": but(LONG, "nonsense")},
    ),
    "compare_measured": (
        ndpsim.compare_measured,
        {
            "run": None,
            "requests": Requests(
                np.zeros(1), np.ones(1, int), np.ones(1, int), measured=Measured(np.ones(1), np.ones(1))
            ),
        },
        {"run": but(), "requests": but()},
    ),
    "describe_requests": (ndpsim.describe_requests, {}, {"requests": but()}),
    "load_hardware": (
        ndpsim.load_hardware,
        {"hw": "trimoe"},
        {**{name: _HW[name] for name in ("hw", "sets")}, "command": [*but(None), "fry"]},
    ),
    "check_policy": (
        ndpsim.check_policy,
        {"policy": "klotski"},
        {"policy": but(), "machine": but(None), "estimates": but(None), "seed": [*but(), -1, 1.0]},
    ),
    "load_model": (ndpsim.load_model, {}, {"model": but()}),
    "weight_file": (
        ndpsim.weight_file,
        {"weights": "q4_k_m", "model": "deepseek-v2"},
        {"weights": but(), "model": but()},
    ),
    "resolve": (ndpsim.resolve, dict(standard="DDR5", org="DDR5_16Gb_x8", timing="DDR5_4800AN"), _CHANNEL),
    "Memory.named": (
        ndpsim.Memory.named,
        {},
        {**_CHANNEL, "mapper": but(), "channels": _COUNT, "options": but(None)},
    ),
    "Memory": (
        ndpsim.Memory,
        {"device": DEVICE},
        {
            "device": but(),
            "options": but(None),
            "mapper": but(),
            "mapping": but(None),
            "channels": [*_COUNT, 4097],
            "power": [*but(None, {}, {"a": 1}), {"IDD0": "1"}, {1: 1.0}],
        },
    ),
    "Memory.of_hardware": (ndpsim.Memory.of_hardware, {}, {"hardware": [*but(), "trimoe"]}),
    "run_trace": (
        ndpsim.run_trace,
        {"requests": ([0, 64], [0, 1])},
        {
            **_CHANNEL,
            "requests": [
                *but(LONG),
                ([0],),
                ([0], [2]),
                ([0.5], [0]),
                ([0, 1], [0]),
                (None, None),
                ([-64], [0]),
            ],
            "mapper": but(),
            "scheduler": but(),
            "row_policy": but(),
            "row_cap": _COUNT,
            "refresh": but(),
            "read_buffer": _COUNT,
            "write_buffer": _COUNT,
            "channels": _COUNT,
            "wrap": _FLAG,
            "wck": but(),
            "refresh_control": but(None),
            "rfm": but(),
            "rfm_threshold": but(None),
            "rck": but(),
            "rck_idle": [one for one in _COUNT if type(one) is not int or one],
            "record_commands": _FLAG,
            "exact_check": _FLAG,
            "cache": _FLAG,
            "jobs": but(None),
        },
    ),
    "run_requests": (
        ndpsim.run_requests,
        {"requests": REQUESTS, "memory": ndpsim.Memory(DEVICE)},
        {
            "requests": [*but(), ([0], [0])],
            "memory": but(),
            "wrap": _FLAG,
            "record_commands": _FLAG,
            "exact_check": _FLAG,
            "progress": _PROGRESS,
            "cache": _FLAG,
            "jobs": but(None),
        },
    ),
    "optimize": (
        ndpsim.optimize,
        {
            "command": "gemv",
            "vary": {"tokens": [1]},
            "objectives": {"time_ns": "minimize"},
            "fixed": {"shape": "256,128"},
        },
        {
            "command": but(),
            "vary": [*but(), {"tokens": []}, {"tokens": "2.5..1.5"}, {3: [1]}],
            "objectives": [*but(), {"time_ns": "less"}, {"time_ns": 1}, {"time": "minimize"}],
            "constraints": [*but(None, {}), {"time_ns": 5}, {"time_ns": "5"}, {"time": "<= 5"}],
            "derived": [*but(None, {}), {"x": 5}, {"x": "1 +"}, {"x": "f(1)"}, {"x": "time"}],
            "fixed": [*but(None, {}), {"tokens": 0}, {"dimm.ranks": "two"}],
            "zip": [*but(True, []), ["tokens"], [["token"]]],
            "base": [*but(None, {}), {"tokens": 2}],
            "budget": [*but(None), 0, 1.0, "1"],
            "sampler": but(None),
            "seed": [*but(None), -1, 1.0, "1"],
            "batch": [*but(None), 0, 1.0, "1"],
            **_POINTS,
        },
    ),
    "sweep_load": (
        ndpsim.sweep_load,
        {"requests": REQUESTS, "memory": ndpsim.Memory(DEVICE), "loads": [0.5]},
        {
            "requests": but(),
            "memory": but(),
            "loads": [*but(None, [], PAIR), [0], [-0.5], ["1"], [float("inf")], {0.5}],
            "wrap": _FLAG,
            "progress": _PROGRESS,
        },
    ),
    "run_pim": (
        ndpsim.run_pim,
        {"program": PROGRAM, "hw": "aim"},
        {
            "program": but(LONG),
            "record_commands": _FLAG,
            "host": [*but(None, {}), {"x": 1}, {"host_gbps": "1"}],
            **_IN_BANKS,
        },
    ),
    "simulate_bank_expert": (
        ndpsim.simulate_bank_expert,
        {"hw": "aim", "model": SMALL},
        {"model": but(), "tokens": _COUNT, "record_commands": _FLAG, **_IN_BANKS},
    ),
    "simulate_bank_attention": (
        ndpsim.simulate_bank_attention,
        {"hw": "attacc", "model": "mixtral-8x7b", "context": 64},
        {
            "model": [*but(), SMALL],
            "context": _COUNT,
            "batch": _COUNT,
            "record_commands": _FLAG,
            "append": _FLAG,
            "append_tokens": [*_COUNT, 65],
            "expert_tokens": [*but(), -1, 2.0, "1"],
            **_IN_BANKS,
        },
    ),
    "simulate_layer_attention": (
        ndpsim.simulate_layer_attention,
        {"hw": "dgx-attacc", "model": "mixtral-8x7b", "context": 64},
        {
            **_HW,
            "model": [*but(), SMALL],
            "context": _COUNT,
            "batch": _COUNT,
            "engine": but(None),
            "cache": _FLAG,
        },
    ),
    "load_bank_hardware": (ndpsim.load_bank_hardware, {"hw": "aim"}, _IN_BANKS),
    "check_units": (
        ndpsim.check_units,
        {"commands": UNIT_COMMANDS, "device": AIM},
        {"commands": but(), "device": but(), "limit": [*but(), "20", 1 << 40]},
    ),
    "read_unit_commands": (
        ndpsim.read_unit_commands,
        {"path": "units.csv", "device": AIM},
        {"path": but(LONG), "device": but()},
    ),
    "write_unit_commands": (
        ndpsim.write_unit_commands,
        {"path": "units.csv", "commands": UNIT_COMMANDS, "device": AIM},
        {"path": but("nonsense", LONG), "commands": but(), "device": but()},
    ),
    "check": (
        ndpsim.check,
        {"trace": TRACE, "device": DEVICE},
        {
            "trace": [*but(), "commands.csv"],
            "device": [*but(), "DDR5"],
            "refresh": but(),
            "limit": [*but(), "20", 1 << 40],
            "max_postponed": but(None),
            "max_pulled_in": but(None),
            "start_clock": but(),
            "rfm": but(),
            "rfm_threshold": but(None),
        },
    ),
    "check_lanes": (
        ndpsim.check_lanes,
        {"trace": TRACE, "device": DEVICE, "lanes": 2},
        {
            "trace": but(),
            "device": but(),
            "lanes": [*_COUNT, 10**12],
            "refresh": but(),
            "limit": but(),
            "max_postponed": but(None),
            "max_pulled_in": but(None),
            "rfm": but(),
            "rfm_threshold": but(None),
            "start_clock": but(),
            "buses": but(None),
        },
    ),
    "read_commands": (
        ndpsim.read_commands,
        {"path": "nonsense"},
        {"path": [*but("nonsense", LONG), "a\0b", 3], "device": but(None)},
    ),
    "read_requests": (
        ndpsim.read_requests,
        {"path": "nothing"},
        {"path": [*but("nonsense", LONG), "a\0b", 3], "format": but(None)},
    ),
    "write_commands": (
        ndpsim.write_commands,
        {"path": "/nowhere/commands.csv", "trace": TRACE},
        {
            "path": [*but("nonsense", LONG), "a\0b", 3],
            "trace": but(),
            "form": but(),
            "channel": [*but(), "0"],
            "device": but(None),
        },
    ),
    "import_hardware": (
        ndpsim.import_hardware,
        {"path": "nothing.ini"},
        {"path": [*but("nonsense", LONG), 3], "name": [NOTHING, b"x", 3, []]},
    ),
    "Expert": (
        ndpsim.Expert,
        {"hidden": 1, "intermediate": 1},
        {"hidden": _COUNT, "intermediate": _COUNT, "gated": _FLAG},
    ),
    "Expert.weight_bytes": (SMALL.weight_bytes, {}, {"bits": [*_COUNT, 65]}),
    "ExpertFormat": (
        ndpsim.ExpertFormat,
        {name: ndpsim.WeightFormat(4) for name in ("gate", "up", "down")},
        {"gate": [*but(None), 4], "up": [*but(), 4], "down": [*but(), 4]},
    ),
    "ExpertFormat.of": (
        ndpsim.ExpertFormat.of,
        {"bits": 4, "group_size": 128},
        {
            "bits": [*_BITS, {"gate": 4}, {"gate": "4", "up": 4, "down": 4}],
            "group_size": [*but(), 1 << 30],
            "scale_bits": [*_COUNT, 65],
            "zero_point_bits": [*but(None), 65],
        },
    ),
    "WeightFormat": (
        ndpsim.WeightFormat,
        {"bits": 4, "group_size": 128},
        {"bits": _BITS, "group_size": but(), "scale_bits": _COUNT, "zero_point_bits": but()},
    ),
    "CommandTrace": (
        ndpsim.CommandTrace,
        {name: [0] for name in ("clock", "command", "rank", "bankgroup", "bank", "row", "column")},
        {name: [*but([]), [1.5], ["1"], [[1]], [1 << 63]] for name in ("clock", "command", "rank", "row")},
    ),
    "CommandTrace.of": (ndpsim.CommandTrace.of, {}, {"columns": [*but(), [[1, 2]], np.zeros((7, 2))]}),
    "CommandTrace.take": (TRACE.take, {}, {"places": [*but([], True, PAIR, -1), [2], "x", [0.5]]}),
    "CommandTrace.names_of": (TRACE.names_of, {}, {"places": [*but([]), [2], "x", [0.5]]}),
    "CommandTrace.numbered": (TRACE.numbered, {}, {"names": [*but([]), [1]]}),
    "Device.clocks": (DEVICE.clocks, {}, {"latency": but("")}),
    "Hardware.bus_device": (ndpsim.load_hardware("trimoe").bus_device, {}, {"ranks": [*_COUNT, 65]}),
    "Hardware.bank_link_ns": (
        ndpsim.load_hardware("dgx-attacc").bank_link_ns,
        {},
        {"size_bytes": [*but(1.5), -1, "1"]},
    ),
    "Routing.for_model": (
        SKEWED.for_model,
        {"model": ndpsim.load_model("mixtral-8x7b")},
        {
            "model": [*but(), "mixtral-8x7b"],
            "batch": [*but(None), 0, 9],
            "steps": [*but(None), 0, 9],
            "layers": [*but(None, [], PAIR), (99,)],
        },
    ),
    "Routing.loads": (SKEWED.loads, {"step": 0, "layer": 0}, {"step": but(), "layer": [*but(), 99, 0.0]}),
    "Routing.row": (SKEWED.row, {}, {"layer": [*but(), 99, 0.0]}),
    "WeightFile.of_class": (ndpsim.weight_file("q4_k_m", "deepseek-v2").of_class, {}, {"group": but()}),
    **{
        f"WeightFormat.{name}": (getattr(ndpsim.WeightFormat(4, 128), name), {}, {argument: wrong})
        for name, argument, wrong in (
            ("groups", "columns", but(10**5000)),
            ("row_bits", "columns", but(10**5000)),
            ("weight_at", "column", but(-1, 10**5000, PAIR)),
            ("scale_at", "group", but(-1, 10**5000, PAIR)),
            ("owner", "bit", but(-1, 10**5000, PAIR)),
        )
    },
    "Requests.of": (
        ndpsim.Requests.of,
        {"address": [0, 64], "write": [0, 1]},
        {
            "address": [*but([], PAIR), [0.5, 1], [-1, 0], [True, False], [1 << 64, 0]],
            "write": [*but([]), [0, 2], [0.0, 1.0], ["0", "1"]],
            "file": [NOTHING, b"x", 3],
        },
    ),
    "Requests": (
        ndpsim.Requests,
        {"address": [0, 64], "write": [0, 1]},
        {
            "cycle": [*but(None, [], PAIR), [2, 1], [-1, 0], [0, 1, 2]],
            "write": [*but([]), [0, 2]],
            "skipped": but(None, [], PAIR),
        },
    ),
    "parse_layout": (parse_layout, {}, {"layout": but()}),
    "make_layout": (
        make_layout,
        {"name": "localized", "geometry": Geometry(1, 1, 1, 1, DEVICE), "weights": None},
        {"layout": []},
    ),
    "Geometry": (
        Geometry,
        dict(channels=1, dimms=1, ranks=1, subchannels=1, device=DEVICE),
        {**dict.fromkeys(("channels", "dimms", "ranks", "subchannels"), _COUNT), "device": but()},
    ),
    "generate_routing": (
        ndpsim.generate_routing,
        {"model": "mixtral-8x7b", "batch": 2, "steps": 1},
        _ROUTING,
    ),
    "find_routing": (
        ndpsim.find_routing,
        {"model": "mixtral-8x7b", "batch": 2, "steps": 1, "routing": "skewed"},
        {
            **{
                name: values
                for name, values in _ROUTING.items()
                if name not in ("routing", "offline", "model")
            },
            "model": but(),
            "routing": but(None),
            "layers": [*but(None, [], PAIR), (99,)],
        },
    ),
    "import_routing": (
        ndpsim.import_routing,
        {"files": "none.csv"},
        {
            "files": [*but(LONG), {"a"}],
            "format": but(None),
            "model": but(None),
            "experts": [*but(None), 0, 1 << 16],
            "experts_per_token": [*but(None), 0],
            "steps": [*but(None), 0],
        },
    ),
    "describe_routing": (
        ndpsim.describe_routing,
        {"routing": ndpsim.generate_routing("skewed", "mixtral-8x7b", 1, 1)},
        {"routing": but(), "pairs": _FLAG},
    ),
    "load_routing": (ndpsim.load_routing, {"path": "none.npz"}, {"path": but(LONG), "model": but(None)}),
    "capture_routing": (ndpsim.capture_routing, {}, {"model": but()}),
    "Routing": (
        ndpsim.Routing,
        {"experts": 4, "layers": (0,), "ids": [[[[0, 1]]]]},
        {
            "experts": [*_COUNT, 1 << 16],
            "layers": [*but(PAIR), [1.0], {0}],
            "ids": [*but(), [[[[0.0, 1.0]]]]],
            "scores": [*but(None), [[[[0, 1]]]]],
        },
    ),
    "check_command_form": (check_command_form, {}, {"form": but()}),
    "parse_shape": (parse_shape, {}, {"text": but("", "nonsense", LONG)}),
    "run_rows": (
        run_rows,
        {"rows": ["import"]},
        {"row": [*but([]), "import"], "repeat": _COUNT, "progress": _PROGRESS},
    ),
}
# Where a mistake in an argument is told under another word, and why.
KEYS = {
    "overrides": {"overrides", "nCL", "nCLL", "a"},  # the timing itself
    "write": {"write", "address", "requests"},  # of another length than the addresses
    "address": {"address", "requests"},
    "layout": {"layout", "name"},
    "loads": {"loads"},
    "policies": {"policies", "policy"},  # one of them
    "vary": {"vary", "tokens", "a"},  # the key itself
    "fixed": {"fixed", "tokens", "dimm.ranks", "a"},
    "baseline": {"baseline", "a"},
    "objectives": {"objectives", "time_ns", "time", "a"},  # the metric itself
    "constraints": {"constraints", "time_ns", "time", "a"},
    "host": {"host", "host_gbps"},
    "derived": {"derived", "x", "a"},
    "base": {"base", "a"},
}


def fault_in_refusal(call: str, argument: str, value: Any) -> str:
    """What is wrong with how a call refuses a value of an argument; empty where one line names the argument."""
    function, given, _ = CALLS[call]
    name = {"run_rows": {"row": "rows"}, "parse_layout": {"layout": "name"}}.get(call, {}).get(
        argument, argument
    )
    try:
        function(**{**given, name: value})
    except InputError as error:
        words, key, unnamed = str(error), error.key, error.file is not None or error.code == "unknown-name"
    else:
        return "is taken"
    if "\n" in words or len(words) >= 600:
        return "is no line"
    if argument in ("hw", "sets"):
        of_file = isinstance(value, str | dict) or (argument == "sets" and isinstance(value, list))
        return "" if of_file or key == argument else words
    return "" if (key is None and unnamed) or key in KEYS.get(argument, {argument}) else words


@pytest.mark.parametrize("call", CALLS)
def test_wrong_arguments_are_refused_by_name(call):
    asked = ((argument, value) for argument, values in CALLS[call][2].items() for value in values)
    found = ((argument, value, fault_in_refusal(call, argument, value)) for argument, value in asked)
    assert [(name, type(value), shown(value), fault) for name, value, fault in found if fault] == []


def test_every_argument_of_the_simulations_is_in_the_table():
    for name in ndpsim.__all__:
        function = getattr(ndpsim, name)
        if inspect.isfunction(function) and not name.endswith("_names"):
            _, _, table = CALLS[name]
            parameters = inspect.signature(function).parameters.values()
            assert set(table) == {one.name for one in parameters if one.kind is not one.VAR_KEYWORD}, name


# As people write it.


def test_numpy_numbers_are_numbers():
    written = ndpsim.simulate_expert(
        model=ndpsim.Expert(np.int32(256), np.uint16(128)),
        tokens=np.uint8(2),
        bits=np.int64(4),
        exact_check=np.False_,
    )
    plain = ndpsim.simulate_expert(model=SMALL, tokens=2, bits=4)
    assert written == plain
    assert json.dumps(written.to_dict()["config"]) == json.dumps(plain.to_dict()["config"])
    assert ndpsim.simulate_expert(model=SMALL, tokens=np.array(2), bits=4) == plain


def test_numpy_numbers_leave_no_trace_in_what_is_made_of_them():
    one = np.int64(1)
    memory = ndpsim.Memory.named(ranks=one, overrides={"nCL": np.int16(40)}, channels=np.uint8(2))
    json.dumps(memory.to_dict())
    formats = ndpsim.ExpertFormat.of(
        {"gate": np.int8(4), "up": 4, "down": np.uint64(8)}, np.int32(64), np.int8(8)
    )
    assert formats == ndpsim.ExpertFormat.of({"gate": 4, "up": 4, "down": 8}, 64, 8)
    assert {type(value) for matrix in formats.matrices for value in vars(matrix).values()} == {int}
    moved = ndpsim.simulate_relayout(
        model=SMALL,
        experts=one,
        source_dimms=np.array([3]),
        target="localized",
        target_dimms=(np.int16(5),),
        host=np.bool_(False),
    )
    assert moved == ndpsim.simulate_relayout(
        model=SMALL, source_dimms=[3], target="localized", target_dimms=[5], host=False
    )
    json.dumps(moved.to_dict())
    beside = ndpsim.simulate_contention(
        model=SMALL,
        host_gbps=np.float32(5),
        read_share=np.int64(1),
        slice_clocks=np.int64(500),
        arbitration="slice",
    )
    assert beside == ndpsim.simulate_contention(
        model=SMALL, host_gbps=5, read_share=1.0, slice_clocks=500, arbitration="slice"
    )
    json.dumps(beside.to_dict())


def test_addresses_of_any_integer_type_are_taken():
    plain = ndpsim.run_trace(([0, 64, 128], [0, 1, 0]))
    for kind in (np.uint64, np.int32, np.uint8):
        assert ndpsim.run_trace((np.array([0, 64, 128], kind), np.array([False, True, False]))) == plain


class Pathlike(os.PathLike[str]):
    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.mark.parametrize("kind", [str, Path, Pathlike])
def test_paths_of_any_kind_are_taken(kind, tmp_path):
    hardware, model = tmp_path / "mine.yaml", tmp_path / "config.json"
    package = Path(ndpsim.__file__).parent
    hardware.write_text((data_folder("hwconfigs") / "edge.yaml").read_text())
    model.write_text((package / "workload" / "models" / "models" / "qwen3-30b-a3b.json").read_text())
    for name in data_folder("rtl_params").glob("*.yaml"):
        (tmp_path / name.name).write_text(name.read_text())
    requests, commands = tmp_path / "requests", tmp_path / "commands.csv"
    requests.write_text("LD 0x40\nST 0x80\n")
    assert ndpsim.place_expert(kind(hardware), kind(model)).layout.bytes > 0
    assert ndpsim.run_trace(kind(requests)).requests == 2
    assert len(ndpsim.read_requests(kind(requests))) == 2
    ndpsim.write_commands(kind(commands), TRACE)
    assert ndpsim.read_commands(kind(commands)) == TRACE
    assert ndpsim.simulate_contention(model=SMALL, pattern=kind(requests)).config["pattern"] == str(requests)


def test_what_was_loaded_goes_where_its_name_goes():
    model, hardware = ndpsim.load_model("qwen3-30b-a3b"), ndpsim.load_hardware("trimoe")
    assert ndpsim.load_model(model) is model
    assert ndpsim.place_expert(hardware, model) == ndpsim.place_expert("trimoe", "qwen3-30b-a3b")
    assert ndpsim.place_expert(hardware, model).described["model"] == "qwen3-30b-a3b"
    assert parse_shape(SMALL) is SMALL


# Results.


@pytest.mark.parametrize("kind", MADE)
def test_results_fit_a_screen(kind):
    lines = repr(results()[kind]).splitlines()
    assert max(map(len, lines)) <= 80
    assert 5 <= len(lines) <= 24


@pytest.mark.parametrize(
    "shown",
    [
        *(ndpsim.load_hardware(name) for name in ndpsim.hardware_names()),
        *(ndpsim.load_model(name) for name in ndpsim.model_names()),
        ndpsim.load_processors().cpu.expert_time(SMALL, 2),
        ndpsim.load_processors().dense_time("deepseek-v2", 2, 5),
        ndpsim.load_processors().gpu_memory("deepseek-v2", 2, 5),
        DEVICE,
        TRACE,
        REQUESTS,
        ndpsim.Memory(DEVICE),
        ndpsim.check(TRACE, DEVICE),
        ndpsim.check(ndpsim.CommandTrace.of(np.tile([[1], [99], [0], [0], [0], [0], [0]], 200)), DEVICE),
        SMALL,
        ndpsim.CommandTrace.of(np.empty((7, 0), np.int64)),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_what_is_not_a_result_fits_a_screen_too(shown):
    lines = repr(shown).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert type(shown).__name__ in lines[0]


def test_a_result_is_shown_with_units():
    words = repr(results()["expert"])
    assert words.startswith("ExpertResult of 256 x 128 on trimoe\n")
    rows = dict(line.split(maxsplit=1) for line in words.splitlines()[1:])
    result = results()["expert"]
    assert 1000 <= result.time_ns < 9999
    assert rows["time_ns"] == f"{result.time_ns / 1000:.3f} µs"
    assert rows["bandwidth_gbps"] == f"{result.bandwidth_gbps:.2f} GB/s"
    assert rows["weight_bytes"] == "192.00 KiB"
    assert rows["peak_fraction"] == f"{100 * result.peak_fraction:.1f}%"
    assert rows["energy_nj"].startswith("total ")


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        assert attrs == []
        self.tags.append(tag)

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("kind", MADE)
def test_results_are_tables_in_notebooks(kind):
    cells = Cells()
    cells.feed(results()[kind]._repr_html_())
    assert set(cells.tags) == {"table", "caption", "tr", "th", "td"}
    assert cells.tags.count("tr") <= 24
    assert not any(text.endswith(("_ns", "_nj", "_gbps")) for text in cells.text)  # labels, not fields


def test_names_are_escaped_in_notebooks(tmp_path):
    trace = tmp_path / "<b>&.trace"
    trace.write_text("LD 0x40\n")
    words = ndpsim.run_trace(trace)._repr_html_()
    assert "<b>" not in words
    assert "&lt;b&gt;&amp;.trace" in words


@pytest.mark.parametrize("kind", MADE)
def test_equal_runs_are_equal_and_others_are_not(kind):
    result = results()[kind]
    assert result == MADE[kind]()
    others = {
        "expert": lambda: ndpsim.simulate_expert(model=SMALL, tokens=2, record_commands=True),
        "contention": lambda: ndpsim.simulate_contention(model=SMALL, read_share=0.5),
        "host read": lambda: ndpsim.simulate_host_read(model=SMALL, layout="localized"),
        "relayout": lambda: ndpsim.simulate_relayout(model=SMALL, sets=["link.hop_latency_ns=99"]),
        "trace": lambda: ndpsim.run_requests(ndpsim.Requests.of([0], [0]), ndpsim.Memory(DEVICE)),
        "placed": lambda: ndpsim.place_expert(model=SMALL, layout="striped"),
    }
    assert result != others[kind]()
    assert result != "a result"


def test_results_with_other_commands_are_not_equal():
    result = results()["expert"]
    first, *rest = result.command_traces
    clock = first.clock.copy()
    clock[-1] += 1
    later = dataclasses.replace(first, clock=clock)
    assert first != later
    assert result != dataclasses.replace(result, command_traces=(later, *rest))
    assert result == dataclasses.replace(result, wall_s=1e9)


@pytest.mark.parametrize("kind", MADE)
def test_results_survive_pickle_and_copies_and_stay_as_they_are(kind):
    result = results()[kind]
    assert pickle.loads(pickle.dumps(result)) == result
    assert copy.deepcopy(result) == result
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.config = None
    with pytest.raises(TypeError, match="unhashable"):
        hash(result)


def test_what_results_are_made_of_survives_pickle():
    for made in (
        DEVICE,
        TRACE,
        REQUESTS,
        ndpsim.Memory(DEVICE),
        ndpsim.load_hardware("cxl"),
        ndpsim.load_model("qwen3-30b-a3b"),
    ):
        assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)


@pytest.mark.parametrize("kind", MADE)
def test_a_flat_result_is_a_row_of_scalars(kind):
    result = results()[kind]
    flat, nested = result.to_dict(flat=True), result.to_dict()
    assert {type(value) for value in flat.values()} <= {int, float, str, bool, type(None)}
    json.dumps(flat, allow_nan=False)
    assert flat == MADE[kind]().to_dict(flat=True) | {
        name: flat[name] for name in ("wall_s", "run_s", "compile_s") if name in flat
    }
    for name, value in nested.items():
        if not isinstance(value, (dict, list)):
            assert flat[name] == value


def test_a_flat_result_tells_what_its_lists_hold():
    result = results()["expert"]
    flat = result.to_dict(flat=True)
    down = [phase for phase in result.phases if phase.name == "down"]
    assert flat["phases.count"] == len(result.phases)
    assert flat["phases.down.start_ns.min"] == min(phase.start_ns for phase in down)
    assert flat["phases.down.end_ns.max"] == max(phase.end_ns for phase in down)
    assert flat["busy.memory"] == result.busy["memory"]
    assert flat["config.hardware.dimm.ranks"] == 4
    assert (flat["token_tiles.count"], flat["token_tiles.max"]) == (1, 1)
    beside = results()["contention"].to_dict(flat=True)
    assert beside["by_lane.ndp_bytes.max"] == max(
        lane["ndp_bytes"] for lane in results()["contention"].by_lane
    )
    assert len(beside) < 400


# Traces.


def test_command_traces_become_arrays():
    arrays = TRACE.to_arrays()
    assert list(arrays) == ["clock", "command", "rank", "bankgroup", "bank", "row", "column"]
    assert arrays["command"].tolist() == ["ACT", "RD"]
    assert arrays["clock"].tolist() == [1, 40]
    strange = ndpsim.CommandTrace([1, 2], [0, 99], *[[0, 0]] * 5)
    assert strange.to_arrays()["command"].tolist() == ["ACT", "99"]


def test_request_traces_become_arrays(tmp_path):
    assert {name: column.tolist() for name, column in REQUESTS.to_arrays().items()} == {
        "address": [0, 64, 128],
        "write": [False, True, False],
    }
    path = tmp_path / "vectors"
    path.write_text("R 0,0,1,3,9674,61\nW 0,1,1,3,9674,62\n")
    columns = ndpsim.read_requests(path).to_arrays()
    assert list(columns) == ["channel", "rank", "bankgroup", "bank", "row", "column", "write"]
    assert columns["column"].tolist() == [61, 62]
    path.write_text("0x2000D5C0 READ 30\n0x40 WRITE 31\n")
    assert ndpsim.read_requests(path).to_arrays()["cycle"].tolist() == [30, 31]


@pytest.mark.parametrize("trace", [TRACE, REQUESTS], ids=["commands", "requests"])
def test_traces_become_data_frames_where_pandas_is(trace, monkeypatch):
    pandas = ModuleType("pandas")
    pandas.DataFrame = dict
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame = trace.to_pandas()
    assert list(frame) == list(trace.to_arrays())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refused("not-installed to_pandas"):
        trace.to_pandas()


def test_traces_compare_by_value():
    assert ndpsim.CommandTrace.of(TRACE.columns()) == TRACE
    assert TRACE.take([0]) != TRACE
    assert ndpsim.Requests.of([0, 64, 128], [0, 1, 0], "elsewhere") == REQUESTS
    assert ndpsim.Requests.of([0, 64, 192], [0, 1, 0]) != REQUESTS
    assert ndpsim.Requests.of([0, 64, 128], [0, 1, 1]) != REQUESTS
    assert (len(TRACE), len(REQUESTS)) == (2, 3)


def test_a_mapper_brings_its_mapping():
    memory = ndpsim.Memory(DEVICE, mapper="MOP4CLXOR")
    assert memory == ndpsim.Memory.named(mapper="MOP4CLXOR")
    assert memory != ndpsim.Memory(DEVICE)
