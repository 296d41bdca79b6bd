"""The data files that come with ndpsim, found by name."""

from __future__ import annotations

from pathlib import Path

from ndpsim.base.errors import unknown

#: The kinds of parts, each a folder of `hwconfigs/parts`, and what one of them is called.
PART_KINDS = {"cpus": "CPU", "memories": "memory", "gpus": "GPU", "links": "link"}
#: The kind of part that each section of a hardware file can name.
PART_SECTIONS = {
    "dram": "memories",
    "host": "cpus",
    "host.memory": "memories",
    "gpu": "gpus",
    "pcie": "links",
}

_PACKAGE = Path(__file__).parents[1]


def data_folder(kind: str) -> Path:
    """The folder of `kind` in the installed package, else in the checkout.

    kind: "hwconfigs", "rtl_params", "validation", "docs" or "examples".
    """
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
        raise unknown(name, names, f"name in {kind}")
    return data_folder(kind) / f"{name}.yaml"


def hardware_names() -> list[str]:
    """The names that `load_hardware` knows, sorted.

    >>> "trimoe" in ndpsim.hardware_names()
    True
    """
    return data_names("hwconfigs")


def rtl_names() -> list[str]:
    """The names that a unit under ``ndp`` of a hardware file can have, sorted."""
    return data_names("rtl_params")


def part_names(kind: str) -> list[str]:
    """The names of the bundled parts of one of `PART_KINDS`, sorted."""
    return data_names(f"hwconfigs/parts/{kind}")


def is_path(name: str) -> bool:
    """Whether a name is the path of the user's own file, not the name of a bundled one."""
    return name.endswith((".yaml", ".yml")) or "/" in name or "\\" in name
