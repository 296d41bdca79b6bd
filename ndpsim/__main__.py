"""``ndpsim``, and ``python -m ndpsim``: signals are answered before anything that takes time is imported."""

import atexit
import gc
import os

from ndpsim.cli import signals, streams


def run() -> None:
    """Run the command line as a process of its own."""
    streams.open_closed()  # first of all: any file that is opened takes the lowest number that is free
    signals.answer_signals()
    streams.prepare()
    atexit.register(gc.freeze)  # at the end nothing is searched for what nobody uses: compiling leaves a lot
    os.environ["MATPLOTLIBRC"] = os.devnull  # pictures look alike for everybody, whatever that file says
    from ndpsim.cli.main import main  # noqa: PLC0415 (it takes its time, and signals are answered now)

    main()


if __name__ == "__main__":
    run()
