"""The YAML files of Ramulator 2.0 (CMU-SAFARI/ramulator2 up to 2.0a and later, before the move to Python).

Its presets have the same names as ndpsim's, and mostly the same clocks; different clocks become overrides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ndpsim.config.importers import presets, ramulator
from ndpsim.config.importers.sheet import Place, Sheet
from ndpsim.config.importers.tree import Configuration, ConfigurationFormat, Tree
from ndpsim.dram.spec import Standard

_ROOT = "MemorySystem"

_PARTS = ramulator.PartNames("Scheduler", "RefreshManager", "RowPolicy", "plugins", uncapped=None)
_STANDARDS = ("DDR4", "DDR5")

# From src/dram/impl of v2.0a: `m_internal_prefetch_size`, `timing_presets`, and tCK = 2/rate for all. Presets
# of these are read by their names, and have ndpsim's clocks.
_BY_NAME = {
    "LPDDR5": "Ramulator 2.0 takes 312 ps for its clock of 1250 ps, and 8 of the 16 words of a burst",
    "GDDR6": "Ramulator 2.0 takes 1000 ps for its clock of 570 ps, and 8 of the 16 words of a burst",
}
_OLD_NAMES = {"GDDR6_2000_": "GDDR6_14000_"}  # 570 ps are 1750 MHz
_WHY_NOT = {"HBM3": "Ramulator 2.0 has only 2000 MT/s, with channels of 128 bits, for it"}

# Ours: Ramulator's.
_SIZES = dict(dq="dq", bankgroups="bankgroup", banks_per_group="bank", rows="row", columns="column")
_RENAMED = {"nRFC": "nRFC1"}  # ours: the name in Ramulator 2.0 for DDR5
_TURNAROUNDS = {"nWTRS": "nCCDS_WTR", "nWTRL": "nCCDL_WTR"}  # from write to read: nCWL + nBL + ours

_WHY = {
    "Frontend": "traffic is no part of a hardware file",
    "clock_ratio": "the clock of the front end is no part of a hardware file",
    **dict.fromkeys(("RFM", "RH_radius"), "refresh management is not modelled"),
    **dict.fromkeys(
        ("drampower_enable", "power_debug", "voltage", "current"),
        "energy follows from the data sheet of the device; dram.power changes it",
    ),
}


@dataclass(frozen=True)
class _Old:
    """Clocks in which a preset of Ramulator 2.0 differs from ndpsim's; they depend on `depends_on`."""

    standard: str
    rate: int
    name: str
    depends_on: Literal["dq", "density_mb", "timing"]
    clocks: dict[int | str, int]


# From src/dram/impl/DDR4.cpp and DDR5.cpp before 2.1. Their tCK at 2133 is 938 ps, and DDR5 has presets only
# at 3200.
_OLD = (
    _Old("DDR4", 2133, "nRFC", "density_mb", {8192: 384}),
    _Old("DDR4", 2133, "nREFI", "dq", dict.fromkeys((4, 8, 16), 8316)),
    _Old("DDR5", 3200, "nRC", "timing", {"DDR5_3200AN": 75, "DDR5_3200BN": 77, "DDR5_3200C": 79}),
    _Old("DDR5", 3200, "nCCDL_WR", "dq", {8: 16, 16: 16}),
    _Old("DDR5", 3200, "nWTRS", "dq", dict.fromkeys((4, 8, 16), 4)),
    _Old("DDR5", 3200, "nFAW", "dq", {4: 40, 16: 32}),
    _Old("DDR5", 3200, "nRFC", "density_mb", {16384: 471, 32768: 655}),
    _Old("DDR5", 3200, "nREFI", "dq", dict.fromkeys((4, 8, 16), 6222)),
)
_OLD_RATES = {"DDR4": (1600, 1866, 2133, 2400, 2666, 2933, 3200), "DDR5": (3200,)}


def _read(file: Configuration, sheet: Sheet) -> None:
    root = file.tree
    memory = ramulator.memory_of(root, _ROOT)
    dram = memory.part("DRAM")
    standard, place = ramulator.known_standard(dram, (*_STANDARDS, *_BY_NAME), _WHY_NOT)
    organisation, timing = dram.part("org"), dram.part("timing")
    org, org_said = _organisation(organisation, standard)
    clocks: dict[str, presets.Clocks] = {}
    if standard.name in _BY_NAME:
        preset = _named_timing(timing, sheet, standard)
    else:
        clocks, preset = _timing(timing, sheet, standard, org)
    presets.put_dram(sheet, (standard, place), (org, organisation.place("preset"), org_said), preset, clocks)
    channels, ranks = organisation.whole("channel"), organisation.whole("rank")
    bits = ramulator.AddressBits.count(standard, standard.organisations[org], channels or 1, ranks or 1)
    top = sum(bits.widths.values()) - bits.widths["channel"]
    channel_at = {"RoBaRaCoCh": 0, "ChRaBaRoCo": top, "MOP4CLXOR": 2}
    ramulator.put_mapper(sheet, memory.part("AddrMapper"), bits, channel_at, channel_xored=True)
    controller = memory.part("Controller")
    if controller.word("impl") not in (None, "Generic"):
        sheet.note(controller.place("impl"), "left out: the controller is ndpsim's, like Generic")
    ramulator.put_controller(sheet, controller, _PARTS, standard)
    ramulator.put_channels(
        sheet,
        None if channels is None else (channels, organisation.place("channel")),
        None if ranks is None else (ranks, organisation.place("rank")),
    )
    ramulator.note_unread(sheet, root, _WHY)


def _organisation(org: Tree, standard: Standard) -> tuple[str, str]:
    """The name of the organisation, and further words for its source."""
    presets.check_width(standard, org.whole("channel_width"), org.place("channel_width"))
    preset = org.word("preset")
    if preset is not None and preset not in standard.organisations:
        raise org.place("preset").unknown(preset, standard.organisations, f"{standard.name} organisation")
    written = {ours: (org.whole(theirs), org.place(theirs)) for ours, theirs in _SIZES.items()}
    changed = [place for size, place in written.values() if size is not None]
    name, said = preset, f" = {preset}"
    if changed or preset is None:
        name = presets.match_organisation(standard, _complete(written, standard, preset))
        said = ", with " + ", ".join(place.key.rpartition(".")[2] for place in changed)
    assert name is not None
    density, made = org.whole("density"), standard.organisations[name].density_mb
    if density not in (None, made):
        problem = f"{density} Mb is not what the sizes make: {made} Mb"
        raise org.place("density").error(problem, code="conflict")
    return name, said


def _complete(
    written: dict[str, tuple[int | None, Place]], standard: Standard, preset: str | None
) -> presets.Sizes:
    """All sizes: the given ones, else those of the preset."""
    sizes = {}
    for ours, (size, place) in written.items():
        if size is None and preset is None:
            raise place.error("is missing, and no preset is named", code="missing")
        known = getattr(standard.organisations[preset], ours) if preset is not None else 0
        sizes[ours] = (known if size is None else size, place)
    return sizes


def _named_timing(timing: Tree, sheet: Sheet, standard: Standard) -> tuple[str, Place, str]:
    """The preset of the same name, its place and words, where clocks of 2.0 are not those of the standard."""
    place, why = timing.place("preset"), _BY_NAME[standard.name]
    for key in timing.names():
        if key != "preset":
            raise timing.place(key).error(f"clocks are not read: {why}; name the preset alone", "unsupported")
    old = timing.word("preset")
    if old is None:
        raise place.error("is missing", code="missing")
    name = old
    for before, now in _OLD_NAMES.items():
        name = name.replace(before, now)
    if name not in standard.speeds:
        raise place.unknown(old, standard.speeds, f"{standard.name} timing preset")
    sheet.note(place, f"has ndpsim's clocks: {why}")
    return name, place, f" = {old}"


def _timing(
    timing: Tree, sheet: Sheet, standard: Standard, org: str
) -> tuple[dict[str, presets.Clocks], tuple[str, Place, str]]:
    """Every timing that the file has or that differs in 2.0's preset; the preset, its place and words."""
    preset, place, rate = timing.word("preset"), timing.place("preset"), timing.whole("rate")
    if preset is not None:
        if preset not in standard.speeds:
            raise place.unknown(preset, standard.speeds, f"{standard.name} timing preset")
        if rate not in (None, standard.speeds[preset]["rate"]):
            raise timing.place("rate").error(f"{rate} is not the rate of {preset}", code="conflict")
        rate = standard.speeds[preset]["rate"]
    elif rate not in presets.rates(standard):
        no_rate = f"{rate} is no rate of {standard.name}"
        problem = "is missing, and no preset is named" if rate is None else no_rate
        known = ", ".join(map(str, presets.rates(standard)))
        raise timing.place("rate").error(f"{problem} (known: {known})", code="range")
    assert rate is not None
    clocks = {} if preset is None else _old_clocks(standard, org, preset, place)
    if rate not in _OLD_RATES[standard.name]:
        sheet.note(place, "is no preset of Ramulator 2.0 as published; ndpsim's of this name is taken")
    written = _written_clocks(timing, sheet, standard, rate)
    if not written.keys().isdisjoint(("nRP", "nRAS")):
        clocks.pop("nRC", None)  # the preset's may be too short for what is written
    clocks |= written
    said = f" = {preset}"
    if preset is None:
        preset, place = presets.match_speed(standard, org, rate, clocks), timing.place("rate")
        said = f" = {rate}, nearest to the timings"
        open_ = sorted(set(standard.speeds[preset]) - {"rate", "tCK_ps"} - set(clocks))
        if open_:
            sheet.note(place, f"names no preset; {preset} gives what is not written: {', '.join(open_)}")
    return _turned(timing, standard, preset, clocks), (preset, place, said)


def _old_clocks(standard: Standard, org: str, preset: str, place: Place) -> dict[str, presets.Clocks]:
    """The clocks of 2.0's preset: those of 2.1 (`--rules reference`), except `_OLD`."""
    device, rate = standard.organisations[org], standard.speeds[preset]["rate"]
    keys: dict[str, int | str] = {"dq": device.dq, "density_mb": device.density_mb, "timing": preset}
    clocks: dict[str, int] = {}
    if rate in _OLD_RATES[standard.name]:
        clocks |= presets.departures(standard, org, preset)
    clocks |= {
        old.name: old.clocks[keys[old.depends_on]]
        for old in _OLD
        if (old.standard, old.rate) == (standard.name, rate) and keys[old.depends_on] in old.clocks
    }
    said = f" = {preset}, which has this in Ramulator 2.0"
    return {name: presets.Clocks(value, place, said) for name, value in clocks.items()}


def _written_clocks(timing: Tree, sheet: Sheet, standard: Standard, rate: int) -> dict[str, presets.Clocks]:
    names = {name for speed in standard.speeds.values() for name in speed} | set(standard.derived)
    renamed = _RENAMED if standard.name == "DDR5" else {}
    stated = {
        name: _written(timing, sheet, renamed.get(name, name), standard, rate)
        for name in sorted(names - {"rate", "tCK_ps"})
    }
    return {name: clocks for name, clocks in stated.items() if clocks is not None}


def _written(timing: Tree, sheet: Sheet, name: str, standard: Standard, rate: int) -> presets.Clocks | None:
    """A timing in clocks (nRCD), else converted from nanoseconds (tRCD), rounded as in Ramulator 2.0."""
    in_ns = f"t{name[1:]}"
    clocks, ns = timing.whole(name), timing.number(in_ns)
    if clocks is not None:
        if ns is not None:
            sheet.note(timing.place(in_ns), f"left out: {name} has it in clocks")
        return presets.Clocks(clocks, timing.place(name), f" = {clocks}")
    if ns is None:
        return None
    tck_ps, ps = 1_000_000 // (rate // standard.transfers_per_clock), int(ns * 1000)
    # The roundings of JESD79-4 and JESD79-5 in Ramulator 2.0.
    rounded = (ps * 997 // tck_ps + 1000) if standard.name == "DDR5" else (ps * 1000 // tck_ps + 974)
    return presets.Clocks(rounded // 1000, timing.place(in_ns), f" = {float(ns):g} ns")


def _turned(
    timing: Tree, standard: Standard, preset: str, clocks: dict[str, presets.Clocks]
) -> dict[str, presets.Clocks]:
    """`clocks` with DDR5's write-to-read times, which are distances between commands."""
    for ours, theirs in _TURNAROUNDS.items():
        distance, place = timing.whole(theirs), timing.place(theirs)
        if distance is not None:
            known = dict(standard.speeds[preset]) | {name: wanted.value for name, wanted in clocks.items()}
            clocks[ours] = presets.Clocks(
                distance - known["nCWL"] - known["nBL"], place, f" = {distance}, less nCWL and nBL"
            )
    return clocks


FORMAT = ConfigurationFormat(
    meaning="YAML of Ramulator 2.0",
    recognises=lambda file: _ROOT in file.keys,
    read=_read,
)
