"""``ndpsim``, and ``python -m ndpsim``: signals are answered before anything that takes time is imported."""

import atexit
import gc
import os
import sys

from ndpsim.cli import process

_PLUGINS = "NDPSIM_PLUGINS"  # as `base.plugins.VARIABLE`; importing that would delay the answer to signals
_IMPORTS = 256 << 20  # address space for what a command imports


def run() -> None:
    """Run the command line as a process of its own."""
    process.open_closed()  # first of all: any file that is opened takes the lowest free number
    process.answer_signals()
    process.prepare()
    atexit.register(gc.freeze)  # no garbage collection at the end: compiling leaves many objects
    os.environ["MATPLOTLIBRC"] = os.devnull  # pictures do not depend on the user's settings
    try:
        from ndpsim.base.limits import ensure_address_space  # noqa: PLC0415 (signals are answered now)

        ensure_address_space(_IMPORTS, "ndpsim")
        _take_plugins()
        from ndpsim.cli.main import main  # noqa: PLC0415 (it takes its time)
    except ValueError as error:  # no room, or a mistake of a plug-in: see `base.errors`
        print(f"ndpsim: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    main()


def _take_plugins() -> None:
    """Put the files of ``--plugin FILE``, which may be anywhere in the call, into the environment.

    Names of plug-ins are looked up when commands are imported. Processes that this one starts have them, too.
    """
    left, files = sys.argv[:1], list[str]()
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name != "--plugin":
            left.append(argument)
            continue
        file = value if equals else next(arguments, "")
        if not file:
            raise ValueError("--plugin needs a file")
        files.append(os.path.abspath(file))
    sys.argv = left
    if files:
        earlier = os.environ.get(_PLUGINS, "")
        os.environ[_PLUGINS] = os.pathsep.join(filter(None, (earlier, *files)))


if __name__ == "__main__":
    run()
