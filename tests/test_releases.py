"""Versions, citations, fragments of the changelog, and the addresses of the project."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from calls import call, refused_call, said
from ndpsim.cli.cite import papers
from ndpsim.cli.names import NAMES
from ndpsim.config import load_hardware
from ndpsim.config.banks import load_bank_hardware
from ndpsim.config.files import data_folder
from ndpsim.policies import policies
from scripts import script

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_NEXT = script("version.py").NEXT


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


def version_in(folder: Path) -> str:
    """The version of a build in a folder."""
    (folder / "version.py").write_text((ROOT / "version.py").read_text())
    module = script(str(folder / "version.py"))
    return str(module.version())


def test_the_version_is_that_of_the_tag_and_of_an_archive_that_which_it_states(tmp_path):
    assert version_in(tmp_path) == _NEXT  # no git
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "a")
    assert version_in(tmp_path) == _NEXT  # no tag
    git(tmp_path, "tag", "v1.2.3")
    assert version_in(tmp_path) == "1.2.3"
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "b")
    assert re.fullmatch(r"1\.2\.3\+1\.g[0-9a-f]{7,}", version_in(tmp_path))
    inner = tmp_path / "inner"  # a folder of another repository
    inner.mkdir()
    assert version_in(inner) == _NEXT
    (inner / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: ndpsim\nVersion: 7.8.9\n\nVersion: 1\n")
    assert version_in(inner) == "7.8.9"


def test_what_is_cited_is_this_project():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == _NEXT
    assert cited["repository-code"] == PROJECT["urls"]["Repository"]
    assert [author["name"] for author in cited["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]
    assert cited["title"] == f"ndpsim: {PROJECT['description']}"
    assert f"## {_NEXT} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_fragment_of_the_changelog_has_a_kind_and_few_lines():
    for path in (ROOT / "changelog.d").iterdir():
        if path.name != "README.md":
            assert re.fullmatch(r"\+[\w-]+\.(added|changed|fixed)\.md", path.name), path.name
            assert 1 <= len(path.read_text(encoding="utf-8").strip().splitlines()) <= 8, path.name


def test_every_bundled_system_that_follows_a_paper_has_its_entry():
    cited = {name for paper in papers() for name in paper.hw}
    assert {name for name in NAMES["hw"]() if load_hardware(name).system.paper} <= cited
    assert {name for name in NAMES["pim-hw"]() if load_bank_hardware(name) is not None} <= cited
    assert cited <= {*NAMES["hw"](), *NAMES["pim-hw"]()}
    cited = {name for paper in papers() for name in paper.policies}
    assert cited == {name for name, policy in policies().items() if policy.paper and policy.paper != "none"}


def test_cite_prints_ndpsim_and_the_papers_of_what_was_used(here):
    own = said("cite")
    assert own.startswith("@software{ndpsim,\n")
    assert "{{The ndpsim developers}}" in own
    assert f"version = {{{metadata.version('ndpsim')}}}" in own
    both = said("cite", "--hw", "trimoe", "--policy", "dali:prefetch=false")
    assert re.findall(r"@\w+\{(\w+),", both) == ["ndpsim", "trimoe", "dali"]
    assert "ndpsim = " not in both
    assert both.count("{") == both.count("}")
    result = {"config": {"hardware": {"name": "edge"}}, "runs": [{"policy": "klotski"}, {"policy": "mine"}]}
    (here / "r.json").write_text(json.dumps(result))
    assert re.findall(r"@\w+\{(\w+),", said("cite", "r.json")) == ["ndpsim", "edgegpundp", "fang2025klotski"]


def test_cite_refuses_what_nobody_knows(here):
    assert refused_call("cite", "--hw", "trimo") == "unknown-name --hw ? trimoe"
    assert refused_call("cite", "--policy", "klotsky") == "unknown-name --policy ? klotski"
    (here / "r.json").write_text("[1]")
    assert refused_call("cite", "r.json") == "form r.json"


@pytest.mark.parametrize("kind", ["docs", "examples"])
def test_pages_and_examples_that_messages_name_are_installed(kind):
    """`ndpsim --help` says where they are."""
    folder = data_folder(kind)
    assert str(folder) in " ".join(call("--help").out.split())
    for path in (ROOT / kind).rglob("*.md"):
        assert (folder / path.relative_to(ROOT / kind)).read_bytes() == path.read_bytes()


@pytest.mark.long
def test_the_image_is_built_and_runs():
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True).returncode:
        pytest.skip("no docker runs here")
    subprocess.run([docker, "build", "-q", "-t", "ndpsim-test", str(ROOT)], check=True)
    ran = subprocess.run([docker, "run", "--rm", "ndpsim-test", "--version"], capture_output=True, check=True)
    assert ran.stdout.startswith(b"ndpsim, version ")
