"""The INI files of DRAMsim3, read as in its configuration.cc (umd-memsys/DRAMsim3).

A missing key has DRAMsim3's default, and a note says so. The additive latency is part of the same clocks
as in DRAMsim3's timing.cc: nCL = AL + CL, nCWL = AL + CWL, nRTP = AL + tRTP and nRCD = tRCD - AL. nRC is
tRAS + tRP, as in DRAMsim3.

Two of its rules do not exist in ndpsim: it adds a burst between RDA and ACT of a bank, and tRTRS between the
data of reads and writes within a rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from ndpsim.base.errors import one_of, shortened, shown
from ndpsim.base.units import exact
from ndpsim.config.importers import presets
from ndpsim.config.importers.ini import Entry, Ini
from ndpsim.config.importers.sheet import Place, Sheet
from ndpsim.config.importers.tree import Configuration, ConfigurationFormat
from ndpsim.dram.spec import Standard, standards

_SECTION = re.compile(r"^[ \t]*\[[ \t]*\w+[ \t]*\][ \t]*([;#].*)?$", re.MULTILINE)
_STANDARDS = {"DDR4": "DDR4"}  # protocol: standard; DRAMsim3 has no DDR5

# DRAMsim3's key: ours.
_TIMINGS = {
    **{key: f"n{key}" for key in ("CL", "CWL")},
    **{f"t{name}": f"n{name}" for name in ("RCD", "RP", "RAS", "RFC", "REFI", "FAW", "WR", "RTP")},
    **{f"t{name}_{end}": f"n{name}{end}" for name in ("RRD", "WTR", "CCD") for end in "SL"},
    "tRTRS": "nCS",
}
_READ_TO_WRITE = 2  # clocks between the data of both, by the rules of DDR4

# The multiple of AL in each timing.
_AL = {"nCL": 1, "nCWL": 1, "nRTP": 1, "nRCD": -1}

# DRAMsim3's key: ours.
_SIZES = {"device_width": "dq"} | {key: key for key in ("bankgroups", "banks_per_group", "rows", "columns")}

# The keys that are read, with DRAMsim3's defaults.
_DEFAULTS: dict[str, dict[str, str | int | bool]] = {
    "dram_structure": {
        **{"protocol": "DDR3", "BL": 8, "bankgroup_enable": True},
        **{"device_width": 8, "bankgroups": 2, "banks_per_group": 2, "rows": 1 << 16, "columns": 1 << 10},
    },
    "timing": {
        **{"tCK": "1.0", "AL": 0, "CL": 12, "CWL": 12, "tRCD": 10, "tRP": 10, "tRAS": 24, "tRFC": 74},
        **{"tREFI": 7800, "tRRD_S": 4, "tRRD_L": 4, "tWTR_S": 5, "tWTR_L": 5, "tFAW": 50, "tWR": 10},
        **{"tRTP": 5, "tCCD_S": 4, "tCCD_L": 6, "tRTRS": 2, "REFI": 7800},
    },
    "system": {
        **{"channels": 1, "channel_size": 1024, "bus_width": 64, "address_mapping": "chrobabgraco"},
        **{"row_buf_policy": "OPEN_PAGE", "aggressive_precharging_enabled": False},
        **{"refresh_policy": "RANK_LEVEL_STAGGERED", "trans_queue_size": 32, "unified_queue": False},
    },
}
# The keys whose defaults get a note, in this order.
_NOTED = "channels", "channel_size", "address_mapping", "row_buf_policy", "refresh_policy", "trans_queue_size"

_FIELDS = {"ch": "channel", "ra": "rank", "bg": "bankgroup", "ba": "bank", "ro": "row", "co": "column"}
_ROW_POLICIES = {"OPEN_PAGE": "open", "CLOSE_PAGE": "closed-cap"}
_REFRESHES = {"RANK_LEVEL_SIMULTANEOUS": "all-bank", "RANK_LEVEL_STAGGERED": "staggered"}
_BANK_REFRESH = "BANK_LEVEL_STAGGERED"

_RATE_TOLERANCE = Fraction(2, 100)  # files round tCK to hundredths of a ns, up to 0.8%

# Keys without a place in a hardware file: section, keys, reason. No keys: the whole section.
_DROPPED = (
    ("dram_structure", ("num_dies",), "stacks of dies are not modelled"),
    ("timing", ("tRFC2", "tRFC4"), "fine-granularity refresh is not modelled"),
    ("timing", ("tCKE", "tCKESR", "tXS", "tXP"), "power-down and self-refresh are not modelled"),
    ("timing", ("tRPRE", "tWPRE"), "preambles are part of the standard's rules, and of no rule in DRAMsim3"),
    ("timing", ("tRFCb", "tREFIb"), "DDR4 has no refresh of single banks"),
    ("timing", ("tPPD", "t32AW", "tRCDRD", "tRCDWR"), "DDR4 has no such timing"),
    ("timing", ("tWR2", "tCKSRE"), "DRAMsim3 does not read it"),
    ("timing", ("ideal_memory_latency",), "ideal memory is not modelled"),
    ("power", (), "energy follows from the data sheet of the device; dram.power changes it"),
    ("thermal", (), "temperature is not modelled"),
    ("hmc", (), "HMC is not modelled"),
    (
        "system",
        ("queue_structure", "cmd_queue_size"),
        "a controller has one read and one write queue a channel, none for each bank or rank",
    ),
    ("system", ("write_buf_size",), "DRAMsim3 reads and does not use it"),
    ("system", ("enable_self_refresh", "sref_threshold"), "self-refresh is not modelled"),
    ("other", (), "what a simulation writes is no part of a hardware file"),
)


def _recognises(file: Configuration) -> bool:
    return file.path.suffix.lower() == ".ini" or _SECTION.search(file.text) is not None


def _read(file: Configuration, sheet: Sheet) -> None:
    ini = Ini(file.text, sheet.file, _DEFAULTS)
    protocol = ini["dram_structure", "protocol"]
    if protocol.text not in _STANDARDS:
        missing = "" if protocol.is_written else " (DRAMsim3's default)"
        supported = ", ".join(_STANDARDS)
        problem = f"{shortened(protocol.text)}{missing} is not supported (supported: {supported})"
        raise protocol.place.error(problem, code="unsupported")
    standard = standards()[_STANDARDS[protocol.text]]
    sizes = _sizes(ini, sheet, standard)
    org = presets.match_organisation(standard, sizes)
    sources = ", ".join(_key(place) for _, place in sizes.values())
    clocks = _clocks(ini, sheet, standard)
    timing, tck = (
        presets.match_speed(standard, org, _rate(ini, sheet, standard), clocks),
        ini["timing", "tCK"],
    )
    presets.put_dram(
        sheet,
        (standard, protocol.place),
        (org, Place(sheet.file, None, f"[dram_structure] {sources}"), ""),
        (timing, tck.place, f" = {tck.text} ns; of this rate, nearest to the other timings"),
        clocks,
    )
    _put_system(ini, sheet, standard, org)
    _note_rest(ini, sheet)


def _key(place: Place) -> str:
    """The key of a place, without its section."""
    return place.key.partition("] ")[2]


def _note_default(sheet: Sheet, entry: Entry, unit: str = "") -> None:
    """Add a note if a key is missing."""
    if not entry.is_written:
        sheet.note(entry.place, f"is missing; DRAMsim3 takes {entry.text}{unit}, and so does this file")


def _sizes(ini: Ini, sheet: Sheet, standard: Standard) -> presets.Sizes:
    written = {ours: ini["dram_structure", key] for key, ours in _SIZES.items()}
    for entry in written.values():
        _note_default(sheet, entry)
    burst, width = ini["dram_structure", "BL"], ini["system", "bus_width"]
    if burst.whole() != standard.prefetch:
        problem = f"is not supported; a burst of {standard.name} has {standard.prefetch} transfers"
        raise burst.place.error(f"{burst.whole()} {problem}", code="unsupported")
    presets.check_width(standard, width.whole(), width.place)
    sizes = {ours: (entry.whole(), entry.place) for ours, entry in written.items()}
    if not ini["dram_structure", "bankgroup_enable"].flag():
        (groups, place), (banks, _) = sizes["bankgroups"], sizes["banks_per_group"]
        sizes |= {"bankgroups": (1, place), "banks_per_group": (groups * banks, place)}
    return sizes


def _clocks(ini: Ini, sheet: Sheet, standard: Standard) -> dict[str, presets.Clocks]:
    """Every timing of DRAMsim3, by ndpsim's names."""
    additive = ini["timing", "AL"]
    al = additive.whole()
    if al < 0:
        raise additive.place.error(f"{al} is below 0", code="range")
    clocks = {}
    for key, name in _TIMINGS.items():
        entry = _refresh_interval(ini, sheet) if key == "tREFI" else ini["timing", key]
        _note_default(sheet, entry, " clocks")
        value, said = entry.whole(), entry.said
        if al and name in _AL:
            value += _AL[name] * al
            said += f", {'with' if _AL[name] > 0 else 'less'} AL = {al}"
        if value < 1:
            raise entry.place.error(f"{value} clocks are fewer than 1", code="range")
        clocks[name] = presets.Clocks(value, entry.place, said)
    if al:
        sheet.note(additive.place, "is part of nCL, nCWL, nRTP and nRCD now, as in DRAMsim3's rules")
    if clocks["nCS"].value != _READ_TO_WRITE:
        problem = f"is nCS, between ranks; from read to write within a rank it stays {_READ_TO_WRITE} clocks"
        sheet.note(clocks["nCS"].place, problem)
    ras, rp = clocks["nRAS"], clocks["nRP"]
    rc, burst = ras.value + rp.value, standard.prefetch // standard.transfers_per_clock
    clocks["nRC"] = presets.Clocks(rc, ras.place, f" + tRP = {rc}, DRAMsim3's tRC")
    said = f" / {standard.transfers_per_clock} = {burst}"
    clocks["nBL"] = presets.Clocks(burst, ini["dram_structure", "BL"].place, said)
    return clocks


def _refresh_interval(ini: Ini, sheet: Sheet) -> Entry:
    """The refresh interval, whose key some files that come with DRAMsim3 misspell."""
    right, misspelt = ini["timing", "tREFI"], ini["timing", "REFI"]
    if misspelt.is_written and right.is_written:
        sheet.note(misspelt.place, "is left out: tREFI is what DRAMsim3 reads")
    elif misspelt.is_written:
        problem = "is taken as tREFI; DRAMsim3 does not read this name and refreshes every 7800 clocks"
        sheet.note(misspelt.place, problem)
        return misspelt
    return right


def _rate(ini: Ini, sheet: Sheet, standard: Standard) -> int:
    """The nearest data rate, in MT/s."""
    tck = ini["timing", "tCK"]
    tck_ns = exact(str(tck.number()))
    _note_default(sheet, tck, " ns")
    transfers = 1000 * standard.transfers_per_clock
    wanted = transfers / tck_ns
    rate = min(presets.rates(standard), key=lambda known: abs(known - wanted))
    if abs(rate - wanted) > rate * _RATE_TOLERANCE:
        known = ", ".join(map(str, presets.rates(standard)))
        problem = f"{float(wanted):.0f} MT/s, no rate of {standard.name} (known: {known})"
        raise tck.place.error(f"{float(tck_ns):g} ns are {problem}", code="range")
    if rate != wanted:
        becomes = f"{transfers / rate:.6g} ns, the clock of {standard.name}-{rate}"
        sheet.note(tck.place, f"{float(tck_ns):g} ns become {becomes}")
    return rate


def _put_system(ini: Ini, sheet: Sheet, standard: Standard, org: str) -> None:
    system = {key: ini["system", key] for key in _NOTED}
    for entry in system.values():
        _note_default(sheet, entry)
    mapping, slots, channels = system["address_mapping"], system["trans_queue_size"], system["channels"]
    sheet.put("dram.mapper", "custom", mapping.place)
    sheet.put("dram.mapping.order", _order(mapping), mapping.place, mapping.said)
    _put_row_policy(ini, sheet)
    _put_refresh(system["refresh_policy"], sheet)
    for key in ("read_buffer", "write_buffer"):
        sheet.put(f"dram.{key}", slots.whole(), slots.place, slots.said)
    count, said = channels.whole(), f"{channels.said}; each channel as a DIMM of its own"
    if count < 1 or count & (count - 1):
        problem = f"{count} is no power of two, which an address mapping needs"
        raise channels.place.error(problem, code="range")
    sheet.put("dimm.count", count, channels.place, said)
    size = system["channel_size"]
    ranks = _ranks(size, sheet, standard, org)
    sheet.put("dimm.ranks", ranks, size.place, f"{size.said}; {ranks} x a rank of {org}")
    sheet.put("host.channels", count, channels.place, channels.said)


def _order(mapping: Entry) -> list[str]:
    """The fields from the least significant bit up; DRAMsim3 lists them from the most significant down."""
    text = mapping.text
    fields = [text[start : start + 2] for start in range(0, len(text), 2)]
    if sorted(fields) != sorted(_FIELDS):
        problem = f"{shown(text)} is not each of {', '.join(_FIELDS)} once, as in rochrababgco"
        raise mapping.place.error(problem, code="form")
    return [_FIELDS[field] for field in reversed(fields)]


def _ranks(size: Entry, sheet: Sheet, standard: Standard, org: str) -> int:
    """Ranks on a channel, from its capacity in MB."""
    organisation, size_mb = standard.organisations[org], size.whole()
    rank_mb = organisation.density_mb // 8 * (standard.channel_bits // organisation.dq)
    ranks = max(1, size_mb // rank_mb)
    if ranks * rank_mb != size_mb:
        becomes = f"{ranks * rank_mb} MB, {ranks} x a rank of {rank_mb} MB, as in DRAMsim3"
        sheet.note(size.place, f"{size_mb} MB become {becomes}")
    return ranks


def _put_row_policy(ini: Ini, sheet: Sheet) -> None:
    policy, early = ini["system", "row_buf_policy"], ini["system", "aggressive_precharging_enabled"]
    if policy.text not in _ROW_POLICIES:
        raise policy.place.unknown(policy.text, _ROW_POLICIES, "policy")
    sheet.put("dram.row_policy", _ROW_POLICIES[policy.text], policy.place, policy.said)
    if policy.text == "CLOSE_PAGE":
        sheet.put("dram.row_cap", 1, policy.place, policy.said)
        problem = "becomes closed-cap with a cap of 1; DRAMsim3 makes every access an RDA or WRA instead"
        sheet.note(policy.place, problem)
    elif early.flag():
        sheet.note(early.place, "is left out: rows are not closed early")


def _put_refresh(policy: Entry, sheet: Sheet) -> None:
    if policy.text == _BANK_REFRESH:
        problem = "DDR4 has no refresh of single banks; all banks of a rank are refreshed at once"
        sheet.note(policy.place, f"is left out: {problem}")
    elif policy.text not in _REFRESHES:
        raise policy.place.unknown(policy.text, [*_REFRESHES, _BANK_REFRESH], "policy")
    else:
        sheet.put("dram.refresh", _REFRESHES[policy.text], policy.place, policy.said)


def _note_rest(ini: Ini, sheet: Sheet) -> None:
    """Add notes about everything that is left out."""
    unified = ini["system", "unified_queue"]
    if unified.flag():
        sheet.note(unified.place, "is left out: reads and writes wait in queues of their own")
    rest = {name: entry.place for name, entry in ini.entries.items()}
    for section, used in _DEFAULTS.items():
        _take(rest, section, used)
    for section, keys, why in _DROPPED:
        places = _take(rest, section, keys or [key for known, key in rest if known == section])
        if places:
            names = ", ".join(map(_key, places))
            sheet.note(Place(sheet.file, places[0].line, f"[{section}] {names}"), f"left out: {why}")
    known = [key for keys in (*(keys for _, keys, _ in _DROPPED), *_DEFAULTS.values()) for key in keys]
    for place in rest.values():
        sheet.note(place, f"left out: {one_of(_key(place), known, 'key').partition(' (known')[0]}")


def _take(rest: dict[tuple[str, str], Place], section: str, keys: Iterable[str]) -> list[Place]:
    """Remove keys of a section from `rest`; returns the places of the removed keys."""
    names = [(section, key.lower()) for key in keys]
    return [rest.pop(name) for name in names if name in rest]


FORMAT = ConfigurationFormat(meaning="INI of DRAMsim3", recognises=_recognises, read=_read)
