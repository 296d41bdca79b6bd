"""Holds the energy of command traces against DRAMPower; writes drampower.csv and drampower.md.

Run in the checkout, with the command line program of DRAMPower 5.1, whose version drampower.csv then names:
python validation/drampower.py PATH "5.1 (5ed2d6e), DRAMUtils 1.0 (b3ba22f)"
Without PATH drampower.md is written anew from drampower.csv.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ndpsim.base.options.dram import ControllerOptions
from ndpsim.dram.energy import ChannelEnergy, Currents, channel_energy, find_currents, from_trace, last_clock
from ndpsim.dram.spec import Device, standards
from ndpsim.dram.traces import CommandTrace, Requests, write_commands
from ndpsim.simulate import Memory, run_requests

HERE = Path(__file__).parent
ACT, PREPB, _, _, RDA, WRA, PREAB, REFAB, *_ = range(len(standards()["DDR5"].names))  # DDR4 has these, too
COMPONENTS = ("activate", "read", "write", "refresh", "background", "refresh and background", "io", "sum")
_SUMMED = ("activate", "read", "write", "refresh and background", "io")

#: How far a component may be from DRAMPower's, as a share of it. Written down before the first comparison.
#: Both multiply the same currents, voltages and times by counts of the same trace, in double precision; so
#: what means the same has to be equal. None: it means something else there, see `DIFFERENCES`.
TOLERANCES: dict[str, float | None] = {
    "activate": 1e-6,
    "read": 1e-6,
    "write": 1e-6,
    "refresh": None,  # DRAMPower has banks that are refreshed draw the standby of open ones
    "background": None,
    "refresh and background": 1e-6,
    "io": 1e-6,
    "sum": 1e-6,
}
#: With auto-precharges in DDR5: a command of two clocks begins its effect in the second here, in the first
#: there, so that a bank is open for one clock more of some hundred.
TWO_CLOCK_TOLERANCE = 1e-3

DDR4 = ("DDR4", "DDR4_8Gb_x8", "DDR4_3200AA")
DDR4_X4 = ("DDR4", "DDR4_8Gb_x4", "DDR4_2400R")
DDR5 = ("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN")
# Refreshes come often, so that short traces have some.
OFTEN = {"DDR4": {"nREFI": 1500}, "DDR5": {"nREFI": 2400}}


@dataclass(frozen=True)
class Workload:
    """Requests through a controller, or commands by hand where `requests` is 0."""

    name: str
    preset: tuple[str, str, str]
    ranks: int
    requests: int = 400
    random: bool = True
    writes: float = 0.0
    row_policy: str = "open"
    refresh: str = "all-bank"
    auto_precharge: bool = False

    @property
    def memory(self) -> Memory:
        options = ControllerOptions(row_policy=self.row_policy, row_cap=1, refresh=self.refresh)
        # DRAMPower's energies are of the commands under these rules.
        often = OFTEN[self.preset[0]]
        return Memory.named(*self.preset, self.ranks, often, options=options, rules="reference")

    @property
    def device(self) -> Device:
        return self.memory.device


CLOSED: dict[str, Any] = {"writes": 0.33, "row_policy": "closed-cap"}
WORKLOADS = (
    Workload("DDR4, contiguous reads, 1 rank", DDR4, 1, random=False),
    Workload("DDR4, random reads, 2 ranks", DDR4, 2),
    Workload("DDR4, contiguous writes, 1 rank", DDR4, 1, random=False, writes=1.0),
    Workload("DDR4, a third writes, rows closed, 4 ranks", DDR4, 4, **CLOSED),
    Workload("DDR4, as before without refresh, 2 ranks", DDR4, 2, refresh="none", **CLOSED),
    Workload("DDR4 x4 at 2400 MT/s, a third writes, 2 ranks", DDR4_X4, 2, writes=0.33),
    Workload("DDR4, auto-precharge, 2 ranks", DDR4, 2, 0, auto_precharge=True),
    Workload("DDR4, only refresh, 2 ranks", DDR4, 2, 0),
    Workload("DDR5, contiguous reads, 1 rank", DDR5, 1, random=False),
    Workload("DDR5, random reads, 2 ranks", DDR5, 2),
    Workload("DDR5, contiguous writes, 4 ranks", DDR5, 4, random=False, writes=1.0),
    Workload("DDR5, a third writes, rows closed, 2 ranks", DDR5, 2, **CLOSED),
    Workload("DDR5, as before without refresh, 4 ranks", DDR5, 4, refresh="none", **CLOSED),
    Workload("DDR5, random reads, same-bank refresh, 2 ranks", DDR5, 2, refresh="same-bank"),
    Workload("DDR5, auto-precharge, 2 ranks", DDR5, 2, 0, auto_precharge=True),
    Workload("DDR5, only refresh, 4 ranks", DDR5, 4, 0),
)


# ---- The traces


def trace_of(workload: Workload) -> tuple[CommandTrace, int]:
    """The commands, with all rows closed after the last, and the clock at which all of it is over."""
    device = workload.device
    trace = _served(workload) if workload.requests else _of(_by_hand(workload, device))
    closing = last_clock(trace, device) + device.timings["nRFC"] + device.timings["nRAS"]
    closed = ((closing + 2 * rank, PREAB, rank, -1, -1, -1, -1) for rank in range(device.ranks))
    ended = CommandTrace.of(np.hstack([trace.columns(), _of(closed).columns()]))
    return ended, closing + device.timings["nRFC"]


def _served(workload: Workload) -> CommandTrace:
    memory, rng = workload.memory, np.random.default_rng(1)
    burst = memory.device.burst_bytes
    number = np.arange(workload.requests)
    if workload.random:
        number = rng.integers(0, memory.capacity_bytes // burst, workload.requests)
    write = (rng.random(workload.requests) < workload.writes).astype(np.int64)
    result = run_requests(Requests.of(number * burst, write), memory, record_commands=True)
    (trace,) = result.command_traces
    return trace


def _by_hand(workload: Workload, device: Device) -> Iterator[tuple[int, ...]]:
    """A row of each bank group read or written once, or else ten refreshes of each rank."""
    times = device.timings
    for turn in range(10):
        for rank in range(device.ranks):
            at = turn * times["nREFI"] + rank * times["nREFI"] // device.ranks
            if not workload.auto_precharge:
                yield at, REFAB, rank, -1, -1, -1, -1
                continue
            yield at, ACT, rank, turn % device.bankgroups, rank, turn, -1
            command = WRA if turn % 3 == 0 else RDA
            yield at + times["nRCD"] + turn, command, rank, turn % device.bankgroups, rank, turn, 0


def _of(lines: Iterator[tuple[int, ...]]) -> CommandTrace:
    return CommandTrace.of(np.array(sorted(lines), dtype=np.int64).T)


# ---- Ours


def currents_in_clocks(device: Device) -> Currents:
    """The device's currents; times of their loops rounded up to clocks, as DRAMPower has them."""
    chip = find_currents(device)
    assert chip is not None
    names = ("activate_ns", "precharge_ns", "refresh_ns", "same_bank_refresh_ns")
    of = {name: getattr(chip, name) for name in names}
    rounded = find_currents(
        device, {name: clocks(device, ns) * tck_ns(device) for name, ns in of.items() if ns is not None}
    )
    assert rounded is not None
    return rounded


def tck_ns(device: Device) -> float:
    return float(device.clock_ps / 1000)


def clocks(device: Device, ns: float) -> int:
    return math.ceil(ns / tck_ns(device) - 1e-6)


def ours(workload: Workload) -> dict[str, float]:
    """Energies in nJ by component."""
    trace, end = trace_of(workload)
    energy = from_trace(trace, workload.device, currents_in_clocks(workload.device), end=end)
    assert energy is not None
    parts = {name: nj for name, nj in energy.items() if nj is not None}
    parts["sum"] = parts.pop("total")
    return {**parts, "refresh and background": parts["refresh"] + parts["background"]}


# ---- DRAMPower

#: What DRAMPower wants to read and these traces do not depend on, power-down and self refresh among it.
_UNUSED = """
nbrOfDIMMRanks nbrOfPhysicalRanks nbrOfLogicalRanks cmdMode RAAIMT RAAMMT RAADEC CKE CKESR RC RCD RL RPRE
WPRE XP XS REFM REFI RFC2 RFC4 DQSCK CCD_S CCD_L FAW RRD_S RRD_L WTR_S WTR_L XPDLL XSDLL AL ACTPDEN PRPDEN
REFPDEN RTRS PPD RPST RDDQS WPST CCD_L_slr CCD_L_WR_slr CCD_L_WR2_slr CCD_M_slr CCD_M_WR_slr CCD_S_slr
CCD_S_WR_slr CCD_dlr CCD_WR_dlr CCD_WR_dpr RRD_L_slr RRD_S_slr RRD_dlr FAW_slr FAW_dlr WTR_M RFC2_slr
RFC1_dlr RFC2_dlr RFC1_dpr RFC2_dpr RFCsb_dlr REFI1 REFI2 REFISB REFSBRD_slr REFSBRD_dlr CPDED PD idd2p
idd3p idd6n ipp2p ipp3p ipp6n idd5F2 idd5F4 ipp5F2 ipp5F4 idd5f ipp5f C_total_ck C_total_cb C_total_rb
C_total_wb C_total_dqs read_zeroes write_zeroes read_ones write_ones read_zeroes_to_ones
write_zeroes_to_ones read_ones_to_zeroes write_ones_to_zeroes readMinTccd writeMinTccd
"""


def specification(device: Device, rho: float) -> dict[str, Any]:
    """DRAMPower's memory specification of the same chips.

    `rho`: the share of the standby of open banks (IDD3N over IDD2N) that the first bank to open brings.
    """
    chip, times, prefetch = currents_in_clocks(device), device.timings, device.standard.prefetch
    unused = dict.fromkeys(_UNUSED.split(), 0)
    line_ohm = chip.driver_ohm + chip.termination_ohm
    strobes = device.devices_per_rank * max(1, device.organisation.dq // 8)
    refresh, same_bank = clocks(device, chip.refresh_ns), clocks(device, chip.same_bank_refresh_ns or 0)
    return {
        "memspec": {
            "memoryId": device.org,
            "memoryType": device.standard.name,
            "memarchitecturespec": unused
            | dict(nbrOfChannels=1, nbrOfRanks=device.ranks, nbrOfDevices=device.devices_per_rank)
            | dict(nbrOfBanks=device.banks_per_rank, nbrOfBankGroups=device.bankgroups)
            | dict(nbrOfRows=device.rows, nbrOfColumns=device.bursts_per_row * prefetch, RefMode=1)
            | dict(burstLength=prefetch, maxBurstLength=prefetch, dataRate=2, width=device.organisation.dq),
            "memtimingspec": unused
            | dict(tCK=tck_ns(device) * 1e-9, RTP=times["nRTP"], WL=times["nCWL"], WR=times["nWR"])
            | dict(RAS=clocks(device, chip.activate_ns), RP=clocks(device, chip.precharge_ns))
            | dict(RFC1=refresh, RFC1_slr=refresh, RFCsb_slr=same_bank),
            "mempowerspec": unused | _supplies(chip),
            "bankwisespec": {"factRho": rho},
            # Command bus and clock draw nothing; the one strobe stands for those of all chips.
            "memimpedancespec": unused
            | dict(
                R_eq_ck=1e30, R_eq_cb=1e30, R_eq_rb=line_ohm, R_eq_wb=line_ohm, R_eq_dqs=line_ohm / strobes
            ),
            "prepostamble": unused,
            "dataratespec": {"ca_bus_rate": 2, "dq_bus_rate": 2, "dqs_bus_rate": 2},
        }
    }


def _supplies(chip: Currents) -> dict[str, float]:
    """Voltages in V, currents in A. An IPP that is not known is that of the standby beneath it."""
    supplies = {"vdd": chip.VDD, "vddq": chip.VDDQ, "vpp": chip.VPP}
    loops = {"0": "0", "2n": "2N", "3n": "3N", "4r": "4R", "4w": "4W", "5B": "5B", "5b": "5B", "5c": "5C"}
    for theirs_of, loop in loops.items():
        standby = chip.IPP3N if loop.startswith("4") else chip.IPP2N
        ipp = getattr(chip, f"IPP{loop}", None)
        supplies[f"idd{theirs_of}"] = (getattr(chip, f"IDD{loop}") or 0) / 1000
        supplies[f"ipp{theirs_of}"] = (standby if ipp is None else ipp) / 1000
    return supplies


def theirs(program: str, workload: Workload, rho: float) -> dict[str, float]:
    """Energies in nJ by component, as DRAMPower has them."""
    trace, end = trace_of(workload)
    device = workload.device
    with tempfile.TemporaryDirectory() as folder:
        commands, memory, out = (Path(folder) / name for name in ("commands.csv", "memory.json", "out.json"))
        write_commands(commands, trace, "drampower5", 0, device)
        # Half of the bits low, as `energy` assumes.
        data = commands.read_text(encoding="ascii").replace(",0x\n", f",0x{'55' * device.burst_bytes}\n")
        commands.write_text(f"{data}{end},END,0,0,0,0,0\n", encoding="ascii")
        memory.write_text(json.dumps(specification(device, rho)), encoding="ascii")
        subprocess.run([program, str(commands), str(memory), "--json", str(out)], check=True)
        core, interface = (json.loads(out.read_text())[name] for name in ("CoreEnergy", "InterfaceEnergy"))

    def banks(*names: str) -> float:
        return 1e9 * sum(bank[name] for bank in core["BankEnergy"] for name in names)

    energy = {
        "activate": banks("ACT", "PRE"),
        "read": banks("RD", "RDA"),
        "write": banks("WR", "WRA"),
        "refresh": banks("REF_AB", "REF_SB"),
        "background": banks("BG_ACT", "BG_PRE") + 1e9 * core["E_bg_act_shared"],
        "io": 1e9 * sum(of for side in interface.values() for of in side.values()),
    }
    energy["sum"] = sum(energy.values())
    return {**energy, "refresh and background": energy["refresh"] + energy["background"]}


# ---- The comparison


def tolerance(workload: Workload, component: str) -> float | None:
    """The share by which ours may differ; None where there is nothing to compare."""
    allowed = TOLERANCES[component]
    if workload.auto_precharge and workload.preset[0] == "DDR5" and component not in ("activate", "read"):
        return None if allowed is None else TWO_CLOCK_TOLERANCE
    return allowed


def error(ours_nj: float, theirs_nj: float) -> float:
    """The distance as a share of theirs; a resistance of 1e30 ohm still leaves 1e-30 nJ."""
    return 0.0 if max(abs(ours_nj), abs(theirs_nj)) < 1e-9 else ours_nj / theirs_nj - 1


def refreshed_and_precharged(workload: Workload) -> tuple[int, int]:
    """PREpb to banks that are being refreshed, and the clocks that the refreshes still had, summed.

    `closed-cap` sends them, as that of Ramulator 2.1 does. The banks are closed, so that nothing happens
    here; DRAMPower takes a bank that is refreshed for an open one, which such a PRE closes.
    """
    trace, _ = trace_of(workload)
    lasts = clocks(workload.device, currents_in_clocks(workload.device).refresh_ns)
    until: dict[int, int] = {}
    seen: set[tuple[int, int, int]] = set()
    count = left = 0
    for clock, command, rank, bankgroup, bank, _, _ in trace.columns().T.tolist():
        if command == REFAB:
            until[rank] = clock + lasts
            seen = {place for place in seen if place[0] != rank}
        place = (rank, bankgroup, bank)
        if command == PREPB and clock < until.get(rank, 0) and place not in seen:
            seen.add(place)
            count, left = count + 1, left + until[rank] - clock
    return count, left


def as_drampower_counts(workload: Workload) -> dict[str, float]:
    """Ours with `refreshed_and_precharged` counted as DRAMPower does."""
    energy = ours(workload)
    count, left = refreshed_and_precharged(workload)
    energy["activate"] += count * precharge_nj(workload.device)
    energy["refresh and background"] -= left * _channel(workload.device).open_bank
    energy["sum"] = sum(energy[name] for name in _SUMMED)
    return energy


def precharge_nj(device: Device) -> float:
    """The precharge's part of an ACT: (IDD0 - IDD2N) x tRP, of a rank."""
    chip = currents_in_clocks(device)
    watts = device.devices_per_rank * (
        (chip.IDD0 - chip.IDD2N) * chip.VDD / 1000 + (chip.IPP0 - chip.IPP2N) * chip.VPP / 1000
    )
    return watts * chip.precharge_ns


def _channel(device: Device) -> ChannelEnergy:
    return channel_energy(device, currents_in_clocks(device))


STORED = HERE / "drampower.csv"
FIRST_BANK = "sum, rho 1"  # with DRAMPower's default share of the first open bank


def store(program: str, version: str) -> None:
    """Runs DRAMPower on all workloads and writes its energies to drampower.csv."""
    with STORED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["DRAMPower", "workload", "commands", *COMPONENTS, FIRST_BANK])
        for workload in WORKLOADS:
            energy = theirs(program, workload, 0.0)
            energy[FIRST_BANK] = theirs(program, workload, 1.0)["sum"]
            values = (f"{energy[name]:.12g}" for name in (*COMPONENTS, FIRST_BANK))
            writer.writerow([version, workload.name, len(trace_of(workload)[0]), *values])


def stored() -> dict[str, dict[str, Any]]:
    """By workload: DRAMPower's version, how many commands, and nJ by component."""
    with STORED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["workload"]: {
            "DRAMPower": row["DRAMPower"],
            "commands": int(row["commands"]),
            **{name: float(row[name]) for name in (*COMPONENTS, FIRST_BANK)},
        }
        for row in rows
    }


def errors(energy: Mapping[str, float], other: Mapping[str, Any], workload: Workload) -> dict[str, float]:
    """The comparisons: the distances from DRAMPower, as shares of it."""
    return {
        name: error(energy[name], other[name]) for name in COMPONENTS if tolerance(workload, name) is not None
    }


def within(errors: Mapping[str, float], workload: Workload) -> bool:
    return all(abs(of) <= (tolerance(workload, name) or 0) for name, of in errors.items())


# ---- The page

HEAD = """\
# Energy against DRAMPower

Made by `python validation/drampower.py PATH` with DRAMPower {version}: {workloads} command traces, each
through `ndpsim.dram.energy` and through DRAMPower, with the currents, voltages and resistances of
`ndpsim/dram/energy/devices`. The traces are commands under `--rules reference`, the values and rules of
Ramulator 2.1: energy follows from commands, whichever rules these keep. `drampower.csv` has the results of
DRAMPower; without PATH the page is written from this file.

Both use the same model of a chip: energies of commands above standby, and standby that grows with each
open bank (Jung et al., RAPIDO 2017; DRAMPower's `factRho`, here 0). Equality therefore shows that
commands, clocks and banks are counted correctly and that no current, voltage or time is confused. It
does not show that chips draw what their data sheets say.

The compared components are `activate` (with its precharge), `read`, `write`, `io`, and refresh and
background together, each to {exact:g} of DRAMPower's (with auto-precharges in DDR5 {two_clocks:g}), a
limit that was set before the first comparison. Energies are in nJ, of all ranks.

| workload | commands | ours | DRAMPower | error of the sum | largest error of a component | verdict |
|---|---|---|---|---|---|---|"""

COUNTED = """
## Differences of the two programs

- **Refresh and background.** In DRAMPower all banks are open during a refresh: it counts (IDD5B - IDD3N)
  x tRFC as refresh and IDD3N as background, ndpsim (IDD5B - IDD2N) x tRFC and IDD2N. The sums are equal:
  a rank that is refreshed without pause draws IDD5B. The same holds for same-bank refreshes and IDD5C.
- **PRE to a bank that is being refreshed.** `closed-cap` sends such commands, as Ramulator 2.1 does:
  {refreshed} in the two traces that are off. JEDEC allows none before tRFC is over. In ndpsim the bank is
  closed, and nothing happens. In DRAMPower it is open: the PRE costs a precharge and ends the bank's share
  of the refresh. If ndpsim counts them in this way, these traces hold too.
- **The first open bank.** DRAMPower's `factRho` is 1 by default: the first open bank adds all of IDD3N, and
  the others nothing, as in Micron's calculators. In ndpsim every open bank adds the same. The last column
  of the table below shows how the default changes DRAMPower's sum: {rho}. With the default, an ACT of the
  DDR5 part has negative energy, because its IDD0 is {IDD0:g} mA and its IDD3N {IDD3N:g} mA. No data sheet
  says what the first bank adds.
- - **Precharge.** DRAMPower adds its energy when a bank closes, ndpsim with the ACT. All rows are closed
  at the end of these traces; for each open bank ndpsim would count {precharge} more.
- **Whole clocks.** DRAMPower takes the times of loops in clocks; here both round them up. With the exact
  times of the data sheets, as ndpsim usually takes them, an ACT costs {rounding}.
- **Auto-precharge in DDR5.** A command of two clocks takes effect in its second clock in ndpsim, and in
  its first in DRAMPower, where the bank is open for one clock more.
- **Data pins.** Half of the bits are low on both sides. DRAMPower has one strobe for the whole channel;
  its resistance was set to represent those of all chips. The comparison leaves out preambles, command
  bus and clock, which ndpsim does not count, and power-down and self-refresh, which its controllers do
  not use.

DRAMPower 6.2 has the same formulas for both standards; it was not run.

## By component

Ours, DRAMPower's, in nJ. *first bank*: DRAMPower's sum with `factRho` 1, against that with 0.

| workload | {components} | first bank |
|---|{rule}---|"""


def text() -> str:
    """drampower.md."""
    of = stored()
    lines, rows, first_bank, refreshed = [], [], [], []
    for workload in WORKLOADS:
        other, mine = of[workload.name], ours(workload)
        off = errors(mine, other, workload)
        verdict = "holds"
        if not within(off, workload):
            refreshed.append(str(refreshed_and_precharged(workload)[0]))
            explained = within(errors(as_drampower_counts(workload), other, workload), workload)
            verdict = "off: PRE in refreshes, see below" if explained else "off"
        lines.append(
            f"| {workload.name} | {other['commands']:,} | {mine['sum']:.1f} | {other['sum']:.1f} "
            f"| {_share(off['sum'])} | {_share(max(off.values(), key=abs))} | {verdict} |"
        )
        first_bank.append(100 * (other[FIRST_BANK] / other["sum"] - 1))
        parts = " | ".join(f"{mine[name]:.2f}, {other[name]:.2f}" for name in COMPONENTS[:-1])
        rows.append(f"| {workload.name} | {parts} | {first_bank[-1]:+.1f}% |")
    devices = [Workload("", preset, 1).device for preset in (DDR4, DDR5)]
    plain = [chip for device in devices if (chip := find_currents(device)) is not None]
    exact = [channel_energy(*pair).activate for pair in zip(devices, plain, strict=True)]
    less = [100 * (1 - of / _channel(device).activate) for of, device in zip(exact, devices, strict=True)]
    head = HEAD.format(
        version=of[WORKLOADS[0].name]["DRAMPower"],
        workloads=len(WORKLOADS),
        exact=TOLERANCES["sum"],
        two_clocks=TWO_CLOCK_TOLERANCE,
    )
    counted = COUNTED.format(
        refreshed=" and ".join(refreshed),
        rho=f"{min(first_bank):+.0f}% to {max(first_bank):+.0f}%",
        IDD0=plain[-1].IDD0,
        IDD3N=plain[-1].IDD3N,
        precharge=" (DDR4) or ".join(f"{precharge_nj(device):.2f} nJ" for device in devices) + " (DDR5)",
        rounding=" (DDR4) and ".join(f"{of:.1f}% less" for of in less) + " (DDR5)",
        components=" | ".join(COMPONENTS[:-1]),
        rule="---|" * len(COMPONENTS[:-1]),
    )
    return "\n".join([head, *lines, counted, *rows]) + "\n"


def _share(value: float) -> str:
    return "0" if abs(value) < 1e-9 else f"{100 * value:+.4f}%"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        store(*sys.argv[1:])
    (HERE / "drampower.md").write_text(text(), encoding="utf-8")
