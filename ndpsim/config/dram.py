"""The memory's sections of a hardware file: DRAM, controller, address mapping and currents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ndpsim.config.quantities import (
    XOR_TARGET,
    Banks,
    Clocks,
    Milliamps,
    Name,
    Nanoseconds,
    Ohms,
    Order,
    PartName,
    Section,
    Slots,
    Volts,
    Xor,
)
from ndpsim.parameters.dram import MAPPERS, REFRESH_POLICIES, ROW_POLICIES, RULES, SCHEDULERS, WCK


class AddressMapping(Section):
    """An address mapping as data, over the address of a burst: a byte address without the bits inside it.

    `order` names the fields from the least significant bit up. ``FIELD:BITS`` takes that many of the bits
    the field has left, lowest first, ``FIELD`` all of them; so each field ends with its bare name.
    `channel` may be left out: it then stands lowest, consecutive bursts on consecutive channels.

    `xor` says what is XORed onto a field afterwards: onto its bit 0 and up (``FIELD``) or bit B and up
    (``FIELD:B``) go the bits of ``SOURCE:LOW-HIGH``, or the one of ``SOURCE:BIT``, of every source in the
    list. A source is a field that is not XORed itself. Bits that a device does not have are left out.
    """

    order: Order = Field(description="fields from the least significant bit up: column:2, rank, ..., row")
    xor: Xor = Field(
        default={},
        description="bits XORed onto a field: bankgroup: [row:0-1]",
        json_schema_extra={"propertyNames": {"pattern": f"^{XOR_TARGET}$"}},
    )


class Power(Section):
    """What a DRAM chip draws, over the data sheet that is known of it (`ndpsim.energy.Currents`)."""

    VDD: Volts | None = Field(default=None, description="supply of the core; VDD2H of LPDDR5")
    VDDQ: Volts | None = Field(default=None, description="supply of the data pins")
    VPP: Volts | None = Field(default=None, description="supply of the word lines; VDD1 of LPDDR5")
    IDD0: Milliamps | None = Field(default=None, description="one bank, ACT and PRE")
    IDD2N: Milliamps | None = Field(default=None, description="standby, all banks closed")
    IDD3N: Milliamps | None = Field(default=None, description="standby, all banks open")
    IDD4R: Milliamps | None = Field(default=None, description="burst after burst read")
    IDD4W: Milliamps | None = Field(default=None, description="burst after burst written")
    IDD5B: Milliamps | None = Field(default=None, description="refresh after refresh")
    IDD5C: Milliamps | None = Field(default=None, description="same-bank refresh after refresh")
    IDD5PB: Milliamps | None = Field(default=None, description="refresh of one bank after the other")
    IPP0: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD0")
    IPP2N: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD2N")
    IPP3N: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD3N")
    IPP4R: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD4R")
    IPP4W: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD4W")
    IPP5B: Milliamps | None = Field(default=None, description="on VPP, in the loop of IDD5B")
    activate_ns: Nanoseconds | None = Field(default=None, description="tRAS of the IDD0 loop")
    precharge_ns: Nanoseconds | None = Field(default=None, description="tRP of the IDD0 loop")
    refresh_ns: Nanoseconds | None = Field(default=None, description="tRFC of the IDD5B loop")
    same_bank_refresh_ns: Nanoseconds | None = Field(default=None, description="tRFCsb of the IDD5C loop")
    bank_refresh_ns: Nanoseconds | None = Field(default=None, description="tRFCpb of the IDD5PB loop")
    driver_ohm: Ohms | None = Field(default=None, description="driver of a data pin")
    termination_ohm: Ohms | None = Field(default=None, description="termination of a data line, to VDDQ")
    IDDQ3N: Milliamps | None = Field(default=None, description="on VDDQ, in the loop of IDD3N")
    IDDQ4R: Milliamps | None = Field(default=None, description="on VDDQ, in the loop of IDD4R")
    standby_banks: Banks | None = Field(default=None, description="banks open in the loop of IDD3N")
    burst_banks: Banks | None = Field(default=None, description="banks open in the loops of IDD4R and IDD4W")


class Dram(Section):
    """The DRAM behind every lane or channel, by the names of `ndpsim.spec`, and its controller."""

    part: PartName = None
    standard: Name = Field(description="DRAM standard, for instance DDR5")
    org: Name = Field(description="organisation preset: density and width of a device")
    timing: Name = Field(description="speed preset: data rate and bin")
    overrides: dict[str, Clocks] = Field(default={}, description="clocks by JEDEC name, over the preset")
    rules: Literal[RULES] = Field(  # type: ignore[valid-type]
        default="standard", description="whose rules hold; reference: those of Ramulator 2.1"
    )
    mapper: Literal[(*MAPPERS, "custom")] = Field(  # type: ignore[valid-type]
        default="RoBaRaCoCh", description="address mapping; custom: as mapping says"
    )
    mapping: AddressMapping | None = Field(default=None, description="the address mapping of mapper: custom")
    scheduler: Literal[SCHEDULERS] = Field(  # type: ignore[valid-type]
        default="FRFCFS", description="which request's command comes next"
    )
    row_policy: Literal[ROW_POLICIES] = Field(  # type: ignore[valid-type]
        default="open", description="rows stay open, or are closed after row_cap column accesses"
    )
    row_cap: int = Field(
        default=4,
        ge=1,
        le=1_000_000,
        description="column accesses after which closed-cap closes a row",
        json_schema_extra={"unit": "accesses"},
    )
    refresh: Literal[REFRESH_POLICIES] = Field(  # type: ignore[valid-type]
        default="all-bank", description="refresh mode"
    )
    read_buffer: Slots = Field(default=32, description="reads a controller chooses among")
    write_buffer: Slots = Field(default=32, description="writes a controller chooses among")
    wck: Literal[WCK] = Field(  # type: ignore[valid-type]
        default="need-sync",
        description="data clock of LPDDR5: started by a command where it has stopped, or never stopping",
    )
    power: Power | None = None
