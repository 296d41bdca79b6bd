#!/usr/bin/env bash
# zigzag-dse 3.9.1 (ZigZag, design space exploration of accelerators, MIT): a wider DRAM port costs less energy a bit.
#
# A good guess: `r_cost` of a memory is the energy to read one word of it. A port with twice the bandwidth halves the time of
# a layer that is bound by reading, and leaves the energy of what is read alone.
# Seen: `r_cost` is the energy of one access of `bandwidth_max` bits, however wide that is. On the bundled `tpu_like` the
# weights of a GEMV (1,024 x 1,024, 8 bits) cost 91.8 uJ from a DRAM port of 64 bits, and 5.7 uJ from one of 1,024 bits, with
# the same `r_cost` of 700. Nothing warns of it. The bundled machines state their cost for 64 bits.
# What follows: a sweep of bandwidth makes the fastest memory the most frugal one, in proportion. Scale `r_cost` and
# `w_cost` with the bandwidth, or the front of energy and latency is this rule.
#
# It prints energy of the weights in DRAM and latency for three port widths, and ends with 0 if they are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q zigzag-dse==3.9.1 six==1.17.0 numpy==2.4.6 onnx==1.23.2
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import contextlib
import importlib.resources
import io
import logging
import pathlib
import tempfile

import yaml
from zigzag.api import get_hardware_performance_zigzag

logging.disable(logging.CRITICAL)
bundled = importlib.resources.files("zigzag") / "inputs"
hardware = yaml.safe_load((bundled / "hardware/tpu_like.yaml").read_text())
assert hardware["memories"]["dram"]["ports"][0]["bandwidth_max"] == 64
gemv = [{
    "id": 0, "name": "gemv", "operator_type": "Gemm", "equation": "O[b][k]+=W[k][c]*I[b][c]", "dimension_relations": [],
    "loop_dims": ["B", "K", "C"], "loop_sizes": [1, 1024, 1024],
    "operand_precision": {"W": 8, "I": 8, "O": 16, "O_final": 8}, "operand_source": {"W": 0, "I": 0},
}]
energy, latency = {}, {}
for bits in (64, 128, 1024):
    folder = pathlib.Path(tempfile.mkdtemp())
    hardware["memories"]["dram"]["ports"][0] |= {"bandwidth_min": bits, "bandwidth_max": bits}
    (folder / "hardware.yaml").write_text(yaml.safe_dump(hardware, sort_keys=False))
    (folder / "workload.yaml").write_text(yaml.safe_dump(gemv, sort_keys=False))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _, cycles, evaluations = get_hardware_performance_zigzag(
            str(folder / "workload.yaml"), str(folder / "hardware.yaml"), str(bundled / "mapping/tpu_like.yaml"),
            opt="latency", dump_folder=str(folder / "out"), pickle_filename=str(folder / "pickle"), lpf_limit=4,
            loma_show_progress_bar=False,
        )
    by_operand = {str(operand): levels for operand, levels in evaluations[0][0].mem_energy_breakdown.items()}
    energy[bits], latency[bits] = round(by_operand["W"][-1] / 1e6, 1), int(cycles)
    print(f"port of {bits} bits: weights in DRAM {energy[bits]} uJ, {latency[bits]} cycles")
assert energy == {64: 91.8, 128: 45.9, 1024: 5.7}, "the energies differ from what is stated above"
assert latency[128] == 65695 and latency[1024] == 8295, "the latencies differ from what is stated above"
PYTHON
