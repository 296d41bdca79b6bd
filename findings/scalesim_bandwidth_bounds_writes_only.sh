#!/usr/bin/env bash
# scalesim 3.0.0 (SCALE-Sim, systolic arrays, MIT): the configured DRAM bandwidth bounds writes of results, not reads.
#
# A good guess: with `InterfaceBandwidth: USER` the value of `Bandwidth` (words a cycle) is the DRAM bandwidth of all three
# operands.
# Seen: inputs and weights are read at `IfmapSRAMBankBandwidth` and `FilterSRAMBankBandwidth` of the section `[layout]`, though
# both `CustomLayout` are False and no layout is modelled. Only results are written at `Bandwidth`. A product of 64 x 64 x 64 on
# 16 x 16 reads its inputs in 410 cycles whether `Bandwidth` is 1, 10 or 100. With `Bandwidth: 10` and a bank bandwidth of 1
# it takes 4,096 cycles.
# What follows: a sweep of `Bandwidth` shows a layer that is bound by reading weights (every GEMV) as independent of DRAM. Set
# the two bank bandwidths, too.
#
# It prints the cycles of the first reads (from -N to -1) and of the whole, and ends with 0 if they are as stated here.
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


seen = {}
for bandwidth, bank_bandwidth in ((1, 10), (10, 10), (100, 10), (10, 1)):
    row = reports(bandwidth=bandwidth, bank_bandwidth=bank_bandwidth)
    reading = tuple(int(1 - float(row[f"DRAM {operand} Start Cycle"]) + float(row[f"DRAM {operand} Stop Cycle"]))
                    for operand in ("IFMAP", "Filter"))
    seen[bandwidth, bank_bandwidth] = (*reading, int(row["Total Cycles (incl. prefetch)"]))
    print(f"Bandwidth {bandwidth}, bank bandwidths {bank_bandwidth}: inputs, weights, all in {seen[bandwidth, bank_bandwidth]} cycles")
assert seen == {
    (1, 10): (410, 410, 17294), (10, 10): (410, 410, 2578), (100, 10): (410, 410, 2209), (10, 1): (4096, 4096, 6264),
}, "the cycles differ from what is stated above"
PYTHON
