"""Pictures of sweeps: what is drawn by default, what is refused, and that they show the numbers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.path import Path

from builders.sweep_by_hand import Result, fail, gemv, moe, row
from mistakes import refused
from ndpsim.base.reported import quantities
from ndpsim.report.metrics import described, key_label, metric_label, metric_text, name_of, scale_of
from ndpsim.report.pictures.canvas import save, titled
from ndpsim.report.pictures.pareto import front_of
from ndpsim.report.pictures.sweep import approach_figure, points_figure
from ndpsim.report.sweep_plot import KINDS, PublishedValue, SweepPlot, chosen_plot, sweep_title
from ndpsim.simulate.results import ContentionResult, ExpertResult, HostReadResult, PolicyRun
from ndpsim.studies.sweeps.values import Definition


def chosen(result, **choices):
    return chosen_plot(result.definition, list(result), **choices)


def figure(result, size="two-columns", **choices):
    return points_figure(list(result), result.definition, chosen(result, **choices), size)


def varying(rows):
    """Rows as the result of a sweep of their seeds."""
    return Result(Definition("gemv", {}, {"seed": tuple(row["seed"] for row in rows)}), rows)


def words(axes):
    return [text.get_text() for legend in axes.figure.legends for text in legend.get_texts()]


# ---- choices ----


def test_without_being_asked_lines_go_over_the_numbers_with_the_most_values():
    result = gemv(varied={"bits": (16, 4), "tokens": (1, 2, 4, 8, 16), "dimm.ranks": (1, 2)})
    plot = chosen(result)
    assert (plot.kind, plot.x, plot.y) == ("lines", "tokens", "time_ns")
    assert plot.by == ("bits", "dimm.ranks")
    assert plot.title == "One expert of mixtral-8x7b on trimoe: time over tokens"


def test_words_have_bars_and_a_baseline_asks_for_speedups():
    result = moe()
    plot = chosen(result)
    assert plot == SweepPlot("bars", "policy", "speedup", ("batch",), "", plot.title)
    plain = moe(baseline={})
    assert chosen(plain).y == "tokens_per_s"


def test_what_the_sweep_says_is_drawn_and_what_is_given_goes_before_it():
    result = gemv(
        plot={"kind": "bars", "x": "dimm.ranks", "y": "peak_fraction", "by": ["bits"]}, title="Mine"
    )
    plot = chosen(result)
    assert plot == SweepPlot("bars", "dimm.ranks", "peak_fraction", ("bits",), "", "Mine")
    assert chosen(result, y="time_ns", by="bits,tokens").by == (
        "bits",
        "tokens",
    )


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"kind": "line"}, "unknown-name kind ? lines"),
        ({"x": "token"}, "unknown-name x"),
        ({"kind": "lines", "x": "token"}, "unknown-name x ? tokens"),
        ({"y": "time"}, "unknown-name y ? time_ns"),
        ({"by": "ranks"}, "unknown-name by ? dimm.ranks"),
        ({"x": "tokens", "by": "tokens"}, "twice by"),
        ({"log": "z"}, "unknown-name log"),
        ({"kind": "heat", "by": "bits,dimm.ranks"}, "conflict by"),
        ({"kind": "pareto", "y": "bound"}, "unknown-name y"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_line(choices, said):
    result = gemv()
    with refused(said):
        chosen(result, **choices)


def test_choices_are_checked_before_there_are_results_and_before_matplotlib_is_imported():
    definition = gemv().definition
    assert chosen_plot(definition).x == "tokens"
    with refused("unknown-name x ? tokens"):
        chosen_plot(definition, x="token", kind="lines")
    code = "import sys, ndpsim.report.sweep_plot; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_too_many_series_become_panels_and_too_many_panels_are_refused():
    result = gemv(varied={"tokens": (1, 2, 4, 8), "dimm.ranks": tuple(range(1, 9)), "bits": (16, 8, 4)})
    assert chosen(result, x="tokens").by == ("dimm.ranks",)
    assert len(figure(result, "column", x="tokens").axes) == 3
    many = gemv(varied={"tokens": (1, 2), "dimm.ranks": tuple(range(1, 10)), "bits": tuple(range(1, 12))})
    with refused("too-large by"):
        chosen(many, x="tokens")
    with refused("too-large by"):
        chosen(many, x="tokens", by="bits")


def test_keys_that_vary_together_are_one_series():
    definition = Definition(
        "gemv", {}, {"tokens": (1, 2, 4), "dimm.ranks": (1, 2, 4)}, zipped=(("tokens", "dimm.ranks"),)
    )
    rows = [row({"tokens": n, "dimm.ranks": n}, time_ns=float(n)) for n in (1, 2, 4)]
    result = Result(definition, rows)
    assert chosen(result).by == ()
    (axes,) = figure(result).axes
    assert len(axes.lines) == 1


def test_values_that_grow_by_factors_have_a_logarithmic_axis_unless_it_is_not_wanted():
    result = gemv()
    assert chosen(result).log == "xy"
    assert chosen(result, log="none").log == ""
    steps = gemv(varied={"tokens": tuple(range(1, 17)), "dimm.ranks": (1,), "bits": (16,)})
    assert chosen(steps).log == ""


# ---- what pictures show ----


@pytest.mark.parametrize(
    "size", ["column", *(pytest.param(size, marks=pytest.mark.long) for size in ("two-columns", "slide"))]
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_in_every_size(kind, size, tmp_path):
    result = gemv(
        published=(PublishedValue("time_ns", {"tokens": 8, "bits": 4, "dimm.ranks": 2}, 1e4, 2e4, "A"),)
    )
    save(figure(result, size, kind=kind), str(tmp_path / "a.svg"), size)
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")


def test_lines_go_through_the_points_in_a_readable_unit():
    result = gemv()
    (axes,) = figure(result, log="none").axes
    lines = {line.get_label(): line for line in axes.lines}
    line = lines["ranks 2, bits 16"]
    np.testing.assert_allclose(line.get_xdata(), [1, 4, 16, 64])
    np.testing.assert_allclose(line.get_ydata(), [0.008, 0.032, 0.128, 0.512])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tokens", "time (ms)")
    assert axes.get_ylim()[0] == 0


def test_points_stand_in_the_order_of_numbers_whatever_the_order_of_the_sweep():
    result = gemv(varied={"tokens": (64, 1, 8), "dimm.ranks": (1,), "bits": (4,)})
    (axes,) = figure(result).axes
    assert list(axes.lines[0].get_xdata()) == [1, 8, 64]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "8", "64"]


def test_bars_are_as_high_as_the_values_which_stand_above_them():
    result = moe()
    (axes,) = figure(result).axes
    heights = sorted(bar.get_height() for bar in axes.patches)
    assert heights == [1, 1, 2, 2, 3, 3]
    assert sorted(text.get_text() for text in axes.texts) == ["1.00", "1.00", "2.00", "2.00", "3.00", "3.00"]
    assert axes.get_ylabel() == "speed-up over trimoe (\N{MULTIPLICATION SIGN})"
    assert axes.get_ylim()[0] == 0
    assert words(axes) == ["batch 64", "batch 128"]


def test_every_cell_of_a_heat_map_says_its_value_and_the_strip_has_the_unit():
    result = gemv(varied={"dimm.ranks": (1, 2), "tokens": (1, 8, 64), "bits": (16,)})
    cells, strip = figure(result, kind="heat", log="none").axes
    said = {(round(t.get_position()[0]), round(t.get_position()[1])): t.get_text() for t in cells.texts}
    assert said == {
        (0, 0): "0.0160",
        (1, 0): "0.128",
        (2, 0): "1.02",
        (0, 1): "0.00800",
        (1, 1): "0.0640",
        (2, 1): "0.512",
    }
    assert strip.get_xlabel() == "time (ms)"
    assert strip.get_xlim() == (0.008, 1.024)
    assert cells.get_ylabel().replace("\n", " ") == "ranks on a DIMM"


def test_the_front_has_what_no_other_point_beats():
    rows = [
        {"time_ns": x, "energy_nj.total": y, "tokens_per_s": z}
        for x, y, z in [(1, 9, 1), (2, 5, 4), (2, 6, 3), (3, 5, 9), (4, 1, 2), (5, 3, 8), (1, 9, 1)]
    ]
    less = front_of(rows, "time_ns", "energy_nj.total", lambda _: False)
    assert [(r["time_ns"], r["energy_nj.total"]) for r in less] == [(1, 9), (2, 5), (4, 1)]
    more = front_of(rows, "tokens_per_s", "energy_nj.total", "tokens_per_s".__eq__)
    assert [(r["tokens_per_s"], r["energy_nj.total"]) for r in more] == [(2, 1), (8, 3), (9, 5)]


def test_points_of_a_front_are_named_and_no_names_overlap():
    result = gemv()
    drawn = figure(result, kind="pareto")
    (axes,) = drawn.axes
    named = [text.get_text() for text in axes.texts]
    assert named == ["4 / 1 / 4", "1 / 1 / 4", "2 / 1 / 4"]  # the ends first
    assert "Pareto front: less time, less energy" in words(axes)
    assert "at points: ranks / tokens / bits" in words(axes)
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


def test_the_line_of_a_front_of_one_point_is_not_in_the_legend():
    rows = [row({"seed": n}, **{"time_ns": n, "energy_nj.total": n}) for n in (1.0, 2.0, 3.0)]
    (axes,) = figure(varying(rows), kind="pareto").axes
    assert [line.get_linestyle() for line in axes.lines if "front:" in str(line.get_label())] == ["None"]


def test_runs_of_a_search_are_whole_numbers_on_their_axis():
    rows = [{"run": n, "time_ns": time} for n, time in ((1, 6.0), (2, 5.0), (3, 7.0))]
    (axes,) = approach_figure("A search", "time_ns", (ExpertResult,), rows, rows[:2]).axes
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1, 2, 3]


def test_a_name_is_nearest_to_its_own_point():
    values = {
        1: (3.92, 15.21),
        2: (3.97, 16.68),
        3: (1.0, 15.2),
        4: (2.4, 16.7),
        5: (2.45, 21.4),
        6: (9.5, 58.9),
    }
    rows = [row({"seed": n}, **{"time_ns": x, "energy_nj.total": y}) for n, (x, y) in values.items()]
    (axes,) = figure(varying(rows), kind="pareto", log="none").axes
    assert len(axes.texts) >= 5
    for text in axes.texts:
        box = text.get_window_extent()
        pixels = {n: axes.transData.transform(at) for n, at in values.items()}
        distances = {
            n: np.hypot(max(box.x0 - x, 0, x - box.x1), max(box.y0 - y, 0, y - box.y1))
            for n, (x, y) in pixels.items()
        }
        assert text.get_text() == f"seed {min(distances, key=distances.get)}"


def test_every_point_of_a_front_has_a_name_even_where_others_lie_on_it():
    """Points that lie on a point of the front do not take its name away."""
    rows = [row({"seed": n}, **{"time_ns": 1.0, "energy_nj.total": 5.0}) for n in (1, 2, 3, 4)]
    rows += [row({"seed": 5}, **{"time_ns": 3.0, "energy_nj.total": 9.0})]
    (axes,) = figure(varying(rows), kind="pareto", log="none").axes
    assert "seed 1" in [text.get_text() for text in axes.texts]


def test_no_name_of_a_long_front_covers_its_stairs_and_no_leader_crosses_a_name():
    names = ("seed", "tokens", "bits")
    rows = [
        row(dict.fromkeys(names, 10**9 + n), **{"time_ns": 1.1**n, "energy_nj.total": 1.1**-n})
        for n in range(24)
    ]
    definition = Definition("gemv", {}, {name: tuple(one[name] for one in rows) for name in names})
    (axes,) = figure(Result(definition, rows), kind="pareto", log="xy").axes
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    leaders = [text for text in axes.texts if not text.get_text()]
    to_pixels = axes.transData.transform
    ends = [
        (to_pixels(one.xy), to_pixels(one.xy) + np.multiply(one.get_position(), axes.figure.dpi / 72))
        for one in leaders
    ]
    assert len(boxes) > 5
    assert len(leaders) > 2
    stairs = axes.lines[0]
    lines = [Path(to_pixels(stairs.get_xydata())), *map(Path, ends)]
    assert not [box for box in boxes for line in lines if line.intersects_bbox(box, filled=False)]


def test_a_published_point_of_a_front_lies_in_the_middle_of_its_intervals():
    where = {"tokens": 16, "bits": 16, "dimm.ranks": 2}
    both = (
        PublishedValue("time_ns", where, 5e4, 9e4, "A paper"),
        PublishedValue("energy_nj.total", where, 1e6, 3e6, "A paper"),
    )
    (axes,) = figure(gemv(published=both), kind="pareto", log="none").axes
    (container,) = [one for one in axes.containers if one.get_label() == "A paper"]
    marker, *_ = container.lines
    assert (marker.get_xdata()[0], marker.get_ydata()[0]) == pytest.approx((0.07, 2.0))  # ms and mJ


def test_a_title_says_what_was_run_of_which_model_on_which_machine():
    definition = Definition("gemv", {"tokens": 4}, {"dimm.ranks": (1, 2)})
    assert sweep_title(definition) == "One expert of qwen3-235b-a22b on trimoe, tokens 4"


def test_published_values_are_hollow_with_their_interval_and_their_source():
    value = PublishedValue(
        "time_ns", {"tokens": 16, "bits": 16, "dimm.ranks": 2}, 50_000, 90_000, "A paper, Table 1"
    )
    other = PublishedValue("energy_nj.total", {"tokens": 8}, 1, 1, "Not drawn")
    (axes,) = figure(gemv(published=(value, other)), log="none").axes
    (container,) = [one for one in axes.containers if one.get_label() != "A paper, Table 1"]
    marker, _, (bar,) = container.lines
    assert (marker.get_xdata()[0], marker.get_ydata()[0]) == pytest.approx((16, 0.07))
    assert marker.get_markerfacecolor() == "white"
    np.testing.assert_allclose(bar.get_segments()[0][:, 1], [0.05, 0.09])
    assert "A paper, Table 1" in words(axes)
    assert "Not drawn" not in words(axes)


def test_values_are_called_by_their_labels_also_where_a_published_one_stands():
    near = PublishedValue("speedup", {"policy": "monde", "batch": 64}, 1.5, 1.5, "a paper")
    result = moe(labels={"monde": "MoNDE", "trimoe": "TriMoE"}, published=(near,))
    (axes,) = figure(result, kind="bars", x="policy", y="speedup").axes
    assert axes.get_ylabel().startswith("speed-up over TriMoE")
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names[:2] == ["TriMoE", "MoNDE"]
    assert "a paper" in str(axes.get_legend_handles_labels())
    assert result.definition.baseline == {"policy": "trimoe"}


def test_a_published_value_of_other_points_is_not_drawn():
    value = PublishedValue("time_ns", {"tokens": 8, "bits": 8}, 1e5, 1e5, "A paper")
    drawn = figure(gemv(published=(value,)))
    assert "A paper" not in words(drawn.axes[0])
    assert "1 of 1 published values are of other points" in drawn.get_suptitle()
    between = PublishedValue("time_ns", {"tokens": 8, "bits": 4, "dimm.ranks": 2}, 1e5, 1e5, "A paper")
    assert "A paper" in words(figure(gemv(published=(between,))).axes[0])
    assert "A paper" not in words(figure(gemv(published=(between,)), kind="bars", x="tokens").axes[0])


def test_published_values_stand_in_brackets_in_cells():
    value = PublishedValue("time_ns", {"tokens": 8, "dimm.ranks": 1}, 1e5, 2e5, "A paper")
    result = gemv(published=(value,), varied={"dimm.ranks": (1, 2), "tokens": (1, 8, 64), "bits": (16,)})
    cells, _ = figure(result, kind="heat", log="none").axes
    assert "0.128\n(0.100\N{EN DASH}0.200)" in [text.get_text() for text in cells.texts]
    assert words(cells) == ["(in brackets: A paper)"]


@pytest.mark.parametrize(("tokens", "fits"), [(4, True), (16, False)])
def test_values_stay_in_cells_where_published_ones_have_no_room_beside_them(tokens, fits):
    value = PublishedValue("time_ns", {"tokens": 2, "dimm.ranks": 1}, 11_110, 22_220, "A paper")
    varied = {"dimm.ranks": (1, 2), "tokens": tuple(range(1, tokens + 1)), "bits": (16,)}
    cells, _ = figure(gemv(published=(value,), varied=varied), "column", kind="heat", log="none").axes
    texts = [text.get_text() for text in cells.texts]
    assert len(texts) == 2 * tokens
    assert any("(" in text for text in texts) == fits
    assert words(cells) == [f"({'in brackets' if fits else 'no room in the cells'}: A paper)"]


def test_failed_points_are_left_out_and_counted():
    result = fail(gemv(), 2)
    drawn = figure(result)
    assert "2 of 24 points failed and are left out" in drawn.get_suptitle()
    assert sum(len(line.get_xdata()) for line in drawn.axes[0].lines) == 22


def test_where_all_failed_there_is_nothing_to_draw():
    result = fail(gemv(), 24)
    with refused("missing plot"):
        chosen(result)


def test_long_words_lean_and_stay_in_the_picture():
    drawn = figure(moe(), "column")
    (axes,) = drawn.axes
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {30}
    box, whole = axes.xaxis.get_tightbbox(), drawn.bbox
    assert box.x0 >= whole.x0
    assert box.y0 >= whole.y0


def test_long_choices_are_broken_at_the_axis_and_their_settings_left_out_beside_it():
    names = ("monde:variant=bandwidth,placement=cyclic", "trimoe:refine=false")
    result = moe(varied={"policy": names, "batch": (64,)}, baseline={"policy": names[0]})
    (axes,) = figure(result, "column").axes
    assert axes.get_xticklabels()[0].get_text() == "monde:\nvariant=bandwidth,\nplacement=cyclic"
    assert axes.get_ylabel() == "speed-up over monde (\N{MULTIPLICATION SIGN})"


def test_formulas_in_values_stay_text(tmp_path):
    definition = Definition("moe", {}, {"policy": ("$x^{", "b_$c")}, title="$\\frac{")
    rows = [row({"policy": name}, tokens_per_s=1.0) for name in definition.varied["policy"]]
    save(figure(Result(definition, rows), "column"), str(tmp_path / "a.png"), "column")


# ---- words and units ----


@pytest.mark.parametrize(
    ("metric", "result", "value", "label", "said"),
    [
        ("time_ns", ExpertResult, 13_270.0, "time (µs)", "13.27 µs"),
        ("layer_ns.p99", PolicyRun, 2e6, "experts' time of a layer, p99 (ms)", "2.000 ms"),
        ("peak_fraction", ExpertResult, 0.887, "share of the peak bandwidth (%)", "88.7%"),
        ("utilization.gpu", PolicyRun, 0.25, "utilization, GPU (%)", "25.0%"),
        (
            "tokens_per_s",
            PolicyRun,
            1234.5,
            "throughput of decode, or of prefill alone (tokens/s)",
            "1234 tokens/s",
        ),
        ("ndp_area_mm2", ExpertResult, 1.5, "ndp area (mm²)", "1.500 mm²"),
        ("weight_bytes", ExpertResult, 3 << 20, "weights (MiB)", "3.00 MiB"),
        ("speedup", ExpertResult, 2.5, "speed-up (\N{MULTIPLICATION SIGN})", "2.500\N{MULTIPLICATION SIGN}"),
        ("commands.ACT", ExpertResult, 12345, "DRAM commands, ACT", "12,345"),
    ],
)
def test_metrics_have_words_and_units(metric, result, value, label, said):
    of = (result,)
    assert metric_label(metric, scale_of(metric, [value], of), results=of) == label
    assert metric_text(metric, value, of) == said


def test_a_metric_is_described_by_the_result_that_has_it():
    assert described("idle_ns", (ExpertResult,)).label == quantities(ExpertResult)["idle_ns"].label
    assert described("idle_ns", (HostReadResult,)).label == quantities(HostReadResult)["idle_ns"].label
    assert described("idle_ns", (ExpertResult,)).label != described("idle_ns", (HostReadResult,)).label
    assert described("host_gbps", (ExpertResult, ContentionResult)).whole == "bus_peak_gbps"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"dimm.ranks": 4, "tokens": 2}, "ranks 4, tokens 2"),
        ({"policy": "trimoe", "group-size": 128}, "trimoe, group size 128"),
        ({"link.link_gbps": 25.0}, "link 25 GB/s"),
        ({"dimm.count": 8, "cxl.gbps": 64}, "dimm count 8, cxl 64 GB/s"),
        ({"layers": [0, 1]}, "layers 0,1"),
    ],
)
def test_values_of_legends_say_what_they_are_of(values, said):
    assert name_of(values) == said


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("dimm.ranks", "ranks on a DIMM"),
        ("link.link_gbps", "bandwidth of a link, one direction (GB/s)"),
        ("ndp.gemv.fifo_bursts", "weight FIFO of each lane, in DRAM bursts"),  # the unit is said once
        ("group-size", "group size"),
    ],
)
def test_keys_are_called_what_they_are(key, label):
    assert key_label(key) == label


def test_a_logarithmic_axis_that_was_asked_for_is_drawn_or_refused():
    result = gemv()
    (axes, *_) = figure(result, x="bits", log="xy").axes  # two values: bars, if nothing is asked for
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert chosen(result, x="bits").kind == "bars"
    for wanted in (dict(kind="bars", x="bits"), dict(kind="heat")):
        with refused("conflict log"):
            chosen(result, **wanted, log="x")
    with refused("conflict log"):
        chosen(moe(), kind="lines", x="policy", log="x")
    with refused("conflict log"):
        chosen(gemv(varied={"tokens": (0, 1, 4), "bits": (4,), "dimm.ranks": (1,)}), x="tokens", log="y")
    assert "y" in chosen(moe(), kind="bars", log="y").log


def test_a_picture_has_the_title_that_is_given_or_none():
    for title, shown in (("Mine", "Mine"), ("none", ""), (None, "One expert")):
        with titled(title):
            drawn = figure(gemv())
        assert drawn.get_suptitle().startswith(shown)
        assert shown or not drawn.get_suptitle()
