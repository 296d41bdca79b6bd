"""Parameters of commands, each described once: for the command line, sweeps, Python, completion and docs.

A module for each command has its table. Nothing here imports what takes its time.
"""

from ndpsim.parameters.kinds import Choice, Flag, Folder, Kind, Output, Own, Real, Several, Whole
from ndpsim.parameters.table import Parameter, Table, joined, refuse, table

__all__ = [
    "Choice",
    "Flag",
    "Folder",
    "Kind",
    "Output",
    "Own",
    "Parameter",
    "Real",
    "Several",
    "Table",
    "Whole",
    "joined",
    "refuse",
    "table",
]
