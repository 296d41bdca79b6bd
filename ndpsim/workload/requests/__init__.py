"""Requests to a serving system: recorded by other programs, from ndpsim's own CSV, or generated.

`Requests` holds them. A generator of arrivals is named by a SPEC:

- ``poisson[:KEY=VALUE,...]``: a Poisson process;
- ``gamma[:KEY=VALUE,...]``: times between arrivals of a gamma distribution, in bursts or evenly;
- ``closed-loop[:KEY=VALUE,...]``: the next request arrives when one ends.

All have `requests` and lengths: `input_tokens`, `input_sigma`, `input_most`, likewise for `output`, or a file
of `lengths`. Each generator is a file in `generators`, each format a file in `formats`.
"""

from ndpsim.workload.requests.importing import (
    convert_requests,
    import_requests,
    request_formats,
    save_requests,
)
from ndpsim.workload.requests.requests import Measured, Requests
from ndpsim.workload.requests.spec import generate_requests, load_requests
from ndpsim.workload.requests.statistics import RequestStatistics, describe_requests
