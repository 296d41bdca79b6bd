"""Policies: by name and from files, on every hardware, compared; and what the published baselines decide."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.policy_machines import ESTIMATES, EXPERTS, MACHINE, assigned, migrated, residents, started
from builders.small_moe import moe, once_each
from mistakes import refused
from ndpsim.audit.schedule import check_schedule
from ndpsim.base.errors import InputError
from ndpsim.config import hardware_names
from ndpsim.inference.layers.log import writing_log
from ndpsim.policies import (
    BackgroundView,
    OfflineView,
    Placement,
    Policy,
    choose_policy,
    parameters_of,
    policies,
    policy_names,
)
from ndpsim.policies.choose import policy_class
from ndpsim.policies.offline import spread
from ndpsim.workload.routing import Routing
from scripts import script

OWN = """
from typing import Literal
from pydantic import Field
from ndpsim.policies import Assignment, Policy, PolicyParameters

class Parameters(PolicyParameters):
    share: float = Field(0.5, ge=0, le=1, description="of experts")
    most: int | None = Field(None, ge=1, description="experts")
    on: bool = Field(True, description="whether")
    order: Literal["given", "sorted"] = "given"

class Mine(Policy):
    name = "mine"
    title = "A policy of one's own"
    Parameters = Parameters

    def assign(self, view):
        return Assignment(cpu=view.loads.nonzero()[0].tolist())

class Unfinished(Policy):
    name = "unfinished"
    title = "It assigns nothing"

class Nameless(Mine):
    name = None

class Bare(Mine):
    Parameters = dict

class Typed(Policy[Parameters]):
    name = "typed"
    title = "Its parameters stand in brackets"

    def assign(self, view):
        return Assignment(cpu=view.loads.nonzero()[0].tolist())

class Heir(Typed):
    name = "heir"

class Untyped(Policy[int]):
    name = "untyped"
    title = "Its parameters are none"
    assign = Typed.assign

other = 3
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


def refusal(asked: object) -> tuple[str, str | None, str | None, int | None]:
    """The code, the key, the file and the line of the mistake."""
    with pytest.raises(InputError) as caught:
        choose_policy(asked)  # type: ignore[arg-type]
    wrong = caught.value
    return wrong.code, wrong.key, wrong.file and Path(wrong.file).name, wrong.line


# Policies by what they are called


def test_every_bundled_policy_is_found_by_its_name_and_says_what_it_is():
    assert policy_names() == sorted(policies())
    for name, policy in policies().items():
        chosen = choose_policy(name)
        assert (chosen.name, chosen.policy) == (name, policy)
        assert policy.title
        assert all(parameter.description for parameter in parameters_of(policy))


def test_a_users_class_is_found_in_its_file_with_its_parameters(own):
    chosen = choose_policy(f"{own}:Mine:share=0.25, most=3,on=false,order=sorted")
    assert chosen.name == "mine"
    given = {"share": 0.25, "most": 3, "on": False, "order": "sorted"}
    assert chosen.parameters.model_dump() == {"gpu_order": "listed", **given}
    assert choose_policy(f"{own}:Mine:most=none").parameters.model_dump()["most"] is None
    assert choose_policy(f"{own}:Mine").policy is chosen.policy
    assert choose_policy(chosen.policy).parameters == choose_policy(f"{own}:Mine").parameters
    assert choose_policy(chosen) is chosen
    assert not list(own.parent.glob("__pycache__"))


@pytest.mark.parametrize("name", ["Typed", "Heir"])
def test_parameters_in_brackets_of_the_base_are_those_of_the_policy_and_its_heirs(own, name):
    assert choose_policy(f"{own}:{name}:most=3").parameters.model_dump()["most"] == 3
    assert choose_policy(f"{own}:Mine").parameters.model_dump().keys() == {
        one.name for one in parameters_of(policy_class(f"{own}:{name}"))
    }


def test_parameters_say_their_type_default_and_meaning(own):
    first, *listed = parameters_of(policy_class(f"{own}:Mine"))
    assert (first.name, first.type, first.default) == ("gpu_order", "one of listed, arrived", "listed")
    assert [(one.name, one.type, one.default, one.description) for one in listed] == [
        ("share", "a number from 0 to 1", 0.5, "of experts"),
        ("most", "a whole number from 1 or none", None, "experts"),
        ("on", "true or false", True, "whether"),
        ("order", "one of given, sorted", "given", ""),
    ]


@pytest.mark.parametrize(
    ("asked", "code", "key", "file"),
    [
        ("Mine:shar=1", "unknown-key", "policy mine", None),
        ("Mine:share=2", "range", "policy mine:share", None),
        ("Mine:share=nan", "range", "policy mine:share", None),
        ("Mine:most=1.5", "range", "policy mine:most", None),
        ("Mine:on=perhaps", "range", "policy mine:on", None),
        ("Mine:order=random", "range", "policy mine:order", None),
        ("Mine:share", "form", "policy mine", None),
        ("Mine:share=1,share=1", "twice", "policy mine", None),
        ("Min", "unknown-name", "policy", "own.py"),
        ("", "missing", "policy", "own.py"),
        ("other", "policy", "policy", "own.py"),
        ("Field", "policy", "policy", "own.py"),
        ("Unfinished", "policy", "policy", "own.py"),
        ("Nameless", "policy", "policy", "own.py"),
        ("Bare", "policy", "policy", "own.py"),
        ("Untyped", "policy", "policy", "own.py"),
    ],
)
def test_a_request_that_cannot_be_is_refused_with_its_place(own, asked, code, key, file):
    assert refusal(f"{own}:{asked}") == (code, key, file, None)


def test_the_only_policy_of_a_file_needs_no_name(tmp_path):
    text = "from ndpsim.policies import Policy\nclass Alone(Policy):\n    name = title = 'alone'\n"
    (tmp_path / "alone.py").write_text(text + "    def assign(self, view): ...\n")
    assert choose_policy(f"{tmp_path}/alone.py").policy.name == "alone"


def test_unknown_names_and_files_that_cannot_be_run_are_refused(tmp_path):
    assert refusal("trimo") == ("unknown-name", "policy", None, None)
    assert refusal(f"{tmp_path}/none.py:Mine") == ("unreadable", "policy", "none.py", None)
    assert refusal(f"{tmp_path}/a\0b.py:Mine")[0] == "unreadable"
    for content, code, line in [
        ("x = 1\nx = (\n", "form", 2),
        ("\n\nimport nothing_such\n", "policy", 3),
        ("def f():\n    raise SystemExit(3)\nf()\n", "policy", 2),
    ]:
        (tmp_path / "broken.py").write_text(content)
        assert refusal(f"{tmp_path}/broken.py:Mine") == (code, "policy", "broken.py", line)
    (tmp_path / "empty.py").write_text("")
    assert refusal(f"{tmp_path}/empty.py:Mine") == ("unknown-name", "policy", "empty.py", None)
    assert refusal(3)[1] == "policy"
    late = type("Late", (choose_policy("klotski").policy,), {"moments": ("late",)})
    assert refusal(late) == refusal(int) == ("policy", "policy", None, None)


# Klotski


def test_klotski_holds_hot_experts_beside_room_for_two_prefetches_of_two():
    # 50 between layers has room for two copies of 20; those of a layer are there while the next ones come.
    _, placement = started("klotski", gpu_experts=6)
    assert residents(placement) == [(0, 0), (1, 2)]  # 9 tokens each
    assert (placement.dimm == -1).all()
    assert residents(started("klotski:variant=code")[1]) == []
    assert residents(started("klotski:hot_experts=0")[1]) == [(0, 0), (0, 1), (1, 2), (1, 4)]
    assert residents(started("klotski:residents=none")[1]) == []


def test_klotski_computes_what_is_there_first_and_loads_the_rest_by_tokens():
    policy, placement = started("klotski", gpu_experts=6)
    answer = assigned(policy, placement, [1, 5, 0, 7, 2, 7], arriving=[4])
    assert answer.gpu == [0, 4, 3, 5, 1]
    assert answer.estimated_ns == 60.0  # three copies of 20; all compute takes 22 and the shared experts 3
    assert assigned(policy, placement, [90, 5, 0, 0, 0, 0]).estimated_ns == 98.0


def test_klotski_prefetches_by_expected_tokens_and_its_code_by_two_successors_each():
    # Of those who chose 0, 1 and 2 in layer 1, 4, 3 and 1 of 10 chose 0, 1 and 2 each in layer 2, and so on.
    first = np.repeat([0, 1], [10, 10])
    then = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 2, 2, 2])
    trace = Routing(EXPERTS, (1, 2), np.array([first, then], np.int16)[None, :, :, None])
    for variant, hot in ("paper", [2, 0]), ("code", [0, 1]):
        policy = choose_policy(f"klotski:variant={variant},residents=none").start(MACHINE, ESTIMATES)
        placement = policy.place(OfflineView(MACHINE, ESTIMATES, trace, 20))
        # 0 has 12 tokens and 1 has 11: 2 is expected to have 0.3 x 23, 0 0.4 x 12, 3 0.4 x 11.
        asked = migrated(policy, placement, [12, 11, 0, 0, 0, 0], free=4)
        assert asked == [("prefetch", 2, expert) for expert in hot]


def test_klotski_prefetches_at_the_gate_and_gives_up_what_a_layer_before_has_used():
    policy, _ = started("klotski:residents=none,hot_experts=1", gpu_experts=2)
    assert policy.moments == ("gate",)
    empty = Placement.striped(2, EXPERTS)
    [(kind, layer, expert)] = migrated(policy, empty, [0, 9, 0, 0, 0, 0], free=2)
    assert (kind, layer) == ("prefetch", 2)
    arrived = Placement.striped(2, EXPERTS)
    arrived.resident[1, expert] = True
    # Layer 2 computes it, while what layer 1 of the next step needs comes: the mean of 8 and 9 tokens is above
    # that of 9 and 0.
    assert migrated(policy, arrived, [0, 0, 0, 0, 0, 9], layer=2, free=1) == [("prefetch", 1, 1)]
    arrived.resident[0, 1] = True
    asked = migrated(policy, arrived, [0, 0, 0, 9, 0, 0], layer=1, free=0)
    assert asked == [("evict", 2, expert), ("prefetch", 2, 4)]  # which follow 3


def test_klotski_expects_the_mean_of_the_offline_trace_and_of_all_steps():
    policy, placement = started("klotski:residents=none")
    expected = policy.popularity[0].copy()
    for loads in ([0, 9, 0, 0, 0, 0], [6, 0, 0, 0, 0, 3]):
        migrated(policy, placement, loads, free=0)
        expected += loads
    assert policy.popularity[0] == pytest.approx(expected / 3)


def test_klotski_prefetches_no_more_than_there_is_room_for():
    policy, placement = started("klotski:residents=none")
    assert len(migrated(policy, placement, [9, 8, 7, 6, 5, 4], free=4)) == 2
    assert len(migrated(policy, placement, [9, 8, 7, 6, 5, 4], free=1)) == 1
    assert migrated(policy, placement, [9, 8, 7, 6, 5, 4], free=0) == []


def test_klotski_prefetches_no_more_than_half_of_the_memory_for_a_layer():
    policy, placement = started("klotski:residents=none,hot_experts=3")
    assert len(migrated(policy, placement, [9, 8, 7, 6, 5, 4], free=4)) == 2


def test_klotski_leaves_what_it_prefetched_where_the_only_layer_needs_it_again():
    policy, placement = started(
        "klotski:residents=none,hot_experts=1", loads=((9, 1, 1, 1, 1, 1),), layers=(1,)
    )
    nothing = np.zeros((1, EXPERTS), np.bool_)
    view = BackgroundView("decode", 0, 1, 1, np.array([9, 1, 1, 1, 1, 1]), placement, nothing, 4)
    assert [one.expert for one in policy.background(view)] == [0]
    resident = np.arange(EXPERTS)[None] == 0
    assert policy.background(replace(view, placement=replace(placement, resident=resident))) == []


# Enhanced KTransformers


def test_ktransformers_loads_as_many_experts_as_end_the_layer_soonest():
    policy, placement = started("enhanced-ktransformers", gpu_experts=0)
    # CPU: 40, 32, 12, 8, 8; the GPU loads n experts in 20 n and computes the last one.
    answer = assigned(policy, placement, [10, 8, 3, 2, 1, 0])
    # 0: CPU 100. 1: GPU 20 + 10, CPU 60. 2: GPU 40 + 8, CPU 28. 3: GPU 60 + 3.
    assert (answer.gpu, answer.cpu, answer.estimated_ns) == ([0, 1], [2, 3, 4], 48.0)
    # The host reads each expert in 8, which is more than the CPU needs for a token.
    assert assigned(policy, placement, [1, 1, 1, 1, 1, 1]).estimated_ns == 48.0


def test_ktransformers_loads_experts_that_are_cheaper_on_the_gpu_one_by_one():
    policy, placement = started("enhanced-ktransformers:hot=cheaper", gpu_experts=0)
    answer = assigned(
        policy, placement, [10, 8, 6, 5, 1, 0]
    )  # 6 tokens: 24 on the CPU; 5 tokens: 20, no less
    assert (answer.gpu, answer.cpu) == ([0, 1, 2], [3, 4])


def test_ktransformers_computes_residents_and_arriving_experts_on_the_gpu():
    policy, placement = started("enhanced-ktransformers")
    assert residents(placement) == [(0, 0), (0, 1), (1, 2), (1, 4)]
    answer = assigned(policy, placement, [1, 2, 0, 0, 1, 1], arriving=[4])
    assert (answer.gpu, answer.cpu, answer.estimated_ns) == ([1, 0, 4], [5], 8.0)


def test_ktransformers_prefetches_by_a_moving_average_in_place_of_lower_scores():
    policy, placement = started("enhanced-ktransformers")
    # Layer 2 had 2 1 9 3 8 1 in the offline trace; 2 and 4 are resident. One seen: 0 20 0 0 0 0.
    assert migrated(policy, placement, [0, 20, 0, 0, 0, 0], layer=2) == []
    asked = migrated(policy, placement, [9, 8, 3, 2, 1, 1], layer=1)
    # Scores are 1, 10.5, 4.5, 1.5, 4, 0.5: expert 1 comes, 4 goes; 3 is not worth 2.
    assert asked == [("evict", 2, 4), ("prefetch", 2, 1)]
    asked = migrated(policy, placement, [9, 8, 3, 2, 1, 1], layer=1, free=4, moving=[(1, 1)])
    assert asked == [("prefetch", 2, 3), ("prefetch", 2, 0)]  # two in the window
    policy, placement = started("enhanced-ktransformers:prefetch=0")
    assert migrated(policy, placement, [0] * 6, free=4) == []
    assert residents(started("enhanced-ktransformers:residents=none")[1]) == []


@pytest.mark.parametrize(("memory", "moved"), [(0.75, []), (0.25, [("evict", 2, 4), ("prefetch", 2, 1)])])
def test_ktransformers_weighs_the_past_by_its_memory(memory, moved):
    policy, placement = started(f"enhanced-ktransformers:memory={memory}")
    migrated(policy, placement, [0, 20, 0, 0, 0, 0], layer=2)
    # Of expert 1 it remembers 0.75 + 5 or 0.25 + 15 tokens, of 4, which is there, 6 or 2.
    assert migrated(policy, placement, [9, 8, 3, 2, 1, 1], layer=1) == moved


# MoNDE


def test_monde_lies_localized_by_ndp_time_or_in_turn():
    _, placement = started("monde", gpu_experts=0)
    # 9 8 3 2 1 1 tokens take 55, 50, 25, 20, 15, 15: to DIMM 0 55 + 20 + 15, to DIMM 1 50 + 25 + 15.
    assert placement.dimm[0].tolist() == [0, 1, 1, 0, 0, 1]
    assert started("monde:placement=cyclic")[1].dimm[0].tolist() == [0, 1, 0, 1, 0, 1]
    assert residents(started("monde")[1]) == [(0, 0), (0, 1), (1, 2), (1, 4)]
    assert residents(started("monde:residents=none")[1]) == []


def test_monde_loads_the_prefix_that_balances_pcie_and_the_slowest_dimm():
    policy, placement = started("monde:placement=cyclic", gpu_experts=0)
    # NDP times 60 50 25 0 15 15; DIMM 0 has experts 0, 2, 4, DIMM 1 has 1, 3, 5.
    answer = assigned(policy, placement, [10, 8, 3, 0, 1, 1])
    # 0: 100. 1: max(20, 40, 65) = 65. 2: max(40, 40, 15) = 40. 3: 60.
    assert (answer.gpu, answer.ndp, answer.estimated_ns) == ([0, 1], [2, 4, 5], 40.0)
    # From one channel the host reads two experts in 60, and three in 90.
    policy, placement = started("monde:placement=cyclic", gpu_experts=0, channel=(0, 0))
    assert assigned(policy, placement, [10, 8, 3, 0, 1, 1]).estimated_ns == 60.0


def test_monde_counts_what_the_gpu_computes_in_any_case():
    """Experts that the GPU has take 3 + 90 there, the other one 15 on its DIMM, or 1 after a copy."""
    policy, placement = started("monde:placement=cyclic", gpu_experts=1)
    assert placement.resident[0].tolist() == [True] + [False] * 5
    answer = assigned(policy, placement, [90, 1, 0, 0, 0, 0])
    assert (answer.gpu, answer.ndp, answer.estimated_ns) == ([0], [1], 93.0)


def test_monde_by_bandwidths_and_as_reimplemented():
    # K = 5, an expert over PCIe in 20, by an NDP unit with one token in 15: 5 / 20 / (1 / 20 + 2 / 15) = 1.36.
    loads = [10, 8, 3, 0, 1, 1]
    for asked, expected in [
        ("monde:variant=bandwidth,placement=cyclic", [0]),
        ("monde:variant=bandwidth,alpha=2,placement=cyclic", [0, 1, 2]),
        (
            "monde:variant=bandwidth,alpha=100,placement=cyclic",
            [0, 1, 2, 5, 4],
        ),  # copies at once from both channels
        ("monde:variant=dynande,placement=cyclic", [0]),
    ]:
        policy, placement = started(asked, gpu_experts=0)
        assert assigned(policy, placement, loads).gpu == expected


def test_monde_needs_ndp_units():
    with refused("conflict"):
        started("monde", dimms=0, channel=())


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.integers(1, 16))
def test_no_dimm_gets_more_experts_than_an_equal_division(work, dimms):
    chosen = np.bincount(spread(np.array(work), dimms), minlength=dimms)
    assert chosen.sum() == len(work)
    assert chosen.max() <= -(-len(work) // dimms)


# ---- Every policy on every hardware runs with a valid log, or is refused in one line

HAS = {
    "trimoe": {"gpu", "cpu", "ndp"},
    "edge": {"gpu", "cpu", "ndp"},
    "cxl": {"gpu", "ndp"},
    "cache-7960x-4090": {"gpu", "cpu"},
    "dali-7532-3090": {"gpu", "cpu"},
    "dgx-attacc": {"gpu", "cpu"},
    "aim-cards": {"gpu", "cpu", "ndp"},
}


def test_every_bundled_hardware_is_here():
    assert sorted(HAS) == sorted(hardware_names())


#: All but trimoe, which `test_moe_run` has. Two have the same engines.
RUN = ["edge", "cxl", "dali-7532-3090", "aim-cards", pytest.param("cache-7960x-4090", marks=pytest.mark.long)]


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
    if hw == "aim-cards" and policy == "cxl":  # its experts have fewer bits than the units multiply
        with refused("unsupported bits"):
            run()
        return
    run()
    report = check_schedule(log)
    assert report.ok, report


# ---- The comparison of all policies: ranking, lossy ones, and the limiting resource

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


def test_recorded_routing_is_compared_with_routing_drawn_from_its_counts(tmp_path, capsys):
    trace = tmp_path / "trace.npz"
    ids = np.array([[[[0, 1], [0, 2]], [[3, 1], [3, 0]]]] * 4, np.int16)  # of layers 2 and 5
    Routing(4, (2, 5), ids).save(trace)
    spec = best.drawn_from(str(trace))
    counts = json.loads(Path(spec.partition(":")[2]).read_text())
    assert counts == {"counts": [[8, 4, 4, 0], [4, 4, 0, 8]], "layers": [2, 5]}
    recorded = {"slow": run(30.0), "fast": run(19.0), "balance": run(16.0)}
    drawn = {"slow": run(21.0), "fast": run(25.0), "balance": run(20.0)}
    cells = [best.Cell("edge", "m", 8, str(trace), recorded), best.Cell("edge", "m", 8, spec, drawn)]
    assert [cell.kind for cell in cells] == ["recorded", "drawn"]
    best.beside_drawn(cells)
    row = "| edge | 8 | fast, slow | slow, fast | 0.80 | fast 0.76 | slow 1.43 | 2 of 3 | 1.19, 1.05 |"
    assert row in capsys.readouterr().out


def test_what_binds_is_the_largest_share():
    assert best.resource({"bottleneck.gpu": 0.2, "bottleneck.ndp": 0.7, "bottleneck.cpu": None}) == "ndp 70%"
    assert best.resource({"bottleneck.cpu": None}) == ""


@pytest.mark.parametrize("question", ["check", "setup"])
def test_what_a_policy_raises_before_it_runs_is_one_line(question):
    def fail(*_: object) -> None:
        raise ValueError("two\nlines")

    of = {"name": "failing", "title": "", "assign": fail, question: classmethod(fail)}
    failing = type("Failing", (Policy,), of)
    asked = {"check": "check", "setup": "__init__"}[question]
    with refused(f"policy policy failing: {asked}") as caught:
        choose_policy(failing).start(MACHINE, ESTIMATES)
    assert "raises ValueError: two lines (test_policies.py, line" in caught.value.problem


def test_the_energy_is_of_all_known_parts():
    assert (
        best.energy_nj(
            {"energy_nj.read": 2.0, "energy_nj.gpu": None, "energy_nj.io": 3.0, "energy_nj.total": 5.0}
        )
        == 5.0
    )


def test_every_machine_has_cells_of_three_models_three_batches_and_both_routings():
    points = best.wanted_points(best.parsed(["--policy", "monde"]))
    plain = [point for point in points if not point["setting"]]
    assert len(plain) == 5 * 3 * 3 * 2
    assert {point["hw"] for point in points} == set(best.MACHINES)
    assert {point["setting"] for point in points} - {""} == set(best.SETTINGS)
    assert len(points) == len(plain) + 2 * 5 * 3 * 2  # of each setting, two batches


def test_a_finished_cell_is_not_run_again(tmp_path, monkeypatch):
    point = dict(hw="edge", model="m", layers="1", batch=8, routing="skewed", policies=["all"], setting="")
    ran: list[Any] = []
    monkeypatch.setattr(best, "runs_of", lambda one: ran.append(one) or {"balance": run(16.0)})
    for _ in range(2):
        (found,) = best.cells_of([point], tmp_path / "cells")
        assert (found.name, list(found.runs)) == ("m, batch 8, skewed", ["balance"])
    assert ran == [point]


def test_a_cell_has_its_setting_and_all_policies_that_can_run(monkeypatch):
    asked: list[dict[str, Any]] = []

    class Result:
        runs = ()

    monkeypatch.setattr(best.ndpsim, "run_moe", lambda **given: asked.append(given) or Result)
    (point,) = best.wanted_points(
        best.parsed(["--machine", "cxl", "--model", "glm-4.5-air", "--batch", "1"])
    )[2:]
    assert point["setting"] == "context 16384"
    assert best.runs_of(point) == {}
    assert (asked[0]["context"], asked[0]["policies"], asked[0].get("kv")) == (16384, ["all"], None)


def test_the_oracle_runs_in_one_cell_of_each_model():
    points = best.wanted_points(best.parsed(["--policy", "oracle"]))
    assert len(points) == 5 * 3
    assert {point["routing"] for point in points} == {"skewed"}
    few = best.wanted_points(best.parsed(["--machine", "edge", "--batch", "8", "--policy", "monde"]))
    assert {(point["hw"], point["batch"]) for point in few} == {("edge", 8)}
