"""What would take too much memory is refused by bytes before they are taken, and endless inputs end."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from ndpsim import limits
from ndpsim.audit import check
from ndpsim.cli.main import cli, main
from ndpsim.config import load_hardware
from ndpsim.errors import InputError
from ndpsim.layout import ExpertFormat, ExpertWeights, localized
from ndpsim.limits import ensure_fits, memory_limit
from ndpsim.moe import Expert
from ndpsim.simulate import (
    Memory,
    place_expert,
    run_requests,
    simulate_contention,
    simulate_expert,
    simulate_host_read,
    simulate_relayout,
)
from ndpsim.simulate.geometry import geometry_of
from ndpsim.spec import resolve
from ndpsim.traces import HEADER, CommandTrace, Requests, read_commands, read_requests

_HEADER = ",".join(HEADER) + "\n"
_ADDRESS_SPACE = 3 << 30  # of a process that is offered something endless


@pytest.fixture
def one_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte is all that may be taken."""
    monkeypatch.setenv(limits.VARIABLE, str(1 / 1024))


def refusal(call, *arguments, **options) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    assert f"{1 << 20} bytes) are allowed; NDPSIM_MEMORY_GIB=" in str(caught.value)
    return str(caught.value)


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
    with pytest.raises(InputError, match=f"NDPSIM_MEMORY_GIB: '{text}' is not a number of GiB"):
        memory_limit()


def test_the_message_says_how_much_is_needed_and_allowed_and_what_allows_it(monkeypatch):
    monkeypatch.setenv(limits.VARIABLE, "1")
    ensure_fits(1 << 30, "as much as is allowed")
    with pytest.raises(InputError) as caught:
        ensure_fits((1 << 30) + 1, "9 things", file="a.csv")
    assert str(caught.value) == (
        "a.csv: 9 things: 1.00 GiB of memory (1073741825 bytes) would be needed, and 1.00 GiB "
        "(1073741824 bytes) are allowed; NDPSIM_MEMORY_GIB=2 allows it"
    )


# Who keeps to it


@pytest.fixture
def no_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs before it is refused."""

    def simulated(*arguments: object, **options: object) -> None:
        raise AssertionError("simulated before the memory was counted")

    for place in ("lane.run_channel", "relayout.run_relayout"):
        monkeypatch.setattr(f"ndpsim.simulate.{place}", simulated)


BIG = Expert(4096, 4096)
MANY_LANES = load_hardware("trimoe", ["dimm.count=1024", "dimm.ranks=16", "dimm.subchannels=64"])


@pytest.mark.usefixtures("one_mib", "no_simulation")
@pytest.mark.parametrize(
    ("call", "arguments", "words"),
    [
        (simulate_expert, ("trimoe", BIG), "196608 bursts on a lane"),
        (simulate_expert, ("cxl", BIG), "bursts on a lane"),
        (simulate_contention, ("trimoe", BIG), "196608 bursts on a lane"),
        (simulate_host_read, ("trimoe", BIG), "an expert of 1572864 bursts"),
        (simulate_relayout, ("trimoe", BIG, 3), "3 experts of 9437184 bursts, read and written, at once"),
        (simulate_relayout, (MANY_LANES, Expert(64, 64)), "at once on 1048576 lanes"),
    ],
)
def test_a_large_expert_is_refused_before_it_runs(call, arguments, words):
    assert words in refusal(call, *arguments)


@pytest.mark.usefixtures("one_mib")
def test_a_large_expert_is_placed_but_not_counted_burst_by_burst():
    placed = place_expert("trimoe", BIG)
    assert placed.layout.find(0, 1, 1).dimm.tolist() == [0]
    assert "an expert of 1572864 bursts" in refusal(placed.to_dict)


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.parametrize("hw", ["trimoe", "cxl"])
def test_commands_that_would_fill_the_memory_are_not_recorded(hw):
    with pytest.raises(InputError, match="a record of the commands for [0-9]* bursts"):
        simulate_expert(hw, Expert(4096, 1536), 16384, record_commands=True)


@pytest.mark.usefixtures("no_simulation")
@pytest.mark.parametrize(("call", "gib"), [(simulate_host_read, 0.005), (simulate_relayout, 0.06)])
def test_an_expert_may_fit_and_the_record_of_its_commands_not(call, gib, monkeypatch):
    monkeypatch.setenv(limits.VARIABLE, str(gib))
    with pytest.raises(InputError, match="a record of"):
        call("trimoe", Expert(512, 512), record_commands=True)


@pytest.mark.usefixtures("one_mib", "no_simulation")
def test_many_requests_are_refused_before_they_run():
    memory = Memory(resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1))
    few = Requests.of(np.zeros(4096, np.int64), np.zeros(4096, np.int64))
    assert "4096 requests" in refusal(run_requests, few, memory, record_commands=True)
    many = Requests.of(np.zeros(8193, np.int64), np.zeros(8193, np.int64))
    assert "8193 requests" in refusal(run_requests, many, memory)


@pytest.mark.usefixtures("one_mib")
def test_traces_are_read_only_as_far_as_they_can_be_used(tmp_path):
    commands, requests, blank = tmp_path / "a.csv", tmp_path / "a.gz", tmp_path / "b"
    commands.write_text(_HEADER + "1,RD,0,0,0,0,0\n" * 5000)
    assert "5000 commands or more" in refusal(read_commands, commands)
    requests.write_bytes(gzip.compress(b"LD 0x40\n" * 9000))
    assert "9000 requests or more in 9000 lines" in refusal(read_requests, requests)
    blank.write_bytes(b"\n" * 20000)
    assert "0 requests or more in 20000 lines" in refusal(read_requests, blank)


def test_the_places_that_a_machine_has_are_a_limit_of_their_own():
    machine = geometry_of(load_hardware("trimoe"))
    weights = ExpertWeights(1 << 20, 1 << 20, ExpertFormat.of(16))
    with pytest.raises(InputError, match=r"6\.00 TiB \(6597069766656 bytes\) do not fit a DIMM of"):
        localized(machine, weights)


def test_room_for_violations_is_bounded():
    device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", 1)
    trace = CommandTrace.of(np.zeros((len(HEADER), 1), dtype=np.int64))
    with pytest.raises(InputError, match="limit: 99999999999 is not a whole number from 0 to 1000000"):
        check(trace, device, limit=99999999999)


# Endless inputs, each to a process that may not take more


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))


READ = "import sys; from ndpsim.traces import {0}; {0}(sys.argv[1])"


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
    with pytest.raises(InputError, match=":1: the header must be"):
        read_commands(path)


def said(capsys, *arguments: str) -> str:
    """The one line with which a call is refused."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert (caught.value.code, out, len(err.splitlines())) == (2, "", 1)
    return err


@pytest.mark.parametrize("option", ["--hw", "--model"])
def test_a_device_or_a_pipe_is_no_configuration(option, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in ("/dev/zero", str(pipe)):
        assert said(capsys, "gemv", option, path).endswith("not a regular file\n")


def test_deep_and_large_configurations_are_refused(tmp_path, capsys):
    deep, large = tmp_path / "deep.json", tmp_path / "large.json"
    deep.write_text("[" * 500_000)
    large.write_bytes(b" " * ((1 << 24) + 1))
    assert "nested too deeply" in said(capsys, "show", "model", str(deep))
    assert "larger than 16 MiB" in said(capsys, "show", "model", str(large))


def test_a_machine_without_memory_says_so_in_one_line(monkeypatch, capsys):
    def take(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "main", take)
    assert "the machine has no memory left for this" in said(capsys, "list")
