"""Packages of plug-ins: every module is a plug-in, for example a standard or a format.

A plug-in from outside is a module as in such a package. It is one of

- an installed package's: an entry point ``NAME = "package.module"`` of the group ``ndpsim.KIND``;
- a file that the environment variable `VARIABLE` lists, which ``--plugin FILE.py`` sets. Its name is that of
  the file, and its kind follows from what it defines (`_DEFINED`).

It is imported when it is first used, as if it were a module of the package of its kind.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ndpsim.base.errors import InputError, one_of, shown

VARIABLE = "NDPSIM_PLUGINS"

#: The packages of ndpsim by the kind of their plug-ins.
KINDS = {
    "arbitrations": "dimm/arbitrations",
    "bank_layouts": "dimm/banks",
    "command_forms": "dram/traces/command_formats",
    "configuration_formats": "config/importers/formats",
    "extensions": "dram/spec/extensions",
    "policies": "policies/own",
    "refresh_policies": "dram/refresh_policies",
    "request_formats": "dram/traces/request_formats",
    "routing": "workload/routing/generators",
    "routing_formats": "workload/routing/formats",
    "row_policies": "dram/row_policies",
    "schedulers": "dram/schedulers",
    "serving_schedulers": "inference/serving/schedulers",
    "standards": "dram/spec/standards",
    "units": "dimm/units",
    "unit_keys": "config/multipliers",
    "workload_formats": "workload/requests/formats",
    "workloads": "workload/requests/generators",
}
# The kind of a file, from the first of these names that it defines, and the class whose object that is ("":
# any).
_DEFINED = {
    ("STANDARD", ""): "standards",
    ("EXTENSION", ""): "extensions",
    ("PLACES", ""): "bank_layouts",
    ("POLICY", ""): "policies",
    ("SCHEDULER", ""): "serving_schedulers",
    ("ARBITRATION", ""): "arbitrations",
    ("SECTION", ""): "unit_keys",
    ("UNIT", ""): "units",
    ("FORM", ""): "command_forms",
    ("FORMAT", "ConfigurationFormat"): "configuration_formats",
    ("FORMAT", "RequestFormat"): "request_formats",
    ("FORMAT", "RoutingFormat"): "routing_formats",
    ("FORMAT", "WorkloadFormat"): "workload_formats",
    ("GENERATOR", "ArrivalGenerator"): "workloads",
    ("GENERATOR", "RoutingGenerator"): "routing",
    ("turns", ""): "refresh_policies",
    ("may_issue", ""): "schedulers",
    ("comes_before", ""): "schedulers",
}
_GROUP = re.compile(r"\[ndpsim\.(\w+)\]$")
_ENTRY = re.compile(r"([A-Za-z][\w-]*)\s*=\s*([\w.]+)$")
_NAME = re.compile(r"[A-Za-z]\w*$", re.ASCII)
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Outside:
    """A plug-in from outside.

    Attributes:
        origin: the file, or the metadata of the installed package that names it.
        module: the module of an installed package; empty for a file.
    """

    origin: Path
    module: str = ""

    @property
    def file(self) -> Path:
        """The file with its source."""
        if not self.module:
            return self.origin
        try:
            found = importlib.util.find_spec(self.module)
        except ImportError as error:
            raise InputError(f"{self.module}: {error}", "form", file=self.origin) from None
        if found is None or not found.origin:
            raise InputError(f"there is no module {self.module}", "form", file=self.origin)
        return Path(found.origin)


def modules_by_name(folder: ModuleType) -> dict[str, ModuleType]:
    """The modules of the package `folder`, by their names in options."""
    names = module_names(folder)
    return {_option_name(name): importlib.import_module(f"{folder.__name__}.{name}") for name in names}


def plugins_by_module(folder: ModuleType, attribute: str) -> dict[str, Any]:
    """The objects `attribute` of the modules of the package `folder`, by the modules' names in options.

    Raises:
        InputError: a module from outside has no such object.
    """
    found = {}
    for name, module in modules_by_name(folder).items():
        if not hasattr(module, attribute):
            raise InputError(f"does not define {attribute}", "missing", file=module.__file__)
        found[name] = getattr(module, attribute)
    return found


def plugins(folder: ModuleType, attribute: str) -> list[Any]:
    """The objects of `plugins_by_module`, in order of the modules' names."""
    return list(plugins_by_module(folder, attribute).values())


def plugins_by_name(folder: ModuleType, attribute: str) -> dict[str, Any]:
    """`plugins` by their attribute `name`."""
    return {plugin.name: plugin for plugin in plugins(folder, attribute)}


def option_names(folder: str, first: str) -> tuple[str, ...]:
    """The option names of the modules of a package of ndpsim, `first` before others; none is imported."""
    names = sorted(map(_option_name, (*_inside(folder), *outside().get(folder, {}))))
    return first, *(name for name in names if name != first)


def module_names(folder: ModuleType) -> list[str]:
    """The names of the modules of a package of plug-ins, those from outside among them; none is imported."""
    own = [module.name for module in pkgutil.iter_modules(folder.__path__)]
    return sorted([*own, *outside().get(_folder_of(folder.__name__), {})])


@functools.cache
def outside() -> dict[str, dict[str, Outside]]:
    """The plug-ins from outside by the folder of their package and the name of their module.

    Raises:
        InputError: one has an impossible name or an unknown kind, or a name that is taken.
    """
    found: dict[str, dict[str, Outside]] = {}
    for kind, name, plugin in (*_installed(), *_files()):
        folder = KINDS.get(kind)
        if folder is None:
            raise InputError(one_of(kind, KINDS, "kind of plug-in"), "unknown-name", file=plugin.origin)
        module, others = name.replace("-", "_"), found.setdefault(folder, {})
        taken = others.get(module)
        if module in _inside(folder) or taken is not None:
            whose = "ndpsim" if taken is None else taken.origin
            problem = f"{kind} has a plug-in with the name {name} already, from {whose}"
            raise InputError(problem, "twice", file=plugin.origin)
        others[module] = plugin
    if found and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
    return found


def outside_sources() -> Iterator[tuple[str, Path]]:
    """The path that each plug-in from outside would have in ndpsim, and its file."""
    for folder, by_name in outside().items():
        for name, plugin in by_name.items():
            yield f"{folder}/{name}.py", plugin.file


class _Finder(importlib.abc.MetaPathFinder):
    """Finds plug-ins from outside as modules of the packages of their kinds."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        package, _, module = name.rpartition(".")
        plugin = outside().get(_folder_of(package), {}).get(module)
        if plugin is None or not package.startswith("ndpsim."):
            return None
        if plugin.module:
            return importlib.machinery.ModuleSpec(name, _Alias(plugin.module))
        return importlib.util.spec_from_file_location(name, plugin.origin)


class _Alias(importlib.abc.Loader):
    """Loads the module of an installed package under its name in ndpsim, without a second copy."""

    def __init__(self, module: str) -> None:
        self._module = module

    def create_module(self, spec: Any) -> ModuleType:
        module = importlib.import_module(self._module)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def _folder_of(package: str) -> str:
    return package.removeprefix("ndpsim.").replace(".", "/")


def _inside(folder: str) -> list[str]:
    return [module.name for module in pkgutil.iter_modules([str(_PACKAGE / folder)])]


def _installed() -> Iterator[tuple[str, str, Outside]]:
    """Kinds, names and modules of entry points.

    Reading only the lists that mention ndpsim is much faster than `importlib.metadata`.
    """
    for folder in dict.fromkeys(path or "." for path in sys.path):
        try:
            entries = sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith("-info"))
        except OSError:
            continue
        for entry in entries:
            path = Path(entry, "entry_points.txt")
            try:
                text = path.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "[ndpsim." in text:
                yield from _entries(text, path)


def _entries(text: str, path: Path) -> Iterator[tuple[str, str, Outside]]:
    kind = None
    for line in (line.strip() for line in text.splitlines()):
        if line.startswith("["):
            group = _GROUP.match(line)
            kind = group and group[1]
        elif kind and line:
            entry = _ENTRY.match(line)
            if entry is None:
                problem = f"{shown(line)} of ndpsim.{kind} is not NAME = package.module"
                raise InputError(problem, "form", file=path)
            yield kind, entry[1], Outside(path, entry[2])


def _files() -> Iterator[tuple[str, str, Outside]]:
    """Kinds, names and files of `VARIABLE`."""
    for text in os.environ.get(VARIABLE, "").split(os.pathsep):
        if text:
            path = Path(text)
            if path.suffix != ".py" or not _NAME.match(path.stem):
                problem = "is no name of a plug-in; name it with letters, digits and _, as my_format.py"
                raise InputError(problem, "form", file=path)
            try:
                source = path.read_bytes()
            except OSError as error:
                raise InputError(error.strerror or str(error), "unreadable", file=path) from None
            yield _kind_of(source, path), path.stem, Outside(path.resolve())


def _kind_of(source: bytes, path: Path) -> str:
    """The kind of plug-in that a file defines; it is not run.

    Raises:
        InputError: it is no Python, or defines none.
    """
    try:
        defined = dict(_definitions(ast.parse(source).body))
    except (SyntaxError, ValueError) as error:
        raise InputError(f"is no Python: {error}", "form", file=path) from None
    for (name, of_class), kind in _DEFINED.items():
        if name in defined and of_class in ("", defined[name]):
            return kind
    known = dict.fromkeys(name for name, _ in _DEFINED)
    problem = f"defines no plug-in: none of {', '.join(known)} as in docs/adding"
    raise InputError(problem, "form", file=path)


def _definitions(statements: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The names that a module defines, and for objects the names of their classes."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name, ""
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        value = getattr(statement, "value", None)
        called = value.func if isinstance(value, ast.Call) else None
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, getattr(called, "id", "") or getattr(called, "attr", "")


def _option_name(module: str) -> str:
    return module.replace("_", "-")
