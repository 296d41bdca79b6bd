"""Output of ``python -m ramulator export`` of Ramulator 2.1: every value in full, no preset names."""

from __future__ import annotations

from ndpsim.config.importers import presets, ramulator
from ndpsim.config.importers.sheet import Place, Sheet
from ndpsim.config.importers.tree import Configuration, ConfigurationFormat, Tree
from ndpsim.config.nodes import plain_of
from ndpsim.dram.spec import Standard

_ROOT = "memory_system"

_PARTS = ramulator.PartNames("scheduler", "refresh_manager", "row_policy", "controller_plugins", uncapped=4)

# The order of a timing list (timing_params in python/ramulator/dram, version 2.1.0).
_CORE = ("rate", "nBL", "nCL", "nRCD", "nRP", "nRAS", "nRC", "nWR", "nRTP", "nCWL")
_ACTIVATES, _TURNS = ("nRRDS", "nRRDL"), ("nWTRS", "nWTRL")
_END = ("nFAW", "nRFC", "nREFI", "nCS", "tCK_ps")
_SPLIT = ("rate", "nBL", "nCL", "nRCDRD", "nRCDWR", "nRP", "nRAS", "nRC", "nWR", "nRTP", "nCWL")
_HBM_TIMINGS = (
    *(*_SPLIT, "nCCDS", "nCCDL", "nCCDR", *_ACTIVATES, *_TURNS, "nRTW", "nFAW", "nPPD"),
    *("nRFC", "nRFCpb", "nRFMab", "nRFMpb", "nRREFD", "nREFI", "nREFIpb", "tCK_ps"),
)
_TIMINGS = {
    "DDR4": (*_CORE, "nCCDS", "nCCDL", *_ACTIVATES, *_TURNS, *_END),
    "DDR5": (*_CORE, "nPPD", "nCCDS", "nCCDL", "nCCDS_WR", "nCCDL_WR", *_ACTIVATES, *_TURNS, *_END),
    "GDDR6": (
        *(*_SPLIT, "nCCDS", "nCCDL", *_ACTIVATES, *_TURNS, "nFAW", "nRFCpb", "nRREFD"),
        *("nREFI", "tCK_ps", "nRFCab", "nPPD"),
    ),
    "GDDR7": (
        *("rate", "nBL", "nRL", "nWL", "nDQERL", "nRCDRD", "nRCDWR", "nRP", "nRAS", "nRC", "nRRD", "nRREFD"),
        *("nRPD", "nRTPSB", "nPPD", "nWR", "nCCD", "nCCDSB", "nWTR", "nWTRSB", "nRTW", "nREFI", "nREFIpb"),
        *("nRFCab", "nRFCpb", "nRDREFab", "nRFMab", "nRFMpb", "nRCKSTRT2RD", "nRD2RCKSTOP", "nRCKSP2ST"),
        *("nRCKST2SP", "nRCKSTOP_LAT", "nRCKEN", "nRCK_LS", "nRCKPST", "nRCK_HS", "tCK_ps"),
    ),
    "HBM3": _HBM_TIMINGS,
    "HBM4": _HBM_TIMINGS,
    "LPDDR5": (
        *("rate", "nBL_min", "nBL_max", "nCL", "nRCD", "nRP", "nRPab", "nRAS", "nRC", "nWR", "nRTP", "nCWL"),
        *("nPPD", "nCCDS", "nCCDL", "nCCDS_WR", "nCCDL_WR", *_ACTIVATES, *_TURNS),
        *("nFAW", "nRFC", "nRFCpb", "nREFI", "nREFIpb", "nWCKPST", "nCAS", "nAAD", "nCS", "tCK_ps"),
        *("nPBR2PBR", "nPBR2ACT"),
    ),
    "LPDDR6": (
        *("rate", "nBL_min", "nBL_max", "nBL_min_L", "nBL_max_L", "nRL", "nWL", "nACU", "nRCDr", "nRCDw"),
        *("nRP", "nRPab", "nRAS", "nRC", "nWTP", "nRTP", "nRTP_L", "nPPD"),
        *("nCCDS", "nCCDL", "nCCDL_L", "nCCDS_WR", "nCCDL_WR", "nCCDL_WR_L", "nRRD", *_TURNS),
        *("nRTW_S", "nRTW_L", "nRTW_S_L", "nRTW_L_L", "nWCK2DQO", "nRPST", "nODTLon", "nODTon_min"),
        *("nFAW", "nRFC", "nREFI", "nWCKPST", "nCAS", "nAAD", "nCS", "tCK_ps"),
    ),
}
# The order of the counts of an organisation.
_INNER = ("bankgroups", "banks_per_group", "rows", "columns")
_LEVELS = {
    "GDDR6": ("channel", *_INNER),
    "GDDR7": ("channel", *_INNER[1:]),
    **dict.fromkeys(("HBM3", "HBM4"), ("channel", "ranks", "stacks", *_INNER)),
}
_OTHER_LEVELS = ("channel", "rank", *_INNER)
_WCK_MODES = {"need_sync": "need-sync", "always_on": "always-on"}
_CONTROLLERS = {"GDDR7": "GDDR7", "HBM3": "HBM34", "HBM4": "HBM34", "LPDDR5": "LPDDR5", "LPDDR6": "LPDDR6"}
_COLUMNS_OF_BURST = {"LPDDR6": 16}  # where they are not those of the standard

_WHY = {
    "frontend": "traffic is no part of a hardware file",
    "clock_ratio": "the clock of the front end is no part of a hardware file",
    "priority_buffer_size": "the queue for refreshes is large enough here",
    "command_cycles": "the standard says it",
    "read_latency": "it is nCL and a burst here",
    "timing_constraints": "the standard says them",
    "data_payload_bytes": "the standard says it",
}


def _read(file: Configuration, sheet: Sheet) -> None:
    root = file.tree
    memory = ramulator.memory_of(root, _ROOT)
    controllers = memory.parts("controllers")
    if not controllers:
        raise memory.place("controllers").error("is missing or empty", code="missing")
    controller, channels = controllers[0], (len(controllers), memory.place("controllers"))
    for other in controllers[1:]:
        if plain_of(other.node) != plain_of(controller.node):
            raise other.here.error("differs from the first; all channels are alike here", code="unsupported")
        for key in other.names():
            other.value(key)
    dram = controller.part("dram")
    standard, place = ramulator.known_standard(dram, _TIMINGS)
    org, ranks, org_place = _organisation(dram, standard)
    timing, clocks = _timing(sheet, dram, standard, org)
    presets.put_dram(sheet, (standard, place), (org, org_place, " and dq"), timing, clocks)
    bits = ramulator.AddressBits.count(standard, standard.organisations[org], channels[0], ranks)
    _put_mapper(sheet, memory, controller, bits)
    like = _CONTROLLERS.get(standard.name, "GenericDDR")
    if controller.word("impl") not in (None, like):
        sheet.note(controller.place("impl"), f"left out: the controller is ndpsim's, like {like}")
    ramulator.put_controller(sheet, controller, _PARTS, standard)
    _put_wck(sheet, controller)
    ramulator.put_channels(sheet, channels, (ranks, org_place) if "rank" in _levels(standard) else None)
    ramulator.note_unread(sheet, root, _WHY)


def _put_wck(sheet: Sheet, controller: Tree) -> None:
    mode, place = controller.word("wck_sync_mode"), controller.place("wck_sync_mode")
    if mode in _WCK_MODES:
        sheet.put("dram.wck", _WCK_MODES[mode], place)
    elif mode is not None:
        raise place.unknown(mode, _WCK_MODES, "mode of the data clock")


def _levels(standard: Standard) -> tuple[str, ...]:
    return _LEVELS.get(standard.name, _OTHER_LEVELS)


def _organisation(dram: Tree, standard: Standard) -> tuple[str, int, Place]:
    """The name of the organisation, the ranks, and the places of both."""
    org, levels = dram.part("org"), _levels(standard)
    dq, counts, place = org.whole("dq"), org.wholes("count"), org.place("count")
    if dq is None or len(counts) != len(levels):
        raise org.here.error(f"needs dq and a count of {len(levels)}: {', '.join(levels)}", code="conflict")
    presets.check_width(standard, dram.whole("channel_width"), dram.place("channel_width"))
    sizes = {name: (count, place) for name, count in zip(levels, counts, strict=True)}
    theirs = _COLUMNS_OF_BURST.get(standard.name, standard.prefetch)
    sizes["columns"] = sizes["columns"][0] * standard.prefetch // theirs, place
    ranks, _ = sizes.pop("rank", (1, place))
    del sizes["channel"]
    return presets.match_organisation(standard, {**sizes, "dq": (dq, org.place("dq"))}), ranks, place


def _timing(
    sheet: Sheet, dram: Tree, standard: Standard, org: str
) -> tuple[tuple[str, Place, str], dict[str, presets.Clocks]]:
    """The nearest speed preset, with its place and words; and every timing of the list."""
    names, values, place = _TIMINGS[standard.name], dram.wholes("timing"), dram.place("timing")
    if len(values) != len(names):
        problem = f"has {len(values)} values, not the {len(names)} of {standard.name}: {', '.join(names)}"
        raise place.error(problem, code="form")
    written = dict(zip(names, values, strict=True))
    rate, tck_ps = _rate(standard, written.pop("rate")), written.pop("tCK_ps")
    ticks, rates = standard.ticks_per_clock, presets.rates(standard)
    if "nRCK_HS" in written:
        sheet.note(place, f"left out: nRCK_HS of {written.pop('nRCK_HS')}; no rule has it")
    for name, value in written.items():
        if value % ticks != 0:
            raise place.error(f"{name} = {value} is no whole number of clocks of {ticks} ticks", code="range")
    if rate not in rates:
        known = ", ".join(map(str, rates))
        raise place.error(f"{rate} is no rate of {standard.name} (known: {known})", code="range")
    clocks = {
        name: presets.Clocks(value // ticks, place, f": {name} = {value}" + " ticks" * (ticks > 1))
        for name, value in written.items()
    }
    timing = presets.match_speed(standard, org, rate, clocks)
    if standard.speeds[timing]["tCK_ps"] // ticks != tck_ps:
        sheet.note(place, f"left out: tCK_ps of {tck_ps}; the clock is that of {rate} MT/s")
    for name, value in presets.departures(standard, org, timing).items():
        if name in clocks and clocks[name].value == value:
            sheet.note(place, f"left out: {name} of {value} is Ramulator's own; the standard has another")
            del clocks[name]
    return (timing, place, f": rate = {rate}, nearest to the other timings"), clocks


def _rate(standard: Standard, rate: int) -> int:
    """The rate of the standard, where Ramulator computes another from a rounded clock."""
    for timing, theirs in standard.under("reference").speeds.items():
        if theirs["rate"] == rate and timing in standard.speeds:
            return standard.speeds[timing]["rate"]
    return rate


def _put_mapper(sheet: Sheet, memory: Tree, controller: Tree, bits: ramulator.AddressBits) -> None:
    mapper = memory.part("channel_mapper")
    impl, low = mapper.word("impl"), mapper.whole("interleave_bits") or 0
    if impl not in (None, "CacheLineInterleave") and bits.widths["channel"]:
        sheet.note(mapper.place("impl"), f"left out: {impl}; channels take turns burst by burst")
    top = sum(bits.widths.values()) - bits.widths["channel"]
    if not 0 <= low <= top:
        problem = f"{low} is not from 0 to {top}, the bits of a channel's bursts"
        raise mapper.place("interleave_bits").error(problem, code="range")
    channel_at = dict.fromkeys(("RoBaRaCoCh", "ChRaBaRoCo", "MOP4CLXOR"), low)
    ramulator.put_mapper(sheet, controller.part("addr_mapper"), bits, channel_at, channel_xored=False)


FORMAT = ConfigurationFormat(
    meaning="YAML or JSON that `python -m ramulator export` of Ramulator 2.1 writes",
    recognises=lambda file: _ROOT in file.keys,
    read=_read,
)
