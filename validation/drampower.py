"""Holds the energy of command traces against DRAMPower; writes drampower.csv and drampower.md.

Run in the checkout, with the command line program of DRAMPower 5.1 and what it was built from:
python validation/drampower.py PATH "VERSION"
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ndpsim.dram.state import ControllerOptions
from ndpsim.energy import Currents, channel_energy, find_currents, from_trace, last_clock
from ndpsim.simulate import Memory, run_requests
from ndpsim.spec import COMMANDS, Device
from ndpsim.spec.standard import ACT, PREAB, RDA, REFAB, WRA
from ndpsim.traces import CommandTrace, Requests, write_commands

HERE = Path(__file__).parent
COMPONENTS = ("activate", "read", "write", "refresh", "background", "refresh and background", "io", "sum")

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
        return Memory.named(*self.preset, self.ranks, OFTEN[self.preset[0]], options=options)

    @property
    def device(self) -> Device:
        return self.memory.device


WORKLOADS = (
    Workload("DDR4, contiguous reads, 1 rank", DDR4, 1, random=False),
    Workload("DDR4, random reads, 2 ranks", DDR4, 2),
    Workload("DDR4, contiguous writes, 1 rank", DDR4, 1, random=False, writes=1.0),
    Workload("DDR4, a third writes, rows closed, 4 ranks", DDR4, 4, writes=0.33, row_policy="closed-cap"),
    Workload("DDR4 x4 at 2400 MT/s, a third writes, 2 ranks", DDR4_X4, 2, writes=0.33),
    Workload("DDR4, auto-precharge, 2 ranks", DDR4, 2, 0, auto_precharge=True),
    Workload("DDR4, only refresh, 2 ranks", DDR4, 2, 0),
    Workload("DDR5, contiguous reads, 1 rank", DDR5, 1, random=False),
    Workload("DDR5, random reads, 2 ranks", DDR5, 2),
    Workload("DDR5, contiguous writes, 4 ranks", DDR5, 4, random=False, writes=1.0),
    Workload("DDR5, a third writes, rows closed, 2 ranks", DDR5, 2, writes=0.33, row_policy="closed-cap"),
    Workload("DDR5, random reads, same-bank refresh, 2 ranks", DDR5, 2, refresh="same-bank"),
    Workload("DDR5, auto-precharge, 2 ranks", DDR5, 2, 0, auto_precharge=True),
    Workload("DDR5, only refresh, 4 ranks", DDR5, 4, 0),
)


# ---- The traces


def trace_of(workload: Workload) -> tuple[CommandTrace, int]:
    """The commands, with all rows closed after the last, and the clock at which all of it is over."""
    device = workload.device
    if workload.requests:
        trace = _served(workload)
    else:
        trace = _of(_by_hand(workload, device))
    closing = last_clock(trace, device) + device.timings["nRFC"] + device.timings["nRAS"]
    closed = ((closing + 2 * rank, PREAB, rank, -1, -1, -1, -1) for rank in range(device.ranks))
    ended = CommandTrace.of(np.hstack([_rows(trace), _rows(_of(closed))]))
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


def _rows(trace: CommandTrace) -> np.ndarray[Any, Any]:
    return np.array([getattr(trace, name) for name in CommandTrace.__dataclass_fields__])


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

_ZEROS = {
    "DDR4": "CKE CKESR RC RCD RL RPRE WPRE XP XS REFM REFI RFC2 RFC4 DQSCK CCD_S CCD_L FAW RRD_S RRD_L "
    "WTR_S WTR_L XPDLL XSDLL AL ACTPDEN PRPDEN REFPDEN RTRS",
    "DDR5": "RCD PPD RL RPRE RPST RDDQS WPRE WPST CCD_L_slr CCD_L_WR_slr CCD_L_WR2_slr CCD_M_slr "
    "CCD_M_WR_slr CCD_S_slr CCD_S_WR_slr CCD_dlr CCD_WR_dlr CCD_WR_dpr RRD_L_slr RRD_S_slr RRD_dlr FAW_slr "
    "FAW_dlr WTR_L WTR_M WTR_S RFC2_slr RFC1_dlr RFC2_dlr RFC1_dpr RFC2_dpr RFCsb_dlr REFI1 REFI2 REFISB "
    "REFSBRD_slr REFSBRD_dlr RTRS CPDED PD XP ACTPDEN PRPDEN REFPDEN",
}


def specification(device: Device, rho: float) -> dict[str, Any]:
    """DRAMPower's memory specification of the same chips.

    `rho`: the share of the standby of open banks (IDD3N over IDD2N) that the first bank to open brings.
    """
    chip, times, standard = currents_in_clocks(device), device.timings, device.standard.name
    dq = device.organisation.dq
    timing: dict[str, float] = dict.fromkeys(_ZEROS[standard].split(), 0)
    timing |= {
        "tCK": tck_ns(device) * 1e-9,
        "RAS": clocks(device, chip.activate_ns),
        "RP": clocks(device, chip.precharge_ns),
        "RTP": times["nRTP"],
        "WL": times["nCWL"],
        "WR": times["nWR"],
        "RFC1" if standard == "DDR4" else "RFC1_slr": clocks(device, chip.refresh_ns),
    }
    if chip.same_bank_refresh_ns is not None:
        timing["RFCsb_slr"] = clocks(device, chip.same_bank_refresh_ns)
    line_ohm = chip.driver_ohm + chip.termination_ohm
    return {
        "memspec": {
            "memoryId": device.org,
            "memoryType": standard,
            "memarchitecturespec": {
                **dict.fromkeys(("nbrOfDIMMRanks", "nbrOfPhysicalRanks", "nbrOfLogicalRanks"), 0),
                **dict.fromkeys(("cmdMode", "RAAIMT", "RAAMMT", "RAADEC"), 0),
                "nbrOfChannels": 1,
                "nbrOfDevices": device.devices_per_rank,
                "nbrOfRanks": device.ranks,
                "nbrOfBanks": device.banks_per_rank,
                "nbrOfBankGroups": device.bankgroups,
                "nbrOfRows": device.rows,
                "nbrOfColumns": device.bursts_per_row * device.standard.prefetch,
                "burstLength": device.standard.prefetch,
                "maxBurstLength": device.standard.prefetch,
                "dataRate": 2,
                "width": dq,
                "RefMode": 1,
            },
            "mempowerspec": _supplies(chip, standard),
            "memtimingspec": timing,
            "bankwisespec": {"factRho": rho},
            "memimpedancespec": {
                **dict.fromkeys(("C_total_ck", "C_total_cb", "C_total_rb", "C_total_wb", "C_total_dqs"), 0.0),
                # Command bus and clock are left out; its one strobe stands for those of all chips.
                "R_eq_ck": 1e30,
                "R_eq_cb": 1e30,
                "R_eq_rb": line_ohm,
                "R_eq_wb": line_ohm,
                "R_eq_dqs": line_ohm / (device.devices_per_rank * max(1, dq // 8)),
            },
            "prepostamble": {
                **{f"{way}_{bits}": 0.0 for way in ("read", "write") for bits in ("zeroes", "ones")},
                **{f"{way}_zeroes_to_ones": 0 for way in ("read", "write")},
                **{f"{way}_ones_to_zeroes": 0 for way in ("read", "write")},
                "readMinTccd": 0,
                "writeMinTccd": 0,
            },
            "dataratespec": {"ca_bus_rate": 2, "dq_bus_rate": 2, "dqs_bus_rate": 2},
        }
    }


def _supplies(chip: Currents, standard: str) -> dict[str, float]:
    """Currents in A. Loops that the traces do not have (power-down, self refresh) draw nothing."""

    def of(ipp: float | None, standby: float) -> float:
        return standby if ipp is None else ipp

    vdd = {"0": chip.IDD0, "2n": chip.IDD2N, "3n": chip.IDD3N, "4r": chip.IDD4R, "4w": chip.IDD4W}
    vpp = {"0": chip.IPP0, "2n": chip.IPP2N, "3n": chip.IPP3N}
    vpp |= {"4r": of(chip.IPP4R, chip.IPP3N), "4w": of(chip.IPP4W, chip.IPP3N)}
    refresh, refresh_ipp = chip.IDD5B, of(chip.IPP5B, chip.IPP2N)
    names = ("5B", "5F2", "5F4") if standard == "DDR4" else ("5b", "5f")
    vdd |= dict.fromkeys(names, refresh)
    vpp |= dict.fromkeys(names, refresh_ipp)
    if chip.IDD5C is not None:
        vdd["5c"], vpp["5c"] = chip.IDD5C, chip.IPP2N
    for unused in ("6n", "2p", "3p"):
        vdd[unused] = vpp[unused] = 0.0
    return {
        "vdd": chip.VDD,
        "vddq": chip.VDDQ,
        "vpp": chip.VPP,
        **{f"idd{loop}": value / 1000 for loop, value in vdd.items()},
        **{f"ipp{loop}": value / 1000 for loop, value in vpp.items()},
    }


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


def tolerance(workload: Workload, component: str) -> float | None:
    """The share by which ours may differ."""
    allowed = TOLERANCES[component]
    if workload.auto_precharge and workload.preset[0] == "DDR5" and component not in ("activate", "read"):
        return None if allowed is None else TWO_CLOCK_TOLERANCE
    return allowed
