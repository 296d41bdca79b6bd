"""The edge paper's policy: its equations solved, its parts of experts, its three steps of prefetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from builders.policy_machines import ESTIMATES as PLAIN
from ndpsim import run_moe
from ndpsim.policies import Part, check_policy, views
from ndpsim.policies.answers import checked_assignment, checked_migrations, checked_placement
from ndpsim.policies.published.edge import Edge, EdgeParameters, LoadBalance
from ndpsim.workload.models import load_model
from ndpsim.workload.routing import Routing

EXPERTS, UNITS = 8, 2
MODEL = replace(
    load_model("mixtral-8x7b"), routed_experts=EXPERTS, experts_per_token=4, expert_intermediate=640
)
MACHINE = views.Machine(MODEL, (1, 2), 1000, UNITS, (0, 1), 0, 2)
TOKENS = np.arange(101.0)
# An expert of t tokens takes 2 t on the GPU and 20 t on a DIMM, so 10 t on both; 30 to the GPU; a vector 1.
ESTIMATES = replace(
    PLAIN,
    gpu_ns=2 * TOKENS,
    cpu_ns=4 * TOKENS,
    ndp_ns=20 * TOKENS,
    pcie_ns=25.0,
    striped_read_ns=30.0,
    localized_read_ns=60.0,
    vector_ns=1.0,
    sharded_ns=lambda dimms: 20 * TOKENS / dimms,
)


def policy(gpu_experts: int = 0, estimates: views.Estimates = ESTIMATES, **parameters: Any) -> Edge:
    return Edge(replace(MACHINE, gpu_experts=gpu_experts), estimates, EdgeParameters(**parameters))


def placed(
    made: Edge, loads: Sequence[Sequence[int]] = ((1,) * 8, (1,) * 8), prefill: int = 0
) -> views.Placement:
    """Where a policy puts experts whose offline trace has these loads."""
    ids = np.array([np.repeat(np.arange(EXPERTS), row) for row in loads], np.int16)[None, :, :, None]
    view = views.OfflineView(made.machine, ESTIMATES, Routing(EXPERTS, (1, 2), ids), ids.shape[2], prefill)
    return checked_placement(made.name, made.place(view), made.machine)


def assigned(made: Edge, loads: Sequence[int], resident: Sequence[int] = (), **changes: Any) -> Any:
    """The answer for a layer of one token, which is legal."""
    placement = placed(made).of_layer(0)
    there = np.isin(np.arange(EXPERTS), resident)
    arriving = np.isin(np.arange(EXPERTS), changes.pop("arriving", ()))
    lies = views.LayerPlacement(placement.dimm, placement.shards, there)
    view = views.LayerView("decode", 0, 1, np.array(loads, np.int64), 1, lies, arriving)
    view = replace(view, **changes)
    answer = made.assign(view)
    checked_assignment(made.name, view, answer, made.machine)
    return answer


# Equations 1 to 3


def unhidden(terms: LoadBalance, on_gpu: float) -> float:
    """E_g' of E_g."""
    return (on_gpu % 1.0 if on_gpu % terms.units else 1.0) / terms.units


def sides_ns(terms: LoadBalance, on_gpu: float) -> tuple[float, float]:
    """Both sides of equation 2: when the GPU ends, and when the NDP units do."""
    sent = (terms.tokens - 1) * terms.vector_ns * terms.units
    gpu_ns = terms.transfer_ns * on_gpu + terms.gpu_ns * unhidden(terms, on_gpu) + sent
    return gpu_ns, (terms.units + 1) * terms.vector_ns + terms.ndp_ns * (terms.experts - on_gpu)


def test_equation_1_by_hand():
    # 30 E + 2 E' = 3 + 10 (4 - E), so 40 E + E' x 2 = 43: E = 1 + f with 40 f + f = 3.
    terms = LoadBalance(transfer_ns=30, gpu_ns=2, vector_ns=1, ndp_ns=10, units=UNITS, tokens=1, experts=4)
    assert terms.on_gpu() == pytest.approx(1 + 3 / 41)
    # At 1 the part that is not hidden is 0, at 2, a multiple of N, it is 1 / 2, between it is half the rest.
    assert [unhidden(terms, on_gpu) for on_gpu in (0, 0.5, 1, 1.5, 2, 3)] == [0.5, 0.25, 0, 0.25, 0.5, 0]


def test_equation_2_by_hand():
    # 30 E + 2 E' + 6 x 1 x 2 = 3 + 10 (4 - E): 40 E + 2 E' = 31.
    terms = LoadBalance(transfer_ns=30, gpu_ns=2, vector_ns=1, ndp_ns=10, units=UNITS, tokens=7, experts=4)
    assert terms.on_gpu() == pytest.approx(31 / 41)


def test_equation_3_by_hand():
    terms = LoadBalance(transfer_ns=30, gpu_ns=2, vector_ns=1, ndp_ns=10, units=UNITS, tokens=1, experts=4)
    # 2 E = (4 - E) 10 + 3.
    assert terms.most_present() == pytest.approx(43 / 12)


TIMES = st.one_of(st.floats(1e-3, 1e7), st.integers(1, 30).map(float))


@settings(max_examples=150)
@given(
    TIMES, TIMES, TIMES, TIMES, st.integers(1, 16), st.one_of(st.just(1), st.integers(2, 600)),
    st.integers(1, 128),
)  # fmt: skip
@example(1.0, 8.0, 1.0, 3.0, 2, 1, 3)
@example(3.0, 1e-20, 1e-30, 1.0, 1, 1, 4)
def test_what_is_found_solves_the_equation(transfer, gpu, vector, ndp, units, tokens, experts):
    terms = LoadBalance(transfer, gpu, vector, ndp, units, tokens, experts)
    found = terms.on_gpu()
    sides = sides_ns(terms, found)
    assert 0 <= found <= experts
    # Sums of large terms that cancel each other are rounded.
    rounding = 1e-9 * ((transfer + ndp) * experts + gpu + vector * units * tokens)
    if abs(sides[0] - sides[1]) <= rounding:
        return
    # Where no E_g solves it, one side ends later whatever it has of what is shared out.
    assert found in (0, experts)
    of_later = 1 if found == 0 else -1
    for one in np.linspace(0, experts, 50).tolist():
        gpu_ns, ndp_ns = sides_ns(terms, one)
        assert of_later * (gpu_ns - ndp_ns) > -rounding


@settings(max_examples=50)
@given(TIMES, TIMES, TIMES, TIMES, st.integers(1, 6), st.integers(1, 12))
def test_of_several_solutions_it_is_the_one_that_ends_first(transfer, gpu, vector, ndp, units, experts):
    terms = LoadBalance(transfer, gpu, vector, ndp, units, 1, experts)
    found = terms.on_gpu()
    assume(found < experts)
    # Beyond it the GPU's side is later, up to all experts, where it may fall once more: none is a solution.
    for one in np.linspace(found, experts, 60)[1:-1].tolist():
        gpu_ns, ndp_ns = sides_ns(terms, one)
        assert gpu_ns >= ndp_ns * (1 - 1e-9)


def test_at_a_jump_there_are_two_solutions_and_the_larger_is_taken():
    terms = LoadBalance(transfer_ns=6, gpu_ns=60, vector_ns=0, ndp_ns=4, units=3, tokens=1, experts=3)
    # 10 E + 20 {E} = 12: 0.4 and 1 + 2 / 30.
    for solution in (0.4, 1 + 2 / 30):
        gpu_ns, ndp_ns = sides_ns(terms, solution)
        assert gpu_ns == pytest.approx(ndp_ns)
    assert terms.on_gpu() == pytest.approx(1 + 2 / 30)


# Engines


def test_tensor_parallelism_lies_over_all_units_and_expert_parallelism_in_turn():
    placement = placed(policy())
    assert (placement.dimm == 0).all()
    assert (placement.shards == UNITS).all()
    placement = placed(policy(tp=False))
    assert placement.dimm[0].tolist() == [0, 1] * 4
    assert (placement.shards == 1).all()


def test_balance_gives_the_gpu_parts_of_an_expert_in_64ths():
    # E_g = 1 + 3 / 41 = 1.073: 5 of 64 parts, each of 10 columns.
    answer = assigned(policy(), [0, 1, 1, 0, 1, 1, 0, 0])
    assert answer.gpu == [1, Part(2, 5 / 64)]
    assert answer.ndp == [Part(2, 59 / 64), 4, 5]
    assert answer.details == {"e_g": pytest.approx(1 + 3 / 41)}
    # Copies 30 x 69 / 64 and the part's 2 x 5 / 64; the units 10 x 187 / 64 and the vectors 3.
    assert answer.estimated_ns == pytest.approx(max(30 * 69 / 64 + 2 * 5 / 64, 3 + 10 * 187 / 64))


def test_without_balance_all_experts_are_computed_by_the_ndp_units():
    for one in policy(balance=False), Edge(replace(MACHINE, expert_buffers=0), ESTIMATES, EdgeParameters()):
        answer = assigned(one, [0, 1, 1, 0, 1, 1, 0, 0])
        assert (answer.gpu, answer.ndp) == ([], [1, 2, 4, 5])
        assert answer.estimated_ns == 3 * 1 + 4 * 10  # a vector to each unit, and one back


def test_without_tensor_parallelism_a_copy_is_read_from_one_channel():
    # 60 E + 2 E' = 3 + 10 (4 - E): 70 E + E' x 2 = 43, so 43 / 71 = 0.606: 39 of 64.
    answer = assigned(policy(tp=False), [0, 1, 1, 0, 1, 1, 0, 0])
    assert answer.gpu == [Part(1, 39 / 64)]


def test_a_part_leaves_each_unit_a_column():
    made = Edge(replace(MACHINE, dimms=16, channel=(0,) * 16), ESTIMATES, EdgeParameters())
    for on_gpu, whole in (1.99, 2), (2.001, 2), (0.0, 0):
        gpu, ndp = made._split(list(range(4)), on_gpu)
        assert (gpu, ndp) == (list(range(whole)), list(range(whole, 4)))
    gpu, ndp = made._split(list(range(4)), 2.97)  # 620 of 640 columns leave 20
    assert gpu[-1] == Part(2, 620 / 640)


def test_prefill_is_balanced_by_tokens_and_shares_out_what_is_activated_or_top_k():
    loads = [9, 1, 2, 4, 3, 1, 8, 4]  # 4 on average: T_n 40, T_g 8; vectors to the units 7 x 2
    answer = assigned(policy(prefill_experts="activated"), loads, phase="prefill", tokens=8)
    # 30 E + 8 E' + 14 = 3 + 40 (8 - E): 70 E + 8 E' = 309.
    assert answer.details["e_g"] == pytest.approx(4 + (309 - 280) / 74)
    assert answer.gpu[:4] == [0, 6, 3, 7]
    answer = assigned(policy(), loads, phase="prefill", tokens=8)
    # 70 E + 8 E' = 149.
    assert answer.details["e_g"] == pytest.approx(2 + (149 - 140) / 74)
    assert len(answer.ndp) == 6


def test_experts_that_are_there_go_to_the_gpu_up_to_equation_3():
    # 2 E = (4 - E) 10 + 3: E_max = 3.58.
    answer = assigned(policy(), [1, 1, 1, 1, 0, 0, 0, 0], resident=[1, 3, 5])
    assert (answer.gpu, answer.ndp) == ([1, 3], [0, 2])
    answer = assigned(policy(), [1, 1, 1, 1, 0, 0, 0, 0], resident=[0, 1, 2, 3])
    assert (answer.gpu, answer.ndp) == ([0, 1, 2], [3])


def test_experts_on_their_way_are_not_waited_for_unless_all_are():
    answer = assigned(policy(), [1, 1, 1, 1, 0, 0, 0, 0], arriving=[0, 1])
    assert answer.gpu == [2, Part(3, 5 / 64)]


# Prefetch


def background(made: Edge, layer: int, loads: Sequence[int], free: int, phase: str = "prefill") -> list[Any]:
    placement = placed(made, prefill=8)
    nothing = np.zeros((2, EXPERTS), np.bool_)
    view = views.BackgroundView(
        phase, 0, layer, 3 - layer, np.array(loads, np.int64), placement, nothing, free
    )
    return checked_migrations(made.name, view, made.background(view), made.machine)


def test_after_the_prefill_the_most_activated_experts_of_every_layer_are_copied():
    made = policy(gpu_experts=5)  # room for two of each of two layers
    assert not placed(made, prefill=8).resident.any()
    assert background(made, 1, [5, 0, 9, 0, 7, 0, 0, 0], 5) == []
    asked = background(made, 2, [0, 4, 0, 0, 0, 0, 6, 0], 5)
    assert [(one.kind, one.layer, one.expert, one.estimated_ns) for one in asked] == [
        ("prefetch", 1, 2, 30.0), ("prefetch", 2, 6, 30.0), ("prefetch", 1, 4, 30.0), ("prefetch", 2, 1, 30.0),
    ]  # fmt: skip
    assert background(made, 2, [0, 0, 9, 0, 0, 0, 0, 0], 5, phase="decode") == []


def test_top_k_experts_are_copied_where_there_is_room():
    for gpu_experts, each in (16, 4), (13, 4), (7, 3), (1, 0):
        made = policy(gpu_experts=gpu_experts, prefetch_experts="topk")
        background(made, 1, range(8), gpu_experts)
        assert len(background(made, 2, range(8), gpu_experts)) == 2 * each
    assert policy(gpu_experts=16, prefetch=False).prefetched == 0
    assert policy(gpu_experts=16).prefetched == 8


def test_without_a_prefill_the_offline_trace_says_what_is_there():
    placement = placed(policy(gpu_experts=5), ((3, 0, 9, 0, 2, 1, 0, 0), (0, 1, 2, 3, 4, 5, 0, 0)))
    assert np.argwhere(placement.resident).tolist() == [[0, 0], [0, 2], [1, 4], [1, 5]]


def test_contention_is_left_out_where_asked():
    assert policy().contention
    assert not policy(contention=False).contention


def test_it_keeps_to_the_rules_on_one_dimm():
    shape = replace(MODEL, routed_experts=32)
    tokens = np.arange(257.0)
    estimates = replace(
        ESTIMATES, gpu_ns=2 * tokens, cpu_ns=4 * tokens, ndp_ns=20 * tokens, sharded_ns=lambda _: 20 * tokens
    )
    one = views.Machine(shape, (1, 2, 3, 4), 1000, 1, (0,), 9, 2, has_cpu=False, has_links=False)
    assert check_policy("edge", one, estimates).migrations == {"prefetch": 8}


# In a run


@pytest.fixture(scope="module")
def on_two_dimms() -> dict[str, Any]:
    """A layer of DeepSeek-MoE on two DIMMs that the host reads, too, one token a step, nothing prefetched."""
    names = {
        "alone": "edge:balance=false,prefetch=false",
        "balanced": "edge:prefetch=false",
        "apart": "edge:prefetch=false,contention=false",
    }
    result = run_moe(
        "edge",
        "deepseek-moe-16b",
        tuple(names.values()),
        batch=1,
        steps=2,
        layers=(1,),
        sets=("dimm.count=2", "host.memory=null"),
    )
    return dict(zip(names, result.runs, strict=True))


def test_contention_takes_of_what_balance_gains(on_two_dimms):
    alone, balanced, apart = (on_two_dimms[name].moe_ns for name in ("alone", "balanced", "apart"))
    assert apart < 0.95 * alone
    assert apart < 0.95 * balanced
    for name in ("balanced", "apart"):
        run = on_two_dimms[name]
        assert 0.1 * 12 < run.experts["gpu_miss"] < 0.3 * 12
        assert run.experts["gpu_miss"] + run.experts["ndp"] == pytest.approx(12)
        assert run.pairs == 12


def test_it_leaves_out_of_its_estimate_what_the_equations_leave_out(on_two_dimms):
    alone, apart = (on_two_dimms[name] for name in ("alone", "apart"))
    assert alone.estimated_ns == pytest.approx(alone.moe_ns, rel=0.03)
    # Two copies share PCIe and arrive together: what the GPU computes then is not hidden behind a copy.
    assert 0.85 * apart.moe_ns < apart.estimated_ns < apart.moe_ns
