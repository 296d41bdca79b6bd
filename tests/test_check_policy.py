"""check_policy: valid policies pass, and each kind of violation is named."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest

import ndpsim
from mistakes import mistake_of
from ndpsim.base.errors import InputError
from ndpsim.policies import (
    Assignment,
    Migration,
    Placement,
    Policy,
    check_policy,
    policies,
    policy_names,
)

DOCUMENTED = Path(__file__).parent.parent / "docs" / "policies.md"


class OnCpu(Policy):
    """All experts on the CPU."""

    name = "mine"

    def assign(self, view):
        return Assignment(cpu=np.flatnonzero(view.loads))


@pytest.mark.parametrize("name", policy_names())
def test_bundled_policies_keep_to_the_rules(name):
    found = check_policy(name)
    assert (found.policy, found.layers) == (name, 20)
    assert found.parameters


def variants() -> Iterator[str]:
    """Each name, flag and limit that a parameter of a bundled policy may have; all others have their defaults."""
    for name, policy in policies().items():
        for key, field in policy.Parameters.model_fields.items():
            kinds = [field.annotation, *get_args(field.annotation)]
            values = [one for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)]
            values += ["true", "false"] * (bool in kinds)
            values += [
                getattr(of, limit) for of in field.metadata for limit in ("ge", "le") if hasattr(of, limit)
            ]
            yield from (f"{name}:{key}={value}" for value in values if value != field.default)


@pytest.mark.parametrize(
    "asked",
    [
        *variants(),
        "balance:splits=0,prefetch=false",
        "cache:multi_row=cache,replacement=fifo,protect=false,ways=2",
        "cache:multi_row=cache,replacement=counter,in_flight=miss,quota=none",
        "cxl:gpu_experts_per_layer=1,alpha=1,migration=during",
        "dali:evict=topk,first=fire,w=1,u=2",
        "dali:w=2,u=32,accuracy=0.2,prefetch=9",
        "edge:prefetch_experts=topk,prefill_experts=activated",
        "enhanced-ktransformers:hot=cheaper,residents=none",
        "fiddler:objective=max,constants=code,overlap=true",
        "hobbit:low_bits=3,prefetch=9,accuracy=0,layer_distance=printed",
        "hybrimoe:prefetch_size=3,cache_share=0.06,rows=all",
        "hybrimoe:schedule=threshold,threshold=6",
        "moe-lightning:variant=placement,gpu_share=0",
        "monde:residents=none,variant=dynande",
        "monde:placement=cyclic,variant=bandwidth,residents=none,contention=false",
        "monde:migrations=0.05,residents=none",
    ],
)
def test_every_value_of_a_parameter_keeps_to_the_rules(asked):
    try:
        assert len(check_policy(asked).checks) >= 3
    except InputError as error:
        # A value may exclude the default of another parameter, or need more memory than a GPU without room has.
        assert error.code in ("invalid", "too-large")


def test_the_documented_example_keeps_to_the_rules_and_does_what_it_says(tmp_path):
    code = re.findall(r"```python\n(.*?)```", DOCUMENTED.read_text(), re.DOTALL)[0]
    assert len(code.splitlines()) <= 40
    file = tmp_path / "threshold.py"
    file.write_text(code)
    found = ndpsim.check_policy(f"{file}:Threshold:tokens=64")
    assert found.parameters == {"gpu_order": "listed", "tokens": 64}
    assert found.migrations["prefetch"] == 12  # as many as the GPU has room for
    assert found.checks == (
        "every answer is legal",
        "the same inputs get the same answers",
        "what comes later changes no answer",
        "a GPU without room for experts is no obstacle",
    )


# One violation each


class Exits(OnCpu):
    def assign(self, view):
        sys.exit(3)


class LeavesOneOut(OnCpu):
    def assign(self, view):
        return Assignment(cpu=np.flatnonzero(view.loads)[1:])


class Writes(OnCpu):
    def assign(self, view):
        view.loads[0] = 0
        return super().assign(view)


class MakesWritable(OnCpu):
    def background(self, view):
        view.placement.dimm.setflags(write=True)


class Fails(OnCpu):
    def background(self, view):
        return {}[view.layer]


class FailsAtOnce(OnCpu):
    def __init__(self, machine, estimates, parameters):
        raise RuntimeError("no")


class PredictsNonsense(OnCpu):
    def prediction(self):
        return 0.78


class FetchesTooMuch(OnCpu):
    def background(self, view):
        return [Migration("fetch", view.next_layer, expert) for expert in range(view.gpu_free + 1)]


class GivesUpWhatIsInUse(OnCpu):
    moments = ("gate", "end")

    def place(self, view):
        lies = super().place(view)
        lies.resident[0, :8] = True
        return lies

    def assign(self, view):
        active = np.flatnonzero(view.loads)
        there = view.placement.resident[active]
        return Assignment(gpu=active[there], cpu=active[~there])

    def background(self, view):
        if view.moment == "end" or not view.in_use.any():
            return []
        return [Migration("evict", view.layer, int(np.flatnonzero(view.in_use)[0]))]


class KeepsBeside(OnCpu):
    moments = ("gate",)

    def background(self, view):
        return [Migration("keep", view.layer, 0)]


class LooksAheadBeside(OnCpu):
    """At its gate, it prefetches what has most tokens in the layer that is yet to come."""

    moments = ("gate", "end")

    def background(self, view):
        frame = sys._getframe(1)
        while "following" not in frame.f_locals:
            frame = frame.f_back
        if view.moment == "end" or view.gpu_free < 1:
            return []
        expert = int(np.argmax(frame.f_locals["following"].loads))
        there = view.placement.resident[self.row[view.next_layer], expert] or view.moving.any()
        return [] if there else [Migration("prefetch", view.next_layer, expert)]


class MovesTwice(OnCpu):
    def background(self, view):
        return [Migration("relayout", view.next_layer, 0, 2)] * 2


class HoldsTooMuch(OnCpu):
    def place(self, view):
        lies = Placement.striped(len(self.machine.layers), self.machine.model.routed_experts)
        lies.resident[:] = True
        return lies


class CountsRuns(OnCpu):
    """It remembers, from run to run, how often it was asked."""

    asked = itertools.count()

    def assign(self, view):
        active = np.flatnonzero(view.loads)
        return Assignment(cpu=np.roll(active, next(self.asked) % 7))


class IsRandom(OnCpu):
    def assign(self, view):
        return Assignment(cpu=np.random.default_rng().permutation(np.flatnonzero(view.loads)))


class LooksAhead(OnCpu):
    """It finds the caller's trace, and orders experts by the tokens of a layer that is yet to come."""

    def assign(self, view):
        frame = sys._getframe(1)
        while "moments" not in frame.f_locals:
            frame = frame.f_back
        active = np.flatnonzero(view.loads)
        return Assignment(cpu=active[np.argsort(frame.f_locals["moments"][-1].loads[active])])


class LooksAheadOnce(LooksAhead):
    def assign(self, view):
        late = view.phase == "decode" and view.step == 1
        return super().assign(view) if late else OnCpu.assign(self, view)


class NeedsRoom(OnCpu):
    def place(self, view):
        lies = Placement.striped(len(self.machine.layers), self.machine.model.routed_experts)
        lies.resident[0, 0] = True
        return lies


class SeesTheFutureUnsaid(OnCpu):
    def background(self, view):
        assert view.next_loads is not None, "no next loads"


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (LeavesOneOut, "policy policy mine: prefill, layer 1"),
        (Writes, "policy policy mine: prefill, layer 1: assign"),
        (MakesWritable, "policy policy mine: prefill, layer 1: background"),
        (Fails, "policy policy mine: prefill, layer 1: background"),
        (FailsAtOnce, "policy policy mine: __init__"),
        (PredictsNonsense, "policy policy mine: prediction"),
        (FetchesTooMuch, "policy policy mine: after prefill, layer 1"),
        (GivesUpWhatIsInUse, "policy policy mine: beside prefill, layer 1"),
        (KeepsBeside, "policy policy mine: beside prefill, layer 1"),
        (LooksAheadBeside, "policy policy mine: step 1, layer 3: background at its gate"),
        (MovesTwice, "policy policy mine: after prefill, layer 1"),
        (HoldsTooMuch, "policy policy mine: place"),
        (CountsRuns, "policy policy mine: prefill, layer 1: assign"),
        (IsRandom, "policy policy mine: prefill, layer 1: assign"),
        (LooksAhead, "policy policy mine: prefill, layer 1: assign"),
        (LooksAheadOnce, "policy policy mine: step 1, layer 1: assign"),
        (NeedsRoom, "policy policy mine: place"),
        (SeesTheFutureUnsaid, "policy policy mine: prefill, layer 1: background"),
        (Exits, "policy policy mine: prefill, layer 1: assign"),
    ],
)
def test_what_breaks_a_rule_is_named(policy, words):
    assert mistake_of(check_policy, policy) == words


def test_who_sees_the_future_is_shown_the_next_loads_and_is_not_held_against_it():
    seen = []

    class Seer(OnCpu):
        sees_the_future = True

        def background(self, view):
            seen.append(view.next_loads)
            return ()

    assert "what comes later changes no answer" not in check_policy(Seer).checks
    assert all(loads.sum() > 0 for loads in seen)
    assert len(seen) == 60
