"""Machines that people own: folders with published runs, and the interval that they give."""

from __future__ import annotations

from pathlib import Path

import pytest

from ndpsim.base.errors import InputError
from ndpsim.inference.prediction.band import FEWEST, covering
from scripts import ROOT, script

VALIDATION = ROOT / "validation"
MACHINE = """\
machine: "made"
runs:
- name: made-1
  command: >-
    ndpsim predict --cpu ryzen-9-7950x --memory ddr5-5200x2 --gpu none --model qwen3-30b-a3b --weights q4_k_m
  measured: {decode: 20}
  grade: B
  source: "made for a test"
"""


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch):
    return script("validation/machines.py")


def test_every_run_is_predicted_and_the_page_and_the_intervals_are_of_these_predictions(page):
    predicted = {(one.run.name, one.phase) for one in page.read_predictions()}
    missing = {(run.name, phase) for run in page.runs() for phase in run.measured} - predicted
    assert not missing, "python validation/machines.py predict RUN"
    words = "python validation/machines.py writes it"
    assert (VALIDATION / "machines.md").read_text(encoding="utf-8") == page.text(), words
    written = page.MEASURED.read_text(encoding="utf-8").splitlines()[2:]
    held_out = [one for one in page.read_predictions() if not one.fitted]
    assert [tuple(line.split(",")[:4]) for line in written] == [
        (one.run.name, one.run.machine, one.kind, one.phase) for one in held_out
    ], words


def test_a_machine_is_added_by_its_folder_alone(page, tmp_path, monkeypatch):
    folder = tmp_path / "my-computer"
    folder.mkdir()
    (folder / "machine.yaml").write_text(MACHINE)
    monkeypatch.setattr(page, "FOLDER", tmp_path)
    monkeypatch.setattr(page, "PREDICTED", tmp_path / "predicted.csv")
    (run,) = page.runs()
    assert (run.name, run.machine, run.measured, run.options["model"]) == (
        "made-1", "my-computer", {"decode": 20.0}, "qwen3-30b-a3b",
    )  # fmt: skip
    page._write([page.Figure(run, "decode", "CPU alone", 25.0, "attention", 0.5, 768)])
    (figure,) = page.read_predictions()
    assert (figure.ratio, figure.error) == pytest.approx((0.8, 0.25))
    assert (
        "| made-1 | my-computer | qwen3-30b-a3b, q4_k_m, ik_llama.cpp | decode | 25 | 20 | +25% |"
        in page.text()
    )
    # Without experts on the CPU, no thread waits for another.
    page._write([page.Figure(run, "decode", "GPU and desktop", 25.0, "attention", 0.5, 0)])
    assert "| GPU and desktop | decode | 1 | 1 | 25% |" in page.text()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("grade: B", "grade: D", "is not one of A, B, C"),
        ("measured: {decode: 20}", "measured: {decode: 0}", "is not tokens/s"),
        ("measured: {decode: 20}", "measured: {speed: 20}", "is not tokens/s"),
        ("ndpsim predict", "ndpsim moe", "does not begin with ndpsim predict"),
        ("  source:", "  sauce:", "is missing"),
        ("  grade: B", "  grade: B\n  colour: red", "is no key of a run"),
        ("  grade: B", "  grade: B\n  fitted: [prefill]", "names a phase that was not measured"),
    ],
)
def test_a_wrong_machine_is_one_line(page, tmp_path, monkeypatch, old, new, words):
    folder = tmp_path / "my-computer"
    folder.mkdir()
    (folder / "machine.yaml").write_text(MACHINE.replace(old, new))
    monkeypatch.setattr(page, "FOLDER", tmp_path)
    with pytest.raises(InputError, match=words) as caught:
        page.runs()
    assert Path(caught.value.file).parts[-2:] == ("my-computer", "machine.yaml")


def test_the_interval_of_a_kind_leaves_out_a_tenth_at_each_end_and_few_runs_take_all_kinds():
    few = [("a", ratio / 10) for ratio in range(1, FEWEST)]
    many = [("b", float(ratio)) for ratio in range(1, 20)]
    # 20 equally likely places of the next among 19: two tenths lie outside the second and the eighteenth.
    assert covering(few + many, "b") == (2, 18, 19)
    assert covering([("c", 1.0)] * 2 + many[:FEWEST], "b") == (1, 9, 9)
    # 27 of both kinds: the second and the last but one.
    assert covering(few + many, "a") == (0.2, 18, 27)
