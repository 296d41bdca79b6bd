"""Pictures: that they are drawn, what they are refused for, and that they show the numbers of the result."""

from __future__ import annotations

import dataclasses
import io
import json
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

from ndpsim import simulate_expert, simulate_relayout
from ndpsim.cli.main import main
from ndpsim.moe import Expert
from ndpsim.report.pictures import bars, canvas, contention, expert, host_read, latencies, relayout
from ndpsim.report.pictures.curves import reads_over_time
from ndpsim.report.timeline import write_timeline
from ndpsim.simulate import simulate_contention, simulate_host_read

SMALL = Expert(256, 96)
FEW = ["dimm.count=4", "host.channels=2", "dimm.ranks=1"]
SETS = [part for change in FEW for part in ("--set", change)]


def call(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return caught.value.code or 0, err.getvalue()


WAYS = {
    "alone": ["gemv"],
    "sharded": ["gemv", "--layout", "sharded:3"],
    "cxl": ["gemv", "--hw", "cxl"],
    "host-read": ["gemv", "--engine", "host-read"],
    "beside the host": ["gemv", "--host-traffic", "saturate"],
    "relayout": ["relayout", *SETS],
}


@pytest.mark.parametrize("way", WAYS)
def test_every_result_has_its_picture(way, tmp_path):
    picture = tmp_path / "picture.png"
    status, err = call(*WAYS[way], "--shape", "256,96", "--plot", picture)
    assert status == 0, err
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


@pytest.mark.parametrize("way", WAYS)
def test_a_picture_of_no_format_is_refused_before_anything_is_written(way, tmp_path):
    status, err = call(
        *WAYS[way], "--shape", "256,96", "--json", tmp_path / "a.json", "--plot", tmp_path / "p.no"
    )
    assert status == 2
    assert "--plot: 'no' is no picture format" in err
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def breaks(figure, file, **others):
        file.write(b"\x89PNG")
        raise RuntimeError("broken")

    figure, _ = canvas.stacked("title", (1,))
    monkeypatch.setattr(type(figure), "savefig", breaks)
    with pytest.raises(RuntimeError):
        canvas.save(figure, str(tmp_path / "picture.png"))
    assert list(tmp_path.iterdir()) == []


def test_a_title_that_is_too_long_is_broken():
    figure, _ = canvas.stacked(f"{'word ' * 60}\nand $a line$ more", (1,))
    figure.draw_without_rendering()
    extent = figure._suptitle.get_window_extent()
    assert figure.get_suptitle().endswith("\nand $a line$ more")
    assert 0 < extent.x0 < extent.x1 < figure.bbox.width
    canvas.plt.close(figure)


# ---- curves ----


@pytest.mark.parametrize(
    "simulate",
    [
        lambda: simulate_expert("trimoe", SMALL, record_commands=True),
        lambda: simulate_expert("trimoe", Expert(2048, 768), record_commands=True),
        lambda: simulate_expert("edge", SMALL, layout="sharded:3", record_commands=True),
        lambda: simulate_expert("cxl", SMALL, 4, bits=4, record_commands=True),
        lambda: simulate_host_read("trimoe", SMALL, "localized", record_commands=True),
        lambda: simulate_host_read("edge", Expert(1024, 256), record_commands=True),
    ],
    ids=["trimoe", "larger", "sharded", "cxl", "host", "host, striped"],
)
def test_what_is_read_over_time_is_what_was_read(simulate):
    result = simulate()
    edges_us, gbps = reads_over_time(result)
    burst = result.config["hardware"]["derived"]["burst_bytes"]
    assert (np.diff(edges_us) * 1000 * gbps).sum() == pytest.approx(burst * result.commands["RD"])
    assert gbps.max() <= result.peak_bandwidth_gbps * (1 + 1e-9)
    assert edges_us[0] == 0
    assert edges_us[-2] < result.time_ns / 1000 <= edges_us[-1]


def test_many_refreshes_are_averaged_over_whole_intervals():
    result = simulate_expert("trimoe", SMALL, sets=["dram.nREFI=2200"], record_commands=True)
    longer = dataclasses.replace(result, cycles=2200 * 301)
    edges_us, _ = reads_over_time(longer)
    assert np.diff(edges_us) == pytest.approx(3 * 2200 * result.clock_ns / 1000)


@pytest.fixture(scope="module")
def beside():
    return simulate_contention("trimoe", Expert(1024, 384), host_gbps=20.0)


# ---- what stands in the pictures ----


@pytest.fixture
def figures(monkeypatch):
    """Figures that would have been written."""
    import matplotlib.pyplot as plt

    drawn = []
    for module in (contention, expert, host_read, latencies, relayout):
        monkeypatch.setattr(module, "save", lambda figure, path: drawn.append(figure))
    yield drawn
    for figure in drawn:
        plt.close(figure)


def words_of(figure):
    axes = figure.axes
    ticks = [label.get_text() for one in axes for label in (*one.get_xticklabels(), *one.get_yticklabels())]
    legends = [text.get_text() for one in axes if one.get_legend() for text in one.get_legend().get_texts()]
    texts = [text.get_text() for one in axes for text in one.texts]
    labels = [label for one in axes for label in (one.get_xlabel(), one.get_ylabel())]
    return "\n".join([figure.get_suptitle(), *ticks, *legends, *texts, *labels])


def test_a_picture_says_what_the_hardware_is(figures):
    expert.draw_expert("x.png", simulate_expert("cxl", SMALL, record_commands=True))
    expert.draw_expert("x.png", simulate_expert("trimoe", SMALL, layout="sharded:4", record_commands=True))
    cxl, sharded = map(words_of, figures)
    for words in (
        "busy: memory",
        "CXL link",
        "systolic arrays",
        "channel's data bus",
        "not known: ndp_activation",
    ):
        assert words in cxl
    for words in ("GEMV", "host bus", "lane", "buffer chip"):
        assert words not in cxl
    for words in ("on 4 DIMMs of trimoe", "host bus", "GEMV unit", "a lane's data bus"):
        assert words in sharded
    assert "CXL" not in sharded


def test_a_timeline_says_what_the_hardware_is(tmp_path):
    units = {}
    for hw in ("cxl", "trimoe"):
        write_timeline(str(tmp_path / hw), simulate_expert(hw, SMALL))
        events = json.loads((tmp_path / hw).read_text())["traceEvents"]
        units[hw] = [event["args"]["name"] for event in events if event["ph"] == "M"]
    assert units["cxl"] == ["CXL link", "systolic arrays", "activation unit"]
    assert units["trimoe"] == ["host bus", "GEMV unit", "activation unit"]


def test_the_busy_link_is_that_of_the_result(figures):
    result = simulate_expert("cxl", SMALL, 8, record_commands=True)
    expert.draw_expert("x.png", result)
    assert f"CXL link {100 * result.busy['io']:.1f}%" in figures[0].get_suptitle()


def test_the_time_of_a_bus_adds_up(figures):
    host_read.draw_host_read("x.png", simulate_host_read("trimoe", Expert(1024, 256), record_commands=True))
    time, energy = figures[0].axes[1:]
    for bar in (time, energy):
        assert sum(part.get_width() for part in bar.patches) == pytest.approx(100)
    data = time.patches[0].get_width()
    assert figures[0].axes[0].get_legend().get_texts()[1].get_text().endswith(f"{data:.1f}% of peak")


def test_both_slowdowns_are_drawn(figures, beside):
    contention.draw_contention("x.png", beside)
    bandwidth, phases, slowdowns, energy = figures[0].axes
    lengths = sorted(bar.get_width() * 1000 for bar in slowdowns.patches)
    assert lengths == pytest.approx(
        sorted([beside.ndp_time_ns, beside.ndp_alone_ns, beside.host_time_ns, beside.host_alone_ns])
    )
    words = words_of(figures[0])
    assert f"NDP {beside.ndp_slowdown:.3f}x, host {beside.host_slowdown:.3f}x" in words
    drawn = [patch.get_data().values for patch in bandwidth.patches]
    assert np.array_equal(drawn[0], beside.ndp_curve_gbps)
    assert np.array_equal(drawn[2], beside.host_curve_gbps)
    assert len(phases.patches) == len(beside.phases)
    assert sum(part.get_width() for part in energy.patches) == pytest.approx(100)


def test_a_host_that_got_nothing_has_no_slowdown(figures, beside):
    contention.draw_contention("x.png", dataclasses.replace(beside, host_slowdown=None))
    assert "nothing asked for" in words_of(figures[0])


def test_energies_of_both_ways_of_a_relayout_are_those_of_the_result(figures):
    result = simulate_relayout("trimoe", SMALL, 2, sets=FEW)
    relayout.draw_relayout("x.png", result)
    _, wires, dram, energy = figures[0].axes
    assert [bar.get_height() for bar in wires.patches] == pytest.approx(
        [100 * share for share in result.link_busy.values()]
    )
    assert [bar.get_height() for bar in dram.patches] == pytest.approx(
        [100 * share for share in result.dram_busy.values()]
    )
    assert energy.get_xlabel() == "energy (uJ)"
    for row, parts in enumerate((result.energy_nj, result.host.energy_nj)):
        own = [bar for bar in energy.patches if round(bar.get_y() + bar.get_height() / 2) == row]
        drawn = sum(bar.get_width() for bar in own)
        assert max(bar.get_x() + bar.get_width() for bar in own) == pytest.approx(drawn)  # side by side
        assert 1000 * drawn == pytest.approx(parts["total"])


@pytest.mark.parametrize("move", [{"host": False}, {"source": "striped"}], ids=["no host", "nothing moved"])
def test_a_relayout_is_drawn_without_the_host_and_without_a_move(figures, move):
    relayout.draw_relayout("x.png", simulate_relayout("trimoe", SMALL, sets=FEW, **move))
    assert "by the host" not in words_of(figures[0])


def test_components_of_the_ndp_units_are_one():
    parts = {"read": 2.0, "ndp_fifo": 1.0, "ndp_buffer": 3.0, "link": None, "host": 0.0, "total": 6.0}
    assert bars.energy_parts(parts) == {"read": 2.0, "ndp": 4.0}
