"""A memory of one or more channels, as names, numbers and defaults that a user gives."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from dataclasses import asdict, dataclass, field
from typing import Any

from ndpsim.config import Dram, Hardware
from ndpsim.dram.mapping import MAPPERS, Mapping, parse_mapping
from ndpsim.dram.state import REFRESH_POLICIES, ControllerOptions
from ndpsim.errors import InputError, one_of
from ndpsim.simulate.lane import check_refresh
from ndpsim.spec import Device, resolve

__all__ = ["Memory", "controller_options"]

_CHOICES = {
    "scheduler": ("FRFCFS", "FRFCFS-RowHit"),
    "row_policy": ("open", "closed-cap"),
    "refresh": tuple(REFRESH_POLICIES),
}
_MAX_SLOTS = 1024
_MAX_CHANNELS = 64


def controller_options(dram: Dram) -> ControllerOptions:
    """The controller that a hardware file asks for."""
    return ControllerOptions(
        dram.scheduler, dram.row_policy, dram.row_cap, dram.refresh, dram.read_buffer, dram.write_buffer
    )


@dataclass(frozen=True)
class Memory:
    """Channels that are all alike.

    Attributes:
        device: the DRAM of one channel.
        options: its controller.
        mapping: how addresses become coordinates; `mapper` is its name.
        channels: how many; consecutive bursts go to consecutive channels.
        power: currents of a DRAM chip and the like, over its data sheet (`energy.find_currents`).
    """

    device: Device
    options: ControllerOptions = field(default_factory=ControllerOptions)
    mapper: str = "RoBaRaCoCh"
    mapping: Mapping = MAPPERS["RoBaRaCoCh"]
    channels: int = 1
    power: Dictionary[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = asdict(self.options)
        for name, allowed in _CHOICES.items():
            if options[name] not in allowed:
                raise InputError(one_of(options[name], allowed, name.replace("_", " ")), key=name)
        for name in ("read_buffer", "write_buffer", "row_cap"):
            _check_number(name, options[name], _MAX_SLOTS)
        _check_number("channels", self.channels, _MAX_CHANNELS)
        check_refresh(self.device, self.options.refresh)

    @classmethod
    def named(
        cls,
        standard: str,
        org: str,
        timing: str,
        ranks: int,
        overrides: Dictionary[str, int],
        mapper: str,
        channels: int,
        options: ControllerOptions,
    ) -> Memory:
        """A memory from the names of its parts.

        Raises:
            InputError: a name is unknown or a number makes no sense.
        """
        if mapper not in MAPPERS:
            raise InputError(one_of(mapper, MAPPERS, "mapper"), key="mapper")
        device = resolve(standard, org, timing, ranks, overrides)
        return cls(device, options, mapper, MAPPERS[mapper], channels)

    @classmethod
    def of_hardware(cls, hardware: Hardware) -> Memory:
        """The memory of a hardware file, as its host sees it: its channels' buses with all ranks behind."""
        dram, dimm = hardware.system.dram, hardware.system.dimm
        custom = dram.mapping
        return cls(
            resolve(dram.standard, dram.org, dram.timing, dimm.ranks, dram.overrides),
            controller_options(dram),
            dram.mapper,
            MAPPERS[dram.mapper] if custom is None else parse_mapping(custom.order, custom.xor),
            hardware.system.host.channels * dimm.subchannels,
            hardware.power_changes,
        )

    @property
    def capacity_bytes(self) -> int:
        """Capacity of all channels."""
        return self.channels * self.device.capacity_bytes

    def to_dict(self) -> dict[str, Any]:
        """Everything a run depends on, as plain data."""
        device = self.device
        return {
            "standard": device.standard.name,
            "org": device.org,
            "timing": device.timing,
            "ranks": device.ranks,
            "channels": self.channels,
            "timings": dict(device.timings),
            "mapper": self.mapper,
            "mapping": asdict(self.mapping),
            "power": dict(self.power),
            **asdict(self.options),
        }


def _check_number(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(f"{value!r} is not a whole number from 1 to {most}", key=name)
