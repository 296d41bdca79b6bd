#!/usr/bin/env bash
# scalesim 3.0.0 (SCALE-Sim, systolic arrays, MIT): how often an operand is read from DRAM depends on who sets the bandwidth.
#
# A good guess: `InterfaceBandwidth` chooses whether the bandwidth is a limit (USER) or a result (CALC). The words that cross it
# are those that the buffers need: the same in both.
# Seen: a product of 64 x 64 x 64 on 16 x 16 with dataflow `ws` and buffers of 8 kB (4 kB of each active, as much as an operand
# has) reads 4,100 words of inputs under USER and 16,384 under CALC. The 4,100 are 4,096 rounded up to whole requests of 10
# words. With buffers of 1,024 kB it is 4,100 and 4,096.
# What follows: the average bandwidth that CALC reports belongs to a traffic that USER does not have; fed back as `Bandwidth`,
# it does not give the same run. Words counted under USER change with the bandwidth itself.
#
# It prints the words of inputs and weights for both modes and two sizes, and ends with 0 if they are as stated here.
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


words = {}
for mode in ("USER", "CALC"):
    for sram_kb in (8, 1024):
        row = reports(mode=mode, sram_kb=sram_kb)
        words[mode, sram_kb] = (int(row["DRAM IFMAP Reads"]), int(row["DRAM Filter Reads"]))
        print(f"{mode}, buffers of {sram_kb} kB: {words[mode, sram_kb]} words of inputs, weights")
assert words == {
    ("USER", 8): (4100, 4100), ("USER", 1024): (4100, 4100), ("CALC", 8): (16384, 4096), ("CALC", 1024): (4096, 4096),
}, "the words differ from what is stated above"
PYTHON
