"""The command ``ndpsim``: outside the package, so that not even its first import meets Ctrl-C unprepared.

Python answers SIGINT with a traceback. Until ndpsim answers it, it ends the process as it ends any other.
"""

import _signal

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def run() -> None:
    """Run the command line as a process of its own."""
    from ndpsim.__main__ import run as run_command  # noqa: PLC0415 (it imports the package)

    run_command()
