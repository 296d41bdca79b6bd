"""Pictures: that they are drawn, what they are refused for, and that they show the numbers of the result."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.image import imread
from matplotlib.text import Text

from calls import said
from mistakes import refused
from ndpsim import (
    describe_routing,
    generate_routing,
    place_expert,
    run_pim,
    run_trace,
    simulate_expert,
    simulate_relayout,
)
from ndpsim.base.errors import InputError
from ndpsim.config.banks import load_bank_hardware
from ndpsim.dram.spec.standard import READ as RD
from ndpsim.dram.traces import CommandTrace, Requests, read_requests
from ndpsim.report.moe import MoeHistory
from ndpsim.report.panels import PANELS, SIZES, chosen_panels, chosen_size
from ndpsim.report.pictures import banks, bars, canvas, claims, expert, latencies, layout, moe
from ndpsim.report.pictures import relayout as relayouts
from ndpsim.report.pictures.canvas import COLOURS, INK, tint
from ndpsim.report.pictures.expert import reads_over_time
from ndpsim.report.text import facts_of, title_of
from ndpsim.simulate import Memory, run_requests, simulate_contention, simulate_host_read
from ndpsim.simulate import sweep_load as run_sweep
from ndpsim.simulate.bank_layout import place_bank_operands
from ndpsim.simulate.statistics import latency_distribution
from ndpsim.workload.models import Expert

GDDR6 = [f"dram.{key}" for key in ("standard=GDDR6", "org=GDDR6_8Gb_x8", "timing=GDDR6_14000_1350mV_double")]
SMALL = Expert(256, 96)
FEW = ["dimm.count=4", "host.channels=2", "dimm.ranks=1"]


@pytest.mark.parametrize("way", ["gemv --engine host-read", "gemv --host-traffic saturate", "relayout"])
def test_a_command_draws_its_result(way, tmp_path):
    said(*way.split(), "--shape", "256,96", "--plot", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_a_picture_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def breaks(figure, file, **others):
        file.write(b"\x89PNG")
        raise RuntimeError("broken")

    figure = figure_of(lambda axes: None)
    monkeypatch.setattr(type(figure), "savefig", breaks)
    with pytest.raises(RuntimeError):
        canvas.save(figure, str(tmp_path / "picture.png"), "column")
    assert list(tmp_path.iterdir()) == []


def figure_of(draw, title="title", size="column"):
    return canvas.compose(title, ({"one": [canvas.Panel(draw, 5)]},), size)


# ---- choices ----


def test_sizes_are_those_of_print(tmp_path):
    for size, inches in {"column": 3.5, "two-columns": 7.16, "slide": 40 / 3}.items():
        figure = figure_of(lambda axes: None, size=size)
        for kind in ("png", "pdf"):
            canvas.save(figure, str(tmp_path / f"{size}.{kind}"), size)
        height, width = imread(tmp_path / f"{size}.png").shape[:2]
        assert width == pytest.approx(inches * SIZES[size].dpi, abs=1)
        assert height == pytest.approx(figure.get_figheight() * SIZES[size].dpi, abs=1)
        box = re.search(rb"/MediaBox \[ 0 0 ([0-9.]+) ([0-9.]+) \]", (tmp_path / f"{size}.pdf").read_bytes())
        assert float(box[1]) == pytest.approx(72 * inches, abs=0.01)
    assert (width, height) == (2000, 1125)


def layout_figure(size="two-columns", panels=None, name="striped"):
    return layout.layout_figure(place_expert("trimoe", SMALL, name, sets=FEW), size, panels)


@pytest.fixture
def without_layout(monkeypatch):
    """Figures whose parts lie where they come to lie at first: which parts there are is the same."""
    monkeypatch.setattr(canvas, "_lay_out", lambda figure, columns, size: None)


def test_panels_are_drawn_in_the_order_of_the_picture(without_layout):
    everything = layout_figure().axes
    some = layout_figure(panels=("first", "lanes")).axes
    assert [axes.get_ylabel() for axes in some] == [axes.get_ylabel() for axes in everything[:2]]
    assert len(layout_figure(panels=("first",)).axes) == 1


@pytest.mark.parametrize(
    ("choose", "words"),
    [
        (lambda: chosen_size("colum"), "unknown-name size ? column"),
        (lambda: chosen_panels(["enrgy"], "expert"), "unknown-name panels ? energy"),
        (lambda: chosen_panels(["phases"], "host-read"), "unknown-name panels"),
        (lambda: chosen_panels([], "sweep"), "missing panels"),
        (lambda: layout_figure("Slide"), "unknown-name size ? slide"),
        (lambda: layout_figure(panels=("down",)), "missing panels"),
    ],
)
def test_choices_that_there_are_not_are_refused(choose, words):
    with refused(words):
        choose()


def test_every_panel_can_be_chosen_by_itself(pictures, without_layout):
    for picture, (make, _) in {name.split(" ")[0]: of for name, of in pictures.items()}.items():
        for panel in PANELS[picture]:
            try:
                assert make("column", (panel,)).axes
            except InputError as error:  # a layout whose first rows hold all
                assert (picture, panel) == ("layout", "down"), error


# ---- files ----

_DRAW = """
from ndpsim.report.pictures import canvas
from ndpsim.report.pictures.canvas import COLOURS

def draw(axes):
    for number, (meaning, colour) in enumerate(list(COLOURS.items())[:5]):
        axes.barh(number, number, color=colour, label=meaning)
        axes.plot([0, number], [number, 0], "o--", color=colour)
        axes.text(number, number, meaning)
    axes.imshow([[0, 1], [2, 3]], extent=(0, 9, 0, 9), aspect="auto")
    axes.set_xlabel("time (µs)")

figure = canvas.compose("title", ({"one": [canvas.Panel(draw, 9)]},), "column")
for kind in ("pdf", "svg", "png", "eps"):
    canvas.save(figure, f"{target}.{kind}", "column")
"""


def test_files_of_two_processes_are_equal_whatever_is_set(tmp_path):
    (tmp_path / "matplotlibrc").write_text(
        "font.size: 30\nlines.linewidth: 9\naxes.grid: True\npdf.compression: 0\n"
    )
    changed = {
        "PYTHONHASHSEED": "7",
        "SOURCE_DATE_EPOCH": "86400",
        "MATPLOTLIBRC": str(tmp_path),
        "MPLBACKEND": "module://a.notebook.that.is.not.here",
        "TZ": "Asia/Tokyo",
    }
    exec(_DRAW, {"target": tmp_path / "a"})
    there = f"import sys\ntarget = sys.argv[1]\n{_DRAW}\nassert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", there, tmp_path / "b"], env={**os.environ, **changed}, check=True)
    for kind in ("pdf", "svg", "png", "eps"):
        first, second = ((tmp_path / f"{name}.{kind}").read_bytes() for name in "ab")
        assert first == second, kind
        assert len(first) > 5000


def test_fonts_are_embedded_as_publishers_ask(tmp_path):
    canvas.save(layout_figure("column"), str(tmp_path / "p.pdf"), "column")
    content = (tmp_path / "p.pdf").read_bytes()
    assert b"/Type3" not in content.replace(b" ", b"")
    assert b"/FontFile2" in content


# ---- words ----


@pytest.mark.parametrize("size", SIZES)
def test_a_title_stays_within_the_picture_and_numbers_beside_their_units(size):
    title = f"one phrase that holds {'12.5 GB/s and ' * 30}a_{'long' * 60}_word\nand $a line$ more"
    figure = figure_of(lambda axes: None, title, size)
    lines = figure.get_suptitle().split("\n")
    assert len(lines) > 3
    assert lines[-1] == "and $a line$ more"
    assert "".join("".join(lines).split()) == "".join(title.split())
    assert not [line for line in lines if line.startswith("GB/s")]
    figure.draw_without_rendering()
    extent = figure._suptitle.get_window_extent()
    assert 0 < extent.x0 < extent.x1 < figure.bbox.width


# ---- all pictures, in all sizes ----


@pytest.fixture(scope="module")
def pictures(tmp_path_factory, moe_by_hand):
    """Each picture by its name in PANELS: a function of size and panels, and its result."""
    trace = tmp_path_factory.mktemp("trace") / "trace"
    draw = np.random.default_rng(1)
    kinds, addresses = draw.choice(["LD", "ST"], 3000), draw.integers(0, 1 << 26, 3000) * 64
    trace.write_text("".join(f"{kind} {at:#x}\n" for kind, at in zip(kinds, addresses, strict=True)))
    larger = Expert(2048, 768)
    made = {
        "expert": (expert.expert_figure, simulate_expert("trimoe", larger, record_commands=True)),
        "expert behind CXL": (expert.expert_figure, simulate_expert("cxl", SMALL, record_commands=True)),
        "contention": (expert.contention_figure, simulate_contention("trimoe", SMALL)),
        "host-read": (
            expert.host_read_figure,
            simulate_host_read("trimoe", larger, "localized", record_commands=True),
        ),
        "relayout": (relayouts.relayout_figure, simulate_relayout("trimoe", larger)),
        "latencies": (latencies.latencies_figure, run_trace(trace)),
        "routing": (
            moe.routing_figure,
            describe_routing(generate_routing("skewed:step_stickiness=0.2", "mixtral-8x7b", 24, 3, 4)),
        ),
    }
    topologies = {
        name: simulate_relayout(
            "trimoe", SMALL, 2, sets=[*FEW, f"link.topology={name}", "link.ports=3", "link.group_dimms=2"]
        )
        for name in ("chain", "ring", "mesh", "full", "bus", "groups")
    }
    made["topologies"] = relayouts.topologies_figure, topologies
    placed = place_bank_operands("aim", "mixtral-8x7b", "attention", context=1000)
    made["bank-layout"] = layout.bank_layout_figure, placed
    for name in ("striped", "sharded:2"):
        made[f"layout {name}"] = layout.layout_figure, place_expert("trimoe", larger, name)
    for names in (("trimoe",), ("trimoe", "enhanced-ktransformers")):
        history = MoeHistory()
        moe_by_hand.play(history, *names)
        layer = history.runs[0].shown
        computed = next(job for job in layer.jobs if job.resource.startswith("ndp"))
        many = tuple(dataclasses.replace(computed, resource=f"ndp {dimm}") for dimm in range(16 * len(names)))
        history.runs[0].shown = dataclasses.replace(layer, jobs=(*layer.jobs, *many))
        made[f"moe of {len(names)}"] = (
            lambda ran, size, panels: moe.moe_figure(*ran, size, panels),
            (moe_by_hand.result(*names), history),
        )
    drawn = {
        name: (lambda size, panels, m=make, r=of: m(r, size, panels), of) for name, (make, of) in made.items()
    }
    memory = Memory.named("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
    points = run_sweep(read_requests(trace), memory, (0.1, 0.5, 1.0))
    times = {"stream": 3.1, "random": 53.0, "a process": 4e9}
    drawn["bench"] = lambda size, panels: claims.bench_figure(times, size, panels), times
    device = load_bank_hardware("aim")
    run = run_pim(
        Path(__file__).parents[1] / "examples" / "banks" / "aim_gemv.csv", device, record_commands=True
    )
    drawn["banks"] = lambda size, panels: banks.pim_figure(run, device, size, panels), run
    drawn["sweep"] = lambda size, panels: latencies.sweep_figure(points, memory, size, panels), points
    return drawn


@pytest.fixture(scope="module")
def figures(pictures):
    """Each picture in each size, by (name, size); drawn when first asked for."""

    @functools.cache
    def figure(name, size):
        return pictures[name][0](size, None)

    return lambda size: {name: figure(name, size) for name in pictures}


def legend_texts(figure):
    """Of the legends of all blocks."""
    parts = [part for column in figure.subfigs for part in column.subfigs]
    return [text for part in parts for legend in part.legends for text in legend.get_texts()]


def boxes_of_text(figure):
    """What is written where, in pixels."""
    figure.draw_without_rendering()
    found = [figure._suptitle]
    for axes in figure.axes:
        ticks = [*axes.xaxis.get_major_ticks(), *axes.yaxis.get_major_ticks()]
        low, high = (sorted(limits) for limits in (axes.get_xlim(), axes.get_ylim()))
        inside = {
            id(tick.label1)
            for axis, (first, last) in ((axes.xaxis, low), (axes.yaxis, high))
            for tick in axis.get_major_ticks()
            if first <= tick.get_loc() <= last
        }
        found += [tick.label1 for tick in ticks if id(tick.label1) in inside]
        found += [axes.xaxis.label, axes.yaxis.label, *axes.texts]
    found += legend_texts(figure)
    assert all(isinstance(text, Text) for text in found)
    return [(text, text.get_window_extent()) for text in found if text.get_text() and text.get_visible()]


def overlap(first, second, slack=0.5):
    return (
        min(first.x1, second.x1) - max(first.x0, second.x0) > slack
        and min(first.y1, second.y1) - max(first.y0, second.y0) > slack
    )


SIZES_RUN = ["column", *(pytest.param(size, marks=pytest.mark.long) for size in SIZES if size != "column")]


@pytest.mark.parametrize("size", SIZES_RUN)
def test_nothing_overlaps_and_nothing_is_cut(figures, size):
    for name, figure in figures(size).items():
        boxes = boxes_of_text(figure)
        whole = figure.bbox
        for text, box in boxes:
            assert box.x0 >= -0.5, (name, text)
            assert box.y0 >= -0.5, (name, text)
            assert box.x1 <= whole.width + 0.5, (name, text)
            assert box.y1 <= whole.height + 0.5, (name, text)
        corners = np.array([box.get_points() for _, box in boxes])
        common = np.minimum(corners[:, None, 1], corners[:, 1]) - np.maximum(
            corners[:, None, 0], corners[:, 0]
        )
        one, other = np.nonzero(np.triu((common > 0.5).all(axis=-1), 1))
        assert [(boxes[a][0], boxes[b][0]) for a, b in zip(one, other, strict=True)] == [], name
        for axes in figure.axes:
            inner = axes.get_window_extent()
            assert min(inner.width, inner.height) > 0.8 * SIZES[size].font_pt / 72 * figure.dpi, name
            own = {id(text) for text in axes.texts}
            for text, box in boxes:
                assert id(text) in own or not overlap(box, inner), (name, text)


def test_bars_of_upgrades_keep_their_room_beside_long_names():
    changes = {
        "memory": "4x ddr5-5200",
        "ndp": "2x ddr5-5200 with a GEMV unit on each (TriMoE's)",
        "banks": "5x HBM3 with units at their banks (AttAcc) for attention",
    }
    upgrades = [
        SimpleNamespace(name=name, change=change, problem="", prefill_gain=1.013, decode_gain=5.566)
        for name, change in changes.items()
    ]
    figure = canvas.compose(
        "Prediction", ({"upgrades": moe._upgrades(SimpleNamespace(upgrades=upgrades))},), "column"
    )
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_window_extent().width > 0.35 * figure.bbox.width
    labels = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert not any(overlap(*pair) for pair in itertools.combinations(labels, 2))


LEAST_PT = {"column": 6.5, "two-columns": 7, "slide": 12}


def least_pt(figure):
    return min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text())


@pytest.mark.parametrize("size", SIZES_RUN)
def test_all_text_can_be_read(figures, size):
    for name, figure in figures(size).items():
        assert least_pt(figure) >= LEAST_PT[size], name


def test_axes_say_what_they_show(figures):
    for name, figure in figures("column").items():
        for axes in figure.axes:
            below = axes.xaxis.get_tick_params()["labelbottom"]
            assert bool(axes.get_xlabel()) == below, name
            if axes.get_xlabel().startswith(("time", "read latency", "energy", "bandwidth", "where", "busy")):
                assert re.search(r"\(([nµm]s|%|% of [0-9.]+ [nµm]?J|[nµm]?J|GB/s)\)", axes.get_xlabel()), name
            for label in (axes.get_xlabel(), axes.get_ylabel()):
                assert not re.search("_|gbps", label), name
            numbers = [label.get_text() for label in axes.get_yticklabels()]
            if not axes.get_ylabel().startswith("bank") and any(re.fullmatch(r"[\d.]+", n) for n in numbers):
                assert re.search(r"\((GB/s|%|% of the time|[nµm]s|[KM]iB)\)", axes.get_ylabel()), name


# Vienot, Brettel and Mollon (1999) as linear maps of linear RGB.
_SEEN = {
    "trichromat": np.eye(3),
    "protanope": [[0.1124, 0.8876, 0.0], [0.1124, 0.8876, 0.0], [0.0040, -0.0040, 1.0]],
    "deuteranope": [[0.2927, 0.7073, 0.0], [0.2927, 0.7073, 0.0], [-0.0223, 0.0223, 1.0]],
}


def linear(colour):
    """Linear RGB of an sRGB colour."""
    value = np.array(to_rgb(colour))
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(colour, seen):
    """CIE 1976 L*a*b* of a colour, as somebody sees it (white of D65)."""
    rgb = np.clip(np.array(_SEEN[seen]) @ linear(colour), 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    ratio = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("seen", _SEEN)
def test_colours_of_a_picture_are_told_apart_by_all_readers(seen):
    together = [
        ("read", "write", "refresh", "rows", "compute", "host", "chip io", "link", "idle"),
        ("compute", "activation unit", "host"),
        ("read", "write", "read or write"),
        ("gate", "up", "down", "empty"),
        ("decode", "prefill", "hot", "warm", "cold"),
        ("gpu", "pcie", "host", "compute"),
        ("hidden", "exposed", "everything", "experts"),
    ]
    for meanings in together:
        for first, second in itertools.combinations(meanings, 2):
            apart = np.linalg.norm(lab(COLOURS[first], seen) - lab(COLOURS[second], seen))
            assert apart > 11, (first, second, apart)


def test_lines_of_resources_are_seen_on_white(moe_by_hand):
    for panel in ("layers", "speedup"):
        for axes in moe_axes(moe_by_hand, panel, "trimoe", "monde"):
            for line in axes.lines:
                lightness = linear(line.get_color()) @ [0.2126, 0.7152, 0.0722]
                assert 1.05 / (lightness + 0.05) >= 3, line.get_label()  # contrast, as WCAG 2 has it


def test_colours_have_a_meaning(figures):
    meant = {to_hex(colour) for colour in (*COLOURS.values(), INK, "#ffffff")}
    meant |= {to_hex(tint(colour, part)) for colour in (*COLOURS.values(), INK) for part in (0.35, 0.4)}
    for name, figure in figures("column").items():
        if name == "topologies":  # curves that a legend alone tells apart
            continue
        for axes in figure.axes:
            drawn = {to_hex(line.get_color()) for line in axes.lines}
            drawn |= {to_hex(one.get_facecolor()) for one in axes.patches if one.get_fill()}
            assert drawn <= meant, name


# ---- curves ----

READ = {
    "trimoe": lambda: simulate_expert("trimoe", SMALL, record_commands=True),
    "same-bank": lambda: simulate_expert(
        "trimoe", SMALL, record_commands=True, sets=["dram.refresh=same-bank"]
    ),
    "cxl": lambda: simulate_expert("cxl", SMALL, 4, bits=4, record_commands=True),
    "host, striped": lambda: simulate_host_read("edge", Expert(1024, 256), record_commands=True),
    "GDDR6": lambda: simulate_expert(
        "edge", SMALL, sets=[*GDDR6, "dimm.ranks=1", "dimm.count=2"], record_commands=True
    ),
}


@pytest.mark.parametrize("kind", READ)
def test_what_is_read_over_time_is_exactly_what_was_read(kind):
    result = READ[kind]()
    curve = reads_over_time(result)
    burst = result.config["hardware"]["derived"]["burst_bytes"]
    assert int(curve.data_bytes.sum()) == burst * result.commands["RD"]
    assert curve.high_gbps.max() <= result.peak_bandwidth_gbps * (1 + 1e-9)
    assert (curve.low_gbps <= curve.high_gbps).all()
    assert curve.mean_gbps * np.diff(curve.edges) * result.clock_ns == pytest.approx(curve.data_bytes)
    for edges in (curve.edges, curve.range_edges):
        assert edges[0] == 0
        assert edges[-1] == result.cycles


def reading(clocks, cycles, nREFI=9360, nRFC=700, lanes=1):
    """What `reads_over_time` takes of a result: RDs at some clocks, of 64 bytes in 8 clocks, 40 clocks later."""
    none = np.zeros(len(clocks), dtype=np.int64)
    trace = CommandTrace(clocks, none + RD, *[none] * 5)
    dram = {"standard": "DDR5", "org": "DDR5_16Gb_x8", "timing": "DDR5_4800AN"}  # bursts of 8 clocks
    hardware = {"dram": dram | {"overrides": {"nREFI": nREFI, "nRFC": nRFC, "nCL": 40}}}
    return SimpleNamespace(
        cycles=cycles, clock_ns=0.5, command_traces=(trace,) * lanes, config={"hardware": hardware}
    )


def test_bursts_are_split_over_the_bins_that_they_span():
    clocks = np.cumsum(np.random.default_rng(3).integers(8, 40, 700))
    result = reading(clocks, int(clocks[-1]) + 47, nREFI=1001, nRFC=30)
    curve = reads_over_time(result)
    carried = np.zeros(result.cycles, dtype=int)
    for clock in clocks:
        carried[clock - 1 + 40 : clock - 1 + 48] += 8
    bins = [carried[first:end] for first, end in itertools.pairwise(curve.edges)]
    assert curve.data_bytes.tolist() == [int(part.sum()) for part in bins]
    assert len(bins) > 10
    width = curve.within_clocks
    fine = [int(n * width // 1) for n in range(int(result.cycles / width) + 1)] + [result.cycles]
    shares = [carried[first:end].mean() / 0.5 for first, end in itertools.pairwise(fine) if end > first]
    assert curve.low_gbps.min() == pytest.approx(min(shares))
    assert curve.high_gbps.max() == pytest.approx(max(shares))


@pytest.mark.parametrize("interval", [9360, 1009])
@pytest.mark.parametrize("refreshes", [3, 30, 150, 1300])
def test_bins_neither_hide_refreshes_nor_make_patterns_of_them(interval, refreshes):
    pause = interval // 9
    clocks = np.arange(1, refreshes * interval, 8)
    clocks = clocks[(clocks - 1) % interval >= pause]
    result = reading(clocks, refreshes * interval + 48, interval, pause)
    curve = reads_over_time(result)
    parts = round(interval / int(curve.edges[1]))
    widths = np.diff(curve.edges)[:-1]
    if parts < 2:
        assert set((widths % interval).tolist()) == {0}
        assert curve.mean_gbps[1:-2] == pytest.approx(curve.mean_gbps[1], rel=2e-2)
    else:
        assert np.abs(curve.edges[:-1] - np.arange(len(curve.edges) - 1) * interval / parts).max() < 1
    whole = np.searchsorted(curve.range_edges, np.arange(refreshes) * interval, side="right") - 1
    assert (curve.low_gbps[np.unique(whole)] < 1e-9).all()
    assert (curve.high_gbps[np.unique(whole)] > 0.9 * 16).all()


def test_pseudochannels_carry_data_at_the_same_time():
    dram = {"standard": "HBM3", "org": "HBM3_4Gb", "timing": "HBM3_6400Mbps", "overrides": {}}
    clock, none = np.array([1, 1, 5, 5]), np.zeros(4, dtype=np.int64)
    trace = CommandTrace(clock, none + RD, np.array([0, 1, 0, 1]), none, none, none, none)
    result = SimpleNamespace(
        cycles=48, clock_ns=0.3125, command_traces=(trace,), config={"hardware": {"dram": dram}}
    )
    curve = reads_over_time(result)
    # Reads at half clocks 1 and 5 have their data from 40 to 48, 4 half clocks each, on both buses.
    assert curve.data_bytes.sum() == 4 * 32
    assert curve.high_gbps.max() == pytest.approx(2 * 25.6)


def test_half_clocks_are_told_as_what_they_are():
    memory = Memory.named("HBM3", "HBM3_4Gb", "HBM3_6400Mbps")
    result = run_requests(Requests.of(np.arange(40) * 32, np.zeros(40, dtype=np.int64)), memory)
    told = {label: said for label, _, said in facts_of(result)}
    assert told["time"] == f"{result.cycles:,} half DRAM clocks of 0.3125 ns (1600 MHz)"
    assert title_of(result) == "40 requests on HBM3_6400Mbps HBM3_4Gb, 1 channel, ranks 1, pseudochannels 2"


def test_lanes_that_do_the_same_count_each():
    one = reads_over_time(reading(np.arange(1, 8000, 8), 8100))
    three = reads_over_time(reading(np.arange(1, 8000, 8), 8100, lanes=3))
    assert three.data_bytes.tolist() == (3 * one.data_bytes).tolist()


def test_what_a_relayout_moves_over_time_is_exactly_what_it_moved():
    result = simulate_relayout("trimoe", SMALL, 5, sets=FEW, host=False)
    width = np.diff(np.append(0.0, result.curve_ns))
    assert (width * result.read_gbps).sum() == pytest.approx(64 * result.commands["RD"], rel=1e-12)
    assert (width * result.written_gbps).sum() == pytest.approx(64 * result.commands["WR"], rel=1e-12)
    assert result.curve_ns[-1] == result.time_ns
    interval = result.config["hardware"]["timings"]["nREFI"] * result.clock_ns
    assert interval / width[0] == pytest.approx(round(interval / width[0]), abs=0.5)


# ---- latencies ----


def test_the_distribution_of_latencies_holds_its_percentiles():
    reads = np.random.default_rng(5).zipf(1.7, 200_000) % 60_000
    counts = np.bincount(reads, minlength=65_536)
    points = latency_distribution(counts, 0.5)
    result = SimpleNamespace(reads=len(reads), read_latency_distribution=points)
    for percent in (50, 90, 95, 99, 99.9):
        rank = math.ceil(Fraction(str(percent)) * len(reads) / 100)
        assert latencies.percentile_ns(result, percent) == 0.5 * np.sort(reads)[rank - 1]
    assert [point["reads"] for point in points] == [int((reads <= 2 * point["ns"]).sum()) for point in points]
    assert points[0]["ns"] == 0.5 * reads.min()
    assert points[-1] == {"ns": 0.5 * reads.max(), "reads": len(reads)}
    assert len(points) < 1500
    assert latency_distribution(np.zeros(8, int), 1.0) == ()


def test_the_tail_shows_the_share_that_takes_longer(pictures):
    make, result = pictures["latencies"]
    (axes,) = make("column", ("tail",)).axes
    assert axes.get_yscale() == "log"
    assert axes.get_ylabel().split() == ["reads", "that", "take", "longer", "(%),", "logarithmic"]
    curve, *marks = axes.lines
    points = result.read_latency_distribution
    for point in points[:-1]:
        after = curve.get_ydata()[np.flatnonzero(curve.get_xdata() > point["ns"])[0]]
        assert after == pytest.approx(100 - 100 * point["reads"] / result.reads)
    labels = [mark.get_label().split(" ")[0] for mark in marks]
    assert labels == ["p50", "p95", "p99", "p99.9", "mean"]
    assert marks[0].get_xdata()[0] == result.read_latency_ns["p50"]
    assert marks[2].get_xdata()[0] == result.read_latency_ns["p99"]


# ---- topologies ----


def test_all_topologies_stand_on_the_same_axes_and_fill_them(pictures):
    make, results = pictures["topologies"]
    figure = make("two-columns", ("bandwidth", "time"))
    curves, times = figure.axes
    (low, high), (left, right) = curves.get_ylim(), curves.get_xlim()
    assert len(curves.patches) == len(results)
    for patch, result in zip(curves.patches, results.values(), strict=True):
        edges, means = patch.get_data().edges, patch.get_data().values
        assert (means * np.diff(edges)).sum() * 1000 == pytest.approx(64 * result.commands["WR"])
        assert edges[-1] * 1000 == pytest.approx(result.time_ns)
        assert low < means.max() < high
        drawn = np.log(edges[-1] / left) / np.log(right / left)
        assert drawn > 0.4  # of the width
    assert {curves.get_xscale(), curves.get_yscale()} == {"log"}
    assert [label.get_text() for label in times.get_yticklabels()] == [*results, "by the host"]
    first = next(iter(results.values()))
    wanted = [result.time_ns for result in results.values()] + [first.host.time_ns]
    assert [bar.get_width() * 1000 for bar in times.patches] == pytest.approx(wanted)


def test_a_relayout_shows_the_bandwidth_of_the_host(pictures):
    make, result = pictures["relayout"]
    (axes,) = make("column", ("bandwidth",)).axes
    (line,) = axes.lines
    assert line.get_xdata()[-1] * 1000 == pytest.approx(result.host.time_ns)
    area = line.get_ydata()[0] * line.get_xdata()[1] * 1000
    assert area == pytest.approx(result.weight_bytes)
    assert line.get_label().startswith(f"by the host: {result.host.bandwidth_gbps:.1f} GB/s")


@pytest.fixture(scope="module")
def beside():
    return simulate_contention("trimoe", Expert(1024, 384), host_gbps=20.0)


# ---- what stands in the pictures ----


def words_of(figure):
    axes = figure.axes
    ticks = [label.get_text() for one in axes for label in (*one.get_xticklabels(), *one.get_yticklabels())]
    legends = [text.get_text() for text in legend_texts(figure)]
    texts = [text.get_text() for one in axes for text in one.texts]
    labels = [label for one in axes for label in (one.get_xlabel(), one.get_ylabel())]
    return "\n".join([figure.get_suptitle(), *ticks, *legends, *texts, *labels])


def test_the_time_of_a_bus_adds_up():
    result = simulate_host_read("trimoe", Expert(1024, 256), record_commands=True)
    bandwidth, time, energy = expert.host_read_figure(result).axes
    for bar in (time, energy):
        assert sum(part.get_width() for part in bar.patches) == pytest.approx(100)
    data = time.patches[0].get_width()
    labels = bandwidth.get_legend_handles_labels()[1]
    assert any(label.endswith(f"{data:.1f}% of peak") for label in labels)


def test_both_slowdowns_are_drawn(beside):
    figure = expert.contention_figure(beside)
    bandwidth, phases, slowdowns, energy = figure.axes
    lengths = sorted(bar.get_width() * 1000 for bar in slowdowns.patches)
    assert lengths == pytest.approx(
        sorted([beside.ndp_time_ns, beside.ndp_alone_ns, beside.host_time_ns, beside.host_alone_ns])
    )
    ndp, host = (
        f"{slowdown:.3f}\N{MULTIPLICATION SIGN}" for slowdown in (beside.ndp_slowdown, beside.host_slowdown)
    )
    assert f"NDP {ndp}, host {host}" in words_of(figure)
    drawn = [patch.get_data() for patch in bandwidth.patches]
    bytes_drawn = [(1000 * np.diff(curve.edges) * curve.values).sum() for curve in drawn]
    width = np.diff(np.append(0.0, beside.curve_ns))
    moved = [(width * curve).sum() for curve in (beside.ndp_curve_gbps, beside.host_curve_gbps)]
    assert sorted(set(np.round(bytes_drawn))) == sorted(set(np.round(moved)))
    assert len(phases.patches) == len(beside.phases)
    assert sum(part.get_width() for part in energy.patches) == pytest.approx(100)


def test_a_host_that_got_nothing_has_no_slowdown(beside):
    figure = expert.contention_figure(dataclasses.replace(beside, host_slowdown=None))
    assert "nothing asked for" in words_of(figure)


def test_energies_of_both_ways_of_a_relayout_are_those_of_the_result():
    result = simulate_relayout("trimoe", SMALL, 2, sets=FEW)
    _, links, dram, energy = relayouts.relayout_figure(result).axes
    assert [bar.get_height() for bar in links.patches] == pytest.approx(
        [100 * share for share in result.link_busy.values()]
    )
    assert [bar.get_width() for bar in dram.patches] == pytest.approx(
        [100 * share for share in result.dram_busy.values()]
    )
    assert energy.get_xlabel() == "energy (µJ)"
    for row, parts in enumerate((result.energy_nj, result.host.energy_nj)):
        own = [bar for bar in energy.patches if round(bar.get_y() + bar.get_height() / 2) == row]
        drawn = sum(bar.get_width() for bar in own)
        assert max(bar.get_x() + bar.get_width() for bar in own) == pytest.approx(drawn)  # side by side
        assert 1000 * drawn == pytest.approx(parts["total"])


@pytest.mark.parametrize("move", [{"host": False}, {"source": "striped"}], ids=["no host", "nothing moved"])
def test_a_relayout_is_drawn_without_the_host_and_without_a_move(move):
    result = simulate_relayout("trimoe", SMALL, sets=FEW, **move)
    assert "by the host" not in words_of(relayouts.relayout_figure(result))
    assert "by the host" not in words_of(relayouts.topologies_figure({"chain": result}))


def test_components_of_the_ndp_units_are_one():
    parts = {"read": 2.0, "ndp_fifo": 1.0, "ndp_buffer": 3.0, "link": None, "host": 0.0, "total": 6.0}
    assert bars.energy_parts(parts) == {"read": 2.0, "NDP units": 4.0}


# ---- a whole model ----


def bars_of(axes):
    """Left and right end of each bar, by the label beside its row."""
    labels = dict(zip(axes.get_yticks(), (label.get_text() for label in axes.get_yticklabels()), strict=True))
    found = {}
    for bar in (bar for bar in axes.patches if np.isfinite(bar.get_x())):  # others are of the legend alone
        middle = bar.get_y() + bar.get_height() / 2
        name = labels[min(labels, key=lambda at: abs(at - middle))]
        found.setdefault(name, []).append((bar.get_x(), bar.get_x() + bar.get_width()))
    return found


def moe_axes(moe_by_hand, panel, *names, layer=None, change=lambda runs: None):
    """The axes of a panel of policies, after a change of what was recorded of them."""
    history = MoeHistory(layer)
    moe_by_hand.play(history, *names)
    change(history.runs)
    return moe.moe_figure(moe_by_hand.result(*names), history, "column", [panel]).axes


def test_jobs_of_a_layer_stand_where_they_ran(moe_by_hand):
    (axes,) = moe_axes(moe_by_hand, "jobs", "trimoe")
    found = {name: [(round(a, 3), round(b, 3)) for a, b in bars] for name, bars in bars_of(axes).items()}
    assert found == {  # step 1, layer 4, in us from its gate on; what a migration did before is not drawn
        "GPU": [(0, 4), (4, 14), (40, 50)],
        "PCIe to GPU": [(55, 60), (0, 20)],  # results, and a migration that began before
        "PCIe from GPU": [(0, 5)],
        "CPU": [(5, 45)],
        "DIMM 0": [(5, 30)],
        "DIMM 3": [(30, 55)],
    }


def test_what_moves_between_dimms_is_drawn_on_the_links(moe_by_hand):
    (axes,) = moe_axes(moe_by_hand, "jobs", "trimoe", layer=(0, 4))
    found = bars_of(axes)
    assert found["PCIe to GPU"] == [(0, 40), (55, 60), (0, 20)]  # the copy of expert 1 and a prefetch
    assert found["DIMM links"] == [(0, 60)]
    assert [*axes.get_legend_handles_labels()[1]] == [
        "routed experts",
        "lighter: other work",
        "migrations",
    ]


def test_the_layer_whose_jobs_are_drawn_can_be_chosen(moe_by_hand):
    history = MoeHistory((0, 3))
    moe_by_hand.play(history, "trimoe")
    assert history.runs[0].shown is moe_by_hand.layers[0]


def test_policies_that_differ_much_have_a_time_axis_each(moe_by_hand):
    def longer(runs):
        layer = runs[1].shown
        runs[1].shown = dataclasses.replace(layer, end_ns=layer.start_ns + factor * 60e3)

    for factor, joined in ((3, True), (5, False)):
        axes = moe_axes(moe_by_hand, "jobs", "trimoe", "monde", change=longer)
        first, last = (one.get_xlim()[1] for one in axes)
        assert (first == last) == joined
        assert last == pytest.approx(factor * 60)


def test_time_by_layer_is_the_mean_of_the_steps(moe_by_hand):
    (axes,) = moe_axes(moe_by_hand, "layers", "trimoe")
    drawn = {line.get_label(): [round(y, 3) for y in line.get_ydata()] for line in axes.lines}
    assert drawn == {
        "experts of the layer": [60, 60],
        "GPU busy": [24, 24],
        "CPU busy": [40, 40],
        "NDP (busiest DIMM) busy": [25, 37.5],  # in layer 4 one DIMM has both experts in the first step
        # In layer 4, a migration is beside the copy in the first step, and beside no copy in the second.
        "PCIe to the GPU busy": [45, (45 + 25) / 2],
    }
    assert [label.get_text() for label in axes.get_xticklabels()] == ["3", "4"]


def test_a_prefill_gives_way_to_decode_steps(moe_by_hand):
    history = MoeHistory()
    for phase in ("prefill", "decode"):
        for layer in moe_by_hand.layers[:2]:
            history(moe_by_hand.run, dataclasses.replace(layer, phase=phase))
    (run,) = history.runs
    assert (run.phase, run.times.tolist()) == ("decode", [1, 1])


def test_engines_and_migrations_and_speedups_are_those_of_the_result(moe_by_hand):
    (axes,) = moe_axes(moe_by_hand, "engines", "trimoe", "monde")
    shares = [100 * n / 64 for n in (20, 20, 8, 16)]
    for found in bars_of(axes).values():
        assert [b - a for a, b in found] == pytest.approx(shares)
    (axes,) = moe_axes(moe_by_hand, "migrations", "trimoe", "monde")
    assert bars_of(axes)["monde: prefetch"] == [(0, pytest.approx(20)), (20, pytest.approx(50))]
    (axes,) = moe_axes(moe_by_hand, "speedup", "trimoe", "monde")
    assert bars_of(axes) == {"trimoe": [(0, 1)], "monde": [(0, pytest.approx(0.8))]}


def test_many_policies_fit_a_page(moe_by_hand):
    names = [f"policy-{number}" for number in range(14)]
    history = MoeHistory()
    moe_by_hand.play(history, *names)
    figure = moe.moe_figure(moe_by_hand.result(*names), history)
    assert figure.get_figheight() < 11
    assert len(figure.axes) == 5
    (axes,) = moe_axes(moe_by_hand, "migrations", *names)
    assert bars_of(axes)["policy-2"] == [(0, pytest.approx(40)), (40, pytest.approx(120))]  # of both kinds
    assert "layers and jobs: policy-0" in figure.get_suptitle()  # the fastest
    (axes,) = moe_axes(moe_by_hand, "engines", *names)
    assert [label.get_text() for label in axes.get_yticklabels()] == names


def test_one_policy_has_no_speedups_to_draw(moe_by_hand):
    with refused("missing panels"):
        moe_axes(moe_by_hand, "speedup", "trimoe")


# ---- what a reader would stumble over ----


@pytest.mark.parametrize(("factor", "scale"), [(3, "linear"), (30, "log")])
def test_layers_of_several_policies_share_a_scale(moe_by_hand, factor, scale):
    def slower(runs):
        runs[1].ns["layer"] *= factor

    axes = moe_axes(moe_by_hand, "layers", "trimoe", "monde", change=slower)
    assert len({one.get_ylim() for one in axes}) == len({one.get_ylabel().split()[-1] for one in axes}) == 1
    assert {one.get_yscale() for one in axes} == {scale}
    for one in axes:
        low, high = one.get_ylim()
        assert all(low < value < high for value in one.lines[0].get_ydata())


def test_logarithmic_axes_are_marked_and_only_they(figures):
    found = 0
    for name, figure in figures("column").items():
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                said = axis.label.get_text().endswith("logarithmic")
                assert said == (axis.get_scale() == "log" and bool(axis.label.get_text())), name
                found += said
    assert found >= 4  # of latencies, of routing, and both of topologies
