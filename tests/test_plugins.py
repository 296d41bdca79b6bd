"""Plug-ins from outside: entry points of installed packages, and single files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mistakes import refused
from ndpsim.base import plugins

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "plugin"
ARRIVING = {"seconds": [10, 10.5, 12], "prompts": [100, 200, 300], "outputs": [7, 8, 9]}


def installed(folder: Path) -> Path:
    """A folder with the built wheel of the example, as pip unpacks it: environments of tests have no pip."""
    pytest.importorskip("hatchling")
    source, site = folder / "source", folder / "site"
    shutil.copytree(EXAMPLE, source)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    shutil.unpack_archive(wheel, site, "zip")
    return site


def run(*arguments: object, path: Path | None = None, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A call in a process of its own, since names are looked up when it starts."""
    environment = {**os.environ, **({} if path is None else {"PYTHONPATH": str(path)})}
    command = [sys.executable, "-m", "ndpsim", *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)


def test_an_installed_package_is_used_as_if_its_modules_were_here(tmp_path):
    site, folder = installed(tmp_path), tmp_path / "folder"
    folder.mkdir()
    (folder / "arriving.json").write_text(json.dumps(ARRIVING))
    described = run("requests", "describe", "arriving.json", "--json", "-", path=site, cwd=folder)
    found = json.loads(described.stdout)
    assert (found["source"]["imported"], found["prompt_tokens"]["total"]) == ("columns", 600)
    for kind, name in (("workload-formats", "columns"), ("request-formats", "spaced")):
        assert name in run("list", kind, path=site, cwd=folder).stdout.split()
    script = "import ndpsim; print(ndpsim.check_policy('all-on-cpu').policy)"
    checked = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout.strip() == "all-on-cpu", checked.stderr


def test_a_file_is_used_for_one_call_and_its_mistakes_are_told_in_a_line(tmp_path):
    (tmp_path / "arriving.json").write_text(json.dumps(ARRIVING))
    shutil.copy(EXAMPLE / "ndpsim_extras" / "columns.py", tmp_path / "rows.py")
    for call in (("--plugin", "rows.py", "requests", "import"), ("requests", "import", "--plugin=rows.py")):
        done = run(*call, "arriving.json", "--format", "rows", "-o", "r.csv", cwd=tmp_path)
        assert (done.returncode, done.stdout.split()[3:5]) == (0, ["arriving.json", "(rows):"]), done.stderr
    done = run("list", "models", "--plugin", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "ndpsim: error: --plugin needs a file\n")
    done = run("list", "models", "--plugin", "none.py", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "none.py: No such file" in done.stderr


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Sets files as plug-ins and reads them; ndpsim's own names stay as they are."""

    def read(**sources: str) -> dict[str, dict[str, plugins.Outside]]:
        files = []
        for name, source in sources.items():
            files.append(tmp_path / f"{name}.py")
            files[-1].write_text(source)
        monkeypatch.setenv(plugins.VARIABLE, os.pathsep.join(map(str, files)))
        monkeypatch.setattr(sys, "path", [])
        return plugins.outside.__wrapped__()

    return read


KINDS = [
    ("STANDARD = Standard()", "dram/spec/standards"),
    ("EXTENSION = Extension()", "dram/spec/extensions"),
    ('PLACES = ("bank",)', "dimm/banks"),
    ("class P: ...\nPOLICY = P", "policies/own"),
    ("SCHEDULER: type = object", "inference/serving/schedulers"),
    ("FORMAT = WorkloadFormat(read=None)", "workload/requests/formats"),
    ("FORMAT = recorded.RoutingFormat()", "workload/routing/formats"),
    ("FORMAT = ConfigurationFormat()", "config/importers/formats"),
    ("FORMAT = RequestFormat()", "dram/traces/request_formats"),
    ("GENERATOR = ArrivalGenerator()", "workload/requests/generators"),
    ("def turns(channel): ...", "dram/refresh_policies"),
    ("@inlined\ndef may_issue(scheduler): ...", "dram/schedulers"),
]


def test_the_kind_of_a_file_follows_from_what_it_defines_without_running_it(given):
    for source, folder in KINDS:
        assert list(given(mine=f"{source}\nraise SystemExit\n")) == [folder], source
    assert set(plugins.KINDS.values()) >= {folder for _, folder in KINDS}
    for folder in plugins.KINDS.values():
        assert (ROOT / "ndpsim" / folder).is_dir(), folder


def test_impossible_plugins_are_refused_with_their_place(given, tmp_path, monkeypatch):
    for source, expected in (
        ("x = 1", "form mine.py"),
        ("def f(:", "form mine.py"),
        ("FORMAT = Other()", "form mine.py"),
    ):
        with refused(expected):
            given(mine=source)
    with refused("twice csv.py"):
        given(csv="FORMAT = WorkloadFormat()")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.py").write_text("FORMAT = WorkloadFormat()")
    given(mine="FORMAT = WorkloadFormat()")
    both = (tmp_path / "mine.py", tmp_path / "other" / "mine.py")
    monkeypatch.setenv(plugins.VARIABLE, os.pathsep.join(map(str, both)))
    with refused("twice mine.py"):
        plugins.outside.__wrapped__()


def test_impossible_entry_points_are_refused_with_their_place(tmp_path, monkeypatch):
    (tmp_path / "a-1.dist-info").mkdir()
    entries = tmp_path / "a-1.dist-info" / "entry_points.txt"
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for text, expected in (
        (
            "[console_scripts]\na = b:c\n\n[ndpsim.formats]\na = b\n",
            "unknown-name entry_points.txt ? request_formats",
        ),
        ("[ndpsim.policies]\na = b:POLICY\n", "form entry_points.txt"),
        ("[ndpsim.policies]\nbalance = b\n", "twice entry_points.txt"),
    ):
        entries.write_text(text)
        with refused(expected):
            plugins.outside.__wrapped__()
    entries.write_text("[ndpsim.policies]\na = no_such_package.b\n")
    found = plugins.outside.__wrapped__()
    with refused("form entry_points.txt"):
        print(found["policies/own"]["a"].file)
