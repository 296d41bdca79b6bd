"""Multiplexed rank DIMMs of DDR5 (MRDIMM), at 8800 and 12800 MT/s. A channel here is one 32-bit sub-channel.

The DRAM is that of DDR5 at half of the rate, 4400 or 6400 MT/s. A multiplexing clock driver (MRCD) passes
the host's commands on to two pseudo-channels, each a rank with 32 data pins of its own, and multiplexing
data buffers (MDB) send the data of both in turn over the host's pins, at twice the rate (Rambus, DDR5 MRCD
and MDB; JEDEC, press release of 2024-07-22). The pseudo-channels are addressed independently (US 12,300,346
and Intel's application for buffers with multiple pseudo channels), so that reads, or writes, of both go on
at once. The host's pins have one direction at a time, so that from a read to a write on the other
pseudo-channel, and back, the bus turns as between two ranks. A clock (CK) is that of the DRAM. The host's
command bus has two ticks of it, and a command of two cycles takes three of them, so that its effect is as
late as the DRAM's second cycle.

Not public, and not modelled: the delays of MRCD and MDB (add them to nCL and nCWL), preambles of the host's
strobes, which half of a clock is whose, and modules of four ranks.
"""

from dataclasses import replace

from ndpsim.dram.spec.standard import Command, Rule, Standard
from ndpsim.dram.spec.standards.ddr5 import STANDARD as DDR5

_READS, _WRITES = ("RD", "RDA"), ("WR", "WRA")
_TWO_CYCLES = ("ACT", *_READS, *_WRITES)
_ONE_CYCLE = tuple(command.name for command in DDR5.commands if command.name not in _TWO_CYCLES)

# Within a pseudo-channel the rules of a rank; from one to the other only the turns of the host's bus.
_RULES = (
    *(
        replace(rule, level="pseudochannel" if rule.level in ("channel", "rank") else rule.level)
        for rule in DDR5.rules
        if rule.name not in ("tCS", "tWTW_DR")
    ),
    Rule("tCS", "pseudochannel", _WRITES, _READS, "nCWL + nBL + nCS - nCL", siblings=True),
    # The MRCD sends a pseudo-channel's commands at whole clocks.
    Rule("tCMD", "pseudochannel", _TWO_CYCLES, _TWO_CYCLES, "2"),
    Rule("tCMD", "pseudochannel", _TWO_CYCLES, _ONE_CYCLE, "1"),
    Rule("tCMD", "pseudochannel", _ONE_CYCLE, _TWO_CYCLES, "2"),
    Rule("tCMD", "pseudochannel", _ONE_CYCLE, _ONE_CYCLE, "1"),
)


def _on_the_bus(command: Command) -> Command:
    """A command of DDR5 on the host's command bus."""
    scope = "pseudochannel" if command.scope == "rank" else command.scope
    return replace(command, scope=scope, cycles=3 if command.cycles == 2 else 1, on_any_tick=True)


_ORGANISATIONS = {
    f"MRDIMM_{gigabits}Gb_x{dq}": replace(DDR5.organisations[f"DDR5_{gigabits}Gb_x{dq}"], ranks=2)
    for gigabits in (16, 32)
    for dq in (4, 8)
}

# The derived clocks are those of the DRAM: `rate` is its rate, too.
_SPEEDS = {
    f"MRDIMM_{2 * rate}{grade}": DDR5.speeds[f"DDR5_{rate}{grade}"]
    for rate in (4400, 6400)
    for grade in ("AN", "B", "C")
}

STANDARD = Standard(
    name="MRDIMM",
    source="JESD79-5C; the multiplexer: US 12,300,346, Rambus",
    commands=tuple(map(_on_the_bus, DDR5.commands)),
    levels=("channel", "pseudochannel", "bankgroup", "bank"),
    transfers_per_clock=2,
    prefetch=16,
    channel_bits=32,
    own_data_buses=True,
    ticks_per_clock=2,
    rounding=DDR5.rounding,
    rules=_RULES,
    organisations=_ORGANISATIONS,
    speeds=_SPEEDS,
    derived={name: clocks for name, clocks in DDR5.derived.items() if name != "nWTW_DR"},
    max_postponed_refreshes=DDR5.max_postponed_refreshes,
    max_pulled_in_refreshes=DDR5.max_pulled_in_refreshes,
    management=DDR5.management,
    cited={
        **{name: source for name, source in DDR5.cited.items() if "/" not in name and name != "nWTW_DR"},
        "rate": "half of the module's: Rambus, DDR5 MRCD and MDB",
        "nRTW_DR": "none found (a choice of the system): as nRTW, with nCS, between pseudo-channels",
    },
)
