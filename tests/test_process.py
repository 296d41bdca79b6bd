"""The command line as a process: signals that end it, and standard streams that are closed or broken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ndpsim.base import temporaries
from ndpsim.base.files import replacing
from ndpsim.base.temporaries import remove_leftovers, temporary_file

ROOT = Path(__file__).parents[1]
SIGNALS = [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated"), ("SIGHUP", 129, "hung up")]
WRITES = """
import sys, time
from ndpsim.cli import signals
signals.answer_signals()
from ndpsim.base.files import replacing
from ndpsim.base.temporaries import temporary_folder
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
from ndpsim.cli import signals
signals.answer_signals()
def halt(number):
    print("half", flush=True)
    time.sleep(60)
os.fsync = halt
"""
RESULTS = {
    "a picture": "from matplotlib.figure import Figure\n"
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
        Path(killed.said).rmdir()
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
        foreign = [here.replace(temporaries._machine(), digit * 8) for digit in "01"]
        for name in foreign:
            (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / foreign[0], (time.time() - 2 * 86400,) * 2)
        os.utime(tmp_path / here, (time.time() - 2 * 86400,) * 2)
        remove_leftovers(tmp_path)
        assert names(tmp_path) == sorted([here, foreign[1]])


def test_what_other_users_left_or_still_write_stays(tmp_path, monkeypatch):
    left = tmp_path / f".ndpsim-{temporaries._machine()}-999999999-{'0' * 16}.tmp"
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
        "import os, sys\nfrom pathlib import Path\nfrom ndpsim.base.temporaries import *\n"
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
    opens = "import os; from ndpsim.cli import streams; streams.open_closed(); print(os.dup(0) > 2 or 1 / 0)"
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
