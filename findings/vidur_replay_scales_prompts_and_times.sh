#!/usr/bin/env bash
# vidur 0.0.26 (simulator of LLM inference clusters, MIT): the replay of a trace does not replay it.
#
# A good guess: `TraceReplayRequestGenerator` with nothing set but `trace_file` issues the requests of the file: their
# arrival times in seconds, their prompts and outputs in tokens.
# Seen: by default each prompt is multiplied by 0.3 (and rounded down), each arrival time by 0.04 (25 times the request rate),
# and requests of every `Date` but 2023-08-21 are left out. The log says how many requests were loaded, and none of the three.
# What follows: a run of Vidur "on the Azure trace" with defaults has about 30% of its prompt tokens at 25 times its rate.
# Compare it with another simulator only after `prefill_scale_factor=1, time_scale_factor=1, date=...`.
#
# It prints (arrival in s, prompt tokens, output tokens) of three requests of a file, by default and with both factors 1.
# It ends with 0 if both are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps vidur==0.0.26 pandas==2.3.3 numpy==2.2.6 scipy==1.15.3 \
  python-dateutil==2.9.0.post0 pytz==2025.2 six==1.17.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pathlib
import tempfile

from vidur.config import TraceRequestGeneratorConfig
from vidur.request_generator.trace_replay_request_generator import TraceReplayRequestGenerator

trace = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
trace.write_text(
    "Time,PromptTokenCount,CompletionTokenCount,Date\n"
    "0.0,1000,100,2023-08-21\n10.0,3001,50,2023-08-21\n20.0,500,20,2023-08-22\n"
)


def replayed(**settings):
    generator = TraceReplayRequestGenerator(TraceRequestGeneratorConfig(trace_file=str(trace), **settings))
    return [(float(request.arrived_at), *map(int, request.size)) for request in generator.generate_requests()]


by_default = replayed()
unscaled = replayed(prefill_scale_factor=1, time_scale_factor=1)
print("by default:", by_default)
print("factors 1: ", unscaled)
assert by_default == [(0.0, 300, 100), (0.4, 900, 50)], "the defaults differ from what is stated above"
assert unscaled == [(0.0, 1000, 100), (10.0, 3001, 50)], "the unscaled replay differs from what is stated above"
PYTHON
