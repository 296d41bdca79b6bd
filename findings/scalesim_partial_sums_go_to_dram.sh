#!/usr/bin/env bash
# scalesim 3.0.0 (SCALE-Sim, systolic arrays, MIT): every partial sum is written to DRAM, and none is read back.
#
# A good guess: DRAM writes of a layer are its M x N results where the output SRAM holds them all, and partial sums that do not
# fit are written and read again.
# Seen: with dataflow `ws` or `is` a product of 64 x 64 x 64 on 16 x 16 writes 16,384 words, four for each of its 4,096 results,
# one for each fold of K, though the output SRAM of 1,024 kB could hold all of them 250 times. Reads count inputs and weights
# alone. With `os` it is 4,096 words. An output SRAM of 8 kB gives the same counts.
# What follows: DRAM traffic and energy of `ws` and `is` grow with K/rows of the array, and comparisons of dataflows by DRAM
# accesses measure this rule. The size of the output SRAM changes none of these counts.
#
# It prints the DRAM writes of each dataflow and SRAM size, and ends with 0 if they are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps scalesim==3.0.0 numpy==2.2.6 tqdm==4.67.1
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import contextlib
import csv
import io
import pathlib
import tempfile

from scalesim.scale_sim import scalesim

CONFIG = """
[general]
run_name = run
[architecture_presets]
ArrayHeight: 16
ArrayWidth: 16
IfmapSramSzkB: {sram_kb}
FilterSramSzkB: {sram_kb}
OfmapSramSzkB: {sram_kb}
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Bandwidth: {bandwidth}
Dataflow: {dataflow}
ReadRequestBuffer: 64
WriteRequestBuffer: 64
[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: {bank_bandwidth}
IfmapSRAMBankNum: 1
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: {bank_bandwidth}
FilterSRAMBankNum: 1
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40
[run_presets]
InterfaceBandwidth: {mode}
UseRamulatorTrace: False
"""


def reports(sram_kb=8, bandwidth=10, dataflow="ws", bank_bandwidth=10, mode="USER"):
    """COMPUTE_REPORT and DETAILED_ACCESS_REPORT of one product of 64 x 64 by 64 x 64."""
    folder = pathlib.Path(tempfile.mkdtemp())
    settings = dict(sram_kb=sram_kb, bandwidth=bandwidth, dataflow=dataflow, bank_bandwidth=bank_bandwidth, mode=mode)
    (folder / "config").write_text(CONFIG.format(**settings))
    (folder / "topology.csv").write_text("Layer,M,N,K,\nproduct,64,64,64,\n")
    (folder / "layout.csv").write_text("Layer name," + "factor," * 20 + "\nproduct," + "1," * 20 + "\n")
    files = {kind: str(folder / name) for kind, name in
             (("config", "config"), ("topology", "topology.csv"), ("layout", "layout.csv"))}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        scalesim(save_disk_space=True, verbose=True, input_type_gemm=True, **files).run_scale(str(folder))
    row = {}
    for name in ("COMPUTE_REPORT.csv", "DETAILED_ACCESS_REPORT.csv"):
        with (folder / "run" / name).open() as file:
            row |= next(csv.DictReader(file, skipinitialspace=True))
    return row


writes = {}
for dataflow in ("ws", "is", "os"):
    for sram_kb in (8, 1024):
        writes[dataflow, sram_kb] = int(reports(sram_kb=sram_kb, dataflow=dataflow)["DRAM OFMAP Writes"])
        print(f"{dataflow}, output SRAM of {sram_kb} kB: {writes[dataflow, sram_kb]} words written for {64 * 64} results")
assert writes == {
    ("ws", 8): 16384, ("ws", 1024): 16384, ("is", 8): 16384, ("is", 1024): 16384, ("os", 8): 4096, ("os", 1024): 4096,
}, "the writes differ from what is stated above"
PYTHON
