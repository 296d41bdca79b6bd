"""docs/adding followed literally: its files at their places, its commands, and their stated output.

Changes of the package run in one process on a copy of it, in Python instead of machine code.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from ndpsim.cli.main import main
from ndpsim.config import load_hardware
from ndpsim.dram.spec.standard import Standard

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "adding").glob("*.md"))
EXAMPLES = [page for page in PAGES if page.name != "README.md"]

RUN = """
import contextlib, io, json, sys, traceback
from ndpsim.cli.main import main
ran = []
for words in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            status = main(words)
        except SystemExit as end:
            status = end.code
        except Exception:
            traceback.print_exc()
            status = "a traceback"
    ran.append([status or 0, out.getvalue()])
json.dump(ran, sys.stdout)
"""


class Step(NamedTuple):
    """Commands of a page, with their expected status, and text that their output should contain."""

    commands: tuple[tuple[str, int], ...]
    printed: tuple[str, ...]


def files_of(page: Path) -> dict[str, str]:
    """The files of a page by their paths: blocks after a line with only a path."""
    found = re.findall(r"^`([^`\n]+)`\n\n```\w+\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return dict(found)


def steps_of(page: Path) -> list[Step]:
    block = r"^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?"
    steps = []
    for lines, printed in re.findall(block, page.read_text(), re.DOTALL | re.MULTILINE):
        commands = []
        for line in lines.splitlines():
            command, _, ending = line.partition("  # exits with ")
            if command.startswith("ndpsim "):
                commands.append((command, int(ending or 0)))
        steps.append(Step(tuple(commands), tuple(printed.splitlines())))
    return [step for step in steps if step.commands]


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def example(page: str, file: str) -> str:
    return files_of(ROOT / "docs" / "adding" / f"{page}.md")[file]


DDR3 = example("dram-standard", "ndpsim/dram/spec/standards/ddr3.py")
MAC_KEYS = example("ndp-unit", "ndpsim/config/multipliers/mac_array.py")
MAC_UNIT = example("ndp-unit", "ndpsim/dimm/units/mac_array.py")
MAC_YAML = example("ndp-unit", "mac.yaml")
RAMULATOR_1 = example("configuration-format", "ddr4.cfg")
SELECTIONS = example("routing-format", "selections.csv")

#: Bank, row and column of reads; the columns count them.
READS = [(random.Random(column).randrange(4), column % 3, column) for column in range(64)]

#: Each example, and a slightly changed one.
CHANGED = {
    # Last come, first served.
    "ndpsim/dram/schedulers/LCFS.py": changed(
        example("scheduler", "ndpsim/dram/schedulers/FCFS.py"),
        ("oldest = FAR", "oldest = -1"),
        ("min(oldest", "max(oldest"),
        ("slot] > overview", "slot] < overview"),
        ("FCFS", "LCFS"),
    ),
    # 8 bits a weight.
    "ndpsim/config/multipliers/narrow.py": changed(
        MAC_KEYS, ("MacArray", "Narrow"), ("MAC arrays", "narrow")
    ),
    "ndpsim/dimm/units/narrow.py": changed(MAC_UNIT, ("MacArray", "Narrow"), ("16", "8")),
    "narrow.yaml": changed(MAC_YAML, ("mac_array", "narrow")),
    "broken.csv": changed(SELECTIONS, ("1,3,0,2", "1,3,0,none")),
    # A preset that is missing.
    "broken.cfg": changed(RAMULATOR_1, ("org = DDR4_4Gb_x8\n", "")),
    "addresses.trace": "LD 0\nLD 64\n",
    "random.trace": "".join(f"R 0,0,0,{bank},{row},{column}\n" for bank, row, column in READS),
}

_DDR5 = "--standard DDR5 --org DDR5_16Gb_x8 --timing DDR5_4800AN"
#: Commands besides those of the pages.
BESIDE = [
    "ndpsim dram random.trace --scheduler FRFCFS --commands FRFCFS.csv",
    "ndpsim dram random.trace --scheduler FCFS --commands FCFS.csv",
    f"ndpsim check FCFS.csv {_DDR5}",
    "ndpsim dram random.trace --scheduler LCFS --commands LCFS.csv",
    f"ndpsim check LCFS.csv {_DDR5}",
    "ndpsim gemv --hw edge --set dram.scheduler=FCFS --shape 64,32 --host-traffic 5",
    "ndpsim relayout --set dram.scheduler=FCFS --set dimm.ranks=1 --set dimm.count=2 --set host.channels=2 --shape 32,16",
    *(
        f"ndpsim gemv --hw edge --shape 32,16 --host-traffic 8 --host-reads {reads} --arbitration {name} "
        f"--json {name}{reads}.json"
        for reads in (0, 1)
        for name in ("writes-first", "ndp-first")
    ),
    "ndpsim gemv --help",
    "ndpsim compare ramulator addresses.trace --scheduler FCFS",
    "ndpsim gemv --hw mac.yaml --shape 256,64 --tokens 4 --json mac.json",
    "ndpsim gemv --hw narrow.yaml --shape 256,64 --tokens 4 --bits 8 --exact-check --json narrow.json",
    "ndpsim gemv --hw mac.yaml --shape 256,64 --set ndp.mac_array.macs=3",
    "ndpsim import broken.cfg",
    "ndpsim routing import broken.csv --experts 4 --format selections -o broken.npz",
    "ndpsim list",
    "ndpsim list routing-formats",
    "ndpsim dram --help",
    "ndpsim show schema hw",
]


def run_in(folder: Path, commands: Sequence[str], **environment: str) -> dict[str, tuple[int, str]]:
    """Exit status and output of each command, with single blanks."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        input=json.dumps([shlex.split(command)[1:] for command in commands]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ran = zip(commands, json.loads(done.stdout), strict=True)
    return {command: (status, re.sub(r"[ \t]+", " ", printed)) for command, (status, printed) in ran}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a checkout, with the files of all pages."""
    folder = tmp_path_factory.mktemp("checkout")
    for part in ("ndpsim", "hwconfigs", "rtl_params"):
        shutil.copytree(ROOT / part, folder / part)
    for page in EXAMPLES:
        for path, text in files_of(page).items():
            assert not (folder / path).exists(), f"{path} is there already"
            (folder / path).write_text(text)
    for path, text in CHANGED.items():
        (folder / path).write_text(text)
    return folder


@pytest.fixture(scope="module")
def ran(checkout: Path) -> SimpleNamespace:
    """The results of all commands: `of` by command, and the rows of a table or the content of a JSON file."""
    commands = [command for page in EXAMPLES for step in steps_of(page) for command, _ in step.commands]
    of = run_in(checkout, [*commands, *BESIDE], NUMBA_DISABLE_JIT="1")

    def rows(file: str) -> list[dict[str, str]]:
        with (checkout / file).open() as lines:
            return list(csv.DictReader(lines))

    return SimpleNamespace(of=of, rows=rows, json=lambda file: json.loads((checkout / file).read_text()))


def beside(ran: SimpleNamespace, words: str) -> tuple[int, str]:
    """The result of the only command with these words."""
    (found,) = (result for command, result in ran.of.items() if words in command)
    return found


def test_the_pages_are_those_of_the_table():
    linked = re.findall(r"\]\(([\w./-]+\.md)\)", (ROOT / "docs/adding/README.md").read_text())
    assert sorted(link for link in linked if "/" not in link) == [page.name for page in EXAMPLES]
    assert len(linked) == 13
    for page in PAGES:
        for link in re.findall(r"\]\(([\w./-]+)\)", page.read_text()):
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_says(page, ran):
    steps = steps_of(page)
    assert files_of(page)
    assert sum(len(step.printed) for step in steps) >= 2
    for step in steps:
        for command, status in step.commands:
            assert ran.of[command][0] == status, ran.of[command][1]
        printed = "".join(ran.of[command][1] for command, _ in step.commands)
        for line in step.printed:
            assert " ".join(line.split()) in printed


# ---- The standard

#: JESD79-3F, in ns: by bin, tCK, and of the others the least number of clocks and the time, as data sheets quote them.
TIMES = {
    "DDR3_1333H": (
        1.5,
        dict(nRCD=(0, 13.5), nRP=(0, 13.5), nRAS=(0, 36), nRC=(0, 49.5), nFAW=(0, {8: 30, 16: 45})),
    ),
    "DDR3_1600K": (
        1.25,
        dict(nRCD=(0, 13.75), nRP=(0, 13.75), nRAS=(0, 35), nRC=(0, 48.75), nFAW=(0, {8: 30, 16: 40})),
    ),
}
OF_ALL = dict(nRRD=(4, {8: 6, 16: 7.5}), nRTP=(4, 7.5), nWTR=(4, 7.5), nWR=(0, 15), nREFI=(0, 7800))
REFRESH_NS = {1024: 110, 2048: 160, 4096: 260}


@pytest.fixture(scope="module")
def ddr3() -> Standard:
    module: dict[str, object] = {}
    exec(compile(DDR3, "ddr3.py", "exec"), module)
    found = module["STANDARD"]
    assert isinstance(found, Standard)
    return found


@pytest.mark.parametrize("preset", TIMES)
def test_clocks_are_the_times_of_the_data_sheet_rounded_up(ddr3, preset):
    tck_ns, of_bin = TIMES[preset]
    assert set(ddr3.speeds) == set(TIMES)
    speed = ddr3.speeds[preset]
    assert 2000 / speed["rate"] == pytest.approx(tck_ns, rel=1e-3)
    for organisation in ddr3.organisations.values():
        clocks = dict(speed)
        for name, derivation in ddr3.derived.items():
            clocks[name] = derivation.clocks(organisation, speed["rate"], speed["tCK_ps"])
        for name, (least, time) in {**of_bin, **OF_ALL}.items():
            ns = time[organisation.dq] if isinstance(time, dict) else time
            assert clocks[name] == max(least, math.ceil(ns / tck_ns)), name
        assert clocks["nRFC"] == math.ceil(REFRESH_NS[organisation.density_mb] / tck_ns)


def test_organisations_have_their_density(ddr3):
    for name, one in ddr3.organisations.items():
        bits = one.bankgroups * one.banks_per_group * one.rows * one.columns * one.dq
        assert bits == one.density_mb << 20, name


def test_commands_come_at_the_clocks_of_the_page(ran):
    by_hand = [("1", "ACT"), ("12", "RD"), ("16", "RD"), ("29", "PREpb"), ("40", "ACT"), ("51", "RD")]
    assert [(row["clock"], row["command"]) for row in ran.rows("three.csv")] == by_hand


# ---- The scheduler


def columns_read(ran: SimpleNamespace, file: str) -> list[int]:
    """The read columns, of which each request of the random trace has its own."""
    return [int(row["column"]) for row in ran.rows(file) if row["command"] == "RD"]


def test_first_come_is_first_served(ran):
    assert [(row["row"], row["column"]) for row in ran.rows("turns.csv") if row["command"] == "RD"] == [
        ("7", "0"),
        ("8", "0"),
        ("7", "1"),
        ("8", "1"),
    ]
    assert columns_read(ran, "FCFS.csv") == list(range(len(READS)))
    assert "legal" in beside(ran, "check FCFS.csv")[1]
    assert columns_read(ran, "FRFCFS.csv") != list(range(len(READS)))


def test_last_come_is_first_served_where_it_is_changed_so(ran):
    order = columns_read(ran, "LCFS.csv")
    assert sorted(order) == list(range(len(READS)))
    assert "legal" in beside(ran, "check LCFS.csv")[1]
    # After the last arrival, later requests go first.
    last = order.index(len(READS) - 1)
    assert len(order[last:]) > 8
    assert order[last:] == sorted(order[last:], reverse=True)


def test_a_scheduler_runs_beside_the_host_and_what_cannot_run_it_says_so(ran):
    for words in ("--host-traffic 5", "ndpsim relayout"):
        status, printed = beside(ran, words)
        assert status == 0, printed
    status, printed = beside(ran, "compare ramulator")
    assert (status, printed.count("\n")) == (2, 1)
    assert "it has no FCFS scheduler" in printed


@pytest.mark.long  # in Python it does what it should above; FR-FCFS is compiled in all other tests
def test_a_scheduler_as_machine_code_does_the_same(ran, checkout):
    command = "ndpsim dram random.trace --scheduler FCFS --commands compiled.csv"
    cache = checkout / "cache"
    status, printed = run_in(checkout, [command], NUMBA_DISABLE_JIT="0", NDPSIM_CACHE_DIR=str(cache))[command]
    assert status == 0, printed
    assert ran.rows("compiled.csv") == ran.rows("FCFS.csv")
    assert any(cache.rglob("*dram.controller.run-*"))


# ---- The arbitration


def test_writes_of_the_host_come_first_and_its_reads_do_not(ran):
    def told(name):
        result = ran.json(name)
        return [result[key] for key in ("ndp_time_ns", "host_time_ns", "commands", "rows")]

    assert told("writes-first1.json") == told("ndp-first1.json")
    assert told("writes-first0.json") != told("ndp-first0.json")


# ---- The unit


def test_times_and_energies_of_the_unit_are_those_by_hand(ran):
    # 4 tokens on 384 bursts of each lane, a cycle of 2.5 ns each; then a row is summed, activated and sent.
    result = ran.json("mac.json")
    assert 3840 <= result["time_ns"] < 3840 * 1.05
    assert result["energy_nj"]["ndp_multiply"] == pytest.approx(3 * 256 * 64 * 4 * 0.5e-3)
    # 192 bursts of each lane, of twice the weights, which take two cycles each.
    narrow = ran.json("narrow.json")
    assert narrow["weight_bytes"] == result["weight_bytes"] // 2
    assert 3840 <= narrow["time_ns"] < 3840 * 1.05


def test_a_unit_that_cannot_be_is_one_line(ran):
    status, printed = beside(ran, "macs=3")
    assert (status, printed.count("\n")) == (2, 1)
    assert "ndp.mac_array.macs: 3 are fewer than the 4 lanes" in printed


# ---- The format


def test_the_trace_has_the_selections_of_the_file(ran, checkout):
    from ndpsim.workload.routing import load_routing

    ids = load_routing(checkout / "selections.npz").ids
    np.testing.assert_array_equal(ids, [[[[1, 2], [1, 0]]], [[[2, 3], [1, 2]]]])


def test_a_configuration_of_another_simulator_has_its_presets_and_a_missing_one_is_named(ran, checkout):
    system = load_hardware(str(checkout / "ddr4.yaml")).system
    assert (system.dram.org, system.dram.timing) == ("DDR4_4Gb_x8", "DDR4_2400R")
    assert (system.dimm.count, system.dimm.ranks) == (2, 2)
    status, printed = beside(ran, "import broken.cfg")
    assert (status, "broken.cfg: org is missing" in printed) == (2, True)


def test_a_broken_line_is_named(ran):
    status, printed = beside(ran, "broken.csv")
    assert (status, printed.count("\n")) == (2, 1)
    assert "broken.csv:6: '1,3,0,none' is not step,layer,token,expert" in printed


# ---- The policy: in machine code, for the host's reads are simulated


def policy_run(folder: Path, source: str, command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The output of the page's command with this file, without times of compiling and simulating."""
    (folder / "threshold.py").write_text(source)
    with contextlib.chdir(folder), pytest.raises(SystemExit, match="^0$"):
        main(shlex.split(command)[1:])
    times = r"(kernels compiled|simulated) in .*\n"
    return re.sub(times, "", re.sub(r"[ \t]+", " ", capsys.readouterr().out))


def test_the_policy_of_its_page_runs_and_so_does_one_changed_a_little(tmp_path, capsys):
    page = ROOT / "docs" / "policies.md"
    source, (step, *_) = files_of(page)["threshold.py"], steps_of(page)
    ((command, _),) = step.commands
    printed = policy_run(tmp_path, source, command, capsys)
    assert len(step.printed) >= 3
    for line in step.printed:
        assert line in printed
    # Twice the tokens that are said: with half as many said, it is the same.
    twice = changed(
        source, (">= self.parameters.tokens", ">= 2 * self.parameters.tokens"), ("Threshold", "Twice")
    )
    asked = changed(command, ("Threshold:tokens=4", "Twice:tokens=2"))
    assert policy_run(tmp_path, twice, asked, capsys) == printed
    asked = changed(command, ("Threshold:tokens=4", "Twice:tokens=4"))
    assert policy_run(tmp_path, twice, asked, capsys) != printed


# ---- All of them


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("DDR3", "list"),
        ("selections", "list routing-formats"),
        ("ramulator1", "list"),
        ("FCFS", "dram --help"),
        ("FCFS", "show schema hw"),
        ("writes-first", "gemv --help"),
        ("mac_array", "show schema hw"),
    ],
)
def test_what_was_added_is_named(ran, name, command):
    assert re.search(rf"\b{name}\b", ran.of[f"ndpsim {command}"][1])
