"""Shared parts of the configurations of Ramulator 2.0 and 2.1: the controller and the address mapping."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ndpsim.base.errors import one_of, shortened
from ndpsim.config.importers.sheet import Place, Sheet
from ndpsim.config.importers.tree import Tree
from ndpsim.dram.spec import Organisation, Standard, standards
from ndpsim.dram.spec.standard import BANK_PAIR, ONE_BANK

_REFRESHES = {"AllBank": "all-bank", "NoRefresh": "none"}
_BANK_REFRESHES = {"PerBank": "per-bank", "HBM34PerBankRefresh": "per-bank"}
_SCHEDULERS = ("FRFCFS", "FRFCFS-RowHit")
_OPEN = ("Open", "OpenRowPolicy")
_OLD_CLOSED = "ClosedRowPolicy"
_CLOSED = ("ClosedCAP", _OLD_CLOSED)
_WATERMARKS = {"wr_low_watermark": 0.2, "wr_high_watermark": 0.8}

# From the least significant bit up, without the channel; MOP4CLXOR XORs fields in _XORED with the column.
_ORDERS = {
    "RoBaRaCoCh": ["column", "rank", "stack", "bankgroup", "bank", "row"],
    "ChRaBaRoCo": ["column", "row", "bank", "bankgroup", "stack", "rank"],
    "MOP4CLXOR": ["column:2", "rank", "stack", "bankgroup", "bank", "column", "row"],
}
_XORED = {"MOP4CLXOR": ("channel", "rank", "stack", "bankgroup", "bank", "row")}


@dataclass(frozen=True)
class PartNames:
    """Names of the parts of a controller."""

    scheduler: str
    refresh: str
    row_policy: str
    plugins: str
    uncapped: int | None  # default cap of a closing row policy; None: it never closes


def memory_of(root: Tree, key: str) -> Tree:
    """The memory that a file describes.

    Raises:
        InputError: ndpsim does not support its kind.
    """
    memory = root.part(key)
    impl = memory.word("impl")
    if impl not in (None, "GenericDRAM"):
        problem = f"{impl} is not supported (supported: GenericDRAM)"
        raise memory.place("impl").error(problem, code="unsupported")
    return memory


def known_standard(
    dram: Tree, known: Collection[str], why_not: Mapping[str, str] | None = None
) -> tuple[Standard, Place]:
    """The standard of a DRAM, and the place of its name.

    why_not: reasons for standards that ndpsim has, and that are not read.

    Raises:
        InputError: ndpsim does not have it.
    """
    name, place = dram.word("impl"), dram.place("impl")
    if name is None or name not in known:
        what = "is missing" if name is None else f"{shortened(name)} is not supported"
        reason = (why_not or {}).get(name or "", "")
        what += f": {reason}" if reason else ""
        raise place.error(
            f"{what} (supported: {', '.join(known)})", code="unsupported" if name else "missing"
        )
    return standards()[name], place


def put_channels(sheet: Sheet, channels: tuple[int, Place] | None, ranks: tuple[int, Place] | None) -> None:
    """Put the numbers of channels and of ranks on the sheet; None: one."""
    if channels is not None:
        count, place = channels
        if count < 1 or count & (count - 1):
            raise place.error(f"{count} is no power of two, which an address mapping needs", code="range")
        sheet.put("dimm.count", count, place, f" = {count}; each channel as a DIMM of its own")
    if ranks is not None:
        sheet.put("dimm.ranks", ranks[0], ranks[1], f" = {ranks[0]}")
    if channels is not None:
        sheet.put("host.channels", channels[0], channels[1], f" = {channels[0]}")


def put_controller(sheet: Sheet, controller: Tree, parts: PartNames, standard: Standard) -> None:
    """Put scheduler, row policy, refresh and queues on the sheet; note settings that ndpsim does not have."""
    scheduler = controller.part(parts.scheduler)
    impl = scheduler.word("impl")
    if impl in _SCHEDULERS:
        sheet.put("dram.scheduler", impl, scheduler.place("impl"))
    elif impl is not None:
        problem = one_of(impl, _SCHEDULERS, "scheduler")
        sheet.note(scheduler.place("impl"), f"left out: {problem}; FRFCFS is taken")
    _put_row_policy(sheet, controller.part(parts.row_policy), parts.uncapped)
    by_bank = any(
        command.refreshes and command.interval and standard.scope_of(command) in (ONE_BANK, BANK_PAIR)
        for command in standard.commands
    )
    known = {**_REFRESHES, **(_BANK_REFRESHES if by_bank else {})}
    _put_refresh(sheet, controller.part(parts.refresh), known)
    for key, ours in (("read_buffer_size", "read_buffer"), ("write_buffer_size", "write_buffer")):
        slots = controller.whole(key)
        if slots is not None:
            sheet.put(f"dram.{ours}", slots, controller.place(key))
    for key, fixed in _WATERMARKS.items():
        level = controller.number(key)
        if level is not None and float(level) != fixed:
            sheet.note(controller.place(key), f"left out: it is {fixed} here, not {float(level):g}")
    for plugin in controller.parts(parts.plugins):
        _note_plugin(sheet, plugin)


def _put_row_policy(sheet: Sheet, policy: Tree, uncapped: int | None) -> None:
    impl, place = policy.word("impl"), policy.place("impl")
    if impl in _OPEN:
        sheet.put("dram.row_policy", "open", place)
    elif impl in _CLOSED:
        cap = policy.whole("cap")
        if cap is None and uncapped is None:
            said = " without a cap, which takes 10 million accesses to close"
            sheet.put("dram.row_policy", "open", place, said)
            return
        sheet.put("dram.row_policy", "closed-cap", place)
        if impl == _OLD_CLOSED:
            sheet.note(place, "becomes closed-cap, which closes by RDA and WRA where it can, not by PRE only")
        if cap is None:
            said = f" without a cap: Ramulator's default of {uncapped}"
            sheet.put("dram.row_cap", uncapped or 1, place, said)
        else:
            sheet.put("dram.row_cap", cap, policy.place("cap"), f" = {cap}")
    elif impl is not None:
        sheet.note(place, f"left out: {one_of(impl, _OPEN + _CLOSED, 'row policy')}; rows stay open")


def _put_refresh(sheet: Sheet, refresh: Tree, known: Mapping[str, str]) -> None:
    impl, place = refresh.word("impl"), refresh.place("impl")
    scatter = refresh.whole("scatter_interval") or 0
    refresh.value("debug")
    if impl == "AllBank" and scatter > 0:
        place = refresh.place("scatter_interval")
        sheet.put("dram.refresh", "staggered", place, f" = {scatter}")
        sheet.note(place, f"becomes staggered: ranks take even turns, not {scatter} clocks apart")
    elif impl is not None and impl in known:
        sheet.put("dram.refresh", known[impl], place)
    elif impl is not None:
        problem = one_of(impl, known, "refresh manager")
        sheet.note(place, f"left out: {problem}; all banks of a rank are refreshed at once")


def _note_plugin(sheet: Sheet, plugin: Tree) -> None:
    """Note that a plugin is left out: {impl: NAME}, or {ControllerPlugin: {impl: NAME}}."""
    inner = plugin.part("ControllerPlugin") if plugin.names() == ["ControllerPlugin"] else plugin
    for key in inner.names():
        inner.value(key)
    sheet.note(plugin.here, f"left out: plugin {inner.value('impl') or ''}".rstrip())


# Address mapping


@dataclass(frozen=True)
class AddressBits:
    """The number of address bits of each field."""

    widths: Mapping[str, int]

    @classmethod
    def count(cls, standard: Standard, organisation: Organisation, channels: int, ranks: int) -> AddressBits:
        """The bits for channels with this number of ranks of these devices."""
        sizes = {
            "channel": channels,
            "rank": organisation.ranks or ranks,
            "stack": organisation.stacks,
            "bankgroup": organisation.bankgroups,
            "bank": organisation.banks_per_group,
            "row": organisation.rows,
            "column": organisation.columns // standard.prefetch,
        }
        if organisation.stacks == 1:
            del sizes["stack"]
        return cls({field: size.bit_length() - 1 for field, size in sizes.items()})

    def xor(self, fields: Sequence[str]) -> dict[str, list[str]]:
        """XORs of `fields` with bits of the column; each field uses the next bits of the column."""
        xor, low, end = {}, 0, self.widths["column"]
        for field in fields:
            high = min(low + self.widths[field], end)
            if high > low:
                xor[field] = [f"column:{low}" if high == low + 1 else f"column:{low}-{high - 1}"]
            low += self.widths[field]
        return xor

    def with_channel(self, order: Sequence[str], bit: int) -> list[str]:
        """`order` with the channel from `bit` on; the field with this bit is split."""
        done: list[str] = []
        left = dict(self.widths)
        parts = [part for part in order if part.partition(":")[0] in left]
        while parts:
            field, _, wanted = parts[0].partition(":")
            width = min(int(wanted or left[field]), left[field])
            if bit < width:
                break
            done.append(parts.pop(0))
            left[field] -= width
            bit -= width
        if bit:
            field, _, wanted = parts[0].partition(":")
            done.append(f"{field}:{bit}")
            parts[0] = f"{field}:{int(wanted) - bit}" if wanted else field
        return [*done, "channel", *parts]


def put_mapper(
    sheet: Sheet, mapper: Tree, bits: AddressBits, channel_at: Mapping[str, int], channel_xored: bool
) -> None:
    """Put the address mapping on the sheet: its name with one channel, else its fields.

    Args:
        mapper: the part with ``impl``.
        bits: the bits of the fields of an address.
        channel_at: the bit of a burst's address at which the channel begins, by mapper.
        channel_xored: whether MOP4CLXOR XORs the channel, too.
    """
    impl, place = mapper.word("impl"), mapper.place("impl")
    if impl not in _ORDERS:
        if impl is not None:
            sheet.note(place, f"left out: {one_of(impl, _ORDERS, 'address mapping')}; RoBaRaCoCh is taken")
        return
    if not bits.widths["channel"]:
        sheet.put("dram.mapper", impl, place)
        return
    sheet.put("dram.mapper", "custom", place)
    order = bits.with_channel(_ORDERS[impl], channel_at[impl])
    sheet.put("dram.mapping.order", order, place, f" = {impl}, with the channel where Ramulator has it")
    names = [name for name in _XORED.get(impl, ()) if channel_xored or name != "channel"]
    for field, sources in bits.xor([name for name in names if name in bits.widths]).items():
        sheet.put(f"dram.mapping.xor.{field}", sources, place, f" = {impl}")


def note_unread(sheet: Sheet, tree: Tree, why: Mapping[str, str]) -> None:
    """Note every key that has not been read; `why`: reasons by the last word of a key."""
    for place in tree.unread():
        sheet.note(place, f"left out: {why.get(place.key.rpartition('.')[2], 'not known to ndpsim')}")
