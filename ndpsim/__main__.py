"""``ndpsim``, and ``python -m ndpsim``: signals are answered before anything that takes time is imported."""

import atexit
import gc
import os

from ndpsim.cli import process


def run() -> None:
    """Run the command line as a process of its own."""
    process.open_closed()  # first of all: any file that is opened takes the lowest free number
    process.answer_signals()
    process.prepare()
    atexit.register(gc.freeze)  # no garbage collection at the end: compiling leaves many objects
    os.environ["MATPLOTLIBRC"] = os.devnull  # pictures do not depend on the user's settings
    from ndpsim.cli.main import main  # noqa: PLC0415 (it takes its time, and signals are answered now)

    main()


if __name__ == "__main__":
    run()
