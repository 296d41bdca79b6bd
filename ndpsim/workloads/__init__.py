"""Requests to a serving system: recorded by others, of ndpsim's own CSV, or generated.

`Requests` holds them. A generator of arrivals is named by a SPEC:

- ``poisson[:KEY=VALUE,...]``: a Poisson process;
- ``gamma[:KEY=VALUE,...]``: times between arrivals of a gamma distribution, in bursts or evenly;
- ``closed-loop[:KEY=VALUE,...]``: the next request arrives when one ends.

All take `requests` and lengths: `input_tokens`, `input_sigma`, `input_most`, the same of `output`, or a file
of `lengths`. One file a generator in `generators`, one a format in `formats`.
"""

from ndpsim.workloads.generate import generate_requests, load_requests
from ndpsim.workloads.importing import import_requests, request_formats, save_requests
from ndpsim.workloads.requests import Requests
from ndpsim.workloads.statistics import RequestStatistics, describe_requests
