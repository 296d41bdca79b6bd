"""The bundled units as hardware, made from the parameters of a machine; see validation/rtl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.config.banks import BankHardware
from ndpsim.config.files import data_folder
from ndpsim.dimm.units import MultiplierUnit
from ndpsim.dimm.units.systolic import SystolicUnit
from ndpsim.simulate.machine import NdpMachine, PlacedOnDimms
from ndpsim.simulate.rtl.build import UnitSource, load_module, need, write_rtlil

#: The hardware of each file of `rtl_params` that has one: its file in `validation/rtl`.
HARDWARE = {
    "trimoe_gemv": "gemv",
    "edge_gemv": "gemv",
    "trimoe_activation": "activation",
    "edge_activation": "activation",
    "cxl_activation": "activation",
    "cxl_systolic": "systolic",
    "aim_bank": "bank",
}

_LEAST_WINDOW = 4  # rows
_MOST_WINDOW = 1 << 12


def hardware_module(name: str) -> Any:
    """The module with the hardware of a unit."""
    need("amaranth")
    return load_module(data_folder("validation") / "rtl" / f"{HARDWARE[name]}.py")


def window_of(fifo_bursts: int, lanes: int, row_bursts: int) -> int:
    """Rows that can be open at once: those of twice the bursts that the FIFOs hold, a power of 2.

    The bursts of a lane may be read in another order, within its controller's queue and its FIFO.
    """
    rows = -(-2 * fifo_bursts * lanes // row_bursts) + 2
    return min(max(_LEAST_WINDOW, 1 << (rows - 1).bit_length()), _MOST_WINDOW)


def parameters(module: Any, values: Mapping[str, Any]) -> Any:
    """The sizes of the hardware from named values.

    Raises:
        InputError: such a unit cannot be built.
    """
    known = {each.name for each in fields(module.Parameters)}
    try:
        return module.Parameters(**{name: value for name, value in values.items() if name in known})
    except ValueError as error:
        key, _, problem = str(error).partition(": ")
        raise InputError(f"cannot be built: {problem}", "unsupported", key=key) from None


def values_of(unit: MultiplierUnit) -> dict[str, Any]:
    """The values of a machine's unit by the names of its parameters."""
    values = {each.name: getattr(unit, each.name) for each in fields(unit)}
    if isinstance(unit, SystolicUnit):
        array = unit.array
        values |= {
            **array._asdict(),
            "stationary_registers": array.registers,
            "dataflow": "weight-stationary" if array.weight_stationary else "output-stationary",
            "low_bit_throughput": "inverse-bits" if unit.inverse_bits else "fixed",
        }
    return {**values, "buffer_kib": unit.buffer_bytes // 1024, "activation_bits": 8 * unit.activation_bytes}


def systolic_parameters(module: Any, machine: NdpMachine, bits: int, tokens: int) -> Any:
    """The sizes of the arrays of a machine's lanes; each row holds activations of a share of the buffer."""
    values = {
        **values_of(machine.unit),
        "lanes": machine.lanes,
        "burst_bits": machine.device.burst_bytes * 8,
        "bits": bits,
        "tokens": tokens,
    }
    sizes = parameters(module, values)
    buffer_bits = 8 * machine.unit.buffer_bytes
    return replace(sizes, depth=buffer_bits // (sizes.rows * sizes.vector_bits))


def bank_parameters(module: Any, hardware: BankHardware) -> Any:
    """The sizes of the unit at a bank of a device."""
    return parameters(module, hardware.unit)


def machine_parameters(module: Any, machine: NdpMachine, expert: PlacedOnDimms, tokens: int) -> Any:
    """The sizes of a machine's GEMV unit for an expert; `tokens`: the most of a tile."""
    regions = expert.placed[0].interleaving.regions
    row_bursts = min(max(1, region.bursts // region.rows) for region in regions)
    return parameters(
        module,
        {
            **values_of(machine.unit),
            "lanes": machine.lanes,
            "burst_bits": machine.device.burst_bytes * 8,
            "bits": expert.weights.format.up.bits,
            "tokens": tokens,
            "window": window_of(machine.unit.fifo_bursts, machine.lanes, row_bursts),
        },
    )


def source_of(module: Any, sizes: Any, name: str) -> UnitSource:
    """The source of a bundled unit of these sizes."""
    files = write_rtlil(module.modules(sizes))
    return UnitSource(name, files, "unit", lambda: module.GemvUnit(sizes), own_fifo=True)


def is_bundled(name: str) -> bool:
    """Whether a name is that of a bundled unit for the closed loop, not a file."""
    return HARDWARE.get(name) == "gemv" and not Path(name).exists()
