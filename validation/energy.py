"""Writes energy.md: what the energy model makes of the loops and examples that data sheets have currents of.

Run in the checkout: python validation/energy.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ndpsim.dram.energy import Currents, find_currents, from_trace
from ndpsim.dram.spec import Device, command_names, resolve
from ndpsim.dram.traces import CommandTrace

NUMBER = {name: number for number, name in enumerate(command_names())}
Command = tuple[int, str, int, int]  # clock, name, bank group, bank

KNOWN = (
    ("DDR4", "DDR4_8Gb_x4", "DDR4_2400R"),
    ("DDR4", "DDR4_8Gb_x4", "DDR4_3200AA"),
    ("DDR4", "DDR4_8Gb_x8", "DDR4_2400R"),
    ("DDR4", "DDR4_8Gb_x8", "DDR4_2666U"),
    ("DDR4", "DDR4_8Gb_x8", "DDR4_2933Y"),
    ("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA"),
    ("DDR4", "DDR4_8Gb_x16", "DDR4_2400R"),
    ("DDR4", "DDR4_8Gb_x16", "DDR4_2666U"),
    ("DDR4", "DDR4_8Gb_x16", "DDR4_3200AA"),
    ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN"),
    ("DDR5", "DDR5_32Gb_x8", "DDR5_4800AN"),
)

_DDR4 = Currents(
    part="", source="", VDD=1.2, VDDQ=1.2, VPP=2.5, IDD0=0, IDD2N=0, IDD3N=0, IDD4R=0, IDD4W=0, IDD5B=0,
    IPP0=0, IPP2N=3, IPP3N=3, IPP5B=28, activate_ns=32, precharge_ns=0, refresh_ns=350, driver_ohm=34,
    termination_ohm=48,
)  # fmt: skip
# Part, device, its currents, and IDD1, IDD7 and IPP7 of the same table. The tables are of modules: of 9 chips
# with 9 more in IDD2P (25 mA) and IPP3N, and of 4 chips.
_X8 = replace(
    _DDR4, IDD0=48, IDD2N=34, IDD3N=43, IDD4R=135, IDD4W=123, IDD5B=250, IPP0=3, precharge_ns=14.16
)  # fmt: skip
_X16 = replace(
    _DDR4, IDD0=80, IDD2N=34, IDD3N=47, IDD4R=243, IDD4W=228, IDD5B=280, IPP0=4, precharge_ns=14.16
)  # fmt: skip
_X16_2666 = replace(
    _DDR4, IDD0=85, IDD2N=35, IDD3N=50, IDD4R=263, IDD4W=244, IDD5B=280, IPP0=4, precharge_ns=14.25
)  # fmt: skip
_X16_PRESET = ("DDR4", "DDR4_8Gb_x16")
SHEETS = (
    ("MT40A1G8 (x8), 2400 MT/s [1]", resolve("DDR4", "DDR4_8Gb_x8", "DDR4_2400R"), _X8, 59, 175, 15),
    ("MT40A512M16 (x16), 2400 MT/s [2]", resolve(*_X16_PRESET, "DDR4_2400R"), _X16, 100, 249, 15),
    ("MT40A512M16 (x16), 2666 MT/s [2]", resolve(*_X16_PRESET, "DDR4_2666U"), _X16_2666, 105, 259, 15),
)

# Micron's DDR3_Power_Calc.xlsm, 2 Gb x8 -125E at 1.5 V, as in the tests of energydram: mW of one chip.
DDR3 = replace(
    _DDR4, VDD=1.5, VPP=0, IDD0=95, IDD2N=42, IDD3N=45, IDD4R=180, IDD4W=185, IDD5B=215, activate_ns=35,
    precharge_ns=12.5, refresh_ns=160,
)  # fmt: skip
CALCULATED = {"PRE_STBY": 63.0, "ACT_STBY": 67.5, "ACT": 76.2, "RD": 202.5, "WR": 210.0, "REF": 5.2}
REFRESH_INTERVAL_NS = 7800

# Micron's DDR4_Power_Calc.xlsm, likewise: mW of a data pin at the controller, in the chip that is read or
# written and in the other rank; ohms of driver, board, other rank and far end.
READ_PIN, READ_OHM = 2.4 + 7.8 + 2.3 + 4.6 + 1.1, (34 + 10, 10 + 40, 120)
WRITE_PIN, WRITE_OHM = 10.0 + 2.7 + 0.2 + 6.1 + 1.5, (34, 10 + 40, 10 + 120)


# ---- Loops: commands of one period, and its clocks


def idle(device: Device) -> tuple[list[Command], int]:
    return [], 1000


def cycled(device: Device, chip: Currents, read: bool = False) -> tuple[list[Command], int]:
    """IDD0, or IDD1: a row opened, read once, closed."""
    opened, closed = clocks(device, chip.activate_ns), clocks(device, chip.precharge_ns)
    reads = [(device.timings["nRCD"], "RD", 0, 0)] if read else []
    return [(0, "ACT", 0, 0), *reads, (opened, "PREpb", 0, 0)], opened + closed


def refreshed(device: Device, chip: Currents) -> tuple[list[Command], int]:
    return [(0, "REFab", -1, -1)], clocks(device, chip.refresh_ns)


def interleaved(device: Device, places: int = 0) -> tuple[list[Command], int]:
    """IDD7: every bank opened and read with auto-precharge, nRRD apart, four in nFAW.

    `places`: for how many banks the loop has time, by default as many as there are.
    """
    times, commands = device.timings, list[Command]()
    for number in range(device.banks_per_rank):
        at = number // 4 * times["nFAW"] + number % 4 * times["nRRDS"]
        # Two bank groups in turn, then the two others.
        group = number // 8 * 2 + number % 2
        bank = number % 8 // 2
        # Additive latency lets RDA follow its ACT by a clock; it takes effect nRCD after it.
        commands += [(at, "ACT", group, bank), (at + times["nRCD"], "RDA", group, bank)]
    return commands, max((places or device.banks_per_rank) // 4 * times["nFAW"], times["nRC"])


def streamed(device: Device, command: str) -> tuple[list[Command], int]:
    return [(0, command, 0, 0)], device.standard.prefetch // 2


def clocks(device: Device, ns: float) -> int:
    return math.ceil(ns * 1000 / float(device.clock_ps) - 1e-6)


def in_clocks(device: Device, chip: Currents) -> Currents:
    """With the times of loops rounded up to clocks."""
    names = ("activate_ns", "precharge_ns", "refresh_ns", "same_bank_refresh_ns")
    tck_ns = float(device.clock_ps / 1000)
    times = {name: ns for name in names if (ns := getattr(chip, name)) is not None}
    return replace(chip, **{name: clocks(device, ns) * tck_ns for name, ns in times.items()})


def power_mw(
    device: Device, chip: Currents, loop: tuple[list[Command], int], opened: bool = False
) -> dict[str, float]:
    """The mean power of a chip while the loop runs, by component, in mW.

    `opened`: all banks are open from clock 0. The second ten of twenty rounds are looked at.
    """
    commands, period = loop
    lines = sorted((round_ * period + at, *what) for round_ in range(20) for at, *what in commands)
    if opened:
        places = [(g, b) for g in range(device.bankgroups) for b in range(device.banks_per_group)]
        lines = [(0, "ACT", *place) for place in places] + lines
    energies = []
    for end in (10 * period, 20 * period):
        rows = [(at, NUMBER[name], 0, *place, -1, -1) for at, name, *place in lines if at < end]
        trace = CommandTrace.of(np.array(rows, dtype=np.int64).reshape(-1, 7).T)
        energy = from_trace(trace, device, chip, end=end)
        assert energy is not None
        energies.append(energy)
    ns = 10 * period * float(device.clock_ps / 1000)
    each = 1000 / ns / device.devices_per_rank
    return {name: each * ((later or 0) - (energies[0][name] or 0)) for name, later in energies[1].items()}


def core_mw(power: dict[str, float]) -> float:
    """Without the data pins, which draw from VDDQ."""
    return power["total"] - power["io"]


# ---- The three tables


def measured(device: Device, chip: Currents) -> Iterator[tuple[str, float, float]]:
    """The loops that the currents are of: name, data sheet's mW, ours."""

    def sheet(idd: float, ipp: float | None, standby: float) -> float:
        return idd * chip.VDD + (standby if ipp is None else ipp) * chip.VPP

    same_bank = [(0, "REFsb", -1, 0)], clocks(device, chip.same_bank_refresh_ns or 1)
    loops = [
        ("IDD0", sheet(chip.IDD0, chip.IPP0, 0), cycled(device, chip), False),
        ("IDD2N", sheet(chip.IDD2N, chip.IPP2N, 0), idle(device), False),
        ("IDD3N", sheet(chip.IDD3N, chip.IPP3N, 0), idle(device), True),
        ("IDD4R", sheet(chip.IDD4R, chip.IPP4R, chip.IPP3N), streamed(device, "RD"), True),
        ("IDD4W", sheet(chip.IDD4W, chip.IPP4W, chip.IPP3N), streamed(device, "WR"), True),
        ("IDD5B", sheet(chip.IDD5B, chip.IPP5B, chip.IPP2N), refreshed(device, chip), False),
    ]
    if chip.IDD5C is not None:
        loops.append(("IDD5C", sheet(chip.IDD5C, None, chip.IPP2N), same_bank, False))
    for name, mw, loop, opened in loops:
        yield name, mw, core_mw(power_mw(device, in_clocks(device, chip), loop, opened))


def predicted(
    device: Device, chip: Currents, IDD1: float, IDD7: float, IPP7: float
) -> Iterator[tuple[str, float, float, float]]:
    """The loops that no current of the model is of: name, data sheet, ours, by TN-40-07: mA or mW."""
    chip = in_clocks(device, chip)
    loops = [
        ("IDD1", IDD1, chip.IPP0, cycled(device, chip, read=True)),
        ("IDD7", IDD7, IPP7, interleaved(device)),
    ]
    if device.banks_per_rank < 16:
        loops.append(("IDD7, half of it idle", IDD7, IPP7, interleaved(device, 16)))
    for name, limit, ipp, loop in loops:
        vdd = core_mw(power_mw(device, replace(chip, VPP=0), loop)) / chip.VDD
        both = core_mw(power_mw(device, chip, loop))
        micron = by_micron(device, chip, loop)
        yield f"{name}, mA", limit, vdd, micron
        supplies = [of * chip.VDD + more * chip.VPP for of, more in ((limit, ipp), (micron, chip.IPP0))]
        yield f"{name}, mW with VPP", supplies[0], both, supplies[1]


def by_micron(device: Device, chip: Currents, loop: tuple[list[Command], int]) -> float:
    """The mean on VDD in mA as TN-40-07 has it: any open bank draws IDD3N, and an ACT what is above it."""
    commands, period = loop
    ns = period * float(device.clock_ps / 1000)
    activates = sorted(at for at, command, *_ in commands if command == "ACT")
    opened = clocks(device, chip.activate_ns)
    until = [
        min(later - at, opened)
        for at, later in zip(activates, [*activates[1:], period + activates[0]], strict=True)
    ]
    open_ns = sum(until) * float(device.clock_ps / 1000)
    row_ns, burst_ns = chip.activate_ns + chip.precharge_ns, device.standard.prefetch / 2 * ns / period
    act = chip.IDD0 * row_ns - chip.IDD3N * chip.activate_ns - chip.IDD2N * chip.precharge_ns
    read = (chip.IDD4R - chip.IDD3N) * burst_ns
    return chip.IDD2N + ((chip.IDD3N - chip.IDD2N) * open_ns + len(activates) * (act + read)) / ns


def calculated() -> Iterator[tuple[str, float, float]]:
    """Micron's calculator for DDR3: state, mW with the standby that it adds it to, ours."""
    device = resolve("DDR4", "DDR4_8Gb_x8", "DDR4_1600J")  # the clock and burst of DDR3-1600
    chip, of = in_clocks(device, DDR3), CALCULATED
    open_share = chip.activate_ns / (chip.activate_ns + chip.precharge_ns)
    standby = open_share * of["ACT_STBY"] + (1 - open_share) * of["PRE_STBY"]
    interval = [(0, "REFab", -1, -1)], clocks(device, REFRESH_INTERVAL_NS)
    for name, mw, loop, opened in (
        ("PRE_STBY", of["PRE_STBY"], idle(device), False),
        ("ACT_STBY", of["ACT_STBY"], idle(device), True),
        ("ACT + standby", of["ACT"] + standby, cycled(device, chip), False),
        ("RD + ACT_STBY", of["RD"] + of["ACT_STBY"], streamed(device, "RD"), True),
        ("WR + ACT_STBY", of["WR"] + of["ACT_STBY"], streamed(device, "WR"), True),
        ("REF + PRE_STBY", of["REF"] + of["PRE_STBY"], interval, False),
    ):
        yield name, mw, core_mw(power_mw(device, chip, loop, opened))


def pins() -> Iterator[tuple[str, float, float]]:
    """A line that is low, both ends and the other rank: mW by Micron's calculator, and VDDQ^2 / ohms."""
    for name, mw, (driver, other, end) in (("read", READ_PIN, READ_OHM), ("write", WRITE_PIN, WRITE_OHM)):
        yield name, mw, 1000 * 1.2**2 / (driver + other * end / (other + end))


TEXT = """\
# Energy against loops of data sheets

Made by `python validation/energy.py`. [drampower.md](drampower.md) compares with another program.

## Loops that the model uses

JESD79-4 and JESD79-5 prescribe a loop of commands for each current. Run as a trace, each of the {loops}
loops of {parts} parts draws what its data sheet says, to rounding{worst}. Times are rounded up to clocks.
This shows that no current is counted twice or missing.

## Loops that the model does not use

IDD1 (open a row, read once, close it) and IDD7 (all banks in turn, as fast as tFAW allows, with a read
each) are not inputs of the model; data sheets give their limits. *TN-40-07*: counted as in Micron's
calculators, where one open bank draws all of IDD3N. No tolerance was set beforehand.

| part | loop | data sheet | ours | error | TN-40-07 | error |
|---|---|---|---|---|---|---|
{predicted}

Limits are not additive, so their sum is not a strict bound: a read after an ACT may draw 6 to 8% more
than the sum from IDD0 and IDD4R. With all banks of a x8 part at work, ndpsim is a fifth above the limit
on VDD, because it assumes that an ACT costs the same with other banks open as alone. On VPP it is below,
because IPP0 is low against IPP7. On both together it is 5% above the limit, and TN-40-07 is 16% below.
The difference is what an ACT costs with other banks open, which no data sheet states (see `factRho` in
drampower.md). For the x16 part, IDD7 is far below both figures from IDD0, unless half of the loop is
idle. Its tables define that half for x4 and x8 parts only, and do not say what a x16 part does in it.
This comparison therefore decides nothing.

Limits: [1] Micron MTA18ASF2G72HZ (asf18c2gx72hz.pdf, Rev. F 8/16), Table 15, page 19, die revision B: 9
chips in the loop and 9 in IDD2P (25 mA) and IPP3N (3 mA), whose share is taken off; [2] MTA4ATF51264AZ
(atf4c512x64az.pdf, Rev. B 8/16), Table 13, page 16, die revision B: 4 chips. Loops: Alliance AS4C256M16D4
(Rev. 1.0 8/2019), Tables 83 and 90, pages 171 and 178, in the form of JESD79-4. tRP of the bins: Micron's
module data sheets, Table 1. [1] has the currents of `ndpsim/dram/energy/devices/micron_mt40a.py` for this
part and rate, {IPP5B}.

## Micron's calculators

`DDR3_Power_Calc.xlsm`, 2 Gb x8 -125E at 1.5 V, mW of one chip, as the tests of energydram
(gaomy3832/energydram, `tests/test_energy_ddr.py`) quote it to 0.1 mW. The calculator gives powers above
standby; the table includes the standby. Run as traces with its currents:

| state | calculator | ours | error |
|---|---|---|---|
{calculated}

For a refresh with closed banks the calculator subtracts IDD3N, although the standby is IDD2N:
{refresh_mw:.2f} mW less here.

`DDR4_Power_Calc.xlsm`, a data pin with two ranks and its default resistances (34 ohm drivers, 10 ohm on
the board, RTT 40 and 120 ohm; `tests/test_termination.py` of the same), both ends and the other rank
together, and VDDQ^2 over driver and termination as `ndpsim.dram.energy` has it for a line that is low:

| pin | calculator | VDDQ^2 / ohm | error |
|---|---|---|---|
{pins}

The calculator gives these as the power of a pin. ndpsim assumes that half of the bits are low, and
counts half of it.

## Not done

- TN-40-07 ends with an example of 408.3 mW a DRAM (quoted by Cloud Carbon Footprint's methodology). Its
  currents and shares were not available, nor were the examples of TN-41-01, TN-46-03 and TN-47-04.
- DDR5: no document with a worked example was found, nor IDD7 of the part with known currents. IDD5C is
  the only loop that DDR5 has and DDR4 has not.
- Measured modules: none was compared. Data sheets give limits for the most power-hungry device; the
  power of a real device depends on the device and on the data (Ghose et al., SIGMETRICS 2018).
"""


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _compared(name: str, other: float, ours: float) -> str:
    return _row(name, f"{other:.1f}", f"{ours:.2f}", _error(ours, other))


def _error(ours: float, other: float) -> str:
    return f"{round(100 * (ours / other - 1), 1) + 0.0:+.1f}%"  # no -0.0


def text() -> str:
    """energy.md."""
    rows = []
    for name, device, chip, *limits in SHEETS:
        for loop, limit, ours, micron in predicted(device, chip, *limits):
            cells = (
                f"{limit:.1f}",
                f"{ours:.1f}",
                _error(ours, limit),
                f"{micron:.1f}",
                _error(micron, limit),
            )
            rows.append(_row(name, loop, *cells))
    errors = [abs(ours / mw - 1) for _, mw, ours in _all_measured()]
    return TEXT.format(
        loops=len(errors),
        parts=len(KNOWN),
        worst="" if max(errors) < 1e-12 else f" ({max(errors):.1e})",
        predicted="\n".join(rows),
        IPP5B=_ipp5b(),
        calculated="\n".join(_compared(*row) for row in calculated()),
        refresh_mw=(DDR3.IDD3N - DDR3.IDD2N) * DDR3.VDD * DDR3.refresh_ns / REFRESH_INTERVAL_NS,
        pins="\n".join(_compared(*row) for row in pins()),
    )


def _all_measured() -> Iterator[tuple[str, float, float]]:
    for preset in KNOWN:
        device = resolve(*preset)
        chip = find_currents(device)
        assert chip is not None
        yield from measured(device, chip)


def _ipp5b() -> str:
    chip = find_currents(SHEETS[0][1])
    assert chip is not None
    ours, sheet = chip.IPP2N if chip.IPP5B is None else chip.IPP5B, SHEETS[0][2].IPP5B
    return (
        "IPP5B too" if ours == sheet else f"but for IPP5B: {sheet:g} mA, for which the file has {ours:g} mA"
    )


if __name__ == "__main__":
    (Path(__file__).parent / "energy.md").write_text(text(), encoding="utf-8")
