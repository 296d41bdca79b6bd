"""The comparison of all policies: ranking, lossy ones, and the limiting resource."""

from __future__ import annotations

from typing import Any

import pytest

from scripts import script

best = script("validation/best.py")


def run(moe_ns: float, pairs: int = 100, bits: float = 16, **more: Any) -> dict[str, Any]:
    named = {"moe_ns": moe_ns, "pairs": pairs, "weight_bits.cpu": None, "weight_bits.gpu_hit": bits}
    return named | {"bound_ns": 1.0, "estimated_ns": None} | more


@pytest.fixture
def cell() -> Any:
    runs = {
        "slow": run(30.0),
        "fast": run(20.0, bound_ns=12.0),
        "coarse": run(5.0, bits=4, bound_ns=19.0),
        "skipping": run(6.0, pairs=99),
        "balance": run(16.0),
        "oracle": run(15.0),
    }
    return best.Cell("edge", "qwen3-30b-a3b", 8, "skewed", runs)


def test_policies_with_fewer_bits_or_pairs_are_apart(cell):
    assert list(cell.lossy) == ["coarse", "skipping"]
    assert list(cell.exact) == ["balance", "fast", "slow"]
    assert list(cell.published) == ["fast", "slow"]


def test_balance_is_compared_with_the_fastest_published_policy(cell):
    assert best.over(cell, "balance") == 1.25
    assert best.over(cell, "not-run") is None
    assert (cell.bound_ns, cell.known_ns) == (12.0, 15.0)  # a bound at fewer bits says nothing


def test_the_picture_of_a_machine_names_its_cells(cell, tmp_path):
    name = best.draw("edge", [cell], tmp_path / "figures")
    picture = (tmp_path / "figures" / name).read_text()
    assert "Policies on edge" in picture
    assert "qwen3-30b-a3b, batch 8, skewed" in picture
    assert "best known" in picture


def test_what_binds_is_the_largest_share():
    assert best.resource({"bottleneck.gpu": 0.2, "bottleneck.ndp": 0.7, "bottleneck.cpu": None}) == "ndp 70%"
    assert best.resource({"bottleneck.cpu": None}) == ""


def test_the_energy_is_of_all_known_parts():
    assert (
        best.energy_nj({"energy_nj.read": 2.0, "energy_nj.gpu": None, "energy_nj.io": 3.0, "moe_ns": 9})
        == 5.0
    )


def test_every_machine_has_cells_of_three_models_three_batches_and_both_routings():
    points = best.wanted_points(best.parsed(["--policy", "monde"]))
    assert len(points) == 5 * 3 * 3 * 2
    assert {point["hw"] for point in points} == set(best.MACHINES)


def test_the_oracle_runs_in_one_cell_of_each_model():
    points = best.wanted_points(best.parsed(["--policy", "oracle"]))
    assert len(points) == 5 * 3
    assert {point["routing"] for point in points} == {"skewed"}
    few = best.wanted_points(best.parsed(["--machine", "edge", "--batch", "8", "--policy", "monde"]))
    assert {(point["hw"], point["batch"]) for point in few} == {("edge", 8)}
