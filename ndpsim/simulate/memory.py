"""A memory of one or more channels, from names, numbers and defaults."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ndpsim.base.arguments import instance, number, text
from ndpsim.base.errors import InputError, shown
from ndpsim.base.options.dram import CHANNEL, RULE_SET, ChannelSettings, ControllerOptions
from ndpsim.base.options.settings import called_with, fields_of
from ndpsim.base.reported import text_table
from ndpsim.base.units import format_bytes
from ndpsim.dram.mapping import MAPPERS, Mapping, parse_mapping
from ndpsim.dram.refresh_policies import is_elastic
from ndpsim.dram.spec import Device, resolve
from ndpsim.dram.spec.management import managed
from ndpsim.dram.state import ALL_RANKS, ITS_BANKS, NO_RFM, Policy, Rfm, make_policy
from ndpsim.simulate.lane import check_refresh

if TYPE_CHECKING:
    from ndpsim.config import Dram, Hardware


def policy_of(options: ControllerOptions, device: Device) -> Policy:
    """The controller of a channel as numbers.

    Raises:
        InputError: the device does not have this kind of RFM.
    """
    standard = device.standard
    elastic = standard.max_postponed_refreshes, standard.max_pulled_in_refreshes
    rfm = rfm_of(options, device)
    return make_policy(options, standard.controller, standard.choices, device.rules, rfm, elastic)


def rfm_of(options: ControllerOptions, device: Device) -> Rfm:
    """The refresh management of a channel as numbers.

    Raises:
        InputError: the device does not have this kind of RFM.
    """
    found = managed(device, options.rfm, options.rfm_threshold)
    if found is None:
        return NO_RFM
    if device.rules == "reference":
        return Rfm(found.command, found.scope, found.threshold, clears=ALL_RANKS)
    if options.refresh_control == "reference":
        return Rfm(found.command, found.scope, found.threshold, clears=ITS_BANKS)
    return Rfm(found.command, found.scope, found.threshold, found.threshold, found.by_refresh)


def controller_options(dram: Dram) -> ControllerOptions:
    """The controller of a hardware file."""
    return ControllerOptions(**fields_of(ControllerOptions, dram))


def bus_policy(dram: Dram, device: Device) -> Policy:
    """The controller of a hardware file, on a bus with this device.

    Raises:
        InputError: the device does not have this kind of refresh, refreshes are to be postponed, or there is
            to be RFM.
    """
    check_refresh(device, dram.refresh)
    if is_elastic(dram.refresh):
        problem = "only ndpsim dram postpones refreshes; controllers of units and of their host do not"
        raise InputError(problem, "unsupported", key="dram.refresh")
    if dram.rfm != "off":
        problem = "only ndpsim dram has refresh management; controllers of units and of their host have none"
        raise InputError(problem, "unsupported", key="dram.rfm")
    # Controllers that share banks agree on the order of their refreshes.
    return policy_of(controller_options(dram), device)._replace(any_order=0)


def named_mapping(dram: Dram) -> Mapping:
    """The address mapping of a hardware file."""
    custom = dram.mapping
    return MAPPERS[dram.mapper] if custom is None else parse_mapping(custom.order, custom.xor)


@dataclass(frozen=True, init=False, repr=False)
class Memory:
    """Equal channels of memory.

    Attributes:
        device: the DRAM of one channel.
        options: its controller; by default `ControllerOptions()`.
        mapping: the mapping from addresses to coordinates; if it is not given, `mapper` names it.
        channels: number of channels; consecutive bursts are on consecutive channels.
        power: currents and voltages of a DRAM chip, instead of those of its data sheet
            (`energy.find_currents`).

    Raises:
        InputError: a name is unknown, a number is invalid, or a value has another type.
    """

    device: Device
    options: ControllerOptions
    mapper: str
    mapping: Mapping
    channels: int
    power: Dictionary[str, float]

    def __init__(
        self,
        device: Device,
        options: ControllerOptions | None = None,
        mapper: str = ChannelSettings.mapper,
        mapping: Mapping | None = None,
        channels: int = ChannelSettings.channels,
        power: Dictionary[str, float] | None = None,
    ) -> None:
        if mapping is None:
            mapping = MAPPERS[CHANNEL["mapper"].checked(mapper)]
        values = {
            "device": instance(device, "device", Device),
            "options": instance(
                ControllerOptions() if options is None else options, "options", ControllerOptions
            ),
            "mapper": text(mapper, "mapper"),
            "mapping": instance(mapping, "mapping", Mapping),
            "channels": CHANNEL["channels"].checked(channels),
            "power": _checked_power(power),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        check_refresh(self.device, self.options.refresh)
        rfm_of(self.options, self.device)

    @classmethod
    @called_with(ChannelSettings)
    def named(
        cls,
        settings: ChannelSettings,
        options: ControllerOptions | None = None,
        rules: str = RULE_SET.default,
    ) -> Memory:
        """A memory, described by names.

        Args:
            options: the controller of each; by default `ControllerOptions()`.
            rules: as in `spec.resolve`.

        Raises:
            InputError: a name is unknown or a number is invalid.
        """
        chip = settings.standard, settings.org, settings.timing
        device = resolve(*chip, settings.ranks, settings.overrides, rules)
        return cls(device, options, settings.mapper, None, settings.channels)

    @classmethod
    def of_hardware(cls, hardware: Hardware) -> Memory:
        """The host's memory in a hardware file: the buses of its channels with all ranks.

        Raises:
            InputError: `hardware` is not a `Hardware`, or has a kind of refresh that its DRAM lacks.
        """
        from ndpsim.config import Hardware  # noqa: PLC0415 (takes its time; memories by names need none)

        instance(hardware, "hardware", Hardware)
        dram, dimm = hardware.system.dram, hardware.system.dimm
        return cls(
            hardware.bus_device(dimm.ranks),
            controller_options(dram),
            dram.mapper,
            named_mapping(dram),
            hardware.system.host.channels * dimm.subchannels,
            hardware.power_changes,
        )

    @property
    def policy(self) -> Policy:
        """The controller of each channel as numbers."""
        return policy_of(self.options, self.device)

    @property
    def capacity_bytes(self) -> int:
        """Capacity of all channels."""
        return self.channels * self.device.capacity_bytes

    def __repr__(self) -> str:
        device, options = self.device, self.options
        channels = f"{self.channels} channel{'s' if self.channels > 1 else ''}"
        rows = {
            "device": f"{device.org} at {device.timing}",
            **{name: str(count) for name, count in device.parts.items()},
            "capacity": format_bytes(self.capacity_bytes),
            "peak": f"{self.channels * device.peak_gbps:.1f} GB/s",
            "mapper": self.mapper,
            **{field.name: str(getattr(options, field.name)) for field in fields(options)},
        }
        return text_table(f"Memory of {channels} of {device.standard.name}", rows.items())

    def to_dict(self) -> dict[str, Any]:
        """All inputs of a run, as plain data."""
        device = self.device
        return {
            "standard": device.standard.name,
            "org": device.org,
            "timing": device.timing,
            **device.parts,
            "channels": self.channels,
            "rules": device.rules,
            "timings": device.reported_timings,
            **({"rounded": dict(device.rounded)} if device.rounded else {}),
            "mapper": self.mapper,
            "mapping": asdict(self.mapping),
            "power": dict(self.power),
            **asdict(self.options),
        }


def _checked_power(power: Any) -> dict[str, float]:
    if not isinstance(power, Dictionary | None):
        raise InputError(f"{shown(power)} is not a mapping of names to numbers", "type", key="power")
    return {text(name, "power"): number(value, "power", 0) for name, value in (power or {}).items()}
