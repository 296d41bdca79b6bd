"""The way in which kernels are compiled with any release of Numba from 0.62 on, by what is public in them.

Parts stay Python functions, which Numba compiles for the kernels that call them; those called often are
inlined. Numba's own cache keeps the kernels, in the folder of the entries, which is named after everything
that can change them. Numba does not check for damage what it finds there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from ndpsim.base.cachedirs import Entries
from ndpsim.base.jit.releases import extending, numba

# Numba's functions have no types.
_config: Any = numba.config
_njit: Any = numba.njit
_overload: Any = extending.overload
_register_jitable: Any = extending.register_jitable

#: Kernels allocate nothing, so none of Numba's reference counts.
_OPTIONS = {"nogil": True, "_nrt": False}

_placing = threading.Lock()


def kernel(function: Callable[..., Any], name: str, entries: Callable[[], Entries]) -> Any:
    """The compiled function; Numba keeps its machine code in the folder of `entries`."""
    folder = entries().make_folder() if os.path.isfile(function.__code__.co_filename) else None
    if folder is None or function.__closure__ is not None:
        return _njit(**_OPTIONS)(function)
    with _placing:  # Numba asks for the folder when a function is decorated, at no other time
        others, _config.CACHE_DIR = _config.CACHE_DIR, str(folder)
        try:
            return _njit(cache=True, **_OPTIONS)(function)
        finally:
            _config.CACHE_DIR = others


def part(function: Callable[..., Any], inline: bool) -> Any:
    """The function, as a part of kernels."""
    return _register_jitable(forceinline=inline, **_OPTIONS)(function)


def chosen(point: Callable[..., Any], part_of: Callable[[Any], Any]) -> Any:
    """The function to call: the part that `part_of` finds for the first argument's class, else `point`."""

    def choose(first: Any, *others: Any) -> Any:
        return part_of(first.instance_class) or point

    _overload(point, jit_options=_OPTIONS, strict=False)(choose)
    return point
