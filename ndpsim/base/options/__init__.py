"""Parameters of commands, each described once: for the command line, sweeps, Python, completion and docs.

Each command has a module with its table. Nothing here imports slow modules.
"""

from ndpsim.base.options.table import (
    Choice,
    Flag,
    Folder,
    Kind,
    Output,
    Parameter,
    Real,
    Several,
    Table,
    Whole,
    joined,
    refuse,
    table,
)
