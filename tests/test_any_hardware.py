"""Every policy on every hardware runs with a valid log, or is refused in one line."""

from __future__ import annotations

import pytest

from builders.small_moe import moe, once_each
from mistakes import refused
from ndpsim.audit.schedule import check_schedule
from ndpsim.config import hardware_names
from ndpsim.inference.layers.log import writing_log
from ndpsim.policies import policies

HAS = {
    "trimoe": {"gpu", "cpu", "ndp"},
    "edge": {"gpu", "cpu", "ndp"},
    "cxl": {"gpu", "ndp"},
    "cache-7960x-4090": {"gpu", "cpu"},
    "dali-7532-3090": {"gpu", "cpu"},
}


def test_every_bundled_hardware_is_here():
    assert sorted(HAS) == sorted(hardware_names())


#: All but trimoe, which `test_moe_run` has. Two have the same engines.
RUN = ["edge", "cxl", "dali-7532-3090", pytest.param("cache-7960x-4090", marks=pytest.mark.long)]


@pytest.mark.parametrize("hw", RUN)
@pytest.mark.parametrize("policy", once_each())
def test_it_runs_or_says_in_one_line_what_is_missing(hw, policy, tmp_path):
    log = tmp_path / "log.jsonl.gz"

    def run() -> object:
        with writing_log(log) as write:
            return moe(policy, hw=hw, batch=4, steps=2, prompt=4, gpu_experts=3, observer=write).runs[0]

    if not set(policies()[policy.partition(":")[0]].needs) <= HAS[hw]:
        with refused("conflict"):
            run()
        return
    run()
    report = check_schedule(log)
    assert report.ok, report
