"""The generated pages and drawings of docs/ are current, and every link between pages has a target."""

from __future__ import annotations

import doctest
import inspect
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import ndpsim
import ndpsim.policies
from ndpsim.config.keys import leaves
from ndpsim.config.origins import dotted
from scripts import script

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# Pages that are linked before they are written.


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return script("docs/generate.py")


@pytest.mark.parametrize("name", ["configuration.md", "commands.md", "python.md", "memories.md"])
def test_generated_pages_are_current(generate, name):
    current = (DOCS / name).read_text(encoding="utf-8") == generate.PAGES[name]()
    assert current, f"docs/{name} is not what the code says: {generate.COMMAND} writes it anew"


def test_every_generated_page_is_tested(generate):
    assert set(generate.PAGES) == {
        *(f"{name}.md" for name in ("configuration", "commands", "python", "memories")),
        "../ndpsim/__init__.pyi",
    }


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


def test_docstrings_come_out_as_markdown(generate):
    text = (
        "What it is,\nover two lines.\n\n>>> one()  # doctest: +SKIP\n1\n\nArgs:\n    left, right: of ``it``,\n"
        "        both.\n\nReturns:\n    A number.\n\nRaises:\n    InputError: always.\n"
    )
    assert generate._markdown(text, None) == (
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
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8").lower()
    rows = " ".join(row.split("|")[1] for row in glossary.splitlines() if row.startswith("|"))
    words = re.findall(r"(?<!\*)\*([\w -]+)\*(?!\*)", (DOCS / "concepts.md").read_text(encoding="utf-8"))
    assert len(words) > 10
    for word in words:
        assert re.search(rf"\b{word.lower().removesuffix('s')}\b", rows), word


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
