#!/usr/bin/env bash
# vidur 0.0.26 (simulator of LLM inference clusters, MIT): intervals from a trace of arrivals are whole seconds.
#
# A good guess: `TraceRequestIntervalGenerator` gives the differences of the file's `arrival_time`, which it reads as
# timestamps with fractions.
# Seen: it divides by one second and rounds down first, then takes differences. Requests that arrive evenly every 0.4 s come
# out as bursts of two or three at the same time, a whole second apart. `time_scale_factor` is applied after the rounding, so
# that a factor of 0.1 does not bring the fractions back; the bursts come every 0.1 s. The first request has no interval: of
# ten arrivals come nine intervals.
# What follows: queueing delay and tail latency of such a run are those of bursts. At rates well above one request a second
# nearly all of the trace's own arrival process is lost.
#
# It prints the intervals for ten arrivals 0.4 s apart, unscaled and with factor 0.1. It ends with 0 if they are as stated.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps vidur==0.0.26 pandas==2.3.3 numpy==2.2.6 scipy==1.15.3 \
  python-dateutil==2.9.0.post0 pytz==2025.2 six==1.17.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pathlib
import tempfile

from vidur.config import TraceRequestIntervalGeneratorConfig
from vidur.request_generator.trace_request_interval_generator import TraceRequestIntervalGenerator

trace = pathlib.Path(tempfile.mkdtemp()) / "arrivals.csv"
trace.write_text("arrival_time\n" + "".join(f"1970-01-04 12:00:{1 + 0.4 * i:04.1f}\n" for i in range(10)))


def intervals(**settings):
    generator = TraceRequestIntervalGenerator(TraceRequestIntervalGeneratorConfig(trace_file=str(trace), **settings))
    return [round(float(s), 6) for s in iter(generator.get_next_inter_request_time, None)]


unscaled, tenth = intervals(), intervals(time_scale_factor=0.1)
print("ten arrivals, 0.4 s apart:", unscaled)
print("time_scale_factor=0.1:    ", tenth)
assert unscaled == [0, 0, 1, 0, 1, 0, 0, 1, 0], "the intervals differ from what is stated above"
assert tenth == [0, 0, 0.1, 0, 0.1, 0, 0, 0.1, 0], "the scaled intervals differ from what is stated above"
PYTHON
