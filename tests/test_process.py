"""The command line as a process: signals, standard streams, and outputs that replace no input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from calls import refused_call, said
from mistakes import refused
from ndpsim.base import run_files
from ndpsim.base.arrays import read_npy, read_npz
from ndpsim.base.errors import InputError
from ndpsim.base.files import ensure_writable, open_plain_or_gzip, replacing
from ndpsim.base.run_files import (
    inputs_protected,
    note_input,
    remove_leftovers,
    temporary_file,
    temporary_folder,
)
from ndpsim.base.text_files import first_bytes
from ndpsim.config import data_path, load_hardware
from ndpsim.config.nodes import read_text
from ndpsim.dram.traces import read_commands, write_commands
from ndpsim.policies.choose import choose_policy
from ndpsim.studies.sweeps.command import file_digests
from ndpsim.workload.models import load_model
from ndpsim.workload.routing.tensors import read_saved

ROOT = Path(__file__).parents[1]
SIGNALS = [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated"), ("SIGHUP", 129, "hung up")]
WRITES = """
import sys, time
from ndpsim.cli import process
process.answer_signals()
from ndpsim.base.files import replacing
from ndpsim.base.run_files import temporary_folder
with temporary_folder() as folder, replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print(folder, flush=True)
    {waits}
"""
SLEEPS = "time.sleep(60)"


@contextmanager
def started(*arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that has printed its first line, which is its attribute `said`."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
    )
    with process:
        try:
            process.said = process.stdout.readline().strip()
            yield process
        finally:
            process.kill()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("waits", [SLEEPS, "while True: pass"], ids=["asleep", "at work"])
@pytest.mark.parametrize(("name", "status", "word"), SIGNALS)
def test_a_signal_ends_a_run_in_one_line_and_leaves_nothing_beside_the_target(
    tmp_path, name, status, word, waits
):
    target = tmp_path / "out.json"
    target.write_bytes(b"old")
    with started("-c", WRITES.format(waits=waits), str(target)) as process:
        assert len(names(tmp_path)) == 2
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (status, f"ndpsim: {word}\n")
    assert names(tmp_path) == ["out.json"]
    assert target.read_bytes() == b"old"
    assert not Path(process.said).exists()


# What writes each kind of result; the file is complete, and not yet in its place, when it is made durable.
BEFORE_THE_END = """
import os, time
from pathlib import Path
from ndpsim.cli import process
process.answer_signals()
def halt(number):
    print("half", flush=True)
    time.sleep(60)
os.fsync = halt
"""
RESULTS = {
    "a picture": "import logging; logging.getLogger('matplotlib').setLevel(logging.ERROR)  # as `main` does\n"
    "from matplotlib.figure import Figure\n"
    "from ndpsim.report.pictures.canvas import save; save(Figure(), 'out', 'column')",
    "JSON": "from ndpsim.cli.main import main; main(['show', 'hw', 'trimoe', '--json', 'out'])",
    "a log": "from ndpsim.inference.layers.log import writing_log\nwith writing_log('out'): pass",
    "a table of a sweep": "from ndpsim.studies.sweeps.store import Store; Store(Path()).write_file('out', b'n')",
}


@pytest.mark.parametrize("result", RESULTS)
def test_an_interruption_while_a_result_is_written_leaves_the_old_one(tmp_path, result):
    target = tmp_path / "out"
    target.write_bytes(b"old")
    script = f"{BEFORE_THE_END}os.chdir({str(tmp_path)!r})\n{RESULTS[result]}"
    with started("-c", script) as process:
        assert process.said == "half"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "ndpsim: interrupted\n")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out"]
    assert target.read_bytes() == b"old"


def test_what_a_killed_run_leaves_goes_with_the_next_that_writes_there(tmp_path):
    target = tmp_path / "out.json"
    with started("-c", WRITES.format(waits=SLEEPS), str(target)) as living:
        (in_use,) = names(tmp_path)
        with started("-c", WRITES.format(waits=SLEEPS), str(target)) as killed:
            (left,) = set(names(tmp_path)) - {in_use}
            killed.send_signal(signal.SIGKILL)
            killed.wait()
        (Path(killed.said) / "half").write_bytes(b"half")
        with temporary_folder():
            assert not Path(killed.said).exists()
            assert Path(living.said).exists()
        others = [".ndpsim-mine", f"{left}.csv", f"x{left}", left.upper()]
        for name in others:
            (tmp_path / name).write_bytes(b"not ours")
        folder, link, pipe = [name for digit in "0123" if (name := f"{left[:-5]}{digit}.tmp") != left][:3]
        (tmp_path / folder).mkdir()
        os.mkfifo(tmp_path / pipe)
        (tmp_path / link).symlink_to(tmp_path / others[0])
        with replacing(tmp_path / "other.json") as file:
            file.write(b"{}")
        assert names(tmp_path) == sorted([*others, folder, link, pipe, in_use, "other.json"])
        living.send_signal(signal.SIGTERM)
        living.wait()
    assert in_use not in names(tmp_path)


def test_what_another_machine_left_goes_when_it_is_old(tmp_path):
    with temporary_file(tmp_path):
        (here,) = names(tmp_path)
        foreign = [here.replace(run_files._machine(), digit * 8) for digit in "01"]
        for name in foreign:
            (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / foreign[0], (time.time() - 2 * 86400,) * 2)
        os.utime(tmp_path / here, (time.time() - 2 * 86400,) * 2)
        remove_leftovers(tmp_path)
        assert names(tmp_path) == sorted([here, foreign[1]])


def test_what_other_users_left_or_still_write_stays(tmp_path, monkeypatch):
    left = tmp_path / f".ndpsim-{run_files._machine()}-999999999-{'0' * 16}.tmp"
    left.write_bytes(b"half")

    def refuse(process: int, number: int) -> None:
        raise PermissionError

    for name, stands_for in (("geteuid", lambda: left.stat().st_uid + 1), ("kill", refuse)):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, stands_for)
            remove_leftovers(tmp_path)
        assert left.exists(), name
    remove_leftovers(tmp_path)
    assert not left.exists()


def test_a_forked_process_leaves_the_files_of_its_parent(tmp_path):
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom ndpsim.base.run_files import *\n"
        "with temporary_file(Path(sys.argv[1])) as file:\n"
        "    if os.fork() == 0:\n        remove_temporaries()\n        os._exit(0)\n"
        "    os.wait()\n    print(os.path.exists(file.name))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, check=True)
    assert done.stdout == b"True\n"


def test_an_ignored_signal_stays_ignored(tmp_path):
    ignores = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    with started("-c", ignores + WRITES.format(waits=SLEEPS), str(tmp_path / "out")) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143


@pytest.mark.parametrize(("name", "status", "word"), SIGNALS)
def test_a_signal_during_the_first_imports_is_one_line(tmp_path, name, status, word):
    (tmp_path / "click.py").write_text("print('importing', flush=True)\nimport time\ntime.sleep(60)\n")
    with started("-m", "ndpsim", "list", PYTHONPATH=str(tmp_path)) as process:
        assert process.said == "importing"
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (status, f"ndpsim: {word}\n")


def test_an_interruption_before_the_first_import_of_the_package_shows_no_traceback(tmp_path):
    (tmp_path / "ndpsim").mkdir()
    (tmp_path / "ndpsim" / "__init__.py").write_text(
        "import time; print('importing', flush=True); time.sleep(60)"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, function = project["scripts"]["ndpsim"].split(":")
    script = f"import sys; sys.path.insert(1, {str(ROOT)!r}); from {module} import {function}; sys.exit({function}())"
    with started("-P", "-c", script, PYTHONPATH=str(tmp_path)) as process:
        assert process.said == "importing"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (-signal.SIGINT, "")


# Standard streams


def shell(line: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[bytes]:
    """`line` in a shell, where $NDPSIM is the command."""
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env={**os.environ, "NDPSIM": f"{sys.executable} -m ndpsim", **settings},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_closed_stream_stops_nothing(tmp_path, closed):
    done = shell(f"$NDPSIM show schema hw --json out.json {closed}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "out.json").read_text().startswith("{\n")
    done = shell(f"$NDPSIM nothing {closed}", tmp_path)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_what_is_printed_never_goes_into_another_file(tmp_path):
    """A file that is opened takes the lowest number that is free, which must not be that of a stream."""
    opens = "import os; from ndpsim.cli import process; process.open_closed(); print(os.dup(0) > 2 or 1 / 0)"
    done = shell(f'{sys.executable} -c "{opens}" <&- >&- 2>err', tmp_path)
    assert (done.returncode, (tmp_path / "err").read_text()) == (0, "")


def test_json_on_a_closed_standard_output_is_refused(tmp_path):
    done = shell("$NDPSIM show schema hw --json - >&-", tmp_path)
    assert (done.returncode, done.stderr) == (2, b"ndpsim: error: --json: standard output is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("what", ["--help", "show schema hw"])
def test_a_full_standard_output_is_named(tmp_path, what):
    done = shell(f"$NDPSIM {what} >/dev/full", tmp_path)
    line = b"ndpsim: error: cannot write standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, line)


def test_a_reader_that_has_seen_enough_is_no_mistake(tmp_path):
    done = shell("{ $NDPSIM --help; echo $? >status; } | true", tmp_path)
    assert ((tmp_path / "status").read_text(), done.stderr) == ("0\n", b"")


@pytest.mark.parametrize(
    "settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}]
)
def test_names_that_no_encoding_has_are_printed(tmp_path, settings):
    name = os.fsdecode(b"\xff\xc3\xa4.csv")
    (tmp_path / name).write_text("clock,command,rank,bankgroup,bank,row,column\n")
    preset = "--standard DDR5 --org DDR5_16Gb_x8 --timing DDR5_4800AN"
    done = shell(f"$NDPSIM *.csv; $NDPSIM check *.csv {preset}", tmp_path, **settings)
    assert done.stderr.splitlines()[0].startswith(b"ndpsim: error: unknown command '")
    assert b"Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith(b"csv: holds no commands")
    assert done.returncode == 2


def test_a_folder_that_is_gone_is_one_line(tmp_path):
    done = shell("mkdir gone; cd gone; rmdir ../gone; $NDPSIM show hw trimoe --json out.json", tmp_path)
    assert done.returncode in (0, 2)
    assert len(done.stderr.splitlines()) <= 1
    assert b"standard output" not in done.stderr


# ---- No output replaces an input of the same call, whatever names and links are given for both

HEADER = "clock,command,rank,bankgroup,bank,row,column\n"
PRESET = "--standard DDR5 --org DDR5_16Gb_x8 --timing DDR5_4800AN"
SMALL = "gemv --shape 64,64"
_LINES = data_path("hwconfigs", "trimoe").read_text().splitlines()
_UNIT_LINE = 1 + next(n for n, line in enumerate(_LINES) if "gemv: trimoe_gemv" in line)


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an input of every kind, by more names than one; nothing is simulated."""
    hardware = data_path("hwconfigs", "trimoe").read_text()
    assert "gemv: trimoe_gemv" in hardware
    (here / "hw.yaml").write_text(hardware.replace("gemv: trimoe_gemv", "gemv: ./unit.yaml"))
    (here / "unit.yaml").write_text(data_path("rtl_params", "trimoe_gemv").read_text())
    (here / "model").mkdir()
    config = '{"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_local_experts": 2, "num_experts_per_tok": 1}'
    (here / "model" / "config.json").write_text(config)
    (here / "t").write_text("LD 0x0\nST 0x40\n")
    (here / "c.csv").write_text(HEADER)
    (here / "in.ini").write_text("[dram_structure]\nprotocol = DDR4\n")
    (here / "soft").symlink_to("hw.yaml")
    (here / "folder").symlink_to("model")
    os.link(here / "t", here / "hard")

    def simulated(*arguments: object, **options: object) -> None:
        raise AssertionError("simulated before the clash was found")

    monkeypatch.setattr("ndpsim.simulate.lane.run_channel", simulated)
    monkeypatch.setattr("ndpsim.simulate.trace.ThreadPoolExecutor", simulated)
    return here


@pytest.mark.parametrize(
    ("call", "option", "read"),
    [
        (f"{SMALL} --hw hw.yaml --json hw.yaml", "--json", "hw.yaml"),
        (f"{SMALL} --hw hw.yaml --json soft", "--json", "hw.yaml"),
        (f"{SMALL} --hw hw.yaml --timeline model/../hw.yaml", "--timeline", "hw.yaml"),
        (f"{SMALL} --hw hw.yaml --plot unit.yaml", "--plot", "unit.yaml"),
        (f"{SMALL} --hw hw.yaml --commands unit.yaml", "--commands", "unit.yaml"),
        ("dram t --report hard", "--report", "t"),
        (f"{SMALL} --set ndp.gemv=./unit.yaml --json unit.yaml", "--json", "unit.yaml"),
        ("gemv --model model --json model/config.json", "--json", "model/config.json"),
        (f"{SMALL} --engine host-read --hw hw.yaml --json hw.yaml", "--json", "hw.yaml"),
        ("relayout --model model --commands folder/config.json", "--commands", "model/config.json"),
        ("dram hard --plot t", "--plot", "hard"),
        ("dram t --hw hw.yaml --json hw.yaml", "--json", "hw.yaml"),
        ("compare ramulator t --json t", "--json", "t"),
        (f"check c.csv {PRESET} --json c.csv", "--json", "c.csv"),
        ("import in.ini --out in.ini --force", "--out", "in.ini"),
        ("show hw ./hw.yaml --json hw.yaml", "--json", "hw.yaml"),
        ("show model model --json model/config.json", "--json", "model/config.json"),
        ("show layout striped --hw hw.yaml --json soft", "--json", "hw.yaml"),
    ],
)
def test_an_output_that_is_an_input_is_refused_before_any_work(folder, monkeypatch, call, option, read):
    monkeypatch.setattr("ndpsim.report.pictures.canvas.check_format", lambda path, option="": "png")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    place = f"hw.yaml:{_UNIT_LINE} ndp.gemv" if read == "unit.yaml" else option
    place = "--set ndp.gemv" if "--set" in call else place
    assert refused_call(*call.split()) == f"unwritable {place}"
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_what_an_earlier_call_has_read_is_an_input_of_the_next_as_well(folder):
    bundled = data_path("hwconfigs", "trimoe")
    load_hardware("trimoe")  # from now on it need not be opened
    assert refused_call(*f"{SMALL} --json {bundled}".split()) == "unwritable --json"


def test_a_later_call_may_write_what_an_earlier_one_read(folder):
    (folder / "c.csv").write_text(f"{HEADER}9,ACT,0,0,0,0,-1\n")
    for words in (
        f"check c.csv {PRESET} --json a.json",
        "show schema hw --json c.csv",
        "show schema hw --json a.json",
    ):
        said(*words.split())
    assert (folder / "c.csv").read_bytes() == (folder / "a.json").read_bytes()


def test_python_may_write_back_what_it_read(folder):
    write_commands("c.csv", read_commands("c.csv"))
    assert (folder / "c.csv").read_text() == HEADER


# Every place where a file that the user names is opened; most are reached by several commands.
READERS = {
    "text, plain or gzip": first_bytes,
    "YAML": read_text,
    "a model": lambda path: load_model(str(path)),
    "an array": read_npy,
    "arrays": lambda path: read_npz(path, bool),
    "tensors": read_saved,
    "a policy": lambda path: choose_policy(str(path)),
    "what a sweep varies": file_digests,
}


@pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))
@pytest.mark.parametrize("first", ["read", "written"])
def test_whoever_reads_a_file_it_is_an_input(folder, read, first):
    Path("some.py").write_text("[")  # content that nobody reads to its end
    os.link("some.py", "linked")
    with inputs_protected():
        if first == "written":
            ensure_writable("linked", "--json")
            with refused("unwritable --json"):
                read(Path("some.py"))
        with suppress(InputError):
            read(Path("some.py"))
        with refused("unwritable --plot"):
            ensure_writable("linked", "--plot")


def test_devices_and_files_that_are_not_read_may_be_written(folder):
    with inputs_protected():
        ensure_writable("c.csv", "--plot")
        with open_plain_or_gzip(Path("/dev/null")), replacing("/dev/null") as file:
            file.write(b"a device is no file that could be lost")
        ensure_writable("c.csv", "--plot")


def test_a_file_that_becomes_an_input_meanwhile_is_not_replaced(folder):
    with inputs_protected(), refused("unwritable"), replacing("new") as file:
        file.write(b"new")
        os.link("t", "new")
        note_input("t")
    assert Path("new").read_text() == "LD 0x0\nST 0x40\n"


def test_an_output_on_the_file_of_standard_output_is_refused(folder, monkeypatch):
    monkeypatch.setattr(
        "ndpsim.base.files.os.stat", lambda file, **options: os.lstat("t" if file == 1 else file)
    )
    assert refused_call(*["show", "schema", "hw", "--json", "t"]) == "twice --json"
    assert refused_call(*["dram", "t"]) == "unwritable standard output"
