"""Runs a trace in Ramulator 2.1 and in ndpsim, compares every command, and measures both.

Ramulator 2.1 offers one request a clock and ends at the clock that takes the last one; commands are
compared up to this clock. It needs Ramulator's Python package `ramulator`; no other part of ndpsim does.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.errors import InputError
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.base.run_files import temporary_folder
from ndpsim.dram.controllers import own_counters
from ndpsim.dram.spec import Device
from ndpsim.dram.spec.device import derived_timings
from ndpsim.dram.spec.standard import ONE_BANK, latency_terms
from ndpsim.dram.traces import CommandTrace, Requests
from ndpsim.simulate import Memory, run_requests

_COUNTERS = {
    "cycles": "cycles",
    "row_hits": "row_hits",
    "row_misses": "row_misses",
    "row_conflicts": "row_conflicts",
    "reads_forwarded": "num_read_reqs_forwarded",
    "writes_coalesced": "num_write_reqs_coalesced",
}
_MAPPERS = ("RoBaRaCoCh", "ChRaBaRoCo", "MOP4CLXOR")


class _Names(NamedTuple):
    """Ramulator's names for a standard: its controller, the refresh of one bank, if any, and its own options.

    options: by Ramulator's name, a function of our options that gives its value.
    """

    controller: str = "GenericDDR"
    per_bank: str = ""
    options: Mapping[str, Callable[[ControllerOptions], object]] = MappingProxyType({})


#: The standards of Ramulator 2.1 that can be compared.
STANDARDS = {
    "DDR4": _Names(),
    "DDR5": _Names(),
    "GDDR6": _Names(),
    "GDDR7": _Names(
        "GDDR7",
        "PerBank",
        {
            "rck_mode": lambda options: options.rck.replace("-", "_"),
            "rck_idle_threshold": lambda options: options.rck_idle,
        },
    ),
    "HBM3": _Names("HBM34", "HBM34PerBankRefresh"),
    "HBM4": _Names("HBM34", "HBM34PerBankRefresh"),
    "LPDDR5": _Names("LPDDR5", "PerBank", {"wck_sync_mode": lambda options: options.wck.replace("-", "_")}),
    "LPDDR6": _Names("LPDDR6", "", {"wck_sync_mode": lambda options: options.wck.replace("-", "_")}),
}


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        identical: every command, clock, coordinate and counter is equal.
        commands: commands compared.
        first_difference: the first difference, in words; None if identical.
        counters: by name, (ours, theirs).
        ours_mps, ramulator_mps: million requests a second, without recording commands, reading the
            trace or compiling.
    """

    identical: bool
    commands: int
    first_difference: str | None
    counters: Mapping[str, tuple[int, int]]
    ours_mps: float
    ramulator_mps: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def _package() -> ModuleType:
    try:
        package = importlib.import_module("ramulator")
    except ImportError as error:
        problem = f"no package 'ramulator' can be imported ({error}); install Ramulator 2.1's Python package"
        raise InputError(problem, "not-installed", key="compare ramulator") from None
    if not hasattr(package, "Simulation"):
        problem = f"{package.__name__} is not Ramulator 2.1's package"
        raise InputError(problem, "not-installed", key="compare ramulator")
    return package


def _check(requests: Requests, memory: Memory) -> None:
    refresh, scheduler = memory.options.refresh, memory.options.scheduler
    standard = memory.device.standard.name
    if standard not in STANDARDS:
        raise InputError(f"Ramulator 2.1 is not asked for {standard}", "unsupported", key="compare ramulator")
    refreshes = "all-bank", "staggered", "none", *["per-bank"] * bool(STANDARDS[standard].per_bank)
    wrong = {
        "the request trace must hold addresses": requests.address is None,
        "its front end knows no request times": requests.cycle is not None,
        "one channel at a time": memory.channels != 1,
        f"it knows the mappers {', '.join(_MAPPERS)}": memory.mapper not in _MAPPERS,
        f"it has no {scheduler} scheduler": scheduler not in ("FRFCFS", "FRFCFS-RowHit"),
        f"it has no {refresh} refresh": refresh not in refreshes,
        "it is not asked for refresh management": memory.options.rfm != "off",
        "its organisations are presets": memory.device.org not in memory.device.standard.organisations,
    }
    for problem, there in wrong.items():
        if there:
            raise InputError(problem, "unsupported", key="compare ramulator")


def _check_known(package: Any, device: Device) -> None:
    """Refuse presets and overrides that Ramulator's page of the standard lacks."""
    name = device.standard.name
    dram = getattr(package.dram, name)
    names = [(device.org, dram.org_presets), (device.timing, dram.timing_presets)]
    names += [(key, dram.timing_params) for key, source in device.sources.items() if source == "override"]
    for key, known in names:
        if key not in known:
            raise InputError(f"Ramulator 2.1's {name} has no {key}", "unsupported", key="compare ramulator")


def changed_timings(device: Device) -> dict[str, int]:
    """The timings that overrides change, themselves or as terms of a sum, in clocks.

    Ramulator derives timings before it applies overrides: it must be given such sums, too.
    """
    changed = [name for name, source in device.sources.items() if source == "override"]
    for name, clocks in derived_timings(device.standard, device.org, device.timing).items():
        if isinstance(clocks, str) and any(term in changed for _, term in latency_terms(clocks)):
            changed.append(name)
    return {name: device.timings[name] for name in changed}


def _simulation(package: Any, trace: Path, memory: Memory, commands: Path | None) -> Any:
    """A Ramulator run of `trace`, which writes its commands to `commands` if given."""
    device, options = memory.device, memory.options
    names = STANDARDS[device.standard.name]
    dram = getattr(package.dram, device.standard.name)
    known = dram.timing_params
    changed = {name: clocks for name, clocks in changed_timings(device).items() if name in known}
    if "Rank" in dram.levels:
        changed["rank"] = device.ranks
    managers = package.refresh_manager
    refresh = {
        "all-bank": lambda: managers.AllBank(),
        "staggered": lambda: managers.AllBank(scatter_interval=device.clocks("nREFI") // device.ranks),
        "none": lambda: managers.NoRefresh(),
        "per-bank": lambda: getattr(managers, names.per_bank)(),
    }[options.refresh]()
    row_policy, cap = package.row_policy, options.row_cap
    recorder = package.controller_plugin.CmdTraceRecorder
    controller = getattr(package.controller, names.controller)(
        dram=dram(org_preset=device.org, timing_preset=device.timing, **changed),
        scheduler=getattr(package.scheduler, options.scheduler.replace("-", ""))(),
        refresh_manager=refresh,
        row_policy=row_policy.Open() if options.row_policy == "open" else row_policy.ClosedCAP(cap=cap),
        addr_mapper=getattr(package.addr_mapper, memory.mapper)(),
        read_buffer_size=options.read_buffer,
        write_buffer_size=options.write_buffer,
        controller_plugins=[] if commands is None else [recorder(path=str(commands))],
        **{name: read(options) for name, read in names.options.items()},
    )
    system = package.memory_system.GenericDRAM(
        clock_ratio=1, controllers=[controller], channel_mapper=package.channel_mapper.CacheLineInterleave()
    )
    return package.Simulation(package.frontend.LoadStoreTrace(clock_ratio=1, path=str(trace)), system)


def _recorded(path: Path, device: Device) -> CommandTrace:
    """Ramulator's CSV as a `CommandTrace`: -1 for levels that a command does not address."""
    standard = device.standard
    kinds, number = standard.by_number, {name: index for index, name in enumerate(standard.names)}
    header, *lines = (line.split(",") for line in path.read_text(encoding="utf-8").splitlines())
    # The levels of banks: Rank or PseudoChannel, or none; Sid, or none; BankGroup and Bank.
    columns = dict(zip(header, zip(*lines, strict=True), strict=True)) if lines else {}
    none = np.zeros(len(lines), dtype=np.int64)

    def column(*names: str) -> NDArray[np.int64]:
        found = [columns[name] for name in names if name in columns]
        return np.array(found[0], dtype=np.int64) if found else none

    command = np.array([number[name] for name in columns.get("command", ())], dtype=np.int64)
    bankgroup = column("Sid") * (device.bankgroups // device.stacks) + column("BankGroup")
    completed = [kind.completed_by for kind in kinds]
    opens = np.array([kind.opens or kind.name in completed for kind in kinds])[command]
    to_column = np.array([kind.reads or kind.writes for kind in kinds])[command]
    to_bank = np.array([standard.scope_of(kind) == ONE_BANK for kind in kinds])[command]
    return CommandTrace(
        column("clock"),
        command,
        column("Rank", "PseudoChannel"),
        np.where(to_bank, bankgroup, -1),
        np.where(to_bank, column("Bank"), -1),
        np.where(opens | to_column, column("Row"), -1),
        np.where(to_column, column("Column"), -1),
        names=standard.names,
    )


def _words(trace: CommandTrace, index: int) -> str:
    if index >= len(trace):
        return "nothing"
    clock, command, *coordinates = (int(value) for value in trace.columns()[:, index])
    names = ("rank", "bankgroup", "bank", "row", "column")
    where = " ".join(f"{name} {value}" for name, value in zip(names, coordinates, strict=True) if value >= 0)
    return f"{trace.names[command]} {where} at clock {clock}"


def _difference(ours: CommandTrace, theirs: CommandTrace) -> str | None:
    """The first difference between two traces, in words."""
    mine, others = ours.columns(), theirs.columns()
    common = min(len(ours), len(theirs))
    apart = np.flatnonzero((mine[:, :common] != others[:, :common]).any(axis=0))
    if len(apart) == 0 and len(ours) == len(theirs):
        return None
    index = int(apart[0]) if len(apart) else common
    return f"command {index + 1}: ours {_words(ours, index)}, Ramulator's {_words(theirs, index)}"


def _write_trace(requests: Requests, path: Path) -> None:
    """Write `requests` in the format of Ramulator's front end."""
    addresses = [] if requests.address is None else requests.address.tolist()
    kinds = np.where(np.asarray(requests.write) == 1, "ST", "LD")
    path.write_text(
        "".join(f"{kind} {address:#x}\n" for kind, address in zip(kinds, addresses, strict=True)),
        encoding="utf-8",
    )


def _timed_run(package: Any, trace: Path, memory: Memory) -> tuple[dict[str, int], float]:
    """Counters and seconds of one run without recording."""
    simulation = _simulation(package, trace, memory, None)
    began = time.perf_counter()
    simulation.run()
    seconds = time.perf_counter() - began
    stats = simulation.stats["memory_system"]["controller"]
    names = _COUNTERS | {name: name for name in own_counters(memory.device.standard.controller)}
    counters = {name: int(stats[theirs]) for name, theirs in names.items()}
    simulation.finalize()
    return counters, seconds


@contextmanager
def _prepared(requests: Requests, memory: Memory) -> Iterator[tuple[ModuleType, Path]]:
    """Ramulator's package, and a file with checked requests, in a folder that is removed at the end."""
    _check(requests, memory)
    package = _package()
    _check_known(package, memory.device)
    with temporary_folder() as folder:
        _write_trace(requests, folder / "trace")
        yield package, folder / "trace"


def is_available() -> bool:
    """Whether Ramulator 2.1's package can be imported."""
    try:
        _package()
    except InputError:
        return False
    return True


def timed_runs(requests: Requests, memory: Memory, repeat: int) -> tuple[dict[str, int], float]:
    """Run `requests` through Ramulator `repeat` times; its counters, and the seconds of the fastest run.

    The counters have the names of `TraceResult.accepted`. Reading the trace is not measured.

    Raises:
        InputError: there is no `ramulator` package, or it cannot do what is asked.
    """
    with _prepared(requests, memory) as (package, trace):
        runs = [_timed_run(package, trace, memory) for _ in range(repeat)]
    return runs[0][0], min(seconds for _, seconds in runs)


def compare(requests: Requests, memory: Memory) -> Comparison:
    """Run `requests` through both and compare.

    Raises:
        InputError: there is no `ramulator` package, or it cannot do what is asked.
    """
    with _prepared(requests, memory) as (package, trace):
        recording = _simulation(package, trace, memory, trace.with_name("commands"))
        recording.run()
        recording.finalize()
        theirs = _recorded(next(trace.parent.glob("commands*")), memory.device)
        their_counters, ramulator_s = _timed_run(package, trace, memory)
    result = run_requests(requests, memory, record_commands=True)
    ours_s = min(run_requests(requests, memory).run_s for _ in range(3))
    accepted = result.accepted or {}
    counters = {name: (int(accepted[name]), count) for name, count in their_counters.items()}
    ours = result.command_traces[0]
    ours = ours.take(np.flatnonzero(ours.clock <= accepted["cycles"]))
    apart = [
        f"{name}: ours {count}, Ramulator's {their_count}"
        for name, (count, their_count) in counters.items()
        if count != their_count
    ]
    first_difference = _difference(ours, theirs) or (apart[0] if apart else None)
    return Comparison(
        identical=first_difference is None,
        commands=len(theirs),
        first_difference=first_difference,
        counters=counters,
        ours_mps=len(requests.write) / ours_s / 1e6,
        ramulator_mps=len(requests.write) / ramulator_s / 1e6,
    )
