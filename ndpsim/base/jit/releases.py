"""Numba, imported so that no setting of the environment makes it fail, and whether its release is one whose
inner steps ndpsim was tried with.

Numba reads its settings from variables of the environment, and from `.numba_config.yaml` in the working
folder, when it is imported. Those that it refuses are left out, each with a line.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import warnings

from ndpsim.base.errors import InputError, shortened

__all__ = ["IS_TRIED", "TRIED", "event", "extending", "numba", "types"]

#: The releases whose inner steps are those that `inner_steps` builds on, none of them public.
TRIED = ("0.68.0", "0.68.1")

_log = logging.getLogger("ndpsim")

# Values that Numba accepts unchecked; later it fails, or LLVM ends the process.
_USABLE = {
    "NUMBA_NUM_THREADS": re.compile(r"\s*\+?0*[1-9][0-9]{0,5}\s*"),
    "NUMBA_CPU_FEATURES": re.compile(r"([+-][\w.-]+(,[+-][\w.-]+)*)?"),
}
_REFUSED = re.compile(
    r"Environment variable '(?P<name>\w+)' .* value '(?P<value>.*?)' could not be parsed", re.S
)


def _ignore(name: str, value: str) -> None:
    os.environ.pop(name, None)
    _log.warning("%s=%s is ignored: Numba does not take this value", name, shortened(" ".join(value.split())))


for _name, _form in _USABLE.items():
    if _name in os.environ and not _form.fullmatch(os.environ[_name]):
        _ignore(_name, os.environ[_name])


def _suspects() -> str:
    """What may prevent Numba from being imported, in words."""
    found = [name for name in sorted(os.environ) if name.startswith("NUMBA_")]
    found += [".numba_config.yaml here"] if os.path.lexists(".numba_config.yaml") else []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        found.append(f"the limit of {limit >> 20} MiB of address space (ulimit -v)")
    return f"; suspects: {shortened(', '.join(found))}" if found else ""


with warnings.catch_warnings(record=True) as _said:
    warnings.simplefilter("always")
    try:
        import numba
        from numba import extending, types
        from numba.core import event
    except Exception as _error:
        _reason = " ".join(f"{type(_error).__name__}: {_error}".split())[:300]
        raise InputError(f"Numba cannot be imported{_suspects()} ({_reason})", "not-installed") from None

for _warning in _said:
    _refused = _REFUSED.search(str(_warning.message))
    if _refused:
        _ignore(_refused["name"], _refused["value"])
    else:
        warnings.warn_explicit(_warning.message, _warning.category, _warning.filename, _warning.lineno)

#: Whether kernels are compiled by the inner steps; else by what is public in every release from 0.62 on,
#: which takes longer. ``NDPSIM_PUBLIC_NUMBA=1`` chooses the latter.
IS_TRIED = numba.__version__ in TRIED and os.environ.get("NDPSIM_PUBLIC_NUMBA", "0") in ("", "0")
