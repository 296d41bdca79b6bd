"""The processors of a hardware file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from ndpsim.base.annotated import Annotated
from ndpsim.base.arguments import Sets, instance
from ndpsim.base.errors import InputError
from ndpsim.base.units import exact
from ndpsim.config import Hardware, load_hardware
from ndpsim.config.system import GPU_FITTED
from ndpsim.dimm.layout import ExpertFormat
from ndpsim.inference.processors import dense, memory
from ndpsim.inference.processors.banks import AttentionDevices
from ndpsim.inference.processors.cpu import Cpu, memory_gbps, peak_tflops
from ndpsim.inference.processors.dense import DenseTime
from ndpsim.inference.processors.fitted import fitted_values
from ndpsim.inference.processors.gpu import Gpu
from ndpsim.inference.processors.memory import GpuMemory
from ndpsim.inference.processors.operations import AnyStep, DenseBits, MixedStep, Step
from ndpsim.inference.processors.parallel import Exchange, tensor_part, with_exchanges
from ndpsim.inference.processors.power import read_power
from ndpsim.inference.processors.table import ExpertTable, read_table
from ndpsim.workload.models import Expert, MoeShape, load_model

T = TypeVar("T")


@dataclass(frozen=True)
class Processors(Annotated):
    """The GPU and the CPU of `hardware`. A value that its file lacks is an error when it is needed."""

    hardware: Hardware

    @functools.cached_property
    def gpu(self) -> Gpu:
        """The GPU.

        Raises:
            InputError: the file has no GPU or lacks values for it, or its table is wrong.
        """
        gpu = self.hardware.system.gpu
        if gpu is None:
            problem = "is missing: the hardware has no GPU"
            raise InputError(problem, "missing", file=self.hardware.file, key="gpu")
        values = {name: self._value(f"gpu.{name}", getattr(gpu, name), gpu.family) for name in GPU_FITTED}

        def given(name: str) -> float:
            return self._given(f"gpu.{name}", values[name])

        def nanoseconds(name: str) -> float:
            return _scaled(values[name], 1000)

        return Gpu(
            peak_tflops=gpu.tflops,
            compute_efficiency=given("compute_efficiency"),
            tables=self._expert_tables("gpu.expert_times", gpu.expert_times, None),
            memory_gbps=_scaled(gpu.memory_tbps, 1000),
            memory_efficiency=given("memory_efficiency"),
            attention_efficiency=given("attention_efficiency"),
            expert_overhead_ns=nanoseconds("expert_overhead_us"),
            kernel_overhead_ns=nanoseconds("kernel_overhead_us"),
            memory_bytes=int(_scaled(gpu.memory_gb, 10**9)),
            reserved_bytes=int(_scaled(gpu.reserved_gb, 10**9)),
            expert_buffers=gpu.expert_buffers,
            fused=gpu.expert_calls == "fused",
            fused_efficiency=values["fused_efficiency"],
            call_overhead_ns=nanoseconds("call_overhead_us"),
            slice_ns=nanoseconds("slice_us"),
            tile_tokens=int(values["tile_tokens"]),
            roofline_power=values["roofline_power"],
            fused_memory_efficiency=values["fused_memory_efficiency"],
            attention_memory_efficiency=values["attention_memory_efficiency"],
            attention_power=values["attention_power"],
            softmax_operations=values["softmax_operations"] or 0.0,
            latent_efficiency=values["latent_efficiency"],
            fp8_tflops=gpu.fp8_tflops,
            fp8_efficiency=values["fp8_efficiency"],
            fp4_tflops=gpu.fp4_tflops,
            fp4_efficiency=values["fp4_efficiency"],
            attention_overhead_ns=None
            if values["attention_overhead_us"] is None
            else nanoseconds("attention_overhead_us"),
        )

    @property
    def gpus(self) -> int:
        """The number of GPUs; 1 without a GPU."""
        gpu = self.hardware.system.gpu
        return 1 if gpu is None else gpu.count

    @property
    def exchange(self) -> Exchange:
        """Exchanges between the GPUs."""
        gpu = self.hardware.system.gpu
        assert gpu is not None
        link_gbps = gpu.pcie_gbps if gpu.link_gbps is None else gpu.link_gbps
        return Exchange(self.gpus, link_gbps, 1e3 * gpu.link_latency_us)

    def gpu_part(self, model: str | PathLike[str] | MoeShape) -> MoeShape:
        """A GPU's part of a model that all GPUs have together, in equal parts of each matrix.

        Raises:
            InputError: the model is not known, or its heads or sizes cannot be divided into equal parts.
        """
        whole = load_model(model)
        try:
            return whole if self.gpus == 1 else tensor_part(whole, self.gpus)
        except InputError as error:
            raise self.hardware.origins["gpu.count"].error(error.problem, "gpu.count", error.code) from None

    def gpu_expert(self, expert: Expert) -> Expert:
        """A GPU's part of an expert, whose columns `gpu_part` has divided."""
        whole = instance(expert, "expert", Expert)
        return replace(whole, intermediate=whole.intermediate // self.gpus)

    @property
    def has_cpu(self) -> bool:
        """Whether the file gives the speed of the host's CPU."""
        host = self.hardware.system.host
        return host.cpu_tflops is not None or None not in (host.cpu_cores, host.cpu_clock_ghz, host.cpu_isa)

    @functools.cached_property
    def cpu(self) -> Cpu:
        """The host's CPU.

        Raises:
            InputError: the file lacks values for the CPU, or its table is wrong.
        """
        host = self.hardware.system.host
        efficiency = host.cpu_compute_efficiency
        if efficiency is None and host.cpu_isa is not None:
            key = "compute_efficiency" if host.cpu_roofline_power is None else "adding_efficiency"
            efficiency = fitted_values("cpu", host.cpu_isa)[key]
        return Cpu(
            peak_tflops=self._cpu_tflops(),
            compute_efficiency=self._given("host.cpu_compute_efficiency", efficiency),
            tables=self._expert_tables("host.cpu_expert_times", host.cpu_expert_times, host.cpu_threads),
            added_tokens=host.cpu_added_tokens,
            read_gbps=self._cpu_read_gbps(),
            expert_overhead_ns=_scaled(host.cpu_expert_overhead_us, 1000),
            layer_overhead_ns=_scaled(host.cpu_layer_overhead_us, 1000)
            + (self.cpu_threads or 0) * _scaled(host.cpu_thread_overhead_us, 1000),
            roofline_power=host.cpu_roofline_power,
        )

    def _cpu_tflops(self) -> float:
        """The peak of the cores that compute."""
        host = self.hardware.system.host
        tflops, cores = host.cpu_tflops, host.cpu_cores
        if tflops is None and self.has_cpu:
            tflops = peak_tflops(cores or 0, host.cpu_clock_ghz or 0.0, host.cpu_isa or "")
        tflops = host.cpu_sockets * self._given("host.cpu_tflops", tflops)
        if cores is not None and host.cpu_threads is not None:
            tflops *= min(host.cpu_threads, host.cpu_sockets * cores) / (host.cpu_sockets * cores)
        return tflops

    @property
    def cpu_threads(self) -> int | None:
        """Threads with a core of their own; None if the file gives neither threads nor cores."""
        host = self.hardware.system.host
        cores = None if host.cpu_cores is None else host.cpu_sockets * host.cpu_cores
        return min((count for count in (host.cpu_threads, cores) if count is not None), default=None)

    def _cpu_read_gbps(self) -> float | None:
        """The rate at which the CPU reads weights; None if the file does not give it."""
        host, peak_gbps = self.hardware.system.host, self.hardware.host_memory.host_gbps
        fabric_gbps = host.cpu_fabric_gbps and host.cpu_sockets * host.cpu_fabric_gbps
        of_program = host.cpu_read_share and host.cpu_read_share * peak_gbps
        limits, core_gbps, reached = [fabric_gbps, host.cpu_memory_gbps], 0.0, 1.0
        threads = cores = None
        if host.cpu_family is not None:
            fitted = fitted_values("cpu", host.cpu_family)
            threads, cores, core_gbps = self.cpu_threads, host.cpu_cores, fitted["core_read_gbps"]
            if host.cpu_memory_gbps is None:
                limits.append(fitted["read_share"] * peak_gbps)
            if of_program is None and host.cpu_read_gbps is None:
                reached = fitted["expert_read_share"]
        cores = threads if cores is None else host.cpu_sockets * cores
        given = memory_gbps(limits, threads, cores, core_gbps)
        rates = (host.cpu_read_gbps, of_program, None if given is None else reached * given)
        return min((rate for rate in rates if rate is not None), default=None)

    def power_w(self, model: str | PathLike[str] | MoeShape) -> dict[str, float] | None:
        """Measured power in W of "cpu" and "gpu" (all GPUs) while the model runs; None if no source gives it.

        Raises:
            InputError: a table is wrong, or has nothing for the number of threads of the CPU.
        """
        host, expert = self.hardware.system.host, load_model(model).expert
        for table in self._read("host.measured_power", host.measured_power, read_power, host.cpu_threads):
            if table.expert == expert:
                return {"cpu": table.cpu_w, "gpu": self.gpus * table.gpu_w}
        return None

    def dense_time(
        self,
        model: str | PathLike[str] | MoeShape,
        sequences: int,
        context: int,
        new_tokens: int = 1,
        *,
        kv: str = "gpu",
        kv_bits: int = 16,
        bits: DenseBits = 16,
    ) -> DenseTime:
        """The GPU's time for the dense parts: attention, router, shared experts and more.

        Args:
            model: as in `load_model`.
            sequences: sequences of the step.
            context: tokens that the last new token of each sequence attends to, including itself.
            new_tokens: new tokens of each sequence: 1 in decode, `context` in a prefill of the whole prompt.
            kv: location of the KV cache, "gpu" or "host".
            kv_bits: bits of a value in the cache.
            bits: bits of a dense weight, or of each part by its name in `gpu_memory`.

        Raises:
            InputError: an argument is wrong, or the hardware or the model lacks a value.
        """
        step = Step(sequences, context, new_tokens, kv_bits)
        return self.step_time(model, step, kv=kv, bits=bits)

    def step_time(
        self,
        model: str | PathLike[str] | MoeShape,
        step: AnyStep,
        *,
        kv: str = "gpu",
        bits: DenseBits = 16,
        devices: AttentionDevices | None = None,
    ) -> DenseTime:
        """As `dense_time`, for a step whose sequences may differ, or whose attention `devices` compute.

        Raises:
            InputError: as `dense_time`.
        """
        instance(step, "step", MixedStep if isinstance(step, MixedStep) else Step)
        if devices is not None:
            instance(devices, "devices", AttentionDevices)
        return dense.timed(self.gpu, load_model(model), step, kv, bits, devices)

    def part_time(
        self,
        part: str | PathLike[str] | MoeShape,
        step: AnyStep,
        *,
        kv: str = "gpu",
        bits: DenseBits = 16,
        devices: AttentionDevices | None = None,
    ) -> DenseTime:
        """As `step_time`, of a GPU's part of a model, with the exchanges of all GPUs; see `gpu_part`.

        Raises:
            InputError: as `dense_time`.
        """
        shape = load_model(part)
        time = self.step_time(shape, step, kv=kv, bits=bits, devices=devices)
        return with_exchanges(time, shape, step, self.exchange)

    def gpu_memory(
        self,
        model: str | PathLike[str] | MoeShape,
        sequences: int,
        context: int,
        new_tokens: int = 1,
        *,
        kv: str = "auto",
        kv_bits: int = 16,
        bits: int | ExpertFormat = 16,
        dense_bits: DenseBits = 16,
    ) -> GpuMemory:
        """The contents of the GPU's memory in such a step, and the number of experts that fit.

        `kv`: location of the cache, "gpu" or "host"; "auto": in the GPU's memory if it fits. The other
        arguments are those of `dense_time`.

        Raises:
            InputError: not supported: something does not fit, named with its bytes; or an argument is
                wrong.
        """
        step = Step(sequences, context, new_tokens, kv_bits)
        return memory.gpu_memory(self.gpu, load_model(model), step, kv, bits, dense_bits)

    def files(self) -> list[Path]:
        """The files of measured times and power that the hardware names, apart from bundled ones."""
        system = self.hardware.system
        named = {
            "gpu.expert_times": None if system.gpu is None else system.gpu.expert_times,
            "host.cpu_expert_times": system.host.cpu_expert_times,
            "host.measured_power": system.host.measured_power,
        }
        return [
            self._folder(key) / name
            for key, names in named.items()
            for name in names or ()
            if name.endswith(".csv")
        ]

    def _folder(self, key: str) -> Path:
        """The folder to which the paths under a key are relative."""
        origin = self.hardware.origins[key]
        return Path() if origin.kind == "set" else Path(origin.file).parent

    def _value(self, key: str, value: Any, family: str | None) -> Any:
        """A key's value, or the fitted value of the family if the file has a family but not the key."""
        if family is None or self.hardware.origins[key].kind != "default":
            return value
        return fitted_values("gpu", family).get(key.partition(".")[2], value)

    def _given(self, key: str, value: float | None) -> float:
        if value is None:
            origin = self.hardware.origins[key]
            raise origin.error(
                "is missing; without it the processor's speed is not known", key, code="missing"
            )
        return value

    def _expert_tables(
        self, key: str, names: list[str] | None, threads: int | None
    ) -> tuple[ExpertTable, ...]:
        tables = self._read(key, names, read_table, threads)
        of_experts = {(table.expert, table.bits): table for table in tables}
        for table in tables:
            other = of_experts[table.expert, table.bits]
            if other is not table:
                problem = f"{table.file} and {other.file} have times of the same expert"
                raise self.hardware.origins[key].error(problem, key, code="conflict")
        return tables

    def _read(
        self,
        key: str,
        names: list[str] | None,
        read: Callable[[str, Path, int | None], T],
        threads: int | None,
    ) -> tuple[T, ...]:
        """The tables that a key names, for this number of threads."""
        try:
            return tuple(read(name, self._folder(key), threads) for name in names or ())
        except InputError as error:
            raise self.hardware.origins[key].error(str(error), key, error.code) from None


def _scaled(value: Any, factor: int | Fraction) -> float:
    """A decimal value in another unit, rounded once."""
    return float(exact(value) * factor)


def load_processors(
    hw: str | PathLike[str] | Mapping[str, Any] | Hardware = "trimoe", sets: Sets = ()
) -> Processors:
    """The GPU and the CPU of a hardware file, as in `load_hardware`.

    >>> ndpsim.load_processors("trimoe").gpu.memory_gbps
    2040.0

    Raises:
        InputError: as `load_hardware`.
    """
    return Processors(load_hardware(hw, sets))
