"""Pictures of results, a module for each kind of result.

`canvas` makes figures of panels and files of figures, `colours` says what each colour means; `bars` shows
shares of time and energy, `curves` what happens over time.
"""

from __future__ import annotations

import os


def _import_matplotlib() -> None:
    """Import matplotlib whatever MPLBACKEND says: it may name a window system or a notebook that is not here.

    Pictures are drawn without any of them.
    """
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib  # noqa: PLC0415
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


_import_matplotlib()
