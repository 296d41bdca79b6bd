"""Files of commands and requests."""

from ndpsim.traces.command_trace import HEADER, CommandTrace
from ndpsim.traces.commands import check_command_form, other_standards, read_commands, write_commands
from ndpsim.traces.registry import command_forms, request_formats
from ndpsim.traces.requests import BYTES_OF_A_REQUEST, Requests, read_requests
