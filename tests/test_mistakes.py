"""Every error code by an example: its message has the place, the key, the value and what is allowed."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import ndpsim
from mistakes import mistake
from ndpsim.base import errors
from ndpsim.base.errors import InputError
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
