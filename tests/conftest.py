"""What holds for every test: its environment, how examples are drawn, and that none has to be drawn quickly."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import engine, providers
from llvmlite import ir
from numba.core import cgutils

# Where CI is set, pytest tells all differences of what is compared, which takes minutes for large lists and texts,
# and the watchdog ends the run before the test is named. Tests and workers know CI by another name.
os.environ.pop("BUILD_NUMBER", None)
if os.environ.pop("CI", ""):
    os.environ["NDPSIM_TESTS_IN_CI"] = "true"
IN_CI = bool(os.environ.get("NDPSIM_TESTS_IN_CI"))

# pytest, Numba and matplotlib keep so much that looking for garbage as often as usual takes a twentieth of the time.
gc.set_threshold(5_000, 10, 10)

# A smaller example of a failure is looked for no longer than a third of the watchdog's time.
engine.MAX_SHRINKING_SECONDS = 60
_PHASES = [phase for phase in Phase if phase is not Phase.explain]

pytest.register_assert_rewrite("calls", "mistakes")

# Kernels compile within the first example, so that no time for one is right. Where CI is set, the examples of a
# test follow from the test alone: what fails there fails everywhere. As they are the same in each run, fewer do.
settings.register_profile("local", settings.get_profile("default"), deadline=None, phases=_PHASES)
if not os.access(".", os.W_OK):  # examples that failed are not kept in a checkout that cannot be written
    settings.register_profile("local", settings.get_profile("local"), database=None)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, max_examples=40)
settings.load_profile("ci" if IN_CI else "local")

# Nor do they follow from the numbers in whatever modules are imported; to look for those takes seconds, too.
providers.is_local_module_file = lambda path: False


def _end_the_process_out_of_bounds(
    context: Any, builder: Any, index: Any, size: Any, axis: Any = None
) -> None:
    """Numba's check of an index with one comparison and no exception; pytest-xdist names the test."""
    function = ir.FunctionType(ir.VoidType(), ())
    with cgutils.if_unlikely(builder, builder.icmp_unsigned(">=", index, size)):
        builder.call(cgutils.get_or_insert_function(builder.module, function, "llvm.trap"), ())
        builder.unreachable()


# With Numba's own check, compiling takes a tenth longer.
if IN_CI:
    cgutils.do_boundscheck = _end_the_process_out_of_bounds

# Started with `&` or `nohup`, the tests ignore some signals, and what they start would, too. A handler that does nothing
# ignores them as well, and no process inherits it.
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, name), lambda *_: None)

# Tests write and read UTF-8 in every locale. ndpsim itself states the encoding of each file: .ci/run has ruff check it.
_text_encoding = io.text_encoding
io.text_encoding = lambda encoding, *level: "utf-8" if encoding is None else _text_encoding(encoding, *level)

# Where the tests run does not change what they print: the workers of pytest-xdist have 80 columns, for one.
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "MPLBACKEND"):
    os.environ.pop(name, None)


def pytest_configure(config: pytest.Config) -> None:
    """Workers of pytest-xdist take files in the order of their names, not those with few long tests last."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say once why tests were skipped."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = {
        str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped if len(report.longrepr) == 3
    }
    for reason in sorted(reasons):
        terminalreporter.line(f"skipped: {reason}")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def _short_plan() -> Iterator[None]:
    """Slowdown tables are measured in a fraction of the time."""
    from ndpsim.inference.layers.shared_dimm import measured_by
    from plans import SHORT

    with measured_by(SHORT):
        yield


@pytest.fixture(scope="session", autouse=True)
def _compiled_first(request: pytest.FixtureRequest) -> None:
    """Large kernels are compiled before the tests, if most of these run on several workers."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or len(request.session.items) < 1_000:
        return
    import compiled_first

    number, workers = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for compile_group in compiled_first.GROUPS[number::workers]:
        compile_group()


@pytest.fixture
def plan_of_users() -> Iterator[None]:
    """Slowdown tables are measured as users have them."""
    from ndpsim.inference.layers.shared_dimm import Plan, measured_by

    with measured_by(Plan()):
        yield


@pytest.fixture(scope="module")
def claims_run_here() -> Iterator[None]:
    """Runs of claims are run in this process; `ndpsim validate` on the pages has processes."""
    from builders.swept_fake import run_here
    from ndpsim.studies.claims import runs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "run_locally", run_here)
        yield


@pytest.fixture(scope="module")
def reversed_banks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A refresh policy of one more file: the banks from the last to the first, one rank after the other."""
    from ndpsim.base.options.dram import CONTROLLER
    from ndpsim.dram import refresh_policies

    folder: Path = tmp_path_factory.mktemp("refresh_policies")
    (folder / "reversed_banks.py").write_text(
        "from ndpsim.dram.refresh_policies import Turn\n"
        "from ndpsim.dram.spec.standard import SAME_BANKS\n"
        "def turns(channel):\n"
        "    ranks, banks, interval = channel.ranks, channel.banks_per_group, channel.interval(SAME_BANKS)\n"
        "    count = ranks * banks\n"
        "    return [\n"
        "        Turn((n + 1) * interval // count, SAME_BANKS, rank=n % ranks, bank=banks - 1 - n // ranks)\n"
        "        for n in range(count)\n"
        "    ]\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refresh_policies, "__path__", [*refresh_policies.__path__, str(folder)])
        patch.setattr(refresh_policies, "NAMES", (*refresh_policies.NAMES, "reversed-banks"))
        patch.setitem(vars(CONTROLLER["refresh"].kind), "names", refresh_policies.NAMES)
        yield "reversed-banks"
        sys.modules.pop("ndpsim.dram.refresh_policies.reversed_banks", None)


@pytest.fixture
def new_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Adds a module to the ``request_formats`` or ``command_forms`` of traces."""
    from ndpsim.dram.traces import commands, reader, request_format, stream

    def add(kind: str, text: str) -> None:
        readers, folder = {
            "request_formats": ((reader, stream), request_format._request_folder),
            "command_forms": ((commands,), request_format._command_folder),
        }[kind]
        (tmp_path / "added.py").write_text(text)
        monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
        found = getattr(request_format, kind).__wrapped__()
        for module in readers:
            monkeypatch.setattr(module, kind, lambda: found)

    return add


@pytest.fixture
def without_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast run of a lane refreshes no bank, and so differs from the plain one."""
    from ndpsim.dram.engines import FastController

    def controller(tables: Any, policy: Any, *, schedule: Any, **_: Any) -> FastController:
        return FastController(tables, policy, schedule=schedule._replace(turns=()))

    monkeypatch.setattr("ndpsim.simulate.alone.make_controller", controller)


@pytest.fixture(scope="session")
def moe_by_hand() -> SimpleNamespace:
    """Two layers of a small model in two decode steps on four DIMMs, made by hand, and the result of it.

    `layers` has the records of a run, `run` what is run, `result(*names)` the result of policies so called, and
    `play(observer, *names)` shows an observer the same for each of them.
    """
    import numpy as np

    from ndpsim.config import load_hardware
    from ndpsim.inference.layers.record import (
        JobRecord,
        LayerRecord,
        MigrationRecord,
        MovingRecord,
        RunRecord,
    )
    from ndpsim.policies.interface import Assignment
    from ndpsim.policies.views import LayerPlacement, Machine, Placement
    from ndpsim.simulate.results.moe import CheckedEnd, LayerCheck, MoeResult, PolicyRun
    from ndpsim.workload.models import load_model
    from ndpsim.workload.routing import describe_routing, generate_routing

    hardware = load_hardware("trimoe", ["dimm.count=4", "host.channels=2"])
    model = load_model("mixtral-8x7b")  # 8 experts, of which a token chooses 2
    size = 1_000_000  # of an expert, so that it takes 31.25 us over PCIe at 32 GB/s
    machine = Machine(model, (3, 4), size, 4, (0, 1, 0, 1), 3, 2)
    first = Placement.striped(2, 8)
    first.dimm[:, 4:] = (0, 1, 2, 3), (0, 0, 1, 2)
    first.resident[:, 0] = True

    def placed(row: int, resident: Sequence[int] = (), **moved: int) -> LayerPlacement:
        dimm, flags = first.dimm[row].copy(), np.zeros(8, np.bool_)
        flags[list(resident)] = True
        for expert, to in moved.items():
            dimm[int(expert[1:])] = to
        return LayerPlacement(dimm, first.shards[row].copy(), flags)

    def layer(
        step: int,
        number: int,
        start: float,
        placement: LayerPlacement,
        residents: int,
        migrations: Sequence[Any] = (),
        moving: Sequence[Any] = (),
    ) -> LayerRecord:
        """Expert 0 on the GPU, 1 copied to it, 2 on the CPU, 4 and 5 on their DIMMs: 8 tokens, 16 pairs."""
        us = 1000.0
        copied = [] if placement.resident[1] else [("pcie-down", "copy", 1, 1, 0, 0, 40, size)]
        jobs = [
            ("pcie-up", "activations", -1, 1, 0, 0, 5, 49152),
            ("gpu", "shared", -1, 1, 8, 0, 4, 0),
            *copied,
            ("gpu", "expert", 0, 1, 5, 4, 14, size),
            ("cpu", "expert", 2, 1, 2, 5, 45, size),
            (f"ndp {placement.dimm[4]}", "expert", 4, 1, 2, 5, 30, size),
            (f"ndp {placement.dimm[5]}", "expert", 5, 1, 2, 30, 55, size),
            ("gpu", "expert", 1, 1, 5, 40, 50, size),
            ("pcie-down", "results", -1, 1, 0, 55, 60, 49152),
        ]
        on_path = ((-1, "activations"), (4, "expert"), (5, "expert"), (-1, "results"))
        path = [next(n for n, job in enumerate(jobs) if (job[2], job[1]) == one) for one in on_path]
        return LayerRecord(
            phase="decode",
            step=step,
            layer=number,
            start_ns=start,
            end_ns=start + 60 * us,
            window_ns=20 * us,
            loads=np.array([5, 5, 2, 0, 2, 2, 0, 0]),
            tokens=8,
            placement=placement,
            assignment=Assignment((0, 1), (2,), (4, 5), 58 * us, {"greedy_ns": 61 * us}),
            estimates={"gpu": 24 * us, "cpu": 40 * us, "ndp": 50 * us},
            jobs=tuple(
                JobRecord(
                    where,
                    kind,
                    expert,
                    share,
                    tokens,
                    start + us * begin,
                    start + us * end,
                    size_,
                    us * (end - begin),
                )
                for where, kind, expert, share, tokens, begin, end, size_ in jobs
            ),
            migrations=tuple(migrations),
            residents=residents,
            under_way=0,
            bound_ns=31 * us,
            bottleneck="ndp",
            critical_path=tuple(path),
            moving=tuple(moving),
        )

    prefetch = MigrationRecord("prefetch", 4, 1, "striped", "gpu", size, 80e3, 80e3, 120e3, 20e3)
    rebalance = MigrationRecord(
        "rebalance", 4, 5, "localized 0", "localized 3", size, 80e3, 80e3, 200e3, 40e3
    )
    evict = MigrationRecord("evict", 3, 0, "gpu", "none", size, 240e3, 240e3, 240e3, 0.0)
    fetch = MigrationRecord("fetch", 3, 0, "striped", "gpu", size, 240e3, 242e3, 280e3, 18e3)

    def beside(one: MigrationRecord, start_ns: float, end_ns: float) -> MovingRecord:
        """What a migration did beside a layer, with as much left as of its time."""
        left = (one.end_ns - start_ns) / (one.end_ns - one.start_ns)
        ends = one.source, one.target
        return MovingRecord(one.layer, one.expert, *ends, left, start_ns, end_ns, 1.0)

    layers = (
        layer(0, 3, 20e3, placed(0, [0]), 2),
        layer(
            0,
            4,
            100e3,
            placed(1, [0]),
            3,
            [prefetch],
            [beside(prefetch, 100e3, 120e3), beside(rebalance, 100e3, 160e3)],
        ),
        layer(1, 3, 180e3, placed(0, [0]), 3, [rebalance], [beside(rebalance, 180e3, 200e3)]),
        layer(1, 4, 260e3, placed(1, [0, 1], e5=3), 3, [evict, fetch], [beside(fetch, 260e3, 280e3)]),
    )

    def run_of(name: str) -> RunRecord:
        parameters = {"refine": True, "relayout": name != "second"}
        return RunRecord(name, {"gpu_order": "listed", **parameters}, machine, hardware, 8, 0, first)

    def policy_run(name: str, place: int, check: LayerCheck | None) -> PolicyRun:
        slower = 1 + 0.25 * place
        resources = {
            "gpu": 0.4,
            "cpu": 0.5,
            "pcie-down": 0.3,
            "pcie-up": 0.1,
            "channel 0": 0.6,
            "channel 1": 0.2,
        }
        return PolicyRun(
            policy=name,
            parameters=run_of(name).parameters,
            time_ns=320e3 * slower,
            prefill_ns=0.0,
            decode_ns=320e3 * slower,
            moe_ns=240e3 * slower,
            prefill_moe_ns=0.0,
            decode_moe_ns=240e3 * slower,
            shared_ns=16e3,
            layer_ns={
                "mean": 60e3 * slower,
                "p50": 60e3 * slower,
                "p99": 60e3 * slower,
                "max": 60e3 * slower,
            },
            tokens_per_s=16 / (320e3 * slower) * 1e9,
            speedup=1 / slower,
            speedup_prefill=None,
            speedup_decode=None,
            speedup_moe=1 / slower,
            bound="steps",
            bound_ns=124e3,
            pairs=64,
            experts={"gpu_hit": 4, "gpu_miss": 4, "cpu": 4, "ndp": 8},
            pairs_by_engine={"gpu_hit": 20, "gpu_miss": 20, "cpu": 8, "ndp": 16},
            weight_bits={"gpu_hit": 16, "gpu_miss": 16, "cpu": 16, "ndp": 3.25},
            utilization=resources | {f"ndp {dimm}": 0.1 * dimm for dimm in range(4)},
            migrations={
                kind: {"count": 1, "bytes": size, "hidden_ns": 20e3, "exposed_ns": 20e3 + 10e3 * place}
                for kind in ("prefetch", "rebalance")
            },
            cache={"hits": 4, "misses": 4, "hit_rate": 0.5},
            prediction={"accuracy": 0.78, "counted": "hot experts that were foretold"},
            estimated_ns=232e3,
            policy_wall_s=0.01,
            bottleneck={"ndp 0": 0.75, "cpu": 0.25},
            energy_nj={"read": 1e6, "ndp": 2e6, "gpu": None, "total": 3e6},
            energy_note="currents of a data sheet",
            wall_s=0.5,
            check=check,
        )

    def result(*names: str, error: float | None = None) -> MoeResult:
        check = None
        if error is not None:
            end = CheckedEnd("dimm 0", 55e3, 55e3 * (1 - error), error)
            check = LayerCheck(1, 4, 0.05, 60e3, 60e3, 0.0, (end,))
        trace = generate_routing("skewed", model, 8, 2)
        config = {
            "model": model.name,
            "hardware": {"name": hardware.system.name},
            "bits": 16,
            "steps": 2,
            "host_gbps": None,
        }
        runs = tuple(policy_run(name, place, check) for place, name in enumerate(names))
        return MoeResult(config, describe_routing(trace).to_dict(), runs, {})

    def play(observer: Any, *names: str) -> None:
        for name in names:
            run = run_of(name)
            for record in layers:
                observer(run, record)

    return SimpleNamespace(layers=layers, run=run_of("trimoe"), result=result, play=play)
