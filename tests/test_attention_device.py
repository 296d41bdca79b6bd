"""Attention and experts on devices with units in their banks, in layers and in serving."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from calls import call
from ndpsim.audit import check_schedule
from ndpsim.base.errors import InputError
from ndpsim.config import load_hardware
from ndpsim.config.banks import load_bank_hardware
from ndpsim.inference.layers.run import run_moe
from ndpsim.inference.processors import Processors, Step
from ndpsim.inference.processors.banks import AttentionDevices
from ndpsim.inference.processors.dense import operations
from ndpsim.inference.processors.layer_attention import simulate_layer_attention
from ndpsim.inference.processors.operations import MixedStep
from ndpsim.inference.serving.server import run_serving
from ndpsim.policies import Assignment, Policy
from ndpsim.simulate import bank_turns
from ndpsim.simulate.bank_operands import layouts_of, simulate_bank_attention, simulate_bank_expert, units_of
from ndpsim.simulate.bank_turns import AttentionTurns, bank_expert_token
from ndpsim.simulate.results.cache import ResultCache, digest_of
from ndpsim.studies.sweeps.run import sweep
from ndpsim.workload.models import Attention, Expert, Index, LinearAttention, load_model
from ndpsim.workload.requests import Requests

GROUPED = Attention(heads=16, kv_heads=4, head_size=64, value_size=64)
MODEL = dataclasses.replace(
    load_model("mixtral-8x7b"),
    name="small",
    hidden=1024,
    expert_intermediate=512,
    layers=2,
    moe_layers=2,
    attention=GROUPED,
    vocabulary=1000,
)
MACHINE = load_hardware("dgx-attacc")
CACHE = ResultCache(disk_bytes=0)
DEVICES = [("attacc", "bank"), ("attacc", "bankgroup"), ("attacc", "buffer"), ("aim", "bank")]


def devices(machine=MACHINE, model=MODEL, kv_bits=16) -> AttentionDevices:
    return AttentionDevices(machine, model, model.attention_kinds, kv_bits, CACHE)


def turns_of(hw, level="bank", sets=()) -> AttentionTurns:
    return AttentionTurns(load_bank_hardware(hw, [f"level={level}", *sets]), GROUPED, "small", CACHE)


def written_and_read(turns: AttentionTurns, contexts: list[int]) -> float:
    return turns.written_ns(contexts) + turns.time_ns(contexts)


def test_units_in_banks_do_not_choose_tokens():
    indexed = dataclasses.replace(GROUPED, index=Index(64, heads=2, size=16))
    with pytest.raises(InputError) as error:
        devices(model=dataclasses.replace(MODEL, attention=indexed))
    assert (error.value.code, error.value.key) == ("unsupported", "attention")


# ---- Turns


@pytest.mark.parametrize(("hw", "level"), DEVICES)
def test_contexts_that_round_up_alike_have_the_same_program(hw, level):
    device = load_bank_hardware(hw, [f"level={level}"])
    turns, layouts, units = turns_of(hw, level), layouts_of(device), units_of(device)
    step = turns.sizes.tokens
    for context in (1, 17, 255, 300):
        rounded = -(-context // step) * step
        programs = [
            list(layouts.turn(turns._operands(tokens), units, turns.sizes.slots))
            for tokens in (context, rounded)
        ]
        assert programs[0] == programs[1]
        assert list(layouts.turn(turns._operands(rounded + 1), units, turns.sizes.slots)) != programs[1]


@pytest.mark.parametrize(("hw", "level"), DEVICES)
def test_turns_add_up_to_one_program_of_all(hw, level):
    """The error of adding turns, which the docs state: at most 1.5%."""
    turns, model = turns_of(hw, level), dataclasses.replace(MODEL, attention=GROUPED)
    batch = 48 if hw == "attacc" else 64
    parts = batch * turns.sizes.parts
    whole = simulate_bank_attention(load_bank_hardware(hw, [f"level={level}"]), model, 320, batch).time_ns
    softmax_ns = turns._softmax_ns([320] * parts)
    assert turns.time_ns([320] * parts) == pytest.approx(whole + softmax_ns, rel=0.015)


LATENT = Attention(
    heads=12, kv_heads=12, head_size=96, value_size=64, query_rank=64, latent_rank=128, rope_size=32
)
LATENT_MODEL = dataclasses.replace(MODEL, attention=LATENT)


@pytest.mark.parametrize("level", ["bank", "bankgroup", "buffer"])
def test_turns_of_latent_vectors_add_up_to_one_program_of_all(level):
    hardware = load_bank_hardware("attacc", [f"level={level}"])
    turns = AttentionTurns(hardware, LATENT, "small", CACHE)
    assert turns.sizes[:3] == (1, 1, 16)
    whole = simulate_bank_attention(hardware, LATENT_MODEL, 320, 128).time_ns
    assert turns.time_ns([320] * 128) == pytest.approx(whole, rel=0.015)


def test_latent_vectors_go_through_a_layer():
    """By hand: a token's cache is 128 + 32 values; queries have as many in each of 12 heads, results 128."""
    found = devices(model=LATENT_MODEL)
    assert found.kept_bytes(0, 10) == 10 * 160 * 2
    done = found.attention(0, Step(7, 320), 0.0, 0.0)
    assert done.in_bytes == 7 * (12 * 160 + 160) * 2
    assert done.out_bytes == 7 * 12 * 128 * 2
    names = [one.name for one in operations(LATENT_MODEL, Step(7, 320), 16, found) if one.part == "attention"]
    assert "kv_b_proj" in names
    assert "attend" not in names
    run = run_moe(attention="ndp", **{**GIVEN, "model": LATENT_MODEL}).runs[0]
    assert run.utilization["banks"] > 0


def test_latent_vectors_have_no_layout_on_aim():
    with pytest.raises(InputError, match="MLA") as error:
        devices(load_hardware("aim-cards"), LATENT_MODEL)
    assert (error.value.code, error.value.key) == ("unsupported", "model")


def test_new_tokens_are_written_before_attention():
    turns, step = turns_of("attacc"), Step(20, 320)
    done = devices().attention(0, step, 0.0, 0.0)
    contexts = [320] * 16  # 80 heads of keys over five devices
    assert done.time_ns == written_and_read(turns, contexts)
    # By hand: a key and a value of 64 elements are 4 columns each.
    assert turns.written(512, 32).commands["WR"] == turns.written(512, 32).turns * 32 * 8
    assert 0 < turns.written_ns(contexts) < turns.time_ns(contexts) / 4


def test_softmax_beside_aim_by_hand():
    """CENT: 110 cycles of 0.5 ns for 512 scores, 18.25 for a query of a head."""
    turns, without = turns_of("aim"), turns_of("aim")
    without._hardware = dataclasses.replace(without._hardware, softmax={})
    more = turns.time_ns([300, 200]) - without.time_ns([300, 200])
    assert more == pytest.approx(16 * 0.5 * (500 * 110 / 512 + 2 * 18.25))


def test_moe_and_serve_have_one_rule_of_room():
    """AttAcc deals heads of keys over devices; blocks end where the fullest device is full."""
    found = devices()
    for sequences in (1, 3, 64):
        blocks = found.blocks(sequences, 16)
        most = blocks * 16 // sequences
        parts = -(-sequences * 4 // 5)
        assert parts * most * 2 * 64 * 2 * 4 * 2 <= found.device.capacity_bytes  # copies 4, two layers
        assert parts * (most + 32) * 2 * 64 * 2 * 4 * 2 > found.device.capacity_bytes
    assert found.blocks(1, 16) < found.blocks(64, 16)


def test_queries_that_share_reads_are_one_item():
    alone, shared = turns_of("attacc"), turns_of("attacc", sets=["vectors=2"])
    assert (alone.sizes.items, shared.sizes.items, shared.sizes.copies) == (4, 2, 2)
    whole = simulate_bank_attention(load_bank_hardware("attacc", ["vectors=2"]), MODEL, 640, 48).time_ns
    assert shared.time_ns([640] * 48 * 4) == pytest.approx(whole, rel=0.015)


def test_a_turn_without_refresh_is_its_program():
    turns = turns_of("attacc", sets=["refresh=none"])
    whole = simulate_bank_attention(
        load_bank_hardware("attacc", ["refresh=none"]), MODEL, 320, 2
    )  # 32 items: one turn
    assert turns.time_ns([320] * 8) == whole.time_ns
    assert turns.turn(320, 32).turns == 1


def test_a_turn_takes_the_context_of_its_longest_item():
    turns = turns_of("attacc")
    assert turns.sizes[:3] == (4, 4, 32)
    long, short = turns.turn(512, 32).time_ns, turns.turn(128, 32).time_ns
    # Eight parts of four items fill a turn.
    assert turns.time_ns([512] * 3 + [128] * 5) == long
    assert turns.time_ns([512] * 8 + [128] * 8) == pytest.approx(long + short)
    assert turns.time_ns([512] * 8 + [128]) == pytest.approx(long + turns.turn(128, 4).time_ns)


def test_times_grow_with_context_and_items():
    turns = turns_of("attacc")
    contexts = [turns.turn(context, 32).time_ns for context in (64, 256, 1024)]
    assert contexts == sorted(contexts)
    assert turns.time_ns([]) == 0.0 < turns.time_ns([256]) <= turns.time_ns([256] * 8)


# ---- Devices


def test_parts_are_dealt_over_devices_and_the_fullest_counts():
    machine = load_hardware("dgx-attacc", ["banks.count=3"])
    found = devices(machine).attention(0, MixedStep(((1, 512), (1, 128))), 0.0, 0.0)
    # Parts 0 to 3 are of the first sequence: devices 0, 1, 2, 0; 4 to 7 of the second: 1, 2, 0, 1.
    turns = turns_of("attacc")
    loads = [[512, 512, 128], [512, 128, 128], [512, 128]]
    assert found.time_ns == max(written_and_read(turns, contexts) for contexts in loads)
    numbered = devices(machine).attention(0, MixedStep(((1, 512), (1, 128)), numbers=(7, 3)), 0.0, 0.0)
    # 28 to 31: devices 1, 2, 0, 1; 12 to 15: 0, 1, 2, 0.
    loads = [[512, 128, 128], [512, 512, 128], [512, 128]]
    assert numbered.time_ns == max(written_and_read(turns, contexts) for contexts in loads)


def test_long_sequences_are_dealt_over_all_devices_part_by_part():
    # Every third of 18 sequences is long: as wholes they would all be on the first of three devices. Of their four
    # parts that device has two.
    machine, lengths = load_hardware("dgx-attacc", ["banks.count=3"]), [512, 128, 128] * 6
    found = devices(machine).attention(0, MixedStep(tuple((1, length) for length in lengths)), 0.0, 0.0)
    assert found.time_ns == written_and_read(turns_of("attacc"), [512] * 12 + [128] * 12)


def test_bytes_of_a_step_by_hand():
    found = devices().attention(0, Step(3, 100), 5.0, 0.0)
    queries, new = 3 * 16 * 64 * 2, 3 * 4 * (64 + 64) * 2
    assert (found.in_bytes, found.out_bytes) == (queries + new, 3 * 16 * 64 * 2)
    prompt = devices().attention(0, MixedStep(((10, 30), (1, 9))), 0.0, 0.0)
    assert prompt.in_bytes == 16 * 64 * 2 + 11 * 4 * 128 * 2
    assert prompt.out_bytes == 16 * 64 * 2 + 20 * 4 * 128 * 2  # the result, and 20 earlier tokens


def test_the_gpu_computes_the_rest_of_a_layer():
    processors, step = Processors(MACHINE), Step(8, 300)
    with_gpu = processors.step_time(MODEL, step)
    found = processors.step_time(MODEL, step, devices=devices())
    names = [one.name for one in found.operations if one.part == "attention"]
    assert names == ["norms", "qkv_proj", "cache_entries", "o_proj"]
    attend = next(one.time_ns for one in with_gpu.operations if one.name == "attend")
    of_layer = found.of_layer(0)
    assert of_layer.time_ns == pytest.approx(with_gpu.of_layer(0).time_ns - attend)
    assert of_layer.in_banks.beside_ns == 0.0
    assert found.attention_ns == pytest.approx(of_layer.time_ns + of_layer.in_banks.time_ns)


def test_prompts_attend_on_the_gpu_beside_the_devices():
    processors, mixed = Processors(MACHINE), MixedStep(((64, 64), (1, 300)))
    found = processors.step_time(MODEL, mixed, devices=devices()).of_layer(0)
    alone = processors.step_time(MODEL, Step(1, 64, 64)).operations
    attend = next(one.time_ns for one in alone if one.name == "attend")
    assert found.in_banks.beside_ns == pytest.approx(attend)
    turns = turns_of("attacc")
    assert found.in_banks.time_ns == turns.prompts_ns([64]) + written_and_read(turns, [300])


@pytest.mark.parametrize("device", ["attacc", "aim"])
def test_the_writes_of_a_prompt_take_as_long_as_those_of_its_last_tokens_for_each(device):
    turns = turns_of(device)
    items = turns.sizes.slots
    whole = turns.written(512, items, 512).time_ns
    assert turns.prompts_ns([512] * (items // turns.sizes.items)) == pytest.approx(whole, rel=0.05)
    assert turns.prompts_ns([300]) > turns.prompts_ns([256]) > 20 * turns.written_ns([256])


def test_a_window_has_fewer_tokens_to_attend_to():
    model = dataclasses.replace(MODEL, attention=dataclasses.replace(GROUPED, window=128))
    times = [devices(model=model).attention(0, Step(4, context), 0, 0).time_ns for context in (128, 4000)]
    assert times[0] == times[1] > devices(model=model).attention(0, Step(4, 64), 0, 0).time_ns


def test_linear_attention_stays_on_the_gpu():
    model = load_model("qwen3-next-80b-a3b")
    found = devices(model=model)
    held = [found.holds(kind) for kind in range(len(model.attention_kinds))]
    assert held == [not isinstance(kind, LinearAttention) for kind in model.attention_kinds]


def test_room_by_hand():
    """Keys and values of a head of AttAcc lie in a channel for each of its queries."""
    bytes_of_token = 2 * 4 * (4 * 128 * 2)  # two layers, four copies
    assert devices().block_bytes(16) == 16 * bytes_of_token
    assert devices().check_room(10, 100) == 10 * 100 * bytes_of_token
    capacity = 16 * 64 * 16384 * 1024
    assert devices().device.capacity_bytes == capacity
    of_part = 1 << 20  # 1,024 tokens: two layers of a head of keys
    most = 5 * capacity // (4 * of_part * 2)
    devices().check_room(most, 1024)
    with pytest.raises(InputError, match="need .* B of each device"):
        devices().check_room(most + 5, 1024)


# ---- Layers


class OnGpu(Policy):
    """All experts on the GPU, in whose memory they are."""

    name = "on-gpu"
    title = "all experts on the GPU"

    def place(self, view):
        placement = super().place(view)
        placement.resident[:] = True
        return placement

    def assign(self, view):
        return Assignment(gpu=np.flatnonzero(view.loads).tolist())


GIVEN = dict(
    hw=MACHINE, model=MODEL, policies=(OnGpu,), batch=8, steps=2, context=300, cache=CACHE, bounds=False
)


def test_windows_of_layers_by_hand():
    found, time = (
        run_moe(attention="ndp", **GIVEN),
        Processors(MACHINE).step_time(MODEL, Step(8, 300), kv="ndp", devices=devices()),
    )
    run, layer = found.runs[0], time.of_layer(0)
    links_ns = (layer.in_banks.in_bytes + layer.in_banks.out_bytes) / 300
    of_step = 2 * (layer.time_ns + layer.in_banks.time_ns + links_ns + time.router_ns) + time.head_ns
    assert run.time_ns - run.moe_ns == pytest.approx(2 * of_step)
    assert run.utilization["banks"] * run.time_ns == pytest.approx(4 * layer.in_banks.time_ns)
    assert run.utilization["banks-in"] * run.time_ns == pytest.approx(4 * layer.in_banks.in_bytes / 300)
    assert (found.config["attention"], found.config["kv"]) == ("ndp", "ndp")
    assert found.config["gpu_bytes"]["kv_cache"] == 0


def test_a_prompt_is_written_to_the_devices():
    without = run_moe(attention="ndp", **GIVEN).runs[0]
    found = run_moe(attention="ndp", prompt=64, **GIVEN).runs[0]
    in_bytes = 2 * 8 * 64 * 4 * 128 * 2  # two layers
    more_ns = (
        found.utilization["banks-in"] * found.time_ns - without.utilization["banks-in"] * without.time_ns
    )
    assert more_ns == pytest.approx(in_bytes / 300)


def test_devices_on_the_link_to_the_host_share_it():
    machine = load_hardware("dgx-attacc", ["banks.link_gbps=null"])
    own, shared = (run_moe(attention="ndp", **{**GIVEN, "hw": hw}).runs[0] for hw in (MACHINE, machine))
    assert "banks-in" not in shared.utilization
    assert shared.utilization["pcie-up"] > own.utilization["pcie-up"]
    assert shared.time_ns > own.time_ns


def test_policies_see_where_attention_is():
    seen = []

    class Looks(OnGpu):
        name = "looks"

        def place(self, view):
            seen.append((self.machine.attention, self.estimates.banks_ns, self.estimates.window_ns))
            return super().place(view)

    for attention in ("gpu", "ndp"):
        run_moe(attention=attention, **{**GIVEN, "policies": (Looks,)})
    (first, none, _), (second, banks_ns, window_ns) = seen
    assert (first, none, second) == ("gpu", 0.0, "ndp")
    assert banks_ns == devices().attention(0, Step(8, 300), 0, 0).time_ns < window_ns


def test_more_devices_are_faster_and_results_repeat():
    times = [
        run_moe(
            attention="ndp", **{**GIVEN, "batch": 40, "hw": load_hardware("dgx-attacc", [f"banks.count={n}"])}
        )
        .runs[0]
        .time_ns
        for n in (1, 2, 5)
    ]
    assert times == sorted(times, reverse=True)
    assert run_moe(attention="ndp", **GIVEN) == run_moe(attention="ndp", **GIVEN)


@pytest.mark.parametrize(
    ("changes", "code", "key"),
    [
        ({"hw": "trimoe"}, "missing", "banks"),
        ({"kv": "gpu"}, "conflict", "kv"),
        ({"kv_bits": 8}, "unsupported", "kv_bits"),
        ({"attention": "cpu"}, "unknown-name", "attention"),
        (
            {"hw": load_hardware("dgx-attacc", ["banks.device=aim"]), "model": LATENT_MODEL},
            "unsupported",
            "model",
        ),
        ({"model": dataclasses.replace(MODEL, attention=None)}, "missing", "model"),
        ({"batch": 2000, "context": 8192}, "too-large", "context"),
        ({"batch": 1, "context": 1 << 23}, "too-large", "context"),
        (
            {"hw": load_hardware("dgx-attacc", ["banks.device=aim", "banks.level=bankgroup"])},
            "unsupported",
            "engine",
        ),
        ({"hw": load_hardware("dgx-attacc", ["banks.device=hbm-pim"])}, "unsupported", "hw"),
    ],
)
def test_impossible_attention_is_refused_in_one_line(changes, code, key):
    with pytest.raises(InputError) as error:
        run_moe(**{**GIVEN, "attention": "ndp", **changes})
    assert (error.value.code, error.value.key) == (code, key)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("hw", "sets", "key"),
    [
        ("dgx-attacc", ["banks.device=atacc"], "banks.device"),
        ("dgx-attacc", ["banks.computes=experts"], "banks.computes"),
        ("aim-cards", ["banks.count=4"], "banks.count"),
        ("aim-cards", ["banks.device=attacc", "dimm.subchannels=16"], "banks.device"),
    ],
)
def test_impossible_devices_are_refused_at_their_place(hw, sets, key):
    with pytest.raises(InputError) as error:
        load_hardware(hw, sets)
    assert error.value.key == key


def test_a_turn_is_kept_by_all_that_it_depends_on(monkeypatch):
    """The key of each call differs from all others; nothing is simulated."""
    keys = []

    class Kept:
        def __init__(self, kind, cache, recording, given, labels):
            keys.append(digest_of(given))

        def find(self, *watching):
            return kept

    kept = bank_expert_token(load_bank_hardware("aim"), Expert(64, 32), CACHE)
    monkeypatch.setattr(bank_turns, "Lookup", Kept)
    usual = dict(heads=16, kv_heads=4, head_size=64, value_size=64)
    for device in (("aim", ()), ("attacc", ()), ("attacc", ("vectors=2",)), ("attacc", ("level=buffer",))):
        hardware = load_bank_hardware(*device)
        for changed in ({}, dict(heads=32), dict(kv_heads=8), dict(head_size=128, value_size=128)):
            turns = AttentionTurns(hardware, Attention(**{**usual, **changed}), "small", CACHE)
            for context, items in ((64, 1), (128, 1), (64, 2)):
                turns.turn(context, items)
        for expert in (Expert(64, 32), Expert(64, 64), Expert(128, 32)):
            bank_expert_token(hardware, expert, CACHE)
    assert len(set(keys)) == len(keys)


# ---- Serving


def test_serving_computes_the_attention_of_each_step():
    requests = Requests(np.zeros(2), np.array([40, 100]), np.array([4, 3]))
    given = dict(
        hw=MACHINE, model=MODEL, policy=OnGpu, requests=requests, cache=CACHE, async_scheduling=False
    )
    found = run_serving(attention="ndp", **given)
    machine = devices()
    # The prompts are one step, which writes them; each later step has a token of each running sequence.
    steps = [((40, 40), (100, 100)), ((1, 41), (1, 101)), ((1, 42), (1, 102)), ((1, 43),)]
    banks_ns = sum(2 * machine.attention(0, MixedStep(step), 0, 0).time_ns for step in steps)
    assert found.utilization["banks"] * found.time_ns == pytest.approx(banks_ns)
    assert found.config["kv"] == "ndp"
    assert found.config["kv_blocks"] == machine.blocks(2, 16)
    assert found.time_ns != run_serving(**given).time_ns


def test_a_request_longer_than_the_devices_is_refused():
    requests = Requests(np.zeros(1), np.array([2000]), np.array([4]))
    with pytest.raises(InputError, match="blocks") as error:
        run_serving(hw=MACHINE, model=MODEL, policy=OnGpu, requests=requests, attention="ndp", kv_blocks=10)
    assert error.value.key == "requests"
    with pytest.raises(InputError, match="room for") as error:
        run_serving(
            hw=MACHINE, model=MODEL, policy=OnGpu, requests=requests, attention="ndp", kv_blocks=1 << 30
        )
    assert error.value.key == "kv_blocks"
    with pytest.raises(InputError, match="swap") as error:
        run_serving(
            hw=MACHINE, model=MODEL, policy=OnGpu, requests=requests, attention="ndp", preemption="swap"
        )
    assert error.value.key == "preemption"


def test_gpus_that_hold_a_dense_model_have_devices_too():
    requests = Requests(np.zeros(1), np.array([64]), np.array([3]))
    given = dict(hw=MACHINE, model="llama-3.1-8b", requests=requests, cache=CACHE)
    found = run_serving(attention="ndp", **given)
    assert found.bottleneck["banks"] > 0
    with pytest.raises(InputError) as error:
        run_serving(attention="ndp", sets=["banks.link_gbps=null"], **{**given, "hw": "dgx-attacc"})
    assert error.value.key == "banks.link_gbps"


def test_attention_of_a_machine_by_hand(here):
    found = simulate_layer_attention(MACHINE, MODEL, 300, 8, cache=CACHE)
    of_devices = devices().attention(0, Step(8, 300), 0.0, 0.0)
    assert (found.engine, found.engine_ns) == ("bank", of_devices.time_ns)
    assert found.time_ns == pytest.approx(of_devices.time_ns + (found.in_bytes + found.out_bytes) / 300)
    on_gpu = simulate_layer_attention(MACHINE, MODEL, 300, 8, "gpu")
    done = Processors(MACHINE).step_time(MODEL, Step(8, 300)).operations
    assert on_gpu.time_ns == next(one.time_ns for one in done if one.name == "attend")
    said = call("attention", "--hw", "dgx-attacc", "--model", "mixtral-8x7b", "--context", "128", "--engine",
                "bankgroup", "--json", "a.json")  # fmt: skip
    assert said.status == 0
    assert json.loads((here / "a.json").read_text())["engine"] == "bankgroup"
    refused = call("attention", "--hw", "attacc", "--model", "mixtral-8x7b", "--engine", "gpu")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    refused = call("attention", "--hw", "trimoe", "--model", "mixtral-8x7b")
    assert (refused.status, refused.err.count("\n")) == (2, 1)


# ---- Experts


class OnCards(OnGpu):
    """All experts on cards, in turn."""

    name = "on-cards"
    title = "all experts on cards"

    def place(self, view):
        placement = Policy.place(self, view)
        placement.dimm[:] = np.arange(placement.dimm.shape[1]) % self.machine.dimms
        return placement

    def assign(self, view):
        return Assignment(ndp=np.flatnonzero(view.loads).tolist())


def test_experts_in_banks_take_the_time_of_their_program(tmp_path):
    cards, log = load_hardware("aim-cards"), tmp_path / "log.jsonl"
    token_ns = bank_expert_token(cards.bank_device, MODEL.expert, CACHE).time_ns
    once = simulate_bank_expert(cards.bank_device, MODEL.expert, 16).time_ns
    assert token_ns == pytest.approx(once / 16, rel=0.02)
    layers = []
    given = {
        **GIVEN,
        "hw": cards,
        "policies": (OnCards,),
        "observer": lambda run, layer: layers.append(layer),
    }
    found = run_moe(attention="ndp", **given).runs[0]
    jobs = [job for layer in layers for job in layer.jobs if job.resource.startswith("ndp")]
    assert jobs
    for job in jobs:
        vectors_ns = 2 * (500 + job.tokens * 1024 * 2 / 31.508)
        assert job.end_ns - job.start_ns == pytest.approx(job.tokens * token_ns + vectors_ns)
    assert found.pairs_by_engine["ndp"] == found.pairs
    assert found.bottleneck["ndp"] > 0.5
    call("moe", "--hw", "aim-cards", "--model", "mixtral-8x7b", "--layers", "0", "--batch", "4", "--steps", "1",
         "--policy", "monde", "--log", log)  # fmt: skip
    assert check_schedule(log).ok


def test_experts_and_cache_share_the_banks():
    cards = load_hardware("aim-cards")
    with pytest.raises(InputError, match="all 8 DIMMs needs"):
        run_moe(
            attention="ndp",
            **{**GIVEN, "hw": cards, "model": "mixtral-8x7b", "policies": ("monde",), "batch": 128,
               "context": 3000, "steps": 1},
        )  # fmt: skip


def test_experts_in_banks_refuse_what_units_cannot():
    given = {**GIVEN, "hw": load_hardware("aim-cards"), "policies": (OnCards,)}
    for changes, key in (({"bits": 8}, "bits"), ({"check_layer": (0, 0)}, "check_layer")):
        with pytest.raises(InputError) as error:
            run_moe(**{**given, **changes})
        assert error.value.key == key


# ---- Sweeps, pictures and reports


def test_sweeps_of_units_in_banks(tmp_path):
    attention = sweep(
        "attention", vary={"engine": ["bank", "bankgroup"], "context": [64, 128]},
        fixed={"model": "mixtral-8x7b", "timings.nCCDAB": 4}, jobs=1, out=tmp_path / "a",
    )  # fmt: skip
    device = load_bank_hardware("attacc", ["nCCDAB=4", "level=bankgroup"])
    last = simulate_bank_attention(device, "mixtral-8x7b", 128)
    rows = attention.rows
    assert len(rows) == 4
    assert rows[-1]["time_ns"] == last.time_ns
    gemv = sweep(
        "gemv", vary={"tokens": [1, 2]}, fixed={"hw": "aim", "shape": "512,256", "device.channels": 8}, jobs=1,
        out=tmp_path / "b",
    )  # fmt: skip
    expert = simulate_bank_expert(load_bank_hardware("aim", ["channels=8"]), Expert(512, 256), 2)
    assert gemv.rows[-1]["cycles"] == expert.cycles


@pytest.mark.parametrize(
    "command",
    [
        ("attention", "--hw", "attacc", "--model", "mixtral-8x7b", "--context", "64"),
        ("gemv", "--hw", "aim", "--shape", "512,256"),
    ],
)
def test_pictures_reports_and_the_check(here, command):
    done = call(*command, "--plot", "p.svg", "--report", "r.html", "--check", "--json", "j.json")
    assert done.status == 0
    assert "violations 0" in done.err
    assert (here / "p.svg").stat().st_size > 5000
    assert "what is assumed" in (here / "r.html").read_text()
    assert json.loads((here / "j.json").read_text())["unit_bytes"] > 0


def test_an_illegal_run_exits_with_1(here):
    command = (
        "attention",
        "--hw",
        "attacc",
        "--model",
        "mixtral-8x7b",
        "--context",
        "64",
        "--engine",
        "bankgroup",
    )
    done = call(*command, "--rules", "reference", "--check")
    assert done.status == 1
    assert "violations 0" not in done.err


def test_an_engine_that_a_device_lacks_is_refused():
    with pytest.raises(InputError, match="no units at a bankgroup") as error:
        simulate_bank_attention(load_bank_hardware("aim", ["level=bankgroup"]), "mixtral-8x7b", 64)
    assert error.value.key == "engine"
