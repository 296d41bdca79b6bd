"""Currents of DRAM chips from data sheets, and the data sheet of each device.

Data sheets give limits: the maximum that any chip of a kind draws in a loop of commands at any allowed
temperature and voltage. Measured chips draw less (Ghose et al., "What Your DRAM Power Models Are Not Telling
You", SIGMETRICS 2018). The sum of limits of different loops is not a strict bound of another loop: see
validation/energy.md.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from ndpsim.base.errors import InputError, unknown
from ndpsim.base.plugins import plugins
from ndpsim.dram.energy import devices as _folder
from ndpsim.dram.spec import Device


@dataclass(frozen=True)
class Supply:
    """One supply of a chip: its voltage in V, and its currents in mA in the loops of `Currents`.

    `IDD5C`, `IDD5PB`, `IDD5B`, `IDD4R`, `IDD4W`: None: as in standby.
    """

    volts: float
    IDD0: float
    IDD2N: float
    IDD3N: float
    IDD4R: float | None = None
    IDD4W: float | None = None
    IDD5B: float | None = None
    IDD5C: float | None = None
    IDD5PB: float | None = None


@dataclass(frozen=True)
class Currents:
    """One chip: currents in mA by their JEDEC names, voltages in V, times in ns, resistances in ohms.

    The measurement loops are those of JESD79-4 clause 8 and JESD79-5 clause 9. All banks are open in the
    loops of IDD3N, IDD4R and IDD4W, unless `standby_banks` and `burst_banks` say how many; none in that of
    IDD2N, one at a time in that of IDD0.

    Attributes:
        part: the part, or its substitute.
        source: the source of the numbers.
        assumptions: the reasons for numbers that the source does not give, by attribute.
        VDD, VDDQ, VPP: the supplies: core, data pins, word lines (VDD2H, VDDQ and VDD1 of LPDDR5).
        further: the other supplies by name (VDD2L of LPDDR5).
        IDD0 .. IPP5B: by loop, on VDD and VPP. IDD5C, IDD5PB: refresh of one bank of every group, of one
            bank; None where it is not known. An IPP that is None is that of the standby beneath it.
        activate_ns, precharge_ns: tRAS and tRP of the IDD0 loop; its period is their sum.
        refresh_ns, same_bank_refresh_ns, bank_refresh_ns: from refresh to refresh in the loops of IDD5B,
            IDD5C and IDD5PB: tRFC, tRFCsb, tRFCpb.
        driver_ohm, termination_ohm: of a data pin, and of the far end of its line, to VDDQ (or to ground).
        IDDQ3N, IDDQ4R: on VDDQ, in the loops of IDD3N and IDD4R, instead of the two resistances.
        standby_banks, burst_banks: banks that are open in the loop of IDD3N, in those of IDD4R and IDD4W;
            None: all.
    """

    part: str
    source: str
    VDD: float
    VDDQ: float
    VPP: float
    IDD0: float
    IDD2N: float
    IDD3N: float
    IDD4R: float
    IDD4W: float
    IDD5B: float
    activate_ns: float
    precharge_ns: float
    refresh_ns: float
    IPP0: float
    IPP2N: float
    IPP3N: float
    IDD5C: float | None = None
    same_bank_refresh_ns: float | None = None
    IPP4R: float | None = None
    IPP4W: float | None = None
    IPP5B: float | None = None
    IDD5PB: float | None = None
    bank_refresh_ns: float | None = None
    driver_ohm: float | None = None
    termination_ohm: float | None = None
    IDDQ3N: float | None = None
    IDDQ4R: float | None = None
    standby_banks: int | None = None
    burst_banks: int | None = None
    further: Mapping[str, Supply] = field(default_factory=dict)
    assumptions: Mapping[str, str] = field(default_factory=dict)

    @property
    def supplies(self) -> tuple[Supply, ...]:
        """All supplies except that of the data pins."""
        core = {entry.name: getattr(self, entry.name) for entry in fields(Supply) if entry.name != "volts"}
        word_lines = Supply(self.VPP, self.IPP0, self.IPP2N, self.IPP3N, self.IPP4R, self.IPP4W, self.IPP5B)
        return Supply(self.VDD, **core), word_lines, *self.further.values()


_WORDS = ("part", "source", "assumptions", "further")
_PIN_VALUES = ("driver_ohm", "termination_ohm")
#: The key of `find_currents` for a data rate in MT/s whose data sheet is scaled to the device's rate.
SCALED = "scaled_from_mtps"
_NUMBERS = {entry.name: entry.default is MISSING for entry in fields(Currents) if entry.name not in _WORDS}


@functools.cache
def _known() -> dict[tuple[str, int], Currents]:
    """All data, by organisation preset and data rate."""
    return {key: currents for table in plugins(_folder, "CURRENTS") for key, currents in table.items()}


def currents_of(org: str, rate: int) -> Currents | None:
    """The currents of an organisation preset at a data rate in MT/s; None if no data sheet is known."""
    return _known().get((org, rate))


def find_currents(device: Device, changes: Mapping[str, float] | None = None) -> Currents | None:
    """The currents of a device's chips, with `changes` by attribute; None if they are not known.

    With `SCALED` in the changes, the currents of another data rate are scaled, see `_scaled`.

    Raises:
        InputError: there is no such attribute; the device is not known and `changes` lack an attribute; or
            the data rate to scale from is not known.
    """
    changes = dict(changes or {})
    rate = changes.pop(SCALED, None)
    known = currents_of(device.org, device.timings["rate"]) if rate is None else _scaled(device, int(rate))
    if not changes:
        return known
    for name in changes:
        if name not in _NUMBERS:
            raise unknown(name, _NUMBERS, "current", key=f"dram.power.{name}")
    if known is not None:
        kept = {name: why for name, why in known.assumptions.items() if name not in changes}
        source = f"{known.source}; {', '.join(changes)} as given"
        return replace(known, source=source, assumptions=kept, **_as_fields(changes))
    pins = () if "IDDQ4R" in changes else _PIN_VALUES
    missing = [name for name, needed in _NUMBERS.items() if (needed or name in pins) and name not in changes]
    if missing:
        raise InputError(
            f"no currents are known of {_name(device)}, so all are needed; {', '.join(missing)} are missing",
            "missing",
            key="dram.power",
        )
    return Currents(part=device.org, source="as given", **_as_fields(changes))


def _rates(org: str) -> list[int]:
    """The data rates of an organisation preset with a data sheet, from which currents can be scaled."""
    return sorted(rate for (name, rate), currents in _known().items() if name == org and not currents.further)


def _scaled(device: Device, rate: int) -> Currents:
    """The currents of the same chip at another data rate, for the rate of the device.

    Assumption without a source: currents of standby and bursts are proportional to the clock. Above standby,
    an activation and a refresh need the same energy as at that rate.
    """
    rates = _rates(device.org)
    if rate not in rates:
        known = f"known: {', '.join(map(str, rates))}" if rates else "there are none"
        problem = f"{rate} MT/s is no data rate of {device.org} whose data sheet can be scaled ({known})"
        raise InputError(problem, "unknown-name", key=f"dram.power.{SCALED}")
    chip, factor = _known()[device.org, rate], device.timings["rate"] / rate
    drawn = {name: factor * getattr(chip, name) for name in ("IDD2N", "IDD3N", "IDD4R", "IDD4W")}
    more = drawn["IDD2N"] - chip.IDD2N
    for loop in ("IDD5B", "IDD5C", "IDD5PB"):
        if (current := getattr(chip, loop)) is not None:
            drawn[loop] = current + more
    more_of_bank = (drawn["IDD3N"] - chip.IDD3N - more) / (chip.standby_banks or device.banks_per_rank)
    open_share = chip.activate_ns / (chip.activate_ns + chip.precharge_ns)
    drawn["IDD0"] = chip.IDD0 + more + more_of_bank * open_share
    why = f"scaled from {rate} MT/s by assumption: standby and bursts with the clock, the rest as there"
    return replace(chip, assumptions={"IDD": why, **chip.assumptions}, **_as_fields(drawn))


def _as_fields(changes: Mapping[str, float]) -> dict[str, Any]:
    return dict(changes)


def _name(device: Device) -> str:
    return f"{device.org} at {device.timings['rate']} MT/s"


def explain(device: Device, currents: Currents | None) -> str:
    """The source of a device's energy, or the reason why there is none, in one line."""
    if currents is None:
        rates = " or ".join(map(str, _rates(device.org)))
        scale = f", or scale those of {rates} MT/s: dram.power.{SCALED}" if rates else ""
        return f"no data sheet's currents are known of {_name(device)}; give them as dram.power{scale}"
    assumed = "".join(f"; assumption ({name}): {why}" for name, why in currents.assumptions.items())
    return f"{currents.part}: {currents.source}{assumed}"


def power_rows(currents: Currents) -> list[tuple[str, float | None, str, str]]:
    """Known currents and voltages of a chip, for a table: key, value, unit, source."""
    rows = []
    for name in _NUMBERS:
        unit = "V" if name.startswith("V") else "mA" if name.startswith("I") else name.rpartition("_")[2]
        assumed = [why for names, why in currents.assumptions.items() if name in names or names == "all"]
        value = getattr(currents, name)
        stated = "not known" if value is None else f"{currents.part}: {currents.source}"
        rows.append((f"power.{name}", value, unit, f"assumption: {assumed[-1]}" if assumed else stated))
    for supply, values in currents.further.items():
        for entry in fields(values):
            symbol, unit = (supply, "V") if entry.name == "volts" else (f"{supply}.{entry.name}", "mA")
            rows.append(
                (f"power.{symbol}", getattr(values, entry.name), unit, f"{currents.part}: {currents.source}")
            )
    return rows
