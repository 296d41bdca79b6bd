"""The data files that come with ndpsim, found by name."""

from __future__ import annotations

from pathlib import Path

from ndpsim.errors import InputError, one_of

__all__ = ["data_folder", "data_names", "data_path", "hardware_names", "rtl_names"]

_PACKAGE = Path(__file__).parents[1]


def data_folder(kind: str) -> Path:
    """The folder of `kind` ("hwconfigs", "rtl_params"): in the installed package, else in the checkout."""
    installed = _PACKAGE / "_data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def data_names(kind: str) -> list[str]:
    """The names of the bundled files of `kind`, sorted."""
    return sorted(path.stem for path in data_folder(kind).glob("*.yaml"))


def data_path(kind: str, name: str) -> Path:
    """The bundled file `name` (without ``.yaml``) of `kind`.

    Raises:
        InputError: there is none of that name.
    """
    names = data_names(kind)
    if name not in names:
        raise InputError(one_of(name, names, f"name in {kind}"))
    return data_folder(kind) / f"{name}.yaml"


def hardware_names() -> list[str]:
    """The names `load_hardware` knows, sorted."""
    return data_names("hwconfigs")


def rtl_names() -> list[str]:
    """The names a unit under ``ndp`` of a hardware file can take, sorted."""
    return data_names("rtl_params")
