"""``ndpsim``, and ``python -m ndpsim``: signals are answered before anything that takes time is imported."""

import atexit
import gc
import os
import sys

from ndpsim.base.errors import InputError
from ndpsim.base.limits import ensure_address_space
from ndpsim.cli import process

_IMPORTS = 256 << 20  # address space for what a command imports


def run() -> None:
    """Run the command line as a process of its own."""
    process.open_closed()  # first of all: any file that is opened takes the lowest free number
    process.answer_signals()
    process.prepare()
    atexit.register(gc.freeze)  # no garbage collection at the end: compiling leaves many objects
    try:
        ensure_address_space(_IMPORTS, "ndpsim")
    except InputError as error:
        print(f"ndpsim: error: {error}", file=sys.stderr)
        sys.exit(2)
    os.environ["MATPLOTLIBRC"] = os.devnull  # pictures do not depend on the user's settings
    from ndpsim.cli.main import main  # noqa: PLC0415 (it takes its time, and signals are answered now)

    main()


if __name__ == "__main__":
    run()
