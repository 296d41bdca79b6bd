"""The cache of results: what is found equals what is computed, and nothing else is ever found."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndpsim
from mistakes import refused
from ndpsim import ResultCache
from ndpsim.base import cachedirs, jit
from ndpsim.base.errors import InputError
from ndpsim.config import AddressMapping
from ndpsim.config.dram import Power, Sizes
from ndpsim.config.keys import section_of
from ndpsim.config.system import System
from ndpsim.dram.spec.pages import standards
from ndpsim.simulate.results import cache as result_cache
from ndpsim.simulate.results.cache import digest_of, from_text, to_text

SMALL = ndpsim.Expert(256, 128)
REQUESTS = ndpsim.Requests.of(np.arange(300) * 64 * 37, np.arange(300) % 3 == 0)
MEMORY = ndpsim.Memory.named()
PACKAGE = Path(ndpsim.__file__).parent

# By name: a call, and what it is given where it is not the default.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "expert": (ndpsim.simulate_expert, {"model": SMALL}),
    "expert on arrays": (ndpsim.simulate_expert, {"hw": "cxl", "model": SMALL, "bits": 4}),
    "sharded": (ndpsim.simulate_expert, {"hw": "edge", "model": SMALL, "layout": "sharded:2"}),
    "groups": (ndpsim.simulate_expert, {"model": SMALL, "bits": ndpsim.ExpertFormat.of(4, 64)}),
    "host read": (ndpsim.simulate_host_read, {"model": SMALL}),
    "relayout": (ndpsim.simulate_relayout, {"model": SMALL, "experts": 2}),
    "nothing moved": (
        ndpsim.simulate_relayout,
        {"model": SMALL, "target": "localized", "source_dimms": [0], "target_dimms": [0], "host": False},
    ),
    "contention": (ndpsim.simulate_contention, {"model": SMALL}),
    "no host traffic": (ndpsim.simulate_contention, {"model": SMALL, "host_gbps": 0}),
    "trace": (ndpsim.run_trace, {"requests": REQUESTS}),
    "requests": (ndpsim.run_requests, {"requests": REQUESTS, "memory": MEMORY}),
    "writes on two channels": (ndpsim.run_trace, {"requests": ([0, 64, 128], [1, 1, 1]), "channels": 2}),
}


def run(name: str, **others: Any) -> Any:
    call, given = CALLS[name]
    return call(**{**given, **others})


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.entry"))


@pytest.fixture
def folder(tmp_path) -> Path:
    cachedirs._warn_once.cache_clear()
    return tmp_path / "results"


def types_in(value: Any) -> Any:
    """The types of a value and of all its parts, in their order."""
    if dataclasses.is_dataclass(value):
        return type(value), [types_in(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        return type(value), [(key, types_in(of_key)) for key, of_key in value.items()]
    if isinstance(value, tuple | list):
        return type(value), [types_in(one) for one in value]
    return type(value)


# What is found.


@pytest.mark.parametrize("name", CALLS)
def test_what_is_found_equals_what_is_computed_and_is_of_its_types(name, folder):
    computed, cache = run(name), ResultCache(folder)
    first, in_memory, on_disk = run(name, cache=cache), run(name, cache=cache), ResultCache(folder)
    assert (cache.hits, cache.misses) == (1, 1)
    from_disk = run(name, cache=on_disk)
    assert (on_disk.hits, on_disk.misses) == (1, 0)
    for found in (first, in_memory, from_disk):
        assert found == computed
        assert types_in(found) == types_in(computed)
        assert list(found.config) == list(computed.config)


@pytest.mark.parametrize("name", ["expert", "host read", "relayout", "contention", "requests"])
def test_a_result_that_is_found_says_how_long_that_took(name, folder):
    cache = ResultCache(folder)
    stored = dataclasses.replace(run(name, cache=cache), wall_s=1e6, compile_s=1e6)
    (entry,) = cache._memory
    cache._store(entry, stored)
    for found in (run(name, cache=cache), run(name, cache=ResultCache(folder))):
        assert 0 < found.wall_s < stored.wall_s
        assert found.compile_s == 0


def test_who_changes_a_result_changes_none_in_the_cache(folder):
    cache = ResultCache(folder)
    first = run("expert", cache=cache)
    first.config["layout"] = first.commands["RD"] = None
    found = run("expert", cache=cache)
    found.config["hardware"]["name"] = found.commands["RD"] = None
    assert run("expert", cache=cache) == run("expert")


def test_progress_of_a_result_that_is_found_begins_and_ends(folder):
    cache, shares = ResultCache(folder), []
    for name in ("expert", "host read", "relayout", "contention", "requests"):
        run(name, cache=cache)
        run(name, cache=cache, progress=shares.append)
        assert shares == [0.0, 1.0]
        shares.clear()


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("expert", "record_commands"),
        ("expert", "exact_check"),
        ("expert on arrays", "exact_check"),
        ("host read", "record_commands"),
        ("host read", "exact_check"),
        ("relayout", "record_commands"),
        ("contention", "record_commands"),
        ("requests", "record_commands"),
        ("trace", "exact_check"),
    ],
)
def test_calls_that_record_or_check_compute_and_store_nothing(name, option, folder):
    cache = ResultCache(folder)
    run(name, cache=cache)
    result = run(name, cache=cache, **{option: True})
    assert (cache.hits, cache.misses, len(files(folder))) == (0, 1, 1)
    assert bool(result.command_traces) == (option == "record_commands")


def test_nothing_is_cached_unless_asked_for(monkeypatch, folder):
    usual = ResultCache(folder)
    monkeypatch.setattr(result_cache, "_usual_cache", lambda: usual)
    for name in CALLS:
        run(name)
    assert files(folder) == []
    run("expert", cache=True)
    run("expert", cache=np.True_)
    run("trace", cache=True)
    assert (usual.hits, usual.misses, len(files(folder))) == (1, 2, 2)


def test_true_means_one_cache_of_the_process_in_the_usual_folder(monkeypatch, folder):
    monkeypatch.setenv("NDPSIM_CACHE_DIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder.parent))
    usual = result_cache._usual_cache()
    assert usual is result_cache._usual_cache()
    assert next(usual._disk.folders()).parent == folder


# What a result depends on.

_TABLE: dict[str, dict[str, list[Any]]] = {
    "expert": {
        "hw": ["edge", "cxl"],
        "model": [ndpsim.Expert(256, 256), ndpsim.Expert(512, 128)],
        "tokens": [2],
        "release_ns": [100.0, [250.0]],
        "start_clock": [9000],
        "layout": ["sharded:2"],
        "bits": [8, ndpsim.ExpertFormat.of(8, 64), ndpsim.ExpertFormat.of(8, 64, 8)],
        "sets": [["dimm.ranks=2"]],
    },
    "host read": {
        "hw": ["edge"],
        "model": [ndpsim.Expert(256, 256)],
        "layout": ["localized"],
        "bits": [8],
        "sets": [["dram.refresh=none"]],
    },
    "relayout": {
        "hw": [ndpsim.load_hardware("trimoe", ["link.topology=chain"])],
        "model": [ndpsim.Expert(256, 256)],
        "experts": [1],
        "source": ["sharded:2"],
        "target": ["sharded:2"],
        "source_dimms": [[3, 4]],
        "target_dimms": [[0, 0]],  # with target: sharded:2
        "bits": [8],
        "sets": [["ndp.relayout.buffer_kib=2"]],
        "host": [False],
        "other_dimms": [True],
    },
    "contention": {
        "hw": [ndpsim.load_hardware("trimoe", ["ndp.gemv.fifo_bursts=2"])],
        "model": [ndpsim.Expert(256, 256)],
        "tokens": [2],
        "release_ns": [100.0, [250.0]],
        "host_gbps": [0, 8.0],
        "read_share": [0.5],
        "pattern": ["random"],
        "arbitration": ["ndp-first", "slice"],
        "slice_clocks": [64],  # with arbitration: slice
        "layout": ["sharded:1"],
        "bits": [8],
        "sets": [["dram.refresh=none"]],
    },
    "trace": {
        "requests": [([0, 64], [0, 1]), ([0, 64], [0, 0]), ([64, 0], [0, 1])],
        "standard": ["DDR4"],  # with an org and a timing of it
        "org": ["DDR5_16Gb_x4"],
        "timing": ["DDR5_3200AN"],
        "ranks": [2],
        "overrides": [{"nCL": 60}],
        "mapper": ["MOP4CLXOR"],
        "scheduler": ["FRFCFS-RowHit"],
        "row_policy": ["closed-cap"],
        "row_cap": [1],  # with row_policy: closed-cap
        "refresh": ["none"],
        "read_buffer": [4],
        "write_buffer": [4],
        "channels": [2],
        "wrap": [True],
        "rules": ["reference"],
        "wck": ["always-on"],
        "refresh_control": ["reference"],
        "rfm": ["all-bank"],
        "rfm_threshold": [8],  # with rfm: same-bank
        "rck": ["start-with-read"],
        "rck_idle": [4],
    },
}
_WITH: dict[tuple[str, str], dict[str, Any]] = {
    ("relayout", "target_dimms"): {"target": "sharded:2"},
    ("contention", "slice_clocks"): {"arbitration": "slice"},
    ("trace", "standard"): {"org": "DDR4_8Gb_x8", "timing": "DDR4_2400R"},
    ("trace", "row_cap"): {"row_policy": "closed-cap"},
    ("trace", "rfm_threshold"): {"rfm": "same-bank"},
}


@pytest.mark.parametrize("name", _TABLE)
def test_another_argument_is_another_result(name):
    """Over every argument: nothing is found for another value, and what is found later is right."""
    call, _ = CALLS[name]
    aside = {"record_commands", "exact_check", "progress", "cache", "refresh_phases", "jobs", "rtl", "vcd"}
    assert set(_TABLE[name]) == set(inspect.signature(call).parameters) - aside
    cache = ResultCache(disk_bytes=0)
    asked = [{}, *(_WITH[key] for key in _WITH if key[0] == name and key[1] != "standard")]
    asked += [
        {**_WITH.get((name, argument), {}), argument: value}
        for argument, values in _TABLE[name].items()
        for value in values
    ]
    computed = []
    for number, others in enumerate(asked):
        before = cache.misses
        computed.append(run(name, cache=cache, **others))
        again = asked.index(others) < number
        assert cache.misses == before + (not again), others
    for others, result in zip(asked, computed, strict=True):
        before = cache.hits
        assert run(name, cache=cache, **others) == result, others
        assert cache.hits == before + 1


def test_every_kind_of_cached_result_has_a_test_of_what_it_depends_on():
    """Those of calls are above; those of layers and those of turns in banks have tests of their own."""
    known = {
        f"simulate/{name}.py" for name in ("contention", "expert", "host", "relayout", "trace", "bank_turns")
    }
    known |= {f"inference/layers/{name}.py" for name in ("contention", "costs", "relayouts", "beside_host")}
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert {name for name, text in sources.items() if "= Lookup(" in text} == known


def test_other_requests_are_another_result():
    place = np.array([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 2]])
    asked = [
        ndpsim.Requests([0, 64], [0, 1]),
        ndpsim.Requests([0, 64], [0, 1], cycle=[0, 0]),
        ndpsim.Requests([0, 64], [0, 1], cycle=[0, 50]),
        ndpsim.Requests(None, [0, 1], place=place),
        ndpsim.Requests(None, [0, 1], place=place + np.eye(2, 6, 4, dtype=int)),
    ]
    cache = ResultCache(disk_bytes=0)
    for requests in asked:
        run("requests", requests=requests, cache=cache)
    assert (cache.hits, cache.misses) == (0, len(asked))


def test_another_memory_is_another_result():
    device = MEMORY.device
    organisation = dataclasses.replace(device.organisation, rows=1024)
    rules = tuple(dataclasses.replace(rule, latency=f"{rule.latency} + 1") for rule in device.standard.rules)
    asked = [
        MEMORY,
        ndpsim.Memory(dataclasses.replace(device, organisation=organisation)),
        ndpsim.Memory(dataclasses.replace(device, timings={**device.timings, "nRFC": 99})),
        ndpsim.Memory(
            dataclasses.replace(device, standard=dataclasses.replace(device.standard, rules=rules))
        ),
        ndpsim.Memory(device, power={"IDD4R": 300.0}),
        ndpsim.Memory(device, ndpsim.ControllerOptions(read_buffer=2)),
    ]
    cache = ResultCache(disk_bytes=0)
    for memory in asked:
        run("requests", memory=memory, cache=cache)
    assert (cache.hits, cache.misses) == (0, len(asked))


def leaves_of(model: type[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of the schema of hardware files that holds a value."""
    for key, field in model.model_fields.items():
        section = section_of(field)
        yield from [(*path, key)] if section is None else leaves_of(section, (*path, key))


def everything() -> ndpsim.Hardware:
    """A hardware with every section that there is."""
    trimoe, cxl, edge = (ndpsim.load_hardware(name) for name in ("trimoe", "cxl", "edge"))
    system, ndp = trimoe.system, trimoe.system.ndp
    found = {
        key: next(part for one in (trimoe, cxl, edge) if (part := getattr(one.system, key)) is not None)
        for key in ("gpu", "link", "pcie", "cxl")
    }
    assert ndp is not None
    assert cxl.system.ndp is not None
    mapping = AddressMapping.model_construct(order=["column", "rank"], xor={})
    found["host"] = system.host.model_copy(update={"memory": edge.system.host.memory})
    found["banks"] = ndpsim.load_hardware("dgx-attacc").system.banks
    # A speed bin and an override that there are under both sets of rules.
    dram = {"timing": "DDR5_4800BN", "overrides": {"nCL": 40}, "organisation": Sizes()}
    found["dram"] = system.dram.model_copy(update={"mapping": mapping, "power": Power(), **dram})
    found["ndp"] = ndp.model_copy(update={"systolic": cxl.system.ndp.systolic})
    origins = {**ndpsim.load_hardware("dgx-attacc").origins, **trimoe.origins}
    return dataclasses.replace(trimoe, system=system.model_copy(update=found), origins=origins)


def changed(section: Any, path: tuple[str, ...], value: Any) -> Any:
    key, *rest = path
    return section.model_copy(
        update={key: changed(getattr(section, key), tuple(rest), value) if rest else value}
    )


def another(path: tuple[str, ...], value: Any) -> Any:
    """Another value than `value`."""
    ddr5 = standards()["DDR5"]
    if path[-1] in ("org", "timing"):
        return next(
            name for name in (ddr5.organisations if path[-1] == "org" else ddr5.speeds) if name != value
        )
    if path == ("banks", "level"):
        return "buffer"
    if path == ("dram", "rules"):
        return "reference"
    if path[:2] == ("dram", "organisation"):
        sizes = {
            "bankgroups": 4,
            "banks_per_group": 2,
            "banks": 16,
            "rows": 32768,
            "columns": 1024,
            "width": 4,
        }
        return sizes.get(path[-1], "32Gb")
    if path == ("dram", "overrides"):
        return {**value, "nCL": 77}
    if path == ("dram", "mapping", "xor"):
        return {**value, "bank": ["row"]}
    if isinstance(value, list):
        return value[::-1]
    if isinstance(value, str):
        return f"{value} "
    if path[-1].endswith(("expert_times", "measured_power")):
        return ["mine.csv"]
    return 1 if value is None else 2 * value + 1


def test_every_value_of_the_hardware_counts():
    hardware = everything()
    digests = {digest_of([hardware])}
    paths = [path for path in leaves_of(System) if path[-1] not in ("part", "standard", "device")]
    for path in paths:
        value: Any = hardware.system
        for key in path:
            value = getattr(value, key)
        other = dataclasses.replace(hardware, system=changed(hardware.system, path, another(path, value)))
        before = len(digests)
        digests.add(digest_of([other]))
        assert len(digests) == before + 1, path
    # Of a part and a device its values count, not its name; no preset has another standard with the same name.
    assert not set(standards()["DDR4"].speeds) & set(standards()["DDR5"].speeds)


def test_the_order_of_mappings_and_the_types_of_numbers_do_not_count():
    plain = {"a": 1, "b": [2.5, True, 3], "c": {"x": 1, "y": None}}
    numpy = {
        "c": {"y": None, "x": np.uint8(1)},
        "b": (np.float64(2.5), np.True_, np.int64(3)),
        "a": np.int32(1),
    }
    assert digest_of([plain]) == digest_of([numpy])
    assert digest_of([plain]) != digest_of([{**plain, "a": 2}])
    with pytest.raises(TypeError, match="a result cannot depend on a object"):
        digest_of([object()])


def test_the_same_asked_in_other_words_is_found():
    cache = ResultCache(disk_bytes=0)
    same = [
        ("expert", {"tokens": 2, "sets": ["dram.nRC=142", "dram.nRCD=41"]}),
        ("expert", {"tokens": np.int16(2), "sets": ("dram.nRCD=41", "dram.nRC=142")}),
        ("expert", {"tokens": 2, "hw": ndpsim.load_hardware("trimoe", ["dram.nRCD=41", "dram.nRC=142"])}),
        ("contention", {"host_gbps": 8, "bits": 16}),
        ("contention", {"host_gbps": np.float32(8), "bits": ndpsim.ExpertFormat.of(np.int64(16))}),
        ("relayout", {"source_dimms": [0, 8]}),
        ("relayout", {"source_dimms": np.array([0, 8], np.int8)}),
        ("trace", {"overrides": {"nCL": 42, "nRCD": 41}}),
        ("trace", {"overrides": {"nRCD": np.int64(41), "nCL": 42}}),
        ("requests", {}),
        (
            "requests",
            {"requests": ndpsim.Requests.of(REQUESTS.address.astype(np.uint32), REQUESTS.write == 1)},
        ),
        ("requests", {"memory": pickle.loads(pickle.dumps(MEMORY))}),
    ]
    for name, others in same:
        run(name, cache=cache, **others)
    assert (cache.misses, cache.hits) == (5, 7)


# Files: their contents count, not their names.


def test_names_of_files_do_not_count_and_are_told_rightly(tmp_path):
    cache = ResultCache(disk_bytes=0)
    config = {"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 128, "num_hidden_layers": 1}
    config |= {"num_local_experts": 2, "num_experts_per_tok": 1}
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(config))
        (tmp_path / f"{name}.trace").write_text("".join(f"LD {64 * n}\n" for n in range(50)))
    for model in (tmp_path / "one.json", tmp_path / "two.json", SMALL):
        for name in ("expert", "host read", "relayout"):
            assert run(name, model=model, cache=cache) == run(name, model=model)
    assert (cache.misses, cache.hits) == (3, 6)
    for name, argument in (("trace", "requests"), ("contention", "pattern")):
        for file in ("one", "two"):
            given = {argument: tmp_path / f"{file}.trace"}
            found = run(name, cache=cache, **given)
            assert found == run(name, **given)
            assert str(tmp_path / f"{file}.trace") in found.config.values()
        (tmp_path / "two.trace").write_text("ST 0\n")
        assert run(name, cache=cache, **given) == run(name, **given)
        (tmp_path / "two.trace").write_text((tmp_path / "one.trace").read_text())
    assert (cache.misses, cache.hits) == (7, 8)


def test_the_name_of_the_hardware_file_does_not_count(tmp_path):
    cache = ResultCache(disk_bytes=0)
    shutil.copy(ndpsim.load_hardware("edge").file, tmp_path / "mine.yaml")
    for hw in ("edge", tmp_path / "mine.yaml"):
        run("sharded", hw=hw, cache=cache)
    assert (cache.misses, cache.hits) == (1, 1)


def test_a_trace_that_changes_meanwhile_is_not_mistaken(tmp_path):
    cache, trace = ResultCache(disk_bytes=0), tmp_path / "trace"
    trace.write_text("LD 0\n")

    def change(share: float) -> None:
        trace.write_text("ST 0\n")

    before = run("contention", pattern=trace)
    assert run("contention", pattern=trace, cache=cache, progress=change) == before
    assert run("contention", pattern=trace, cache=cache) == run("contention", pattern=trace)
    trace.unlink()
    with refused("unknown-name pattern"):
        run("contention", pattern=trace, cache=cache)


def test_errors_are_the_same_with_a_cache():
    cache = ResultCache(disk_bytes=0)
    for _ in range(2):
        with refused("conflict bits"):
            run("expert", bits=ndpsim.ExpertFormat.of({"gate": 4, "up": 8, "down": 4}), cache=cache)
    assert len(cache._memory) == 0


# What is damaged.


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _whole_but_no_result(path: Path) -> None:
    content = b'{"Phase()": [1, 2]}'
    path.write_bytes(cachedirs._sealed(path.stem, content))


def _of_another_entry(path: Path) -> None:
    path.write_bytes(cachedirs._sealed("another", b"{}"))


@pytest.mark.parametrize("damage", [_flipped, _whole_but_no_result, _of_another_entry])
def test_a_damaged_result_is_computed_and_stored_anew(damage, folder):
    run("expert", cache=ResultCache(folder))
    (entry,) = files(folder)
    whole = entry.read_bytes()
    damage(entry)
    cache = ResultCache(folder)
    assert run("expert", cache=cache) == run("expert")
    assert (cache.hits, cache.misses) == (0, 1)
    assert files(folder) == [entry]
    assert len(entry.read_bytes()) == pytest.approx(len(whole), abs=50)  # but for the time it took
    assert run("expert", cache=ResultCache(folder)) == run("expert")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"Memory()": [1]}',
        b'{"no()": []}',
        b"[" * 100_000,
        b'{"Phase()": ["a", 0, 1.0, 2.0]}',
        b'{"ResultCache()": []}',
    ],
    ids=range(8),
)
def test_a_text_that_is_no_result_is_refused(text):
    with pytest.raises((ValueError, TypeError, AttributeError, RecursionError)):
        from_text(text)


def test_what_is_no_result_is_not_written():
    with pytest.raises(TypeError, match="float64"):
        to_text(dataclasses.replace(run("expert"), time_ns=np.float64(1)))
    with pytest.raises(TypeError, match="dict"):
        to_text(dataclasses.replace(run("expert"), busy={"Phase()": 1}))


def test_another_version_of_the_simulator_has_results_of_its_own(folder, monkeypatch):
    run("expert", cache=ResultCache(folder))
    monkeypatch.setattr(result_cache, "version", lambda: "b" * 20)
    cache = ResultCache(folder)
    run("expert", cache=cache)
    assert (cache.hits, cache.misses) == (0, 1)
    assert len({file.parent for file in files(folder)}) == 2


def test_the_version_covers_every_source_that_simulates(tmp_path, monkeypatch):
    copied = tmp_path / "ndpsim"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(jit, "__file__", str(copied / "base" / "jit" / "__init__.py"))
    version = result_cache.version.__wrapped__
    before = version()
    for source in (
        "simulate/expert.py",
        "simulate/results/cache.py",
        "config/system.py",
        "workload/models/shape.py",
        "dram/engines.py",
        "base/units.py",
    ):
        whole = (copied / source).read_text()
        (copied / source).write_text(whole + "# another comment\n")
        assert version() != before, source
        (copied / source).write_text(whole)
    for name in result_cache._WITHOUT_SIMULATION:
        (copied / name / ("" if name.endswith(".py") else "__init__.py")).write_text("# another comment\n")
    assert version() == before
    monkeypatch.setattr(np, "__version__", "0")
    assert version() != before


def test_simulations_import_nothing_that_the_version_leaves_out():
    modules = [f"ndpsim.simulate.{path.stem}" for path in (PACKAGE / "simulate").glob("[a-z]*.py")]
    code = (
        f"import importlib, sys; [importlib.import_module(name) for name in {modules}]; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = [name.replace(".", "/") for name in done.stdout.split() if name.startswith("ndpsim.")]
    assert "ndpsim/dram/energy" in imported
    left_out = tuple(f"ndpsim/{folder}" for folder in result_cache._WITHOUT_SIMULATION)
    assert not [name for name in imported if f"{name}/".startswith(left_out)]


# Bounds.


def test_memory_holds_so_many_results_and_the_longest_unused_go_first():
    cache = ResultCache(memory_entries=2, disk_bytes=0)
    for tokens in (1, 2, 1, 3, 1, 2, 3):
        run("expert", tokens=tokens, cache=cache)
    assert (cache.misses, cache.hits, len(cache._memory)) == (5, 2, 2)


def test_a_cache_without_memory_reads_its_folder_and_one_without_a_folder_writes_none(folder, monkeypatch):
    cache = ResultCache(folder, memory_entries=0)
    for _ in range(3):
        run("expert", cache=cache)
    assert (cache.misses, cache.hits, len(cache._memory)) == (1, 2, 0)
    monkeypatch.setenv("NDPSIM_CACHE_DIR", str(folder / "none"))
    in_memory = ResultCache(folder / "none", disk_bytes=0)
    for _ in range(3):
        run("expert", cache=in_memory)
    assert (in_memory.misses, in_memory.hits) == (1, 2)
    assert not (folder / "none").exists()


def test_a_folder_keeps_to_the_bytes_that_its_cache_was_given(folder):
    cache, result = ResultCache(folder, disk_bytes=8 * 8192), run("expert")
    for number in range(12):
        cache._store(f"e{number}", result)
    sizes = [-(-path.stat().st_size // 4096) * 4096 for path in files(folder)]
    assert 6 * 8192 <= sum(sizes) <= 8 * 8192


def test_a_gigantic_result_stays_out_of_memory(folder, monkeypatch):
    monkeypatch.setattr(result_cache, "_LARGEST_BYTES", 100)
    cache = ResultCache(folder)
    for _ in range(2):
        run("expert", cache=cache)
    assert (cache.misses, cache.hits, len(cache._memory)) == (1, 1, 0)


def test_wrong_arguments_of_a_cache_are_refused_by_name():
    for name in ("folder", "memory_entries", "disk_bytes"):
        with pytest.raises(InputError) as refused:
            ResultCache(**{name: -1})
        assert refused.value.key == name
    assert repr(ResultCache()) == "ResultCache: 0 hits, 0 misses, 0 results in memory"


def test_a_folder_stays_where_it_was_when_the_cache_was_made(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    cache = ResultCache("mine")
    assert [path.parent for path in cache._disk.folders()] == [tmp_path / "mine"]
    monkeypatch.chdir("/")
    assert [path.parent for path in cache._disk.folders()] == [tmp_path / "mine"]


# Many at once.


def test_threads_share_a_cache(folder):
    cache = ResultCache(folder, memory_entries=3)
    right = {tokens: run("expert", tokens=tokens) for tokens in range(1, 6)}

    def ask(number: int) -> bool:
        tokens = number % 5 + 1
        return bool(run("expert", tokens=tokens, cache=cache) == right[tokens])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))
    assert cache.hits + cache.misses == 200
    assert 5 <= cache.misses < 50


def test_a_cache_that_is_sent_to_another_process_finds_what_is_on_disk(folder):
    cache = ResultCache(folder, memory_entries=7, disk_bytes=1 << 20)
    run("expert", cache=cache)
    sent = pickle.loads(pickle.dumps(cache))
    assert run("expert", cache=sent) == run("expert")
    assert (sent.hits, sent.misses) == (1, 0)
    assert (sent._memory_entries, sent._disk_bytes) == (7, 1 << 20)


_MANY = """
import hashlib, random, sys
from pathlib import Path
from ndpsim.base.cachedirs import Entries

root, seed = Path(sys.argv[1]), int(sys.argv[2])
entries = Entries("results", "a" * 20, dict, root, 40 * 4096)
chance, found = random.Random(seed), 0
for _ in range(400):
    name = f"entry-{chance.randrange(60)}"
    right = hashlib.sha256(name.encode()).digest() * 100
    content = entries.read(name)
    assert content in (None, right)
    found += content is not None
    if content is None:
        entries.write(name, right)
print(found)
"""


def test_many_processes_share_a_folder(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", _MANY, str(tmp_path / "shared")]
    runs = [
        subprocess.Popen(
            [*command, str(seed)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for seed in range(4)
    ]
    for process in runs:
        said, errors = process.communicate()
        assert (process.returncode, errors) == (0, b"")
        assert int(said) > 100
    assert len(files(tmp_path)) <= 40 + 4 * 5
    assert [path.name for path in tmp_path.rglob("*") if path.name.endswith(".tmp")] == []
