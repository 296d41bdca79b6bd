"""Makes the hardware description of a machine from its parts."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from ndpsim.base.errors import InputError, shown
from ndpsim.base.units import format_bytes
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.files import PART_KINDS
from ndpsim.config.hardware import DIMM_BITS
from ndpsim.config.parts import Part, load_part
from ndpsim.config.system import System
from ndpsim.inference.prediction.kernels import USUAL, Kernels
from ndpsim.inference.processors import Processors
from ndpsim.inference.processors.fitted import fitted_values, measured_families

_log = logging.getLogger("ndpsim")

#: The description whose parts are replaced.
TEMPLATE = Path(__file__).parent / "machine.yaml"

#: The name for no GPU.
NO_GPU = "none"

#: Rate at which one core copies from memory to memory: half of the 32 GB/s of reads and writes of memcpy on a
#: Core i9-14900KF (JustVugg/colibri, issue 537).
CORE_COPY_GBPS = 16.0

#: Rate of reading another socket's memory over that of the own: 0.446 and 0.432, of 2x Xeon 6980P (MLC 247.5
#: of 554.8 GB/s; ikawrakow/ik_llama.cpp 8337e4c, discussion 201) and of a server of 2x 24 cores (34.4 of
#: 79.7).
REMOTE_SHARE = 0.44

#: Share of a memory that weights may take before a notice says that the system may have to page.
_MUCH = 0.8

#: Share of the time of reading that is left at least if the first token is computed meanwhile.
_LEAST = 0.1

_DESKTOP_CHANNELS = 4
_MOST_DIMMS = 64
_RANKS = (1, 2, 4, 8)


def parse_memory(text: str) -> tuple[str, int]:
    """The part and the number of DIMMs of ``ddr5-4800x16``.

    Raises:
        InputError: it is of another form.
    """
    found = re.fullmatch(r"(.+?)x([0-9]{1,3})", text.strip(), re.ASCII)
    if found is None or not 1 <= int(found[2]) <= _MOST_DIMMS:
        problem = f"{shown(text)} is not PARTxDIMMS with 1 to {_MOST_DIMMS} DIMMs, for instance ddr5-4800x16"
        raise InputError(problem, "form", key="memory")
    return found[1], int(found[2])


def _part(name: str, key: str, kind: str) -> Part:
    """The part of this name, or in this file.

    Raises:
        InputError: there is none, or it is of another kind.
    """
    try:
        part = load_part(name)
    except InputError as error:
        if error.key != "part":
            raise
        raise error.at(key=key) from None
    if part.kind != kind:
        problem = f"{name} is a {PART_KINDS[part.kind]}, and no {PART_KINDS[kind]}"
        raise InputError(problem, "conflict", key=key)
    return part


def _alone(hardware: Hardware, kernels: Kernels) -> list[str]:
    """The CPU as the GPU of the description: it computes everything, from all of the host's memory.

    A byte is read and unpacked; the threads wait for each other in attention, once a layer.
    """
    processors = Processors(hardware)
    cpu, host = processors.cpu, hardware.system.host
    unpacking_ns = cpu.compute_ns(2 * cpu.added_tokens * 8 / kernels.bits)
    reading_ns = 1 / (cpu.read_gbps or hardware.host_gbps)
    byte_ns = max(reading_ns + unpacking_ns, _LEAST * reading_ns)
    overhead_us = cpu.expert_overhead_ns / 1000
    barriers_us = (processors.cpu_threads or 0) * host.cpu_thread_overhead_us
    values = {
        "family": "null",
        "tflops": cpu.peak_tflops,
        "compute_efficiency": cpu.compute_efficiency,
        "attention_efficiency": cpu.compute_efficiency,
        "memory_tbps": 1 / byte_ns / 1000,
        "memory_efficiency": 1,
        "memory_gb": hardware.capacity_bytes / 1e9,
        "reserved_gb": 0,
        "expert_buffers": 0,
        "expert_calls": "single",
        "expert_overhead_us": overhead_us,
        "kernel_overhead_us": overhead_us,
        "attention_overhead_us": overhead_us + barriers_us,
        "roofline_power": "null" if host.cpu_roofline_power is None else host.cpu_roofline_power,
    }
    return [f"gpu.{key}={value}" for key, value in values.items()]


def _spread_gbps(hardware: Hardware) -> float:
    """What the memories of all sockets give if pages are spread over them: some are read over a link."""
    host, gbps = hardware.system.host, hardware.host_gbps
    if host.cpu_family is not None:
        gbps *= fitted_values("cpu", host.cpu_family)["read_share"]
    return gbps * host.cpu_sockets / (1 + (host.cpu_sockets - 1) / REMOTE_SHARE)


@dataclass(frozen=True)
class OwnMachine:
    """The parts of a machine: names of `ndpsim list parts`, or paths of part files.

    `dimms`: DIMMs of all sockets together, evenly over their channels. `memory_gb`: size of the host's
    memory; None: as much as needed. `pinned`: whether copies to the GPU come from pinned memory; if not, a
    CPU core copies them first. `matrix_units`: whether kernels use AMX if the CPU has it. `kernels`: of the
    weights on the CPU. `copies`: whether each socket reads a copy of them in its own memory.
    `channel_factor`: factor of the CPU's number of channels. `sets`: further changes, KEY=VALUE.
    """

    cpu: str
    sockets: int
    memory: str
    dimms: int
    gpu: str
    link: str
    memory_gb: float | None = None
    pinned: bool = True
    matrix_units: bool = False
    kernels: Kernels = USUAL
    copies: bool = False
    channel_factor: int = 1
    sets: tuple[str, ...] = ()

    @property
    def cpu_alone(self) -> bool:
        """Whether there is no GPU, so that the CPU computes everything."""
        return self.gpu == NO_GPU

    @property
    def kind(self) -> str:
        """The kind of machine, within which predictions err alike."""
        if self.sockets > 1:
            return "two sockets"
        if self.cpu_alone:
            return "CPU alone"
        if self.matrix_units and _part(self.cpu, "cpu", "cpus").values.get("cpu_isa") == "amx":
            return "GPU and AMX"
        if _part(self.gpu, "gpu", "gpus").values.get("family") not in measured_families("gpu"):
            return "GPU without measurements"
        channels = _part(self.cpu, "cpu", "cpus").values.get("cpu_memory_channels", 0)
        return "GPU and desktop" if channels <= _DESKTOP_CHANNELS else "GPU and server"

    @property
    def title(self) -> str:
        """All parts in a line."""
        cpu = self.cpu if self.sockets == 1 else f"{self.sockets}x {self.cpu}"
        if self.cpu_alone:
            return f"{cpu}, {self.dimms}x {self.memory}, no GPU"
        return f"{cpu}, {self.dimms}x {self.memory}, {self.gpu} on {self.link}"

    def hardware(self, needed_bytes: float) -> Hardware:
        """The description; the DIMMs have enough ranks for this number of bytes.

        Raises:
            InputError: a part is unknown or of another kind, there are too many sockets, the DIMMs do not fit
                the channels, or the memory is too small.
        """
        self._check_parts()
        parts: tuple[str, ...] = (
            f"host.part={self.cpu}",
            f"host.cpu_sockets={self.sockets}",
            f"dram.part={self.memory}",
            *(() if self.cpu_alone else (f"gpu.part={self.gpu}", f"pcie.part={self.link}")),
            "dimm.ranks=1",
        )
        bare = load_hardware(TEMPLATE, (*parts, *self.sets))
        channels = min(self._channels(bare), self.dimms)
        if self.dimms % channels:
            problem = f"{self.dimms} DIMMs are not shared evenly by {channels} channels of {self.cpu}"
            raise InputError(problem, "conflict", key="memory")
        device = bare.lane_device()
        bits = device.standard.channel_bits
        sets = (
            *parts,
            f"host.channels={channels}",
            f"dimm.count={self.dimms}",
            f"dimm.subchannels={max(1, DIMM_BITS // bits)}",
        )
        sets += tuple(self._of_program(sets, bare.system))
        needed_bytes *= self.sockets if self.copies else 1
        self._check_size(needed_bytes)
        for ranks in (1,) if device.organisation.ranks else _RANKS:
            of_ranks = (*sets, f"dimm.ranks={ranks}", *self.sets)
            hardware = load_hardware(TEMPLATE, of_ranks)
            if hardware.capacity_bytes >= needed_bytes:
                if not self.cpu_alone:
                    return hardware
                return load_hardware(TEMPLATE, (*of_ranks, *_alone(hardware, self.kernels)))
        problem = (
            f"{self.dimms}x {self.memory} hold {format_bytes(hardware.capacity_bytes)} at most, and the "
            f"weights in the host's memory take {format_bytes(needed_bytes)}"
        )
        raise InputError(problem, "too-large", key="memory")

    def _of_program(self, sets: tuple[str, ...], system: System) -> list[str]:
        """Changes, KEY=VALUE, by the program: what it does not use of the machine, and its kernels."""
        found = []
        if not self.matrix_units and system.host.cpu_isa == "amx":
            found.append("host.cpu_isa=avx512-vnni")
        if not self.pinned and system.pcie is not None:
            found.append(f"pcie.gbps={min(system.pcie.gbps, CORE_COPY_GBPS):g}")
        usual = load_hardware(TEMPLATE, (*sets, *found, *self.sets))
        efficiency = self.kernels.efficiency * Processors(usual).cpu.compute_efficiency
        found.append(f"host.cpu_compute_efficiency={min(1.0, efficiency):.6g}")
        found.append(f"host.cpu_added_tokens={self.kernels.added_tokens:.6g}")
        if self.sockets > 1 and not self.copies and system.host.cpu_memory_gbps is None:
            found.append(f"host.cpu_memory_gbps={_spread_gbps(usual):.6g}")
        return found

    def _channels(self, bare: Hardware) -> int:
        """Memory channels of all sockets."""
        of_socket = bare.system.host.cpu_memory_channels
        if of_socket is None:
            raise InputError(f"{self.cpu} has no number of memory channels", "missing", key="cpu")
        return self.sockets * of_socket * self.channel_factor

    def _check_parts(self) -> None:
        most = _part(self.cpu, "cpu", "cpus").values.get("cpu_sockets_most")
        if most is not None and self.sockets > most:
            raise InputError(f"{self.sockets} are more than the {most} of {self.cpu}", "range", key="sockets")
        _part(self.memory, "memory", "memories")
        if not self.cpu_alone:
            _part(self.gpu, "gpu", "gpus")
            _part(self.link, "link", "links")

    def _check_size(self, needed_bytes: float) -> None:
        if self.memory_gb is not None and needed_bytes > self.memory_gb * 1e9:
            needed = f"{needed_bytes / 1e9:.1f} GB of weights in the host's memory"
            problem = f"{self.memory_gb:g} GB do not hold the {needed}"
            raise InputError(problem, "too-large", key="memory_gb")
        if self.memory_gb is not None and needed_bytes > _MUCH * self.memory_gb * 1e9:
            share = needed_bytes / (self.memory_gb * 1e9)
            _log.warning(
                "the weights take %.0f%% of the memory: if the system pages, it is slower than predicted",
                100 * share,
            )
