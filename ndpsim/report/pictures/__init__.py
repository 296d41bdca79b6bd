"""Pictures of results, a module for each kind of result.

`canvas` makes figures from panels, in colours with a meaning, and writes them; `bars` draws shares of time
and energy.
"""

from __future__ import annotations

import os


def _import_matplotlib() -> None:
    """Import matplotlib, even if MPLBACKEND names a window system or a notebook that is absent.

    Pictures need neither.
    """
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib  # noqa: PLC0415
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


_import_matplotlib()
