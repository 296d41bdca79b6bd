"""Parameters of commands, each described once: for the command line, sweeps, Python, completion and docs.

A module for each command has its table. Nothing here imports what takes its time.
"""

from ndpsim.parameters.kinds import Choice, Flag, Folder, Kind, Output, Real, Several, Whole
from ndpsim.parameters.table import Parameter, Table, joined, refuse, table
