"""The memory's sections of a hardware file: DRAM, controller, address mapping and currents."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ndpsim.base import choices
from ndpsim.base.options import dram as options
from ndpsim.config.quantities import (
    XOR_TARGET,
    Banks,
    MegaTransfers,
    Milliamps,
    Name,
    Nanoseconds,
    Ohms,
    Order,
    PartName,
    Section,
    Size,
    Slots,
    Timing,
    Volts,
    Xor,
    key,
    unit,
)

Accesses = Annotated[int, Field(ge=1, le=options.MOST_ACCESSES), unit("accesses")]
Idle = Annotated[int, Field(ge=0, le=options.MOST_IDLE), unit("clocks")]


class AddressMapping(Section):
    """An address mapping as data: it maps the address of a burst, without the bits inside the burst.

    `order` lists the fields from the least significant bit up. ``FIELD:BITS`` takes this number of the
    field's remaining bits, lowest first. ``FIELD`` takes all remaining bits, so the last entry of each field
    has no ``:BITS``. `channel` may be left out: then it is the lowest field, and consecutive bursts are on
    consecutive channels.

    `xor` changes fields afterwards. Its key is the target: ``FIELD`` from bit 0 up, or ``FIELD:B`` from bit B
    up. Its value is a list of sources: the bits ``SOURCE:LOW-HIGH``, or the bit ``SOURCE:BIT``. The bits of
    all sources are XORed with the target. A source must not be a target. Bits that a device does not have
    are ignored.
    """

    order: Order = key("fields from the least significant bit up: column:2, rank, ..., row")
    xor: Xor = key(
        "bits XORed with a field, for example bankgroup: [row:0-1]",
        {},
        json_schema_extra={"propertyNames": {"pattern": f"^{XOR_TARGET}$"}},
    )


class Power(Section):
    """Currents and voltages of a DRAM chip, instead of those of its data sheet (`dram.energy.Currents`)."""

    VDD: Volts | None = key("supply of the core; VDD2H of LPDDR5", None)
    VDDQ: Volts | None = key("supply of the data pins", None)
    VPP: Volts | None = key("supply of the word lines; VDD1 of LPDDR5", None)
    IDD0: Milliamps | None = key("ACT and PRE of one bank", None)
    IDD2N: Milliamps | None = key("standby, all banks closed", None)
    IDD3N: Milliamps | None = key("standby, all banks open", None)
    IDD4R: Milliamps | None = key("continuous read bursts", None)
    IDD4W: Milliamps | None = key("continuous write bursts", None)
    IDD5B: Milliamps | None = key("continuous refreshes", None)
    IDD5C: Milliamps | None = key("continuous same-bank refreshes", None)
    IDD5PB: Milliamps | None = key("continuous refreshes of single banks", None)
    IPP0: Milliamps | None = key("on VPP, in the loop of IDD0", None)
    IPP2N: Milliamps | None = key("on VPP, in the loop of IDD2N", None)
    IPP3N: Milliamps | None = key("on VPP, in the loop of IDD3N", None)
    IPP4R: Milliamps | None = key("on VPP, in the loop of IDD4R", None)
    IPP4W: Milliamps | None = key("on VPP, in the loop of IDD4W", None)
    IPP5B: Milliamps | None = key("on VPP, in the loop of IDD5B", None)
    activate_ns: Nanoseconds | None = key("tRAS of the IDD0 loop", None)
    precharge_ns: Nanoseconds | None = key("tRP of the IDD0 loop", None)
    refresh_ns: Nanoseconds | None = key("tRFC of the IDD5B loop", None)
    same_bank_refresh_ns: Nanoseconds | None = key("tRFCsb of the IDD5C loop", None)
    bank_refresh_ns: Nanoseconds | None = key("tRFCpb of the IDD5PB loop", None)
    driver_ohm: Ohms | None = key("driver of a data pin", None)
    termination_ohm: Ohms | None = key("termination of a data line, to VDDQ", None)
    IDDQ3N: Milliamps | None = key("on VDDQ, in the loop of IDD3N", None)
    IDDQ4R: Milliamps | None = key("on VDDQ, in the loop of IDD4R", None)
    standby_banks: Banks | None = key("banks open in the loop of IDD3N", None)
    burst_banks: Banks | None = key("banks open in the loops of IDD4R and IDD4W", None)
    scaled_from_mtps: MegaTransfers | None = key(
        "data rate of the data sheet whose currents are scaled to the DRAM's data rate", None
    )


class Sizes(Section):
    """Sizes of a DRAM chip, instead of those of the organisation preset.

    Sizes are powers of two. The density is the product of the others; if it is given, it is checked. Timings
    that depend on width or density follow.
    """

    bankgroups: Size | None = key("bank groups of a rank, or of a stack", None)
    banks_per_group: Size | None = key("banks in a bank group", None)
    banks: Size | None = key("banks of a rank, or of a stack", None)
    rows: Size | None = key("rows in a bank", None)
    columns: Size | None = key("columns in a row", None)
    width: Size | None = key("data pins", None)
    density: Name | None = key("density, for instance 16Gb", None)


class DramNames(Section):
    """A DRAM by the names of `ndpsim.dram.spec`."""

    part: PartName = None
    standard: Name = key("DRAM standard, for instance DDR5")
    org: Name = key("organisation preset: density and width of a device")
    timing: Name = key("speed preset: data rate and bin")


class Dram(DramNames):
    """The DRAM of every lane or channel, with names of `ndpsim.dram.spec`, and its controller."""

    overrides: dict[str, Timing] = key(
        "timings in clocks or ns (nRCD: 34, tRCD: 14.16ns), which replace those of the preset", {}
    )
    organisation: Sizes | None = None
    rules: Literal[choices.RULES] = key(  # type: ignore[valid-type]
        "rules of the standard; reference: rules of Ramulator 2.1", options.RULE_SET.default
    )
    mapper: Literal[(*options.MAPPERS, "custom")] = key(  # type: ignore[valid-type]
        "address mapping; custom: the mapping in dram.mapping", options.ChannelSettings.mapper
    )
    mapping: AddressMapping | None = key("the address mapping of mapper: custom", None)
    scheduler: Literal[options.SCHEDULERS] = key(  # type: ignore[valid-type]
        "scheduling policy of the controller", options.ControllerOptions.scheduler
    )
    row_policy: Literal[options.ROW_POLICIES] = key(  # type: ignore[valid-type]
        "open: rows stay open; closed-cap: rows are closed after row_cap column accesses",
        options.ControllerOptions.row_policy,
    )
    row_cap: Accesses = key(
        "column accesses after which closed-cap closes a row", options.ControllerOptions.row_cap
    )
    refresh: Literal[options.REFRESH_POLICIES] = key("refresh mode", options.ControllerOptions.refresh)  # type: ignore[valid-type]
    refresh_control: Literal[options.REFRESH_CONTROLS] | None = key(  # type: ignore[valid-type]
        "while a refresh of single banks waits; own-bank: only requests for its banks wait; reference: all "
        "queued requests wait, as in Ramulator 2.1; by default own-bank, reference with rules: reference",
        None,
    )
    read_buffer: Slots = key("slots of the read queue", options.ControllerOptions.read_buffer)
    write_buffer: Slots = key("slots of the write queue", options.ControllerOptions.write_buffer)
    wck: Literal[options.WCK] = key(  # type: ignore[valid-type]
        "data clock of LPDDR5; need-sync: a command starts it after a stop; always-on: it always runs",
        options.ControllerOptions.wck,
    )
    rfm: Literal[choices.RFM] = key(  # type: ignore[valid-type]
        "refresh management: the banks of its RFM commands", options.ControllerOptions.rfm
    )
    rfm_threshold: int | None = key(
        "activations of a bank after which RFM is due (RAAIMT)",
        None,
        ge=1,
        le=choices.MOST_ACTIVATIONS,
        unit="activations",
    )
    rck: Literal[options.RCK] = key(  # type: ignore[valid-type]
        "read clock of GDDR7; always-on: it always runs; start-with-read, start-with-rckstrt: it stops "
        "without reads, and a read or a command starts it",
        options.ControllerOptions.rck,
    )
    rck_idle: Idle = key(
        "clocks without a read after which the read clock stops", options.ControllerOptions.rck_idle
    )
    power: Power | None = None

    @property
    def changes(self) -> dict[str, int | str]:
        """The overrides of `spec.resolve`: timings, and sizes of a chip."""
        sizes = self.organisation.model_dump(exclude_none=True) if self.organisation is not None else {}
        return {**self.overrides, **sizes}
