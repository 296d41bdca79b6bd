"""What would take too much memory is refused by bytes before they are taken, and endless inputs end."""

from __future__ import annotations

import gc
import gzip
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from calls import call, refused_call
from mistakes import mistake_of, refused
from ndpsim.audit import check
from ndpsim.base import jit, limits
from ndpsim.base.limits import ensure_address_space, ensure_fits, memory_limit
from ndpsim.cli.main import cli
from ndpsim.config import load_hardware
from ndpsim.dimm.layout import ExpertFormat, ExpertWeights, localized
from ndpsim.dram.spec import resolve
from ndpsim.dram.traces import HEADER, CommandTrace, Requests, read_commands, read_requests
from ndpsim.simulate import (
    Memory,
    place_expert,
    run_requests,
    simulate_contention,
    simulate_expert,
    simulate_host_read,
    simulate_relayout,
)
from ndpsim.simulate.machine import geometry_of
from ndpsim.workload.models import Expert

_HEADER = ",".join(HEADER) + "\n"
_ADDRESS_SPACE = 3 << 30  # of a process that is offered something endless


@pytest.fixture
def one_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte is all that may be taken."""
    monkeypatch.setenv(limits.VARIABLE, str(1 / 1024))


# The rule


def test_the_limit_is_four_gib_or_half_the_machine(monkeypatch):
    monkeypatch.delenv(limits.VARIABLE, raising=False)
    monkeypatch.setattr(limits, "_physical", lambda: 64 << 30)
    assert memory_limit() == 4 << 30
    monkeypatch.setattr(limits, "_physical", lambda: 2 << 30)
    assert memory_limit() == 1 << 30
    monkeypatch.setenv(limits.VARIABLE, "0.5")
    assert memory_limit() == 1 << 29


@pytest.mark.parametrize("text", ["x", "nan", "-1", "0", "inf", "1e400"])
def test_a_limit_that_is_no_size_is_refused(monkeypatch, text):
    monkeypatch.setenv(limits.VARIABLE, text)
    with refused("range NDPSIM_MEMORY_GIB"):
        memory_limit()


def test_the_message_says_how_much_is_needed_and_allowed_and_what_allows_it(monkeypatch):
    monkeypatch.setenv(limits.VARIABLE, "1")
    ensure_fits(1 << 30, "as much as is allowed")
    with refused("too-large a.csv"):
        ensure_fits((1 << 30) + 1, "9 things", file="a.csv")


# Who keeps to it


@pytest.fixture
def no_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs before it is refused."""

    def simulated(*arguments: object, **options: object) -> None:
        raise AssertionError("simulated before the memory was counted")

    for place in ("lane.run_channel", "relayout.run_relayout"):
        monkeypatch.setattr(f"ndpsim.simulate.{place}", simulated)


BIG = Expert(4096, 4096)
MANY_LANES = load_hardware("trimoe", ["dimm.count=256", "dimm.ranks=16", "dimm.subchannels=64"])


@pytest.mark.usefixtures("one_mib", "no_simulation")
@pytest.mark.parametrize(
    ("call", "arguments", "words"),
    [
        (simulate_expert, ("trimoe", BIG), "too-large"),
        (simulate_expert, ("cxl", BIG), "too-large"),
        (simulate_contention, ("trimoe", BIG), "too-large"),
        (simulate_host_read, ("trimoe", BIG), "too-large"),
        (simulate_relayout, ("trimoe", BIG, 3), "too-large"),
        (simulate_relayout, (MANY_LANES, Expert(64, 64)), "too-large"),
    ],
)
def test_a_large_expert_is_refused_before_it_runs(call, arguments, words):
    assert mistake_of(call, *arguments) == words


@pytest.mark.usefixtures("one_mib")
def test_a_large_expert_is_placed_but_not_counted_burst_by_burst():
    placed = place_expert("trimoe", BIG)
    assert placed.layout.find(0, 1, 1).dimm.tolist() == [0]
    assert mistake_of(placed.to_dict) == "too-large"


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.parametrize("hw", ["trimoe", "cxl"])
def test_commands_that_would_fill_the_memory_are_not_recorded(hw):
    with refused("too-large"):
        simulate_expert(hw, Expert(4096, 1536), 16384, record_commands=True)


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.parametrize(("call", "gib"), [(simulate_host_read, 0.005), (simulate_relayout, 0.06)])
def test_an_expert_may_fit_and_the_record_of_its_commands_not(call, gib, monkeypatch):
    monkeypatch.setenv(limits.VARIABLE, str(gib))
    with refused("too-large"):
        call("trimoe", Expert(512, 512), record_commands=True)


@pytest.mark.usefixtures("one_mib", "no_simulation")
def test_many_requests_are_refused_before_they_run():
    memory = Memory(resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1))
    few = Requests.of(np.zeros(4096, np.int64), np.zeros(4096, np.int64))
    assert mistake_of(run_requests, few, memory, record_commands=True) == "too-large"
    many = Requests.of(np.zeros(40_000, np.int64), np.zeros(40_000, np.int64))
    assert mistake_of(run_requests, many, memory) == "too-large"


@pytest.mark.usefixtures("one_mib")
def test_traces_are_read_only_as_far_as_they_can_be_used(tmp_path):
    commands, requests, blank = tmp_path / "a.csv", tmp_path / "a.gz", tmp_path / "b"
    commands.write_text(_HEADER + "1,RD,0,0,0,0,0\n" * 5000)
    assert mistake_of(read_commands, commands) == "too-large a.csv"
    requests.write_bytes(gzip.compress(b"LD 0x40\n" * 20_000))
    assert mistake_of(read_requests, requests) == "too-large a.gz"
    blank.write_bytes(b"# text\n" * 20_000 + b"0: read 0x40\n")
    assert mistake_of(read_requests, blank) == "too-large b"


def test_the_places_that_a_machine_has_are_a_limit_of_their_own():
    machine = geometry_of(load_hardware("trimoe"))
    weights = ExpertWeights(1 << 20, 1 << 20, ExpertFormat.of(16))
    with refused("too-large"):
        localized(machine, weights)


def test_room_for_violations_is_bounded():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    trace = CommandTrace.of(np.zeros((len(HEADER), 1), dtype=np.int64))
    with refused("range limit"):
        check(trace, device, limit=99999999999)


# Endless inputs, each to a process that may not take more


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))


READ = "import sys; from ndpsim.dram.traces import {0}; {0}(sys.argv[1])"


def outcome(code: str, *arguments: str, **options) -> str:
    """The last line of what a process says that fails as it should; it has little memory and time."""
    environment = {**os.environ, limits.VARIABLE: "0.25"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        preexec_fn=_bounded,
        timeout=100,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("endless", "words"),
    [
        ("/dev/zero", "/dev/zero:1: the header must be clock,command"),
        ("/dev/urandom", "is not a command trace: byte"),
    ],
)
def test_an_endless_line_is_no_command_trace(endless, words):
    assert words in outcome(READ.format("read_commands"), endless)


def test_an_endless_command_trace_ends():
    shell = f"printf '{_HEADER.strip()}\\n'; exec yes 1,RD,0,0,0,0,0"
    with subprocess.Popen(["sh", "-c", shell], stdout=subprocess.PIPE) as source:
        said = outcome(READ.format("read_commands"), "/dev/stdin", stdin=source.stdout)
        source.stdout.close()
        source.terminate()
    assert "commands or more: " in said
    assert "NDPSIM_MEMORY_GIB=1 allows it" in said


def test_a_small_file_that_unpacks_to_much_is_read_no_further_than_its_first_line(tmp_path):
    path = tmp_path / "small.csv.gz"
    path.write_bytes(gzip.compress(bytes(1 << 28), 1))
    with refused("form small.csv.gz:1"):
        read_commands(path)


@pytest.mark.parametrize("option", ["--hw", "--model"])
def test_a_device_or_a_pipe_is_no_configuration(option, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in ("/dev/zero", str(pipe)):
        assert refused_call("gemv", option, path).split()[0] == "unreadable"


def test_deep_and_large_configurations_are_refused(tmp_path):
    deep, large = tmp_path / "deep.json", tmp_path / "large.json"
    deep.write_text("[" * 500_000)
    large.write_bytes(b" " * ((1 << 24) + 1))
    assert refused_call("show", "model", deep) == "form deep.json"
    assert refused_call("show", "model", large) == "too-large large.json"


def test_a_machine_without_memory_says_so_in_one_line(monkeypatch):
    def take(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "main", take)
    done = call("list")
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)


# Too little address space: libraries end the process, or try for ever to get it


def test_address_space_that_the_process_is_not_given_is_refused():
    ensure_address_space(1 << 20, "this")
    with refused("too-large"):
        ensure_address_space(1 << 60, "this")


@pytest.mark.parametrize(
    ("arguments", "mib", "words"),
    [
        (["list"], 200, "ndpsim takes up to"),
        (["gemv", "--shape", "64,64"], 488, "compiling a kernel takes up to"),
    ],
)
def test_a_command_that_is_given_too_little_address_space_says_so_in_a_line(arguments, mib, words, tmp_path):
    """With less than it needs, OpenBLAS, which Numba loads before the first kernel, tries without end."""
    done = subprocess.run(
        [sys.executable, "-m", "ndpsim", *arguments],
        env={**os.environ, "NDPSIM_CACHE_DIR": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)),
        timeout=100,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_kernel_is_compiled_once_there_is_room_for_that(monkeypatch, caplog, tmp_path):
    def refuse(needed: int, what: str) -> None:
        raise limits.InputError(f"{what} takes {needed} bytes", "too-large")

    monkeypatch.setenv("NDPSIM_CACHE_DIR", str(tmp_path))  # one in which no run before has left the kernel
    thrice = jit.kernel(lambda number: 3 * number)
    with monkeypatch.context() as patch, caplog.at_level("INFO", "ndpsim"):
        patch.setattr(jit, "ensure_address_space", refuse)
        with refused("too-large"):
            thrice(14)
    assert (caplog.messages, gc.isenabled()) == ([], True)
    assert thrice(14) == 42
