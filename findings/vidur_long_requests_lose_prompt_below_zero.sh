#!/usr/bin/env bash
# vidur 0.0.26 (simulator of LLM inference clusters, MIT): what becomes of a request that is longer than `max_tokens` depends
# on the generator, and one of them makes prompts of less than zero tokens.
#
# A good guess: a request longer than `max_tokens` is dropped or cut, in the same way wherever a trace is read, and what is
# left has at least one token of each kind (both classes clip to 1).
# Seen: `TraceRequestLengthGenerator` takes the excess from prompt and output in proportion, and clips to 1 afterwards.
# `TraceReplayRequestGenerator` takes all of it from the prompt, after it has clipped: a request of 100 prompt and 5,000
# output tokens keeps its 5,000 output tokens, more than `max_tokens` (4,096), and has a prompt of -904. Its own check, that
# prompt and output together are at most `max_tokens`, holds.
# What follows: filter requests by length before Vidur reads them, and do not compare runs of the two generators on long
# requests.
#
# It prints the lengths that both make of two long requests, and ends with 0 if they are as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-deps vidur==0.0.26 pandas==2.3.3 numpy==2.2.6 scipy==1.15.3 \
  python-dateutil==2.9.0.post0 pytz==2025.2 six==1.17.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import pathlib
import tempfile

from vidur.config import TraceRequestGeneratorConfig, TraceRequestLengthGeneratorConfig
from vidur.request_generator.trace_replay_request_generator import TraceReplayRequestGenerator
from vidur.request_generator.trace_request_length_generator import TraceRequestLengthGenerator

folder = pathlib.Path(tempfile.mkdtemp())
lengths = [(100, 5000), (3000, 2000)]
(folder / "replay.csv").write_text(
    "Time,PromptTokenCount,CompletionTokenCount,Date\n" + "".join(f"{i},{p},{d},2023-08-21\n" for i, (p, d) in enumerate(lengths))
)
(folder / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n" + "".join(f"{p},{d}\n" for p, d in lengths))
replay = TraceReplayRequestGenerator(
    TraceRequestGeneratorConfig(trace_file=str(folder / "replay.csv"), prefill_scale_factor=1, max_tokens=4096)
)
of_replay = sorted(tuple(map(int, request.size)) for request in replay.generate_requests())
generator = TraceRequestLengthGenerator(
    TraceRequestLengthGeneratorConfig(trace_file=str(folder / "lengths.csv"), max_tokens=4096)
)
of_lengths = sorted(tuple(map(int, generator.get_next_num_tokens())) for _ in lengths)
print("given:                      ", sorted(lengths))
print("TraceReplayRequestGenerator:", of_replay)
print("TraceRequestLengthGenerator:", of_lengths)
assert of_replay == [(-904, 5000), (2096, 2000)], "the replay differs from what is stated above"
assert of_lengths == [(80, 4015), (2457, 1638)], "the lengths differ from what is stated above"
PYTHON
