#!/usr/bin/env bash
# vidur 0.0.26 (simulator of LLM inference clusters, MIT): a request that was preempted reports another length than it had.
#
# A good guess: `num_prefill_tokens` and `num_decode_tokens` of a request are those of the trace, in `to_dict()` and in the
# metrics, whatever happened to the request.
# Seen: after a preemption with recomputation (`restart()`), tokens that were generated before count as prompt. A request of
# 100 prompt and 50 output tokens that is restarted after 20 of them reports 120 and 30 from then on, and its ratio of prompt
# to output goes from 2 to 4. The properties that divide by output tokens (`e2e_time_normalized` and the like) divide the
# whole time by the 30 that were left.
# What follows: under memory pressure lengths in the metrics are not those of the workload, normalized latencies rise for two
# reasons at once, and output throughput summed from `num_decode_tokens` loses tokens that were generated.
#
# It prints the lengths before and after a restart, and ends with 0 if they are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps vidur==0.0.26 pandas==2.3.3 numpy==2.2.6 scipy==1.15.3 \
  python-dateutil==2.9.0.post0 pytz==2025.2 six==1.17.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
from vidur.entities import Request


def iteration(request, start, end, tokens):
    request.on_batch_schedule(start)
    request.on_batch_stage_schedule(start)
    request.on_batch_stage_end(end, 0, end - start, end - start, tokens)
    request.on_batch_end(end, tokens)


request = Request(arrived_at=0.0, num_prefill_tokens=100, num_decode_tokens=50)
iteration(request, 0.0, 1.0, 100)  # the prompt, and the first output token
for step in range(1, 20):
    iteration(request, float(step), float(step + 1), 1)
before = request.size
request.restart()
after = request.size
print("before the restart:", before, "after:", after, "prompt to output:", request.pd_ratio)
assert (before, after, request.pd_ratio) == ((100, 50), (120, 30), 4.0), "the lengths differ from what is stated above"
PYTHON
