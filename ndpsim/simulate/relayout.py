"""Relayout: experts move from one layout to another, by the relayout units of DIMMs, or by the host.

Each DIMM's unit reads its bursts in order into one half of its buffer, sends them as packets, receives into
the other half, and writes: `ndpsim.link.engine` says exactly when. Experts beyond those that may migrate at
once wait until the ones before have arrived; `relayout_waves` says which go first.

The host does the same through its channels: it reads each burst, and writes it when it has it, with as many
bursts in flight as its controllers' queues hold. No time on its cores is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from threading import Event
from typing import Any

from ndpsim.arguments import flag, progress_function, text, whole_number
from ndpsim.config import Hardware, load_hardware
from ndpsim.errors import InputError
from ndpsim.layout import ExpertFormat, parse_layout
from ndpsim.moe import Expert, MoeShape
from ndpsim.results.cache import Lookup, ResultCache
from ndpsim.results.stopwatch import Stopwatch
from ndpsim.simulate.geometry import geometry_of
from ndpsim.simulate.relayout_plan import (
    access_by_host,
    access_by_units,
    ensure_transfers_fit,
    first_dimms,
    neighbouring_dimms,
    plan_transfers,
)
from ndpsim.simulate.relayout_result import (
    HostMove,
    OtherDimms,
    RelayoutResult,
    Stretch,
    host_move,
    relayout_energy,
    relayout_result,
)
from ndpsim.simulate.relayout_run import Access, Run, Transfer, run_relayout
from ndpsim.simulate.relayout_waves import choose_waves
from ndpsim.simulate.weights import describe_weights, named_weights

__all__ = ["MAX_EXPERTS", "HostMove", "OtherDimms", "RelayoutResult", "Stretch", "simulate_relayout"]

Progress = Callable[[float], None]

#: Most experts of one call.
MAX_EXPERTS = 64


def _simulate(
    transfers: Sequence[Transfer],
    at_once: int,
    access: Access,
    by_host: Access | None,
    record: bool,
    progress: Progress,
) -> tuple[list[Run], list[Run]]:
    """Runs by the units, and by the host where it is asked for: each in a thread, as they share nothing."""
    stop = Event()

    def runs(of: Access, record: bool, progress: Progress) -> list[Run]:
        waves = choose_waves(of, transfers, at_once)
        return [run_relayout(of, [transfers[n] for n in wave], record, progress, stop) for wave in waves]

    with ThreadPoolExecutor(1) as pool:
        host = pool.submit(runs, by_host, False, lambda share: None) if by_host else None
        try:
            return runs(access, record, progress), host.result() if host else []
        finally:
            stop.set()  # or what an error or Ctrl-C ends here would be waited for


def _on_neighbours(
    given: tuple[Any, Any, int, str, str],
    dimms: int,
    bits: int | ExpertFormat,
    host: bool,
    progress: Progress,
) -> OtherDimms:
    """The same relayout with experts on neighbouring DIMMs; `given`: what `simulate_relayout` takes first."""
    _, _, experts, source, target = given
    first = neighbouring_dimms(source, experts, dimms)
    second = None if source == target else neighbouring_dimms(target, experts, dimms)
    result = simulate_relayout(*given, first, second, bits, host=host, progress=progress)
    return OtherDimms(
        source_dimms=result.config["source_dimms"],
        target_dimms=result.config["target_dimms"],
        time_ns=result.time_ns,
        host_time_ns=result.host.time_ns if result.host else None,
        host_speedup=result.host_speedup,
    )


def simulate_relayout(
    hw: str | PathLike[str] | Hardware = "trimoe",
    model: str | PathLike[str] | MoeShape | Expert = "qwen3-235b-a22b",
    experts: int = 1,
    source: str = "localized",
    target: str = "striped",
    source_dimms: Sequence[int] | None = None,
    target_dimms: Sequence[int] | None = None,
    bits: int | ExpertFormat = 16,
    sets: Sequence[str] = (),
    host: bool = True,
    other_dimms: bool = False,
    record_commands: bool = False,
    progress: Progress | None = None,
    cache: bool | ResultCache = False,
) -> RelayoutResult:
    """Move experts of a model from one layout to another, cycle by cycle.

    Args:
        hw: a bundled hardware name, a path of a hardware file, or a loaded `Hardware`.
        model: a bundled model name, a path of a Hugging Face config.json, what `load_model` returns, or an
            `Expert`.
        experts: how many, 1 to `MAX_EXPERTS`.
        source, target: the layouts: "localized", "striped", "sharded:N".
        source_dimms, target_dimms: the first DIMM of each expert; without, they are spread evenly, and from
            a layout to the same one each expert goes to the next DIMM (or DIMMs).
        bits: bits of a weight, 16, 8, 4, 3, 2 or 1, or the format of each matrix.
        sets: changes to the hardware, "link.topology=mesh".
        host: also simulate the same move by the host.
        other_dimms: also simulate the same with experts on neighbouring DIMMs, where those that are spread
            evenly may lie on few of the host's channels.
        record_commands: keep the command trace of every lane.
        progress: called with the share of the work that is done; None: nothing is called.
        cache: True, or a `ResultCache`, to find the result there where the very same was simulated before;
            with `record_commands` everything is simulated.

    Raises:
        InputError: an argument, the hardware or the model makes no sense, or does not fit.
    """
    stopwatch = Stopwatch()
    experts = whole_number(experts, "experts", 1, MAX_EXPERTS)
    source, target = text(source, "source"), text(target, "target")
    host, record_commands = flag(host, "host"), flag(record_commands, "record_commands")
    other_dimms = flag(other_dimms, "other_dimms")
    if other_dimms and (source_dimms is not None or target_dimms is not None):
        raise InputError("is for experts that are spread evenly; DIMMs are given", key="other_dimms")
    progress = progress_function(progress)
    hardware = load_hardware(hw, sets)
    weights, model_name = named_weights(model, bits)
    geometry = geometry_of(hardware)
    first = first_dimms(source_dimms, source, experts, geometry.dimms, "source")
    second = first_dimms(target_dimms, target, experts, geometry.dimms, "target")
    if target_dimms is None and source == target != "striped":
        width = max(parse_layout(target)[1], 1)
        second = [(dimm + width) % (geometry.dimms // width * width) for dimm in first]
    given = (hardware, weights, source, target, first, second, host, other_dimms)
    lookup = Lookup(RelayoutResult, cache, record_commands, given, {"model": model_name})
    if (found := lookup.find(stopwatch, progress)) is not None:
        return found
    transfers = plan_transfers(geometry, weights, (source, first), (target, second))
    progress(0.0)
    access = access_by_units(hardware, geometry)
    at_once = hardware.relayout.concurrent_experts
    ensure_transfers_fit(transfers[:at_once], record_commands)
    by_host = access_by_host(hardware, geometry) if host and transfers else None
    with hardware.errors_at_origins():
        runs, host_runs = _simulate(transfers, at_once, access, by_host, record_commands, progress)
    config = {
        "hardware": hardware.to_dict(),
        **describe_weights(weights, model_name),
        "source": source,
        "target": target,
        "source_dimms": first,
        "target_dimms": second,
    }
    given_again = (hardware, model, experts, source, target)
    other = _on_neighbours(given_again, geometry.dimms, bits, host, progress) if other_dimms else None
    result = relayout_result(
        access,
        transfers,
        runs,
        host_move(hardware, by_host, host_runs) if by_host else None,
        other,
        relayout_energy(hardware, access, runs),
        config,
        experts,
        stopwatch,
    )
    return lookup.store(result)
