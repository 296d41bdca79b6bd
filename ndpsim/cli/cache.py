"""``ndpsim cache``: show the folders and sizes of compiled kernels and cached results, or clear them."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from ndpsim.base.errors import shortened
from ndpsim.base.options import Flag, Parameter, table
from ndpsim.cli.command import Options, group, options_of, taking
from ndpsim.cli.options import JSON, check_outputs, write_json


def _root(root: Path, current: Collection[str]) -> dict[str, Any]:
    """Contents of a folder of caches; `current`: names of the folders that this version uses."""
    from ndpsim.base.cachedirs import find_folders, problem_of

    folders = [
        {
            "folder": str(folder.path),
            "kind": folder.kind,
            "current": folder.path.name in current,
            "problem": problem_of(folder.path),
            "entries": folder.entries,
            "size_bytes": folder.size_bytes,
            "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(folder.written)),
            "made_by": dict(folder.made_by),
        }
        for folder in find_folders(root)
    ]
    return {
        "folder": str(root),
        "problem": problem_of(root),
        "size_bytes": sum(folder["size_bytes"] for folder in folders),
        "folders": folders,
    }


@group(
    "ndpsim cache",
    "ndpsim cache clear",
    invoke_without_command=True,
    params=options_of(table({"Results": (JSON,)})),
)
@click.pass_context
def command(context: click.Context, json: str | None) -> None:
    """Show the folders of compiled kernels and cached results, with their sizes and versions.

    The folders are in the user's cache folder, or in NDPSIM_CACHE_DIR; if neither can be used, they are in
    the folder for temporary files. A folder that other users own or can write is not used.
    """
    if context.invoked_subcommand is not None:
        return
    check_outputs({"--json": json})
    from ndpsim.base import jit
    from ndpsim.base.cachedirs import roots
    from ndpsim.base.units import format_bytes
    from ndpsim.report.printing import print_table
    from ndpsim.simulate.results.cache import version

    current = {"kernels": jit.entries().name, "results": f"results-{version()}"}
    found = [_root(root, current.values()) for root in roots()]
    if json is not None:
        write_json({"current": current, "roots": found}, json)
    if json == "-":
        return
    for root in found:
        problem = f", not used: {root['problem']}" if root["problem"] else ""
        click.echo(f"{shortened(root['folder'], 300)}: {format_bytes(root['size_bytes'])}{problem}")
    rows = [
        (
            Path(folder["folder"]).name,
            str(folder["entries"]),
            format_bytes(folder["size_bytes"]),
            _use_of(folder),
            ", ".join(f"{name} {folder['made_by'][name]}" for name in _VERSIONS if name in folder["made_by"]),
        )
        for root in found
        for folder in root["folders"]
    ]
    if rows:
        print_table("", ("folder", "entries", "size", "version", "made by"), rows)


def _use_of(folder: dict[str, Any]) -> str:
    """Whether this version uses a folder, in words."""
    if folder["problem"]:
        return f"not used: {folder['problem']}"
    return "this one" if folder["current"] else ""


_VERSIONS = ("ndpsim", "numba", "numpy", "python")


_CLEAR = table(
    {
        "Results": (
            Parameter("kernels", "Remove only compiled kernels.", Flag()),
            Parameter("results", "Remove only results.", Flag()),
            JSON,
        )
    }
)


@taking(
    _CLEAR,
    examples=("ndpsim cache clear", "ndpsim cache clear --results", "ndpsim cache clear --json cleared.json"),
)
def clear(options: Options) -> None:
    """Remove all files of ndpsim, of any version, from the caches, and no other files."""
    from ndpsim.base import cachedirs
    from ndpsim.base.units import format_bytes

    kinds = tuple(kind for kind in cachedirs.KINDS if kind in options) or cachedirs.KINDS
    cleared = cachedirs.clear(kinds)
    if "json" in options:
        removed, left = ([str(path) for path in paths] for paths in (cleared.removed, cleared.left))
        write_json({"removed": removed, "size_bytes": cleared.size_bytes, "left": left}, options["json"])
    if options.get("json") == "-":
        return
    for path in cleared.left:
        click.echo(f"{path}: left, it holds what ndpsim did not put there or may not be written")
    click.echo(f"removed {len(cleared.removed)} folders, {format_bytes(cleared.size_bytes)}")


command.add_command(clear)
