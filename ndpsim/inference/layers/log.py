"""Writes a run as JSON lines, which `ndpsim check` checks.

The run of each policy begins with a line about the run: `log` (the version of this form), `policy`,
`parameters`, `model`, `experts` and `experts_per_token` of a layer, `layers` (the model's numbers), `batch`,
`prompt_tokens`, `dimms`, `channels` (of the host), `channel_of_dimm`, `expert_bytes`, `dimm_bytes`
(capacity), `gpu_experts` (number that fits the GPU's memory), `token_bytes` (bytes of a token's activations,
and of its results), `expert_buffers`, `copy_engines`,
`link_ports`, `gbps` (the peak of "pcie" in each direction, a "channel", a "link" in each direction, and
inside a "dimm"; 0: there is none), `zero_experts` (further experts of a layer, without weights; only if there
are some), `bits` of a weight, `replicas` (bytes of an expert's further copies, by
bits) and `placement`: by layer, `dimm` (-1: striped) and `shards` of each expert, and the experts that are
`resident` on the GPU.

A line follows for each layer: `policy`, `phase`, `step`, `layer`, `start_ns`, `end_ns`, `window_ns`,
`tokens`, `loads` by expert, `placement` of the activated experts (`lies`: "striped", "localized 3",
"sharded:4 8"; `gpu`: also there), `estimates` by engine, `assign` (for each engine pairs of expert and share,
in order), `bits` by expert of those read from a replica, `estimated_ns`, `details`, `jobs` and `migrations`
with the fields of `JobRecord` and `MigrationRecord` (`from` and `to` are a migration's source and target),
`residents` (experts of all layers in the GPU's memory at the end), `under_way`, `bound_ns`, `bottleneck` and
`critical_path`, which has places in `jobs`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import IO, Any, cast

import numpy as np

from ndpsim.base.files import replacing
from ndpsim.inference.layers.location import Location
from ndpsim.inference.layers.record import LayerRecord, MigrationRecord, Observer, RunRecord
from ndpsim.inference.processors.devices import weight_bytes
from ndpsim.inference.processors.operations import ACTIVATION_BYTES
from ndpsim.policies.interface import parts_of
from ndpsim.policies.views import Placement

LOG_VERSION = 4
_COMPRESSION = 3  # files are a third larger than with the default, and written three times as fast


@contextmanager
def writing_log(path: str | PathLike[str]) -> Iterator[Observer]:
    """An observer that writes each layer to a file, compressed if its name ends in .gz.

    The file exists only if the block ends without an error. Only one layer is in memory.

    Raises:
        InputError: the file cannot be written.
    """
    with opened(path) as file:
        yield _Writer(file)


@contextmanager
def opened(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """A file that exists only if the block ends without an error; compressed if its name ends in .gz.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as file:
        if fspath(path).endswith(".gz"):
            with gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as packed:
                yield cast(IO[bytes], packed)
        else:
            yield file


class _Writer:
    """An observer that writes a line for each run and for each of its layers."""

    def __init__(self, file: IO[bytes]) -> None:
        self._write = file.write
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode
        self._run: RunRecord | None = None

    def __call__(self, run: RunRecord, layer: LayerRecord) -> None:
        if run is not self._run:
            self._run = run
            self._line(_run_entry(run))
        self._line(_layer_entry(run.policy, layer))

    def _line(self, content: dict[str, Any]) -> None:
        self._write(f"{self._encode(content)}\n".encode())


def _plain(value: Any) -> Any:
    """A form in JSON for numbers and arrays of NumPy; anything else becomes text."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


def _run_entry(run: RunRecord) -> dict[str, Any]:
    machine, hardware = run.machine, run.hardware
    link, pcie, gpu = hardware.system.link, hardware.gpu_link, hardware.system.gpu
    own = not hardware.host_reads_dimms
    return {
        "log": LOG_VERSION,
        "policy": run.policy,
        "parameters": run.parameters,
        "model": machine.model.name,
        "experts": machine.model.routed_experts,
        "experts_per_token": machine.model.experts_per_token,
        **({"zero_experts": machine.model.zero_experts} if machine.model.zero_experts else {}),
        "layers": machine.layers,
        "batch": run.batch,
        "prompt_tokens": run.prompt_tokens,
        "dimms": machine.dimms,
        "channels": 1 if own else hardware.system.host.channels,
        "channel_of_dimm": machine.channel,
        "expert_bytes": machine.expert_bytes,
        "dimm_bytes": hardware.dimm_bytes,
        "gpu_experts": machine.gpu_experts,
        "token_bytes": machine.model.hidden * ACTIVATION_BYTES,
        "expert_buffers": machine.expert_buffers,
        "copy_engines": 0 if pcie is None else pcie.copy_engines,
        "link_ports": 0 if link is None else link.ports,
        "gbps": {
            "pcie": 0.0 if pcie is None or gpu is None else gpu.count * pcie.gbps,
            "channel": hardware.host_memory.host_gbps if own else hardware.dimm_host_gbps,
            "link": 0.0 if link is None else link.link_gbps,
            "dimm": hardware.unit_read_gbps,
        },
        "gpu_order": run.parameters["gpu_order"],
        "bits": machine.bits,
        "replicas": {str(bits): weight_bytes(machine.model.expert, bits) for bits in run.placement.replicas},
        "placement": _whole_placement(run.placement),
    }


def _whole_placement(placement: Placement) -> dict[str, Any]:
    return {
        "dimm": placement.dimm.tolist(),
        "shards": placement.shards.tolist(),
        "resident": [np.flatnonzero(row).tolist() for row in placement.resident],
    }


def _layer_entry(policy: str, layer: LayerRecord) -> dict[str, Any]:
    assignment = layer.assignment
    return {
        "policy": policy,
        "phase": layer.phase,
        "step": layer.step,
        "layer": layer.layer,
        "start_ns": layer.start_ns,
        "end_ns": layer.end_ns,
        "window_ns": layer.window_ns,
        "tokens": layer.tokens,
        "loads": layer.loads.tolist(),
        "placement": _placement(layer),
        "estimates": dict(layer.estimates),
        "assign": {engine: parts_of(getattr(assignment, engine)) for engine in ("gpu", "cpu", "ndp")},
        "bits": {str(expert): int(bits) for expert, bits in assignment.bits.items() if layer.loads[expert]},
        "estimated_ns": assignment.estimated_ns,
        "details": dict(assignment.details),
        "jobs": [vars(job) for job in layer.jobs],
        "migrations": [_migration(one) for one in layer.migrations],
        "residents": layer.residents,
        "under_way": layer.under_way,
        "bound_ns": layer.bound_ns,
        "bottleneck": layer.bottleneck,
        "critical_path": layer.critical_path,
    }


def _placement(layer: LayerRecord) -> dict[str, Any]:
    placement = layer.placement
    return {
        str(expert): {
            "lies": Location(int(placement.dimm[expert]), int(placement.shards[expert])).name,
            "gpu": bool(placement.resident[expert]),
        }
        for expert in np.flatnonzero(layer.loads).tolist()
    }


def _migration(migration: MigrationRecord) -> dict[str, Any]:
    fields = dict(vars(migration))
    return {"from": fields.pop("source"), "to": fields.pop("target"), **fields}
