"""A checked hardware description, and the quantities that follow from it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ndpsim.base.annotated import Annotated
from ndpsim.base.arguments import number
from ndpsim.base.caching import cached_by_identity
from ndpsim.base.errors import InputError
from ndpsim.base.reported import Shown
from ndpsim.base.units import exact, format_bytes
from ndpsim.config.banks import BankHardware, load_bank_hardware
from ndpsim.config.dram import Dram
from ndpsim.config.files import is_path
from ndpsim.config.keys import Row, leaves, unit_of
from ndpsim.config.origins import Origin, dotted
from ndpsim.config.system import MULTIPLIERS, UNITS, Cxl, Dimm, Host, Ndp, Pcie, Relayout, System
from ndpsim.dram.spec import Device, resolve
from ndpsim.dram.spec.overrides import SIZES, timing_name

DIMM_BITS = 64  # data pins of a DIMM, without the pins for error correction


Section = TypeVar("Section")


@dataclass(frozen=True, repr=False)
class Hardware(Annotated, Shown):
    """The values of a hardware file, each with its origin.

    A lane is the private path between one rank's sub-channel and the buffer chip of its DIMM. A lane of HBM3
    is a channel with both pseudo-channels.

    Attributes:
        system: the values.
        origins: the origin of every value, by its dotted key.
        file: the hardware file.
        dropped: clocks in `dram.overrides` of the file that are not used, because an option selects another
            `dram.timing`; by name.
    """

    system: System
    origins: Mapping[str, Origin]
    file: str
    dropped: Mapping[str, int]

    def lane_device(self) -> Device:
        """The DRAM of one lane: a channel with one rank, or with the standard's fixed number of ranks.

        Raises:
            InputError: a DRAM name or override is unknown, at its place in the file.
        """
        return self.bus_device(1)

    @cached_by_identity(64)
    def bus_device(self, ranks: int) -> Device:
        """The DRAM of a channel with `ranks` ranks, as the host sees it on one bus.

        Raises:
            InputError: a DRAM name or override is unknown, at its place in the file.
        """
        dram = self.system.dram
        try:
            return resolve(dram.standard, dram.org, dram.timing, ranks, dram.changes, dram.rules)
        except InputError as error:
            if error.key == "ranks":
                raise
            key = f"dram.{error.key}"
            if error.key in SIZES:
                key = f"dram.organisation.{error.key}"
            elif error.key not in type(dram).model_fields:
                key = f"dram.overrides.{error.key}"
            # A timing that the standard leaves open has no place in the file: name the organisation.
            sizes = [self.origins.get(f"dram.organisation.{name}") for name in SIZES]
            changed = [size for size in sizes if size is not None and size.kind != "default"]
            origin = self.origins.get(key) or [*changed, self.origins["dram.org"]][0]
            raise origin.error(error.problem, key, error.code) from None

    @contextlib.contextmanager
    def errors_at_origins(self) -> Iterator[None]:
        """Add the place in the file, or the option, to errors that name a key of the hardware."""
        try:
            yield
        except InputError as error:
            keys = (error.key, f"dram.{error.key}", f"dram.overrides.{error.key}")
            key = next((key for key in keys if key in self.origins), None)
            if error.file is None and key is None and error.key in self.lane_device().timings:
                key = "dram.timing"  # the value is from the preset
            if error.file is not None or key is None:
                raise
            said = error.key if key == "dram.timing" else key
            raise self.origins[key].error(error.problem, said, error.code) from None

    @property
    def ndp(self) -> Ndp:
        """The near-data processing of a DIMM.

        Raises:
            InputError: the file describes none.
        """
        why = "a hardware file without it describes a memory that does not compute"
        return self._described(self.system.ndp, "ndp", why)

    @property
    def relayout(self) -> Relayout:
        """The relayout unit of a DIMM.

        Raises:
            InputError: the file describes none.
        """
        why = "the DIMMs have no unit that moves weights"
        return self._described(self.ndp.relayout, "ndp.relayout", why)

    def _described(self, section: Section | None, key: str, why: str) -> Section:
        if section is None:
            raise InputError(f"is missing: {why}", "missing", file=self.file, key=key)
        return section

    @functools.cached_property
    def host_memory(self) -> Hardware:
        """The memory that CPU and GPU read experts from: the host's own, or this one.

        Raises:
            InputError: a DRAM name is unknown, at its place in the file.
        """
        own = self.system.host.memory
        if own is None:
            return self
        dram = Dram(standard=own.standard, org=own.org, timing=own.timing)
        plain = System(name="host memory", dram=dram, host=Host(channels=own.channels))
        origins = {
            key.replace("host.memory.", "dram."): origin
            for key, origin in self.origins.items()
            if key.startswith("host.memory.")
        }
        hardware = Hardware(plain, origins, self.file, {})
        try:
            bits = hardware.lane_device().standard.channel_bits
        except InputError as error:
            key = (error.key or "").replace("dram.", "host.memory.")
            raise error.at(error.file, error.line, key) from None
        dimm = Dimm(count=own.dimms, ranks=own.ranks, subchannels=max(1, DIMM_BITS // bits))
        return Hardware(plain.model_copy(update={"dimm": dimm}), origins, self.file, {})

    @functools.cached_property
    def bank_device(self) -> BankHardware | None:
        """A device with units in its banks, of which the machine has `banks.count`; None: it has none.

        Raises:
            InputError: there is no such device, at its place in the file.
        """
        section = self.system.banks
        if section is None:
            return None
        origin, name = self.origins["banks.device"], section.device
        if is_path(name) and origin.kind != "set":
            name = str(Path(origin.file).parent / name)
        level = [] if section.level is None else [f"level={section.level}"]
        try:
            return load_bank_hardware(name, level)
        except InputError as error:
            raise origin.error(str(error), "banks.device", error.code) from None

    @property
    def experts_in_banks(self) -> bool:
        """Whether the DIMMs are devices with units in their banks."""
        return self.system.banks is not None and self.system.banks.computes == "experts"

    @property
    def has_units(self) -> bool:
        """Whether DIMMs compute experts."""
        return self.system.ndp is not None or self.experts_in_banks

    @property
    def unit_read_gbps(self) -> float:
        """The rate above which no unit of a DIMM reads; in banks, a column of each bank in each clock."""
        device = self.bank_device
        if device is None or not self.experts_in_banks:
            return self.dimm_peak_gbps
        columns = device.device.sizes["channels"] * device.device.banks
        return float(1000 * columns * device.burst_bytes / device.device.clock_ps)

    @property
    def capacity_bytes(self) -> int:
        """Capacity of all DIMMs together."""
        return self.system.dimm.count * self.dimm_bytes

    @property
    def host_gbps(self) -> float:
        """Limit of all channels of the host together, in GB/s."""
        return self.system.host.channels * self.dimm_host_gbps

    @property
    def gpu_link(self) -> Pcie | Cxl | None:
        """The link between the GPU and memory: a device's own link, else PCIe to the host; None: none."""
        return self.system.cxl or self.system.pcie

    def bank_link_ns(self, size_bytes: int) -> float | None:
        """Time of a transfer over the own link of devices with units in their banks; None: they have none.

        Raises:
            InputError: the size is no number from 0.
        """
        banks, size = self.system.banks, number(size_bytes, "size_bytes", 0)
        if banks is None or banks.link_gbps is None:
            return None
        return banks.link_latency_ns + size / banks.link_gbps

    @property
    def lanes(self) -> int:
        """Lanes of a DIMM: ranks x sub-channels."""
        return self.system.dimm.ranks * self.system.dimm.subchannels

    @property
    def dimm_bytes(self) -> int:
        """Capacity of a DIMM in bytes."""
        return self.lanes * self.lane_device().capacity_bytes

    @property
    def lane_peak_gbps(self) -> float:
        """Limit of one lane, in GB/s."""
        return self.lane_device().peak_gbps

    @property
    def dimm_peak_gbps(self) -> float:
        """Limit of all lanes of a DIMM together, in GB/s."""
        return self._times_lane(self.lanes)

    @property
    def dimm_host_gbps(self) -> float:
        """Limit of a DIMM towards the host, in GB/s: its ranks share each sub-channel.

        A device on a CXL link carries no more than the link.
        """
        inside = self._times_lane(self.system.dimm.subchannels)
        return inside if self.system.cxl is None else min(inside, self.system.cxl.gbps)

    @property
    def ndp_area_mm2(self) -> float | None:
        """Area of the units of a DIMM together, in mm2; None where there are none or one is not known."""
        if self.system.ndp is None:
            return None
        ndp = self.system.ndp
        units = [getattr(ndp, name) for name in UNITS]
        areas = [unit.area_mm2 for unit in units if unit is not None]
        known = [area for area in areas if area is not None]
        return sum(known) if len(known) == len(areas) else None

    @property
    def power_changes(self) -> dict[str, float]:
        """The currents of a DRAM chip that the file gives, by name."""
        power = self.system.dram.power
        return {} if power is None else power.model_dump(exclude_none=True)

    @property
    def unit_gflops(self) -> dict[str, float | None]:
        """Peak of each unit that multiplies, at its native precision, by name; None if there is none."""
        ndp = self.system.ndp
        units = {name: None if ndp is None else getattr(ndp, name) for name in MULTIPLIERS}
        return {name: None if unit is None else unit.peak_gflops for name, unit in units.items()}

    def _times_lane(self, lanes: int) -> float:
        return float(lanes * exact(self.lane_peak_gbps))

    def to_dict(self) -> dict[str, Any]:
        """Everything a simulation can depend on, as plain data for JSON: values, timings, derived quantities.

        Equal for equal values, from any file or option.
        """
        device = self.lane_device()
        return {
            **self.system.model_dump(),
            "timings": dict(sorted(device.reported_timings.items())),
            "derived": {
                "lanes": self.lanes,
                "lane_ranks": device.ranks,
                "data_pins": self.lanes * device.data_pins,
                "burst_bytes": device.burst_bytes,
                "dimm_bytes": self.dimm_bytes,
                "lane_peak_gbps": self.lane_peak_gbps,
                "dimm_peak_gbps": self.dimm_peak_gbps,
                "dimm_host_gbps": self.dimm_host_gbps,
                "host_memory_gbps": self.host_memory.host_gbps,
                **{f"{name}_gflops": gflops for name, gflops in self.unit_gflops.items()},
            },
            **({} if self.bank_device is None else {"bank_device": self.bank_device.to_dict()}),
        }

    @functools.cached_property
    def json_text(self) -> str:
        """`to_dict` as JSON with sorted keys."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @functools.cached_property
    def digest(self) -> str:
        """A digest of `to_dict`: equal for equal values, from any file or option."""
        return hashlib.blake2b(self.json_text.encode(), digest_size=20).hexdigest()

    def _title(self) -> str:
        return f"Hardware: {self.system.title or self.system.name}"

    def _rows(self) -> list[tuple[str, str]]:
        system, device = self.system, self.lane_device()
        dimm, link = system.dimm, system.link
        rows = {
            "file": self.file,
            "dram": f"{device.org} at {device.timing}, refresh: {system.dram.refresh}",
            "dimms": f"{dimm.count} on {system.host.channels} channels",
            "lanes": f"{self.lanes} of a DIMM: {dimm.ranks} ranks x {dimm.subchannels} sub-channels",
            "capacity": f"{format_bytes(self.dimm_bytes)} a DIMM",
            "peak inside a DIMM": f"{self.dimm_peak_gbps:g} GB/s",
            "peak to the host": f"{self.dimm_host_gbps:g} GB/s a DIMM",
        }
        for name, gflops in self.unit_gflops.items():
            if gflops is not None:
                rows[MULTIPLIERS[name].called] = f"{gflops:g} GFLOPS"
        if link is not None:
            rows["links"] = f"{link.topology}, {link.link_gbps:g} GB/s each way"
        if system.cxl is not None:
            rows["CXL link"] = f"{system.cxl.gbps:g} GB/s each way"
        return [*rows.items(), ("...", "rows() has every value with its source")]

    def rows(self) -> list[Row]:
        """Every value with unit and origin, then derived values, then the timings of the DRAM."""
        stated = [
            Row(dotted(path), _cell(value), unit_of(path), str(self.origins[dotted(path)]))
            for path, value in leaves(self.system)
        ]
        return stated + self._derived_rows() + self._timing_rows()

    def _derived_rows(self) -> list[Row]:
        device = self.lane_device()
        org, gib = device.org, self.dimm_bytes / (1 << 30)
        rows = [
            Row("derived.lanes", self.lanes, "", "dimm.ranks x dimm.subchannels"),
            Row("derived.data_pins", self.lanes * device.data_pins, "", "lanes x data pins of a channel"),
            Row("derived.bankgroups", device.bankgroups, "", org),
            Row("derived.banks_per_group", device.banks_per_group, "", org),
            Row("derived.dimm_capacity", gib, "GiB", f"lanes x one rank of {org} on a sub-channel"),
            Row("derived.lane_peak", self.lane_peak_gbps, "GB/s", "one burst every nBL clocks"),
            Row("derived.dimm_peak_inside", self.dimm_peak_gbps, "GB/s", "lanes x lane peak"),
            Row("derived.dimm_peak_host", self.dimm_host_gbps, "GB/s", self._host_origin()),
            Row("derived.host_memory_peak", self.host_memory.host_gbps, "GB/s", self._host_memory_origin()),
        ]
        for name, gflops in self.unit_gflops.items():
            if gflops is not None:
                rows.append(Row(f"derived.{name}_peak", gflops, "GFLOPS", MULTIPLIERS[name].peak_formula))
        if self.system.ndp is not None:
            published = self.system.ndp.published.area_mm2
            stated = "not published" if published is None else f"published of all: {published:g} mm2"
            area = "of all units, None where one is not published"
            rows.append(Row("derived.ndp_area", self.ndp_area_mm2, "mm2", f"{area}; {stated}"))
        return rows

    @property
    def host_reads_dimms(self) -> bool:
        """Whether the host reads the DIMMs that compute; false where it has memory of its own."""
        return self.system.host.memory is None

    def _host_origin(self) -> str:
        origin = "dimm.subchannels x lane peak"
        return origin if self.system.cxl is None else f"{origin}, at most cxl.gbps"

    def _host_memory_origin(self) -> str:
        if self.system.host.memory is None:
            return "host.channels x what a DIMM carries towards the host"
        return "host.memory.channels x their peak"

    def _timing_rows(self) -> list[Row]:
        device = self.lane_device()
        units = {"rate": "MT/s", "tCK_ps": "ps"}
        rows, overrides = [], self.system.dram.overrides
        written = {timing_name(name, device.timings): name for name in overrides}
        for name, value in device.reported_timings.items():
            ns = float(device.timings[name] * device.timing_clock_ps / 1000)
            override = self.origins.get(f"dram.overrides.{written.get(name, name)}")
            origin = str(override) if override is not None else device.sources[name]
            if name in device.rounded:
                origin += f"; {device.rounded[name]}"
            if override is None and name in self.dropped:
                origin += f"; {self.dropped[name]} in the file belongs to its own grade"
            rows.append(Row(f"timings.{name}", value, units.get(name, f"clocks = {ns:.6g} ns"), origin))
        return rows


def _cell(value: Any) -> str | int | float | None:
    """A leaf as one cell of a table."""
    return ", ".join(value) if isinstance(value, list) else value
