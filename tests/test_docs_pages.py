"""Pages, drawings and links of docs/ are current, words are those of the glossary, files of examples/ run."""

from __future__ import annotations

import ast
import doctest
import gzip
import inspect
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import ndpsim
import ndpsim.policies
from builders.small_config import write_config
from ndpsim.cli.main import cli
from ndpsim.config.keys import leaves
from ndpsim.config.origins import dotted
from ndpsim.studies.sweeps.commands import swept_commands
from ndpsim.studies.sweeps.file import read_definition
from scripts import script

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


GENERATE: Any = script("docs/generate.py")


@pytest.mark.parametrize("name", GENERATE.PAGES)
def test_generated_pages_are_current(name):
    current = (DOCS / name).read_text(encoding="utf-8") == GENERATE.PAGES[name]()
    assert current, f"docs/{name} is not what the code says: {GENERATE.COMMAND} writes it anew"


def test_every_key_of_every_bundled_file_is_on_the_page():
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for name in ndpsim.hardware_names():
        for path, _ in leaves(ndpsim.load_hardware(name).system):
            key = dotted(path[:2] if path[:2] == ("dram", "overrides") else path)
            assert f"| `{key}` |" in page, key


@pytest.mark.parametrize("package", [ndpsim, ndpsim.policies], ids=lambda package: package.__name__)
def test_every_public_name_is_on_the_page(package):
    headings = re.findall(r"^### `(.+)`$", (DOCS / "python.md").read_text(encoding="utf-8"), re.MULTILINE)
    shared = set(ndpsim.__all__) if package is ndpsim.policies else set()
    assert {f"{package.__name__}.{name}" for name in set(package.__all__) - shared} <= set(headings)
    assert len(headings) == len(set(headings))


def test_docstrings_come_out_as_markdown():
    text = (
        "What it is,\nover two lines.\n\n>>> one()  # doctest: +SKIP\n1\n\nArgs:\n    left, right: of ``it``,\n"
        "        both.\n\nReturns:\n    A number.\n\nRaises:\n    InputError: always.\n"
    )
    assert GENERATE._markdown(text, None) == (
        "What it is, over two lines.\n\n```pycon\n>>> one()\n1\n```\n\nArgs:\n\n"
        "- `left`, `right`: of `it`, both.\n\nReturns: A number.\n\nRaises:\n\n- `InputError`: always.\n\n"
    )


@pytest.mark.parametrize("package", [ndpsim, ndpsim.policies], ids=lambda package: package.__name__)
def test_examples_in_docstrings_say_what_comes_out(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner()
    for name in package.__all__:
        what = getattr(package, name)
        if callable(what):
            text = inspect.getdoc(what) or ""
            runner.run(doctest.DocTestParser().get_doctest(text, {"ndpsim": ndpsim}, name, None, None))
    assert runner.summarize().failed == 0


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings on code hosts."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_page_is_in_the_index():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)\s#]+)\)", index)}
    assert set(DOCS.glob("*.md")) - {DOCS / "README.md"} <= linked


def test_slanted_words_are_in_the_glossary():
    known = " ".join(cells[0] for cells in TERMS).lower()
    words = re.findall(r"(?<!\*)\*([\w -]+)\*(?!\*)", (DOCS / "concepts.md").read_text(encoding="utf-8"))
    assert len(words) > 10
    for word in words:
        assert re.search(rf"\b{word.lower().removesuffix('s')}\b", known), word


def test_drawings_are_current():
    draw = script("docs/drawings/draw.py")
    assert {path.name for path in (DOCS / "drawings").glob("*.svg")} == set(draw.DRAWINGS)
    for name, drawing in draw.DRAWINGS.items():
        current = (DOCS / "drawings" / name).read_text(encoding="utf-8") == drawing().svg()
        assert current, f"docs/drawings/{name} is not what is drawn: {draw.COMMAND} writes it anew"


def test_every_picture_is_on_a_page():
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"!\[.*?\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    }
    for folder in ("drawings", "pictures"):
        assert set((DOCS / folder).glob("*.svg")) <= shown


def test_the_readme_says_what_every_dependency_is_for():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for line in project["dependencies"]:
        assert f"| {named(line)} |" in readme, line
    for extra in set(extras) - {"test"}:
        rows = [row for row in readme.splitlines() if row.startswith(f"| `ndpsim[{extra}]` |")]
        assert len(rows) == 1, extra
        assert all(named(line) in rows[0] for line in extras[extra]), extra
    tests = " ".join(readme.partition("The extra `test` adds")[2].partition("\n\n")[0].split())
    for line in extras["test"]:
        assert named(line).replace("types-PyYAML", "mypy") in tests, line


def named(requirement: str) -> str:
    """The package of a requirement."""
    return re.split(r"[<>=!~\[; ]", requirement)[0]


# ---- The glossary against the code: identifiers that it names exist, words that it retires do not occur

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of each row of tables, without headings and rules."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [cells for line in lines if (cells := [cell.strip() for cell in line])[0] not in ("word", "not")]


TERMS, RETIRED = (rows(part) for part in PAGE.split("## Words not used in code"))


@cache
def identifiers() -> frozenset[str]:
    """Words of the page that the package defines or uses as names, those of its modules and folders included."""
    asked, found = set(re.findall(r"`(\w+)`", PAGE)), set()
    for path in (ROOT / "ndpsim").rglob("*.py"):
        found |= {path.stem, path.parent.name}
        text = path.read_text(encoding="utf-8")
        if asked.isdisjoint(set(re.findall(r"\w+", text)) - found):
            continue
        for node in ast.walk(ast.parse(text)):
            named = (getattr(node, key, None) for key in ("name", "arg", "id", "attr"))
            found |= {name for name in named if isinstance(name, str)}
    return frozenset(found)


def test_identifiers_of_terms_exist():
    for cells in TERMS:
        assert len(cells) == 3, cells[0]
        assert set(re.findall(r"`(\w+)`", cells[2])) <= identifiers(), cells[0]


def test_every_word_has_one_row():
    words = [word for cells in TERMS for word in cells[0].split(", ")]
    assert len(words) == len(set(words)) > 100


def test_retired_words_are_no_identifiers():
    words = {word for cells in RETIRED for word in re.findall(r"`(\w+)`", cells[0])}
    assert words & identifiers() == set()


# ---- Files of `examples/`: sweeps can be read, and a small point of each runs; traces are what their commands write

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.yaml"))


def smaller(command: str, folder: Path) -> dict[str, Any]:
    """What makes a point of an example small enough for a test: a smaller model, fewer sequences and steps."""
    small_model = {"model": write_config(folder), "batch": 2, "steps": 1, "prompt": None, "routing": None}
    return {
        "gemv": {"shape": "256,256", "model": None},
        "relayout": {"shape": "256,256", "experts": 1},
        "moe": small_model,
    }[command]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_point_of_an_example_can_be(file):
    definition = read_definition(file)
    command = swept_commands()[definition.command]
    keys = [command.resolve(definition.settings(point)).key for point in definition.points()]
    assert len(set(keys)) == len(keys) > 5


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_last_point_of_an_example_runs_when_it_is_made_small(file, tmp_path):
    definition = read_definition(file)
    command = swept_commands()[definition.command]
    given = definition.settings(definition.points()[-1]) | smaller(definition.command, tmp_path)
    metrics = command.measure({key: value for key, value in given.items() if value is not None})
    for metric in (command.time_metric, definition.speedup_of):
        assert metric is None or metrics[metric] > 0
    if definition.plot["y"] != "speedup":
        assert metrics[definition.plot["y"]] > 0
    for one in definition.published:
        assert metrics[one.metric] > 0


def test_the_lane_beside_the_examples_is_what_its_command_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["gemv", "--shape", "256,128", "--commands", "lane.csv.gz", "--lane", "0"]
    assert " ".join(["ndpsim", *command]) in (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8")
    assert CliRunner().invoke(cli, command).exit_code == 0
    assert gzip.decompress(Path("lane.csv.gz").read_bytes()) == gzip.decompress(
        (EXAMPLES[0].parent / "lane.csv.gz").read_bytes()
    )


def test_requests_and_routing_beside_the_examples_are_what_their_block_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8")
    exec(page.partition("```python\n")[2].partition("```")[0], {})
    assert Path("requests.trace").read_bytes() == (EXAMPLES[0].parent / "requests.trace").read_bytes()
    written, there = (np.load(folder / "routed_experts.npz") for folder in (Path(), EXAMPLES[0].parent))
    assert np.array_equal(written["routed_experts"], there["routed_experts"])


def test_every_public_call_has_an_example():
    calls = {name: getattr(ndpsim, name) for name in ndpsim.__all__}
    without = [
        name
        for name, call in calls.items()
        if inspect.isfunction(call) and ">>> " not in inspect.getdoc(call)
    ]
    assert without == []
