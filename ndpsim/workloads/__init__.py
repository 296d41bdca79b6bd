"""Requests to a serving system: recorded by others, or of ndpsim's own CSV.

`Requests` holds them. One file a format in `formats`.
"""

from ndpsim.workloads.importing import import_requests, load_requests, request_formats, save_requests
from ndpsim.workloads.requests import Requests

__all__ = ["Requests", "import_requests", "load_requests", "request_formats", "save_requests"]
