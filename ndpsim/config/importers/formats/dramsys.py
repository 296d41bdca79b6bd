"""The JSON files of DRAMSys 5 (tukl-msd/DRAMSys, `configs`): a simulation, or a memory specification alone.

The parts of a simulation (memspec, addressmapping, mcconfig, simconfig) are in the file, or files of their
own beside it. Of the memories of DRAMSys, ndpsim has DDR4. All clocks of the specification are taken; the
data rate is that nearest to `tCK`.
"""

from __future__ import annotations

from typing import Any

from ndpsim.base.errors import InputError, one_of, shown
from ndpsim.config.importers.presets import (
    Clocks,
    check_width,
    match_organisation,
    match_speed,
    put_dram,
    rates,
)
from ndpsim.config.importers.ramulator import note_unread, put_channels
from ndpsim.config.importers.sheet import Place, Sheet
from ndpsim.config.importers.tree import Configuration, ConfigurationFormat, Tree
from ndpsim.config.nodes import read_text
from ndpsim.dram.spec import Standard, standards

_ROOT, _SPEC = "simulation", "memspec"
_STANDARDS = ("DDR4",)
# Names of ndpsim, and the names of DRAMSys for them.
_SIZES = {"dq": "width", "bankgroups": "nbrOfBankGroups", "rows": "nbrOfRows", "columns": "nbrOfColumns"}
_TIMINGS = {
    **{f"n{name}": name for name in ("RCD", "RP", "RAS", "RC", "FAW", "WR", "RTP", "REFI")},
    **{f"n{name}{end}": f"{name}_{end}" for name in ("RRD", "WTR", "CCD") for end in "SL"},
    **{"nCL": "RL", "nCWL": "WL", "nRFC": "RFC1"},
}
_REFRESH_MODES = {1: "RFC1", 2: "RFC2", 4: "RFC4"}
_FIELDS = {
    "CHANNEL_BIT": "channel",
    "RANK_BIT": "rank",
    "BANKGROUP_BIT": "bankgroup",
    "BANK_BIT": "bank",
    "ROW_BIT": "row",
    "COLUMN_BIT": "column",
}
_OTHER_FIELDS = ("STACK_BIT", "PSEUDOCHANNEL_BIT")
_REFRESHES = {"AllBank": "all-bank", "Rankwise": "all-bank", "NoRefresh": "none"}
_OPEN, _CLOSED = ("Open", "OpenAdaptive"), ("Closed", "ClosedAdaptive")
_DELAYS = ("ArbitrationDelay", "ThinkDelay", "PhyDelay")
_WHY = {
    **dict.fromkeys(
        ("mempowerspec", "memimpedancespec", "bankwisespec", "dataratespec"),
        "energy follows from the data sheet of the device",
    ),
    **dict.fromkeys(("CKE", "CKESR", "XP", "XPDLL", "XS", "XSDLL"), "power-down is not modelled"),
    **dict.fromkeys(("ACTPDEN", "PRPDEN", "REFPDEN", "PowerDownPolicy"), "power-down is not modelled"),
    **dict.fromkeys(("RPRE", "WPRE", "DQSCK", "RTRS"), "is part of the rules of the standard here"),
    **dict.fromkeys(("RFC1", "RFC2", "RFC4"), "is of another refresh mode"),
    **dict.fromkeys(("memoryId", "simulationid"), "is a name"),
    **dict.fromkeys((f"{name}{end}" for name in _DELAYS for end in ("Fw", "Bw")), "delays are left out"),
    **dict.fromkeys(("CmdMux", "RespQueue", "Arbiter"), "the controller is ndpsim's"),
    **dict.fromkeys(("maxBurstLength", "CL"), "says what other keys say"),
    "prepostamble": "is part of the rules of the standard here",
    "MaxActiveTransactions": "there is no limit",
    "tracesetup": "traffic is no part of a hardware file",
    "simconfig": "it is about the simulation",
}


def _part(file: Configuration, root: Tree, key: str) -> Tree:
    """A part of a simulation, from the file itself or from the file that it names.

    Raises:
        InputError: there is no such file, or it has another part.
    """
    value, place = root.value(key), root.place(key)
    if not isinstance(value, str):
        return root.part(key)
    path = file.path.parent / value
    try:
        other = Configuration(path, read_text(path))
    except InputError as error:
        raise place.error(f"{shown(value)}: {error.problem}", code=error.code) from None
    if key not in other.keys:
        raise place.error(f"{shown(value)} has no {key}", code="missing")
    return other.tree.part(key)


def _needed(part: Tree, key: str) -> tuple[int, Place]:
    value, place = part.whole(key), part.place(key)
    if value is None:
        raise place.error("is missing", code="missing")
    return value, place


def _sizes(architecture: Tree, standard: Standard) -> dict[str, tuple[int, Place]]:
    sizes = {ours: _needed(architecture, theirs) for ours, theirs in _SIZES.items()}
    devices, place = _needed(architecture, "nbrOfDevices")
    check_width(standard, devices * sizes["dq"][0], place)
    for key, value in (("burstLength", standard.prefetch), ("dataRate", 2)):
        stated, place = _needed(architecture, key)
        if stated != value:
            raise place.error(f"{stated} is not supported; it is {value} here", code="unsupported")
    banks, place = _needed(architecture, "nbrOfBanks")
    groups = sizes["bankgroups"][0]
    if groups < 1 or banks % groups:
        raise place.error(f"{banks} are not the same in each of {groups} bank groups", code="conflict")
    return sizes | {"banks_per_group": (banks // groups, place)}


def _rate(timing: Tree, standard: Standard, sheet: Sheet) -> int:
    """The data rate of the standard that is nearest to the clock period, which is in seconds."""
    period_s, place = timing.number("tCK"), timing.place("tCK")
    if not period_s:
        raise place.error("is missing or 0", code="missing")
    wanted = float(standard.transfers_per_clock / period_s / 10**6)
    rate = min(rates(standard), key=lambda rate: abs(rate - wanted))
    if abs(rate - wanted) > 0.005 * wanted:
        sheet.note(place, f"is {wanted:.0f} MT/s; the nearest rate of {standard.name} is {rate} MT/s")
    return rate


def _clocks(timing: Tree, architecture: Tree) -> dict[str, Clocks]:
    modes = [part.whole(key) for part, key in ((architecture, "RefMode"), (timing, "REFM"))]
    mode = next((mode for mode in modes if mode is not None), 1)
    if mode not in _REFRESH_MODES:
        raise timing.place("REFM").error(f"{mode} is not 1, 2 or 4", code="range")
    names = _TIMINGS | {"nRFC": _REFRESH_MODES[mode]}
    clocks = {ours: Clocks(*_needed(timing, theirs)) for ours, theirs in names.items()}
    for wanted in clocks.values():
        if wanted.value < 1:
            raise wanted.place.error(f"{wanted.value} clocks are fewer than 1", code="range")
    if timing.whole("AL"):
        raise timing.place("AL").error("an additive latency is not supported", code="unsupported")
    interval = clocks["nREFI"]
    if mode != 1:
        said = f" / {mode}, of refresh mode {mode}"
        clocks["nREFI"] = Clocks(interval.value // mode, interval.place, said)
    return clocks


def _put_memory(spec: Tree, sheet: Sheet) -> tuple[Standard, str, int, int]:
    """Put the memory on the sheet; returns its standard and organisation, and channels and ranks."""
    architecture, timing = spec.part("memarchitecturespec"), spec.part("memtimingspec")
    name, place = spec.word("memoryType"), spec.place("memoryType")
    if name not in _STANDARDS:
        problem = f"{shown(name)} is not supported (supported: {', '.join(_STANDARDS)})"
        raise place.error(problem, code="missing" if name is None else "unsupported")
    standard = standards()[name]
    sizes = _sizes(architecture, standard)
    org = match_organisation(standard, sizes)
    clocks = _clocks(timing, architecture)
    speed = match_speed(standard, org, _rate(timing, standard, sheet), clocks)
    tck = timing.place("tCK")
    put_dram(
        sheet, (standard, place), (org, sizes["rows"][1], ""), (speed, tck, ", nearest to all clocks"), clocks
    )
    ranks, channels = _needed(architecture, "nbrOfRanks"), _needed(architecture, "nbrOfChannels")
    put_channels(sheet, channels, ranks)
    return standard, org, channels[0], ranks[0]


def _bits(mapping: Tree, key: str) -> dict[int, int]:
    """The bits of a field: which bit of the field each bit of an address is."""
    value, place = mapping.value(key), mapping.place(key)
    listed = [] if value is None else value if isinstance(value, list) else [value]
    if any(isinstance(bit, list) for bit in listed):
        raise place.error("XORs of bits are not supported", code="unsupported")
    if any(type(bit) is not int or not 0 <= bit < 64 for bit in listed) or len(set(listed)) < len(listed):
        raise place.error(f"{shown(value)} is not a list of bits, each once", code="type")
    if listed != sorted(listed):
        raise place.error("bits of a field that are not in ascending order are not supported", "unsupported")
    return {bit: number for number, bit in enumerate(listed)}


def _put_mapping(mapping: Tree, sheet: Sheet, standard: Standard, org: str, sizes: tuple[int, int]) -> None:
    """Put the address mapping on the sheet: the fields from the lowest bit of a burst's address up."""
    for key in _OTHER_FIELDS:
        if mapping.value(key):
            raise mapping.place(key).error(f"{standard.name} has none", code="unsupported")
    bits = {field: _bits(mapping, key) for key, field in _FIELDS.items()}
    device = standard.organisations[org]
    low = list(range((standard.channel_bits // 8 - 1).bit_length()))
    if mapping.wholes("BYTE_BIT") != low:
        problem = f"the bits within a transfer of {standard.channel_bits // 8} bytes are {low}"
        raise mapping.place("BYTE_BIT").error(problem, code="conflict")
    burst = (standard.prefetch - 1).bit_length()
    within = list(range(len(low), len(low) + burst))
    if list(bits["column"])[:burst] != within:
        problem = f"the bits within a burst, {within}, must be the lowest of the column"
        raise mapping.place("COLUMN_BIT").error(problem, code="unsupported")
    channels, ranks = sizes
    counts = {
        "channel": channels,
        "rank": ranks,
        "bankgroup": device.bankgroups,
        "bank": device.banks_per_group,
        "row": device.rows,
        "column": device.columns,
    }
    for key, field in _FIELDS.items():
        if 1 << len(bits[field]) != counts[field]:
            problem = f"has {len(bits[field])} bits, and the memory has {counts[field]} of this field"
            raise mapping.place(key).error(problem, code="conflict")
    fields = {bit: field for field, its in bits.items() for bit in its if bit not in within}
    if sorted(fields) != list(range(len(low) + burst, len(low) + burst + len(fields))):
        raise mapping.here.error("some bits of an address are in no field, or in two", code="conflict")
    runs: list[list[Any]] = []
    for bit in sorted(fields):
        if runs and runs[-1][0] == fields[bit]:
            runs[-1][1] += 1
        else:
            runs.append([fields[bit], 1])
    last = {field: number for number, (field, _) in enumerate(runs)}
    order = [
        field if last[field] == number else f"{field}:{count}" for number, (field, count) in enumerate(runs)
    ]
    if "rank" not in last:
        order.append("rank")  # of no bits
    sheet.put("dram.mapper", "custom", mapping.here)
    sheet.put("dram.mapping.order", order, mapping.here, ", from the lowest bit up")


def _put_controller(controller: Tree, sheet: Sheet) -> None:
    scheduler, policy = controller.word("Scheduler"), controller.word("PagePolicy")
    if scheduler != "FrFcfs":
        place = controller.place("Scheduler")
        sheet.note(place, f"left out: {scheduler or 'none'} is not FrFcfs, which is taken")
    place = controller.place("PagePolicy")
    if policy is not None and policy not in (*_OPEN, *_CLOSED):
        raise place.error(one_of(policy, (*_OPEN, *_CLOSED), "page policy"), "unknown-name")
    if policy in _CLOSED:
        sheet.put("dram.row_policy", "closed-cap", place)
        sheet.put("dram.row_cap", 1, place)
        sheet.note(place, "becomes closed-cap with a cap of 1; DRAMSys makes every access an RDA or WRA")
    elif policy is not None:
        sheet.put("dram.row_policy", "open", place)
    if policy in ("OpenAdaptive", "ClosedAdaptive"):
        sheet.note(place, "left out: rows are not closed or kept open for the requests that wait")
    refresh, place = controller.word("RefreshPolicy"), controller.place("RefreshPolicy")
    if refresh in _REFRESHES:
        sheet.put("dram.refresh", _REFRESHES[refresh], place)
    elif refresh is not None:
        sheet.note(place, f"left out: DDR4 has no {refresh}; all banks of a rank are refreshed at once")
    for key in ("RefreshMaxPostponed", "RefreshMaxPulledin"):
        if controller.whole(key):
            sheet.note(controller.place(key), "left out: refreshes are neither postponed nor pulled in")
    if controller.value("RefreshManagement"):
        sheet.note(controller.place("RefreshManagement"), "left out: refresh management is not imported")
    _put_queues(controller, sheet)


def _put_queues(controller: Tree, sheet: Sheet) -> None:
    """Put the queues on the sheet, if there is one of reads and one of writes as in ndpsim."""
    kind, place = controller.word("SchedulerBuffer"), controller.place("SchedulerBuffer")
    size = controller.whole("RequestBufferSize")
    for key, ours in (("RequestBufferSizeRead", "read_buffer"), ("RequestBufferSizeWrite", "write_buffer")):
        own = controller.whole(key)
        slots, where = (size, "RequestBufferSize") if own is None else (own, key)
        if kind == "ReadWrite" and slots is not None:
            sheet.put(f"dram.{ours}", slots, controller.place(where))
    if kind is not None and kind != "ReadWrite":
        sheet.note(place, f"left out: {kind} queues; reads and writes wait in queues of their own, as usual")


def _read(file: Configuration, sheet: Sheet) -> None:
    if _ROOT not in file.keys:
        spec = file.tree.part(_SPEC)
        _put_memory(spec, sheet)
        note_unread(sheet, spec, _WHY)
        return
    root = file.tree.part(_ROOT)
    spec = _part(file, root, _SPEC)
    standard, org, *sizes = _put_memory(spec, sheet)
    mapping, controller = _part(file, root, "addressmapping"), _part(file, root, "mcconfig")
    if mapping.names():
        _put_mapping(mapping, sheet, standard, org, (sizes[0], sizes[1]))
    _put_controller(controller, sheet)
    simulation = _part(file, root, "simconfig")
    if simulation.whole("AddressOffset"):
        sheet.note(simulation.place("AddressOffset"), "left out: subtract it from the addresses of a trace")
    for setup in root.parts("tracesetup"):
        mhz, name = setup.number("clkMhz"), setup.word("name")
        if mhz and setup.value("type") in (None, "player"):
            said = f"cycles of {name} count at {float(mhz):g} MHz: ndpsim dram --trace-mhz {float(mhz):g}"
            sheet.note(setup.place("clkMhz"), said)
        for key in setup.names():
            setup.value(key)
    for part in (spec, mapping, controller):
        note_unread(sheet, part, _WHY)


FORMAT = ConfigurationFormat(
    meaning="JSON of DRAMSys 5, a simulation or a memspec",
    recognises=lambda file: _ROOT in file.keys or _SPEC in file.keys,
    read=_read,
)
