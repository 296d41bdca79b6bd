"""Errors of users in one line, with place, key, value and what is allowed; refused calls are in `refusals`."""

from __future__ import annotations

import ast
import importlib
import os
import pickle
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import ndpsim
from calls import refused_call
from mistakes import mistake, refused
from ndpsim.base import errors
from ndpsim.base.errors import InputError, nearest, one_of
from ndpsim.config import data_path, load_hardware
from ndpsim.dram.traces import HEADER, read_requests

HARDWARE = data_path("hwconfigs", "trimoe").read_text()
SMALL = {"model": ndpsim.Expert(256, 128)}


def changed(old: str, new: str) -> None:
    """Load TriMoE's hardware, `old` in its file replaced."""
    assert HARDWARE.count(old) == 1
    Path("hw.yaml").write_text(HARDWARE.replace(old, new))
    load_hardware("hw.yaml")


def line_of(text: str) -> int:
    """The line of TriMoE's hardware file that begins with `text`."""
    return next(n for n, line in enumerate(HARDWARE.splitlines(), 1) if line.startswith(text))


def trace(text: str) -> None:
    Path("t").write_text(text)
    read_requests("t")


def commands(*lines: str) -> None:
    Path("c.csv").write_text("\n".join((",".join(HEADER), *lines)))
    ndpsim.read_commands("c.csv")


def failing_policy() -> None:
    """Check a policy of one's own whose file fails."""
    Path("mine.py").write_text("import math\n1 / 0\n")
    ndpsim.check_policy("mine.py")


NAME = line_of("name:")
#: What is done, the mistake it is, and what its message has: the value that was given and what is allowed.
MISTAKES: list[tuple[Any, str, tuple[str, ...]]] = [
    (lambda: load_hardware("trimoe", ["dram.mapper=custom", "dram.mapping={order: [a]}"]), "invalid sets dram.mapping.order", ("a",)),
    (lambda: load_hardware("trimo"), "unknown-name hw ? trimoe", ("'trimo'", "cxl")),
    (lambda: load_hardware("trimoe", ["dram.standard=DDR6"]), "unknown-name sets dram.standard ? GDDR6", ("'DDR6'", "DDR4", "DDR5")),
    (lambda: changed("name:", "nme:"), f"unknown-key hw.yaml:{NAME} nme ? name", ("'nme'", "title")),
    (lambda: load_hardware("trimoe", ["dimm.ranks=two"]), "type sets dimm.ranks", ("'two'", "whole number from 1 to 16")),
    (lambda: ndpsim.simulate_expert(**SMALL, tokens="3"), "type tokens", ("'3'", "whole number from 1 to 16384")),
    (lambda: commands("1,ACT,0,0,0,0,-1", "x,RD,0,0,0,0,1"), "type c.csv:3 clock", ("'x'", "whole number")),
    (lambda: load_hardware("trimoe", ["dimm.ranks=17"]), "range sets dimm.ranks", ("17", "whole number from 1 to 16")),
    (lambda: ndpsim.simulate_expert(**SMALL, tokens=0), "range tokens", ("0", "from 1 to 16384")),
    (lambda: load_hardware("trimoe", ["dimm.ranks"]), "form sets", ("'dimm.ranks'", "KEY=VALUE")),
    (lambda: trace("LD 0x40\nST 40 41 42 x\n"), "form t:2", ("ST 40 41 42 x", "LD")),
    (lambda: load_hardware("trimoe", ["dimm.ranks="]), "missing sets dimm.ranks", ("value",)),
    (lambda: changed("name:", "name: b\nname:"), f"twice hw.yaml:{NAME + 1} name", (f"line {NAME}",)),
    (lambda: load_hardware("trimoe", ["ndp.systolic=cxl_systolic"]), "conflict trimoe.yaml ndp", ("gemv", "systolic", "ndp.gemv=null")),
    (lambda: ndpsim.simulate_expert(model=ndpsim.Expert(1 << 20, 1 << 20)), "too-large", ("GiB", "bytes")),
    (lambda: load_hardware("none.yaml"), "unreadable none.yaml", ("no such file",)),
    (lambda: ndpsim.write_commands(".", ndpsim.CommandTrace([], [], [], [], [], [], [])), "unwritable", ("folder",)),
    (lambda: ndpsim.simulate_expert(**SMALL, layout="striped"), "unsupported layout", ("striped", "localized")),
    (lambda: ndpsim.CommandTrace([], [], [], [], [], [], []).to_pandas(), "not-installed to_pandas", ("pandas", "to_arrays")),
    (failing_policy, "policy mine.py:2 policy", ("ZeroDivisionError", "division by zero")),
    (lambda: ndpsim.simulate_expert(**SMALL, sets=["dram.nREFI=400"]), "no-progress sets dram.nREFI", ("400",)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "expected", "parts"), MISTAKES, ids=[one[1] for one in MISTAKES])
def test_a_message_has_place_key_value_and_what_is_allowed(call, expected, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError) as caught:
        call()
    assert (mistake(caught.value), [part for part in parts if part not in caught.value.problem]) == (
        expected,
        [],
    )


def test_every_code_is_in_the_table():
    assert {expected.split()[0] for _, expected, _ in MISTAKES} == set(get_args(errors.Code))


def test_every_mistake_of_the_package_says_which_kind_it_is():
    package = Path(ndpsim.__file__).parent
    calls = [
        (path.name, node.lineno, len(node.args) + sum(given.arg == "code" for given in node.keywords))
        for path in package.rglob("*.py")
        if "InputError(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "InputError"
    ]
    assert len(calls) > 100
    assert [one for one in calls if one[-1] < 2] == []


def test_a_mistake_told_elsewhere_keeps_its_code_and_key():
    one = InputError("17 is too many", "range", file="a.yaml", line=3, key="dimm.ranks")
    assert mistake(one.at("b.yaml", 4)) == "range b.yaml:4 dimm.ranks"
    assert mistake(one.at(key="ranks")) == "range ranks"


# ---- Errors of users, in one line


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({}, "is wrong"),
        ({"key": "dimm.ranks"}, "dimm.ranks is wrong"),
        ({"file": "a.yaml"}, "a.yaml: is wrong"),
        ({"file": "a.yaml", "line": 7}, "a.yaml:7: is wrong"),
        ({"file": "a.yaml", "line": 7, "key": "dimm.ranks"}, "a.yaml:7: dimm.ranks is wrong"),
        ({"line": 7}, "is wrong"),  # a line without a file is ignored
    ],
)
def test_the_parts_that_are_known_stand_in_front(parts, line):
    assert str(InputError("is wrong", **parts)) == line


def test_the_parts_can_be_read_one_by_one():
    error = InputError("is wrong", file="a.yaml", line=7, key="dimm.ranks")
    assert (error.problem, error.file, error.line, error.key) == ("is wrong", "a.yaml", 7, "dimm.ranks")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert isinstance(error, ValueError)


@given(problem=st.text(), file=st.none() | st.text(), key=st.none() | st.text())
def test_the_text_is_always_one_line(problem, file, key):
    text = str(InputError(problem, file=file, key=key))
    assert len(text.splitlines()) <= 1
    assert text == text.strip()


def test_one_of_names_the_value_the_guess_and_everything_known():
    words = one_of("strip", ["striped", "localized"], "layout")
    assert words == "unknown layout 'strip'; did you mean 'striped'? (known: localized, striped)"


def test_one_of_shows_what_is_near_of_many_names():
    words = one_of(
        "DDR5_47", [f"DDR{kind}_{rate}" for kind in range(8) for rate in range(4600, 4800, 20)], "rate"
    )
    assert "DDR5_4740" in words
    assert words.endswith(" and 56 more)")
    assert words.count(",") == 23


def test_one_of_guesses_nothing_where_nothing_is_near():
    assert one_of(17, ["striped"], "layout") == "unknown layout '17' (known: striped)"


@pytest.mark.parametrize(
    ("written", "known", "meant"),
    [
        ("trimo", ["trimoe", "edge"], "trimoe"),
        ("dimm.rank", ["dimm.ranks", "dimm.count"], "dimm.ranks"),
        ("DeepSeekV2", ["deepseek-v2", "deepseek-v3"], "deepseek-v2"),
        ("olmoe", ["olmoe-1b-7b", "mixtral-8x7b"], "olmoe-1b-7b"),
        ("nonsense", ["ndp_alone_ns", "tokens"], None),
        ("xyz", ["kv", "hw", "model"], None),
        ("ab", ["abacus"], None),
        ("", ["trimoe", "nCL"], None),
        ("ddr5_16GB_X8", ["DDR5_16Gb_x4", "DDR5_16Gb_x8"], "DDR5_16Gb_x8"),
    ],
)
def test_a_name_is_suggested_only_when_it_is_near(written, known, meant):
    assert nearest(written, known) == meant


# ---- What is refused: command lines, files and arguments with one mistake each, as the case files in `refusals` have them

_HERE = Path(__file__).parent
_WORK = ("ndpsim.simulate.lane.run_channel", "ndpsim.inference.layers.costs.Costs.__init__")


def _groups() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted((_HERE / "refusals").glob("*.yaml")):
        yield from yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader).items()


def _cases(group: dict[str, Any]) -> Iterator[tuple[list[Any], str]]:
    """What is given in each case of a group, and the mistake."""
    cases = group["cases"]
    for case in cases.items() if isinstance(cases, dict) else cases:
        *words, expected = case
        yield words, expected


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty; nothing is simulated in it."""

    def ran(*arguments: object, **options: object) -> None:
        raise AssertionError("ran before the mistake was found")

    for work in _WORK:
        monkeypatch.setattr(work, ran)
    return here


def _words(call: str, given: list[str]) -> list[str]:
    words = shlex.split(call)
    if not given:
        return words
    return [word.replace("{}", given[0]) for word in words] if "{}" in call else words + shlex.split(given[0])


@pytest.mark.parametrize("group", [pytest.param(group, id=name) for name, group in _groups()])
def test_a_mistake_is_one_line_with_its_place(group, folder, monkeypatch):
    for number, (words, expected) in enumerate(_cases(group)):
        case = folder / str(number)
        case.mkdir()
        monkeypatch.chdir(case)
        _check_refusal(group, words, expected)


def _check_refusal(group: dict[str, Any], words: list[Any], expected: str) -> None:
    """One case in the current folder, which is empty before and unchanged by the call."""
    folder = Path.cwd()
    for name in group.get("given", ()):
        shutil.copy(_HERE / "given" / name, name)
    if "content" in group:
        Path(group["content"]).write_text(words.pop())
    if "change" in group:
        file = Path(group["change"])
        for old, new in zip(words[::2], words[1::2], strict=True):
            assert file.read_text().count(old) == 1, old
            file.write_text(file.read_text().replace(old, new))
        words.clear()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    if "python" in group:
        module, name = group["python"].split(":")
        with refused(expected):
            getattr(importlib.import_module(module), name)(
                **group.get("always", {}) | (words[0] if words else {})
            )
    else:
        assert refused_call(*_words(group["call"], words)) == expected, words
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


#: Refuses each call of standard input in a process whose kernels cannot be compiled, and prints the mistakes.
WITHOUT_KERNELS = """
import sys
from calls import refused_call
from ndpsim.base import jit

def compiled(self, event):
    if event.data["dispatcher"] in self.names:
        raise AssertionError("a kernel is compiled")

jit._Compilations.on_start = compiled
for line in sys.stdin:
    print(refused_call(*line.split()))
"""

_RATE, _POLICY = "--requests poisson:rate=2", "--model mixtral-8x7b --policy"
BEFORE_KERNELS = {
    "moe --model deepseek-v3 --hw cxl": "too-large dimm",
    "moe --model deepseek-v3 --set dimm.count=4": "too-large dimm",
    "moe --model deepseek-v3 --hw aim-cards": "too-large aim-cards.yaml host.memory",
    "moe --model mixtral-8x7b --hw aim-cards --bits 8": "unsupported --bits",
    "moe --model mixtral-8x7b --set ndp.gemv.buffer_kib=1": "too-large --set ndp.gemv.buffer_kib",
    "moe --model mixtral-8x7b --gpu-experts 8": "too-large --gpu-experts",
    "moe --model mixtral-8x7b --host-traffic 99": "range --host-traffic",
    "moe --model mixtral-8x7b --check-layer 1,99": "range --check-layer",
    f"moe {_POLICY} fiddler --hw cxl": "conflict",
    f"moe {_POLICY} cxl:loss=none.csv": "unreadable none.csv",
    f"moe {_POLICY} dali:residual=none.npz": "unreadable none.npz policy dali:residual",
    f"moe {_POLICY} llama-cpp:n_cpu_moe=0": "too-large policy llama-cpp:n_cpu_moe",
    f"serve --model deepseek-v3 --hw cxl {_RATE}": "too-large dimm",
    f"serve {_POLICY} fiddler --hw cxl {_RATE}": "conflict",
    f"serve --find-rate --slo tpot=1s {_RATE},requests=3": "range --requests",
    "serve --find-rate --slo tpot=1s --requests closed-loop:concurrency=2": "conflict --requests",
    "gemv --shape 1048576,1": "too-large trimoe_gemv.yaml ndp.gemv.buffer_kib",
    "gemv --hw aim --shape 1048576,1048576": "too-large",
    "moe --model mixtral-8x7b --hw dgx-attacc --attention ndp --context 10000000": "too-large --context",
    "relayout --experts 4 --from sharded:99 --to striped": "range --from",
    "predict --cpu ryzen-9-7950x --memory ddr5-5200x2 --gpu rtx-4090 --model deepseek-v3": "too-large --memory",
}


def test_what_needs_no_simulation_is_refused_before_a_kernel_is_compiled(tmp_path):
    place = {"NDPSIM_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(_HERE), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERNELS],
        input="\n".join(BEFORE_KERNELS),
        env=os.environ | place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert dict(zip(BEFORE_KERNELS, done.stdout.splitlines(), strict=True)) == BEFORE_KERNELS
