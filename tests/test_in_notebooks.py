"""Python as people use it in notebooks: changes and hardware as dicts, pictures, tables, progress, the version."""

from __future__ import annotations

import importlib.resources
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

import ndpsim
from mistakes import refused
from ndpsim.base.arguments import progress_bar, progress_function, setting_texts
from ndpsim.base.reported import html_columns
from ndpsim.config.files import data_path
from ndpsim.report.moe import moe_answer, print_moe
from ndpsim.report.ranking import deciding_metric, ranked_answer

SMALL = ndpsim.Expert(256, 128)


# ---- Names and types


def test_the_version_is_that_of_the_installed_package():
    assert ndpsim.__version__ == metadata.version("ndpsim")


def test_the_package_tells_type_checkers_that_it_has_types():
    assert importlib.resources.files("ndpsim").joinpath("py.typed").is_file()


# ---- Hardware


def test_changes_may_be_a_mapping():
    written = ndpsim.load_hardware(
        "trimoe", ["dimm.ranks=2", "dram.refresh=none", "ndp.gemv.clock_mhz=500.0"]
    )
    values = {"dimm.ranks": np.int64(2), "dram.refresh": "none", "ndp.gemv.clock_mhz": 500.0}
    assert ndpsim.load_hardware("trimoe", values).system == written.system
    by_call = [
        ndpsim.simulate_expert("trimoe", SMALL, sets=sets) for sets in (["dimm.ranks=2"], {"dimm.ranks": 2})
    ]
    assert by_call[0] == by_call[1]


def test_values_of_changes_are_written_as_yaml():
    values = {"a": None, "b": True, "c": [1, "x"], "d": {"part": "edge_gemv", "clock_mhz": 1.5}}
    assert setting_texts(values) == ("a=null", "b=true", "c=[1, x]", "d={part: edge_gemv, clock_mhz: 1.5}")


def test_hardware_may_be_a_mapping():
    contents = yaml.safe_load(data_path("hwconfigs", "edge").read_text())
    assert ndpsim.load_hardware(contents).system == ndpsim.load_hardware("edge").system
    contents["dimm"]["ranks"] = 99
    with refused("range hw dimm.ranks"):
        ndpsim.load_hardware(contents)
    with refused("type hw"):
        ndpsim.load_hardware({"name": object()})


# ---- Pictures


def test_a_result_draws_its_picture(tmp_path: Path):
    recorded = ndpsim.simulate_expert("trimoe", SMALL, record_commands=True)
    figure = recorded.plot(tmp_path / "expert.png", panels=["phases"])
    assert len(figure.axes) == 1
    assert (tmp_path / "expert.png").read_bytes().startswith(b"\x89PNG")
    with refused("missing result"):
        ndpsim.simulate_expert("trimoe", SMALL).plot()


def test_policies_draw_their_speed_ups(moe_by_hand: Any):
    assert len(moe_by_hand.result("trimoe", "monde").plot(panels=["speedup", "engines"]).axes) == 2


@pytest.fixture(scope="module")
def swept() -> ndpsim.SweepResult:
    return ndpsim.sweep("gemv", {"tokens": [1, 2], "dimm.ranks": [2, 4]}, fixed={"shape": "256,128"}, jobs=1)


def test_a_sweep_draws_its_picture(swept: ndpsim.SweepResult, tmp_path: Path):
    swept.plot(tmp_path / "sweep.svg", x="dimm.ranks", y="time_ns")
    assert "<svg" in (tmp_path / "sweep.svg").read_text()


# ---- Tables


def test_policies_are_rows_of_a_data_frame(moe_by_hand: Any):
    result = moe_by_hand.result("trimoe", "monde")
    frame = result.to_pandas()
    assert list(frame.index) == ["trimoe", "monde"]
    assert frame.loc["monde", "time_ns"] == result.runs[1].time_ns


def test_a_sweep_is_a_labelled_array(swept: ndpsim.SweepResult):
    pytest.importorskip("xarray")
    data = swept.to_xarray()
    assert dict(data.sizes) == {"tokens": 2, "dimm.ranks": 4 - 2}
    assert float(data["time_ns"].sel({"tokens": 2, "dimm.ranks": 4})) == swept[3]["time_ns"]


def test_a_notebook_marks_the_best(moe_by_hand: Any, swept: ndpsim.SweepResult):
    result = moe_by_hand.result("trimoe", "monde")
    shown = result._repr_html_()
    assert "throughput of decode" in shown
    assert f"<th>best</th><th>{result.best.policy}</th>" in shown
    assert swept._repr_html_().count("<th>best</th>") == 1


def test_cells_of_notebooks_are_escaped():
    assert "<b>" not in html_columns("<b>", ("<b>",), [("<b>",)], None)


# ---- Ranked answers


def test_a_ranked_answer_names_the_best_by_how_much_and_what_limits_it():
    rows = [
        {"time_ns": 2000.0},
        {"time_ns": 1000.0, "bottleneck.ndp 3": 0.6, "bottleneck.gpu": 0.4},
        {"time_ns": 4000.0},
    ]
    assert ranked_answer(rows, ["a", "b", "c"], "time_ns") == (
        "Best by time: b, 1.000 µs, 2.000\N{MULTIPLICATION SIGN} better than a, 4.000\N{MULTIPLICATION SIGN} better than c, the last; "
        "limited by NDP units 3 (60.0% of the critical path)"
    )
    assert ranked_answer(rows[:1], ["a"], "time_ns") == ""
    assert ", as good as b" in ranked_answer([rows[0], rows[0]], ["a", "b"], "time_ns")


def test_the_answer_is_above_the_table_and_policies_are_rows(moe_by_hand: Any, capsys: Any, monkeypatch: Any):
    monkeypatch.setenv("COLUMNS", "80")
    names = ["trimoe", "monde", "klotski", "enhanced-ktransformers", "hybrimoe"]
    result = moe_by_hand.result(*names)
    print_moe(result)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    answer = next(number for number, line in enumerate(lines) if line.startswith("Best by total time"))
    rows = [line.split()[0] for line in lines[answer:] if line.split()[0] in names]
    assert rows == sorted(names, key=lambda name: result.runs[names.index(name)].time_ns)
    assert moe_answer(moe_by_hand.result("trimoe")) == ""


def test_a_sweep_tells_its_best_point(swept: ndpsim.SweepResult):
    answer = swept.answer()
    assert "dimm.ranks=" in answer
    assert answer in " ".join(repr(swept).split())


# ---- Progress


def test_progress_true_draws_a_bar(capsys: pytest.CaptureFixture[str]):
    show = progress_function(True)
    for share in (0.0, 0.5, 0.501, 1.0):
        show(share)
    assert capsys.readouterr().err == "\r  0%\r 50%\r100%\n"


def test_progress_in_a_notebook_is_a_bar_of_it(monkeypatch: pytest.MonkeyPatch):
    class ZMQInteractiveShell:
        pass

    class Bar:
        progress = 0

        def __init__(self, total: int) -> None:
            bars.append(self)

        def display(self) -> None:
            self.shown = True

    bars: list[Any] = []
    shell = SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(ProgressBar=Bar))
    progress_bar()(0.42)
    assert (bars[0].progress, bars[0].shown) == (42, True)


# ---- Type checkers


@pytest.mark.long
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_script_of_a_user_is_well_typed(checker: str, tmp_path: Path):
    """With a policy of its own, under the strictest settings; CI runs mypy on it in every run."""
    program = shutil.which(
        checker, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    if program is None:
        pytest.skip(f"{checker} is not installed")
    script = shutil.copy(Path(__file__).parent / "given" / "typed_user.py", tmp_path)
    options = (
        ["--strict", "--python-executable", sys.executable]
        if checker == "mypy"
        else ["--pythonpath", sys.executable]
    )
    done = subprocess.run([program, *options, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_points_with_other_work_are_compared_by_rates_and_others_by_time_too():
    metrics = ("time_ns", "bandwidth_gbps")
    assert deciding_metric(metrics, ["dimm.ranks"]) == "time_ns"
    assert deciding_metric(metrics, ["dimm.ranks", "tokens"]) == "bandwidth_gbps"
