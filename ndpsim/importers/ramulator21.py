"""What ``python -m ramulator export`` of Ramulator 2.1 writes: every value in full, no preset names."""

from __future__ import annotations

from ndpsim.importers.presets import Clocks, check_width, match_organisation, match_speed, put_dram, rates
from ndpsim.importers.ramulator import (
    Bits,
    Parts,
    known_standard,
    note_unread,
    put_channels,
    put_controller,
    put_mapper,
)
from ndpsim.importers.sheet import Place, Sheet
from ndpsim.importers.tree import Tree, plain
from ndpsim.spec import Standard

__all__ = ["ROOT", "read"]

#: The key by which a file is known.
ROOT = "memory_system"

_PARTS = Parts("scheduler", "refresh_manager", "row_policy", "controller_plugins", uncapped=4)

# The order of a timing list (timing_params in python/ramulator/dram, version 2.1.0).
_CORE = ("rate", "nBL", "nCL", "nRCD", "nRP", "nRAS", "nRC", "nWR", "nRTP", "nCWL")
_ACTIVATES, _TURNS = ("nRRDS", "nRRDL"), ("nWTRS", "nWTRL")
_END = ("nFAW", "nRFC", "nREFI", "nCS", "tCK_ps")
_TIMINGS = {
    "DDR4": (*_CORE, "nCCDS", "nCCDL", *_ACTIVATES, *_TURNS, *_END),
    "DDR5": (*_CORE, "nPPD", "nCCDS", "nCCDL", "nCCDS_WR", "nCCDL_WR", *_ACTIVATES, *_TURNS, *_END),
}
_LEVELS = ("channel", "rank", "bankgroups", "banks_per_group", "rows", "columns")

_WHY = {
    "frontend": "traffic is no part of a hardware file",
    "clock_ratio": "the clock of the front end is no part of a hardware file",
    "priority_buffer_size": "the queue for refreshes is large enough here",
    "command_cycles": "the standard says it",
    "read_latency": "it is nCL + nBL here",
    "timing_constraints": "the standard says them",
}


def read(root: Tree, sheet: Sheet) -> None:
    """Put what an export of Ramulator 2.1 says on the sheet.

    Raises:
        InputError: it describes what ndpsim does not have.
    """
    memory = root.part(ROOT)
    impl = memory.word("impl")
    if impl not in (None, "GenericDRAM"):
        raise memory.place("impl").error(f"{impl} is not supported (supported: GenericDRAM)")
    controllers = memory.parts("controllers")
    if not controllers:
        raise memory.place("controllers").error("is missing or empty")
    controller, channels = controllers[0], (len(controllers), memory.place("controllers"))
    for other in controllers[1:]:
        if plain(other.node) != plain(controller.node):
            raise other.here.error("differs from the first; all channels are alike here")
        for key in other.names():
            other.value(key)
    dram = controller.part("dram")
    standard, place = known_standard(dram)
    org, ranks, org_place = _organisation(dram, standard)
    _put_dram(sheet, dram, (standard, place), (org, org_place))
    _put_mapper(
        sheet, memory, controller, Bits.count(standard, standard.organisations[org], channels[0], ranks[0])
    )
    if controller.word("impl") not in (None, "GenericDDR"):
        sheet.note(controller.place("impl"), "left out: the controller is ndpsim's, like GenericDDR")
    put_controller(sheet, controller, _PARTS)
    put_channels(sheet, channels, ranks)
    note_unread(sheet, root, _WHY)


def _organisation(dram: Tree, standard: Standard) -> tuple[str, tuple[int, Place], Place]:
    """The name of the organisation, the ranks, and where both stand."""
    org = dram.part("org")
    dq, counts, place = org.whole("dq"), org.wholes("count"), org.place("count")
    if dq is None or len(counts) != len(_LEVELS):
        raise org.here.error(f"needs dq and a count of {len(_LEVELS)}: {', '.join(_LEVELS)}")
    check_width(standard, dram.whole("channel_width"), dram.place("channel_width"))
    sizes = {name: (count, place) for name, count in zip(_LEVELS, counts, strict=True)}
    name = match_organisation(standard, {**sizes, "dq": (dq, org.place("dq"))})
    return name, sizes["rank"], place


def _put_dram(sheet: Sheet, dram: Tree, standard: tuple[Standard, Place], org: tuple[str, Place]) -> None:
    names, values, place = _TIMINGS[standard[0].name], dram.wholes("timing"), dram.place("timing")
    if len(values) != len(names):
        raise place.error(
            f"has {len(values)} values, not the {len(names)} of {standard[0].name}: {', '.join(names)}"
        )
    written = dict(zip(names, values, strict=True))
    rate, tck_ps = written.pop("rate"), written.pop("tCK_ps")
    if rate not in rates(standard[0]):
        known = ", ".join(map(str, rates(standard[0])))
        raise place.error(f"{rate} is no rate of {standard[0].name} (known: {known})")
    clocks = {name: Clocks(value, place, f": {name} = {value}") for name, value in written.items()}
    timing = match_speed(standard[0], org[0], rate, clocks)
    if standard[0].speeds[timing]["tCK_ps"] != tck_ps:
        sheet.note(place, f"left out: tCK_ps of {tck_ps}; the clock is that of {rate} MT/s")
    said = f": rate = {rate}, nearest to the other timings"
    put_dram(sheet, standard, (*org, " and dq"), (timing, place, said), clocks)


def _put_mapper(sheet: Sheet, memory: Tree, controller: Tree, bits: Bits) -> None:
    mapper = memory.part("channel_mapper")
    impl, low = mapper.word("impl"), mapper.whole("interleave_bits") or 0
    if impl not in (None, "CacheLineInterleave") and bits.of["channel"]:
        sheet.note(mapper.place("impl"), f"left out: {impl}; channels take turns burst by burst")
    top = sum(bits.of.values()) - bits.of["channel"]
    if not 0 <= low <= top:
        raise mapper.place("interleave_bits").error(
            f"{low} is not from 0 to {top}, the bits of a channel's bursts"
        )
    at = dict.fromkeys(("RoBaRaCoCh", "ChRaBaRoCo", "MOP4CLXOR"), low)
    put_mapper(sheet, controller.part("addr_mapper"), bits, at, channel_xored=False)
