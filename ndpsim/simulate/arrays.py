"""The systolic arrays of a hardware file, and how an expert lies before them."""

from __future__ import annotations

from ndpsim.config import Hardware
from ndpsim.config.system import Systolic
from ndpsim.errors import InputError
from ndpsim.layout import ExpertWeights, TiledLayout, Tiles, expert_regions
from ndpsim.ndp.array import Array
from ndpsim.ndp.systolic import SystolicUnit
from ndpsim.simulate.geometry import geometry_of
from ndpsim.spec import Device

__all__ = ["check_device_layout", "lay_on_arrays", "place_tiles", "systolic_unit"]


def systolic_unit(arrays: Systolic) -> SystolicUnit:
    """The arrays as a hardware file describes them."""
    return SystolicUnit(
        arrays=arrays.arrays,
        array=Array(
            arrays.rows,
            arrays.columns,
            arrays.dataflow == "weight-stationary",
            arrays.stationary_registers,
            arrays.load_rows,
        ),
        inverse_bits=arrays.low_bit_throughput == "inverse-bits",
        native_bits=arrays.native_bits,
        buffer_bytes=arrays.buffer_kib * 1024,
        activation_bytes=arrays.activation_bytes,
        fifo_bursts=arrays.fifo_bursts,
    )


def place_tiles(unit: SystolicUnit, device: Device, lanes: int, weights: ExpertWeights) -> Tiles:
    """The tiles of an expert on the lanes of a device.

    Raises:
        InputError: they do not fit, or the arrays cannot be shared out evenly.
    """
    regions = expert_regions(weights.hidden, weights.intermediate, weights.format, device.burst_bytes)
    return Tiles(regions, device, lanes, unit.outputs(lanes))


def check_device_layout(layout: str) -> None:
    """Make sure that a device with arrays can have a layout.

    Raises:
        InputError: it cannot.
    """
    if layout != "localized":
        raise InputError(f"'{layout}' is for several DIMMs; a device has localized", key="layout")


def lay_on_arrays(hardware: Hardware, weights: ExpertWeights, layout: str) -> TiledLayout:
    """Where `simulate_expert` reads an expert on hardware with `ndp.systolic`.

    Raises:
        InputError: the hardware or the layout makes no sense, or the expert does not fit.
    """
    check_device_layout(layout)
    arrays = hardware.ndp.systolic
    assert arrays is not None, "chosen by the caller"
    with hardware.errors_at_origins():
        unit = systolic_unit(arrays)
        tiles = place_tiles(unit, hardware.lane_device(), hardware.lanes, weights)
    return TiledLayout(geometry_of(hardware), weights, tiles, unit.native_bits if unit.inverse_bits else 0)
