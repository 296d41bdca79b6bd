"""Files of commands and requests."""

from ndpsim.traces.commands import HEADER, CommandTrace, read_commands, write_commands
from ndpsim.traces.requests import Requests, read_requests

__all__ = ["HEADER", "CommandTrace", "Requests", "read_commands", "read_requests", "write_commands"]
