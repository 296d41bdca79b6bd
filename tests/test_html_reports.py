"""Reports as HTML: every result has one, which stands alone, is escaped, bounded, and the same bytes twice."""

from __future__ import annotations

import html.parser
import json
import re

import pytest

from builders.small_config import write_config
from builders.sweep_by_hand import Result, fail, gemv, moe, row
from calls import call
from ndpsim.base.errors import InputError
from ndpsim.base.run_files import called
from ndpsim.report.html.page import (
    MOST_ROWS,
    Cell,
    Folded,
    HtmlTable,
    Picture,
    Section,
    inline,
    measured,
    measured_cell,
    picture,
    provenance,
    write_page,
)
from ndpsim.report.html.runs import write_moe_report
from ndpsim.report.html.sweeps import write_sweep_report
from ndpsim.report.moe import MoeHistory
from ndpsim.report.sweep_plot import PublishedValue
from ndpsim.simulate.results.cache import version
from ndpsim.studies.sweeps.values import Definition

SETS = ["--set", "dimm.count=4", "--set", "host.channels=2"]
SHAPE = ["--shape", "256,96"]
WAYS = {
    "expert": ["gemv", *SHAPE, "--tokens", "2"],
    "experts in turn": ["gemv", *SHAPE, "--tokens", "2,1"],
    "contention": ["gemv", *SHAPE, "--host-traffic", "saturate"],
    "host read": ["gemv", *SHAPE, "--engine", "host-read"],
    "relayout": ["relayout", *SHAPE, *SETS],
    "all topologies": ["relayout", *SHAPE, *SETS, "--topology", "all"],
    "trace": ["dram", "requests.trace"],
    "trace on hardware": ["dram", "requests.trace", "--hw", "trimoe"],
    "load": ["dram", "requests.trace", "--sweep-load"],
    "moe": ["moe", "--model", "config.json", "--batch", "4", "--steps", "1", *SETS],
}


class Page(html.parser.HTMLParser):
    """What stands in a page, as a browser would see it without scripts."""

    EMPTY = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.ids, self.addresses, self.open = [], [], [], []
        self.words: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        assert not any(name.startswith("on") for name in given), given
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.setdefault(self.open[-1] if self.open else "", []).append(data)


@pytest.fixture
def folder(here):
    lines = (f"{'ST' if n % 3 == 0 else 'LD'} {64 * ((n * 77) % 4096):#x}\n" for n in range(300))
    (here / "requests.trace").write_text("".join(lines))
    write_config(here)
    return here


def checked(text: str) -> Page:
    """A page that stands alone: nothing of it comes from elsewhere, and ids are unique."""
    page = Page(text)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    for address in page.addresses:
        assert address.startswith(("#", "data:")), address
        assert not address.startswith("#") or address[1:] in page.ids
    for address in re.findall(r"url\((.*?)\)", text):
        assert address.startswith("#"), address
        assert address[1:] in page.ids
    assert re.findall("https?:", text) == []
    assert page.tags.count("script") == 1
    assert "default-src 'none'" in text
    return page


@pytest.mark.parametrize("way", [way for way in WAYS if way != "moe"])  # which has a test below
def test_every_result_has_its_report(way, folder):
    status, out, err = call(*WAYS[way], "--report", "report.html")
    assert status == 0, err
    assert out
    text = (folder / "report.html").read_text()
    page = checked(text)
    assert page.tags.count("svg") == 1
    heads = page.words["h2"]
    assert {"Summary", "Configuration", "Provenance"} <= set(heads)
    for known in (version(), "NumPy", "Numba"):
        assert known in text
    assert "simulated in" not in text
    assert str(folder) not in text
    assert ("Timings with their sources" in page.words["summary"]) == (WAYS[way][0] == "dram")
    assert len(text) < 1_000_000


@pytest.mark.parametrize(
    "way",
    [
        "expert",
        *(pytest.param(way, marks=pytest.mark.long) for way in ("host read", "relayout", "trace", "moe")),
    ],
)
def test_equal_results_are_equal_files(way, folder):
    for name in ("a.html", "b.html"):
        assert call(*WAYS[way], "--report", name)[0] == 0
    assert (folder / "a.html").read_bytes() == (folder / "b.html").read_bytes()


def test_a_report_says_what_the_text_says_and_where_values_come_from(folder):
    _, out, _ = call(*WAYS["expert"], "--report", "report.html")
    page = Page((folder / "report.html").read_text())
    said = {" ".join(cell.split()) for tag in ("th", "td", "h1") for cell in page.words[tag]}
    for line in out.splitlines()[1:]:
        if line.startswith("simulated in"):  # how long a run took is no result
            continue
        for cell in re.split(r"  +", line.strip())[:2]:
            assert cell in said, line
    assert "dimm.ranks" in said
    assert any("assum" in words for words in page.words["td"])
    assert {"gate-up", "I/O", "NDP static"} <= said


def test_experts_in_turn_have_their_times_in_the_report(folder):
    assert call(*WAYS["experts in turn"], "--report", "report.html", "--json", "result.json")[0] == 0
    page = Page((folder / "report.html").read_text())
    assert "Timeline: 2 experts in turn" in page.words["summary"]
    first = json.loads((folder / "result.json").read_text())["jobs"][0]
    assert f"{first['end_ns'] / 1000:.4g}" in page.words["td"]


def test_a_report_of_policies_says_what_was_routed(folder):
    assert call(*WAYS["moe"], "--policy", "trimoe", "--policy", "monde", "--report", "report.html")[0] == 0
    text = (folder / "report.html").read_text()
    page = checked(text)
    assert {"Summary", "Configuration", "Provenance"} <= set(page.words["h2"])
    assert "routing" in page.words["th"]
    assert any("seed 1" in words for words in page.words["td"])
    assert sum("Timeline" in words for words in page.words["summary"]) == 2


def test_a_report_of_jobs_made_by_hand_has_their_times(moe_by_hand, tmp_path):
    history = MoeHistory()
    moe_by_hand.play(history, "first", "second")
    paths = tmp_path / "a.html", tmp_path / "b.html"
    hardware = moe_by_hand.run.hardware
    for path in paths:
        write_moe_report(str(path), moe_by_hand.result("first", "second"), history, hardware)
    text, again = (path.read_text() for path in paths)
    assert text == again
    page = checked(text)
    cells = page.words["td"]
    place = cells.index("results")  # from 55 to 60 us after the gate, see `moe_by_hand`
    assert cells[place - 1 : place + 5] == ["pcie-down", "results", "0", "49,152", "55.00", "60.00"]
    assert "start (\N{MICRO SIGN}s)" in page.words["th"]


@pytest.mark.parametrize("target", ["none/a.html", "."])
def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(target, folder):
    status, _, err = call("gemv", *SHAPE, "--report", target)
    assert status == 2
    assert "error: --report: cannot write " in err
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "requests.trace"]


# ---- sweeps ----


def report(result, folder) -> str:
    write_sweep_report(str(folder / "sweep.html"), result.definition, result)
    text = (folder / "sweep.html").read_text()
    checked(text)
    return text


def test_a_sweep_has_pictures_its_points_and_what_they_share(tmp_path):
    page = Page(report(gemv(), tmp_path))
    assert page.tags.count("svg") == 2  # the times, and the Pareto front of time and energy
    cells = page.words["td"]
    assert "trimoe" in cells
    assert "4 values: 1, 4, 16, 64" in cells  # of the configurations' tokens
    assert "4.000 \N{MICRO SIGN}s at ranks 4, tokens 1, bits 16" not in cells
    assert "1.000 \N{MICRO SIGN}s at ranks 4, tokens 1, bits 4" in cells
    assert "1.024 ms at ranks 1, tokens 64, bits 16" in cells
    assert "time (ms)" in page.words["th"]


def test_the_same_sweep_is_the_same_report(tmp_path):
    assert report(gemv(), tmp_path) == report(gemv(), tmp_path)


def test_failed_points_stand_in_the_report_with_their_reason(tmp_path):
    text = report(fail(gemv(), 2, "layout: <b>none</b>"), tmp_path)
    page = Page(text)
    assert "24, 2 of them failed" in page.words["td"]
    assert page.words["td"].count("layout: <b>none</b>") == 2
    everything = report(fail(gemv(), 24), tmp_path)
    assert "no picture: plot: no point has a number that could be drawn: all failed" in everything


def test_published_values_stand_beside_ours(tmp_path):
    value = PublishedValue(
        "time_ns", {"tokens": 4, "bits": 16, "dimm.ranks": 2}, 30_000, 34_000, "Paper, Table 1"
    )
    page = Page(report(gemv(published=(value,)), tmp_path))
    cells = page.words["td"]
    place = cells.index("Paper, Table 1")
    assert cells[place - 3 : place] == ["30 to 34", "32", "1.000"]


def test_what_cannot_be_drawn_is_said_in_place_of_the_picture(tmp_path):
    varied = {"tokens": (1,), "dimm.ranks": tuple(range(1, 10)), "bits": tuple(range(1, 12)), "seed": (1, 2)}
    assert "no picture: by:" in report(gemv(varied=varied), tmp_path)
    empty = Result(Definition("gemv", {}, {"tokens": (1, 2)}), [])
    assert "no picture: plot: the sweep has no points" in report(empty, tmp_path)


def test_a_sweep_of_many_points_has_a_bounded_report(tmp_path):
    count = MOST_ROWS + 100
    varied = {"seed": tuple(range(count))}
    definition = Definition("gemv", {}, varied)
    config = "x" * 100
    rows = [
        row({"seed": n}, **{f"metric{m}_ns": 1.0 + n for m in range(60)}, note=config) for n in range(count)
    ]
    text = report(Result(definition, rows), tmp_path)
    assert len(text) < 8_000_000
    assert f"{MOST_ROWS:,} of {count:,} rows are shown; all of them: table.csv" in text


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&-->]]>$x^{"


def test_whatever_a_sweep_is_called_is_text(tmp_path):
    result = gemv(title=HOSTILE, fixed={"hw": HOSTILE, "model": HOSTILE})
    for one in result:
        one["bound"] = HOSTILE
        one["config"] = one["config"].replace("trimoe", "</script><script>alert(2)</script>")
    page = Page(report(fail(result, 1, HOSTILE), tmp_path))
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert HOSTILE in page.words["h1"]
    hostile_policies = moe(
        varied={"policy": (HOSTILE, "b"), "batch": (64, 128)}, baseline={"policy": HOSTILE}
    )
    assert "img" not in Page(report(hostile_policies, tmp_path)).tags


# ---- parts ----


@pytest.fixture
def written(tmp_path):
    """The text of a page with these parts in a section."""

    def written(*parts):
        write_page(str(tmp_path / "a.html"), "title", "", [Section("Parts", *parts)])
        return (tmp_path / "a.html").read_text()

    return written


def test_numbers_in_tables_have_their_value_and_rows_that_are_left_out_are_counted(written):
    text = written(HtmlTable(("a", "b"), [(Cell("1.5 ms", 1.5e6), "x")] * (MOST_ROWS + 5), "elsewhere"))
    assert text.count("<tr>") == MOST_ROWS + 1
    assert '<td class=n data-value="1500000.0">1.5 ms</td><td>x</td>' in text
    assert f"{MOST_ROWS:,} of {MOST_ROWS + 5:,} rows are shown; all of them: elsewhere" in text


def test_a_long_text_is_cut_and_says_how_much_is_missing(written):
    text = written(HtmlTable((), [("a", "x" * 10_000)]), HtmlTable(("b",), [("y" * 1000,)]))
    assert re.findall("x{300,}[^<]*", text) == ["x" * 3000 + "... (7,000 more characters)"]
    assert re.findall("y{300,}[^<]*", text) == ["y" * 300 + "... (700 more characters)"]


def test_parts_with_nothing_to_show_are_left_out_with_their_titles(written):
    nothing = HtmlTable(("a",), []), HtmlTable((), []), [], ""
    page = Page(written(*nothing, Folded("Folded", *nothing)))
    assert page.words["h1"] == ["title"]
    assert {"h2", "summary", "table", "ul", "p"}.isdisjoint(page.tags)


def test_of_many_notes_the_first_are_shown_and_the_others_counted(written):
    page = Page(written([f"note {n}" for n in range(1_200)]))
    assert page.words["li"] == [*(f"note {n}" for n in range(100)), "and 1,100 more"]


def test_every_part_is_escaped(written):
    parts = HOSTILE, [HOSTILE], Folded(HOSTILE, HOSTILE), HtmlTable((HOSTILE,), [(HOSTILE,)])
    text = written(*parts, HtmlTable((), [(HOSTILE, HOSTILE)]), Picture("<svg></svg>", HOSTILE))
    page = checked(text)
    assert "img" not in page.tags
    said = [word for words in page.words.values() for word in words if word == HOSTILE]
    assert len(said) == 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("981.2 ns", 981.2),
        ("1.204 µs", 1204),
        ("99.6%", 0.996),
        ("2.06\N{MULTIPLICATION SIGN}", 2.06),
        ("544 B", 544),
        ("36.00 MiB", 36 << 20),
        ("1,234", 1234),
        ("bound by 3", None),
        ("1.0 furlong", None),
        ("-", None),
    ],
)
def test_figures_are_sorted_by_what_they_are(text, value):
    assert measured_cell(text).value == pytest.approx(value)


def test_pictures_on_a_page_have_ids_of_their_own():
    svg = (
        '<?xml version="1.0"?><!DOCTYPE svg PUBLIC "a" "http://x">\n<svg xmlns="http://y" xmlns:xlink="http://z"'
        ' width="1pt" height="2pt" viewBox="0 0 1 2"><metadata>http://m</metadata><!-- <script> -->'
        '<g id="a"/><use xlink:href="#a"/><g clip-path="url(#a)" data-id="3"/></svg>'
    )
    assert inline(svg, "p") == (
        '<svg viewBox="0 0 1 2"><g id="p-a"/><use href="#p-a"/><g clip-path="url(#p-a)" data-id="3"/></svg>'
    )


def test_a_picture_that_is_refused_leaves_its_reason():
    def draw():
        raise InputError("<nothing> to show", key="panels")

    assert picture("a", draw, "words") == "no picture: <nothing> to show"


def test_a_column_has_one_unit():
    rows = [("a", "900.0 ns", "3"), ("b", "1.500 µs", "4"), ("c", "-", "5")]
    table = measured(("", "time", "count"), rows)
    assert list(table.columns) == ["", "time (µs)", "count"]
    assert [row[1].text for row in table.rows] == ["0.9000", "1.500", "-"]
    assert [row[1].value for row in table.rows] == [900, 1500, None]
    kept = measured(("", "x"), [("a", "1.000 µs"), ("b", "3.00 GB/s")])
    assert [row[1].text for row in kept.rows] == ["1.000 µs", "3.00 GB/s"]


def test_no_folder_of_the_machine_is_named_and_addresses_stay(tmp_path):
    stated = [
        ("file", "/home/ann/thesis/hw.yaml:12"),
        ("page", "https://example.org/a/b"),
        ("rate", "2 tokens/s"),
    ]
    with called(
        ["gemv", "--hw", "/home/ann/hw.yaml", "--json=/srv/b/out.json", "--report", "/home/ann/r.html"]
    ):
        write_page(
            str(tmp_path / "r.html"),
            "Of /home/ann/x.npz",
            "/srv/ann/y",
            [
                Section("Facts", HtmlTable((), stated)),
                provenance(),
            ],
        )
    text = (tmp_path / "r.html").read_text()
    assert "ann" not in text.replace("channel", "")
    for shown in ("Of x.npz", ">hw.yaml:12<", "https://example.org/a/b", "2 tokens/s"):
        assert shown in text
    assert "ndpsim gemv --hw hw.yaml --json=out.json<" in text
