"""Files of commands and requests."""

from ndpsim.dram.traces.command_trace import HEADER, CommandTrace
from ndpsim.dram.traces.commands import check_command_form, other_standards, read_commands, write_commands
from ndpsim.dram.traces.request_format import command_forms, request_formats
from ndpsim.dram.traces.requests import Requests
from ndpsim.dram.traces.stream import RequestStream, read_requests, stream_of, stream_requests
