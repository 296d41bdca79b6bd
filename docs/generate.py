"""Writes what is made from the code: configuration.md, commands.md, python.md, the tables of memories.md, the
calls with settings in the stub of ndpsim.

python docs/generate.py
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import ndpsim
import ndpsim.policies
from ndpsim.base.choices import RULES
from ndpsim.base.options import Table
from ndpsim.base.options.dram import ControllerOptions
from ndpsim.base.options.settings import Settings
from ndpsim.base.reported import Reported
from ndpsim.cli.command import CommandGroup, TableCommand
from ndpsim.cli.main import cli
from ndpsim.cli.sweep import OPTIONS as SWEEP_OPTIONS
from ndpsim.config.files import PART_KINDS, PART_SECTIONS
from ndpsim.config.keys import allowed, field_at, section_of, unit_of
from ndpsim.config.origins import default_reason
from ndpsim.config.quantities import Section
from ndpsim.config.ranges import ranges_text
from ndpsim.config.system import System
from ndpsim.dram.spec import Rule, Standard, standards
from ndpsim.dram.spec.timing_rows import timing_rows
from ndpsim.inference.layers.run import run_moe
from ndpsim.inference.prediction.run import predict
from ndpsim.inference.serving.server import run_serving
from ndpsim.report.timings import NO_SOURCE
from ndpsim.simulate.contention import simulate_contention
from ndpsim.simulate.expert import simulate_expert
from ndpsim.simulate.host import simulate_host_read
from ndpsim.simulate.memory import Memory
from ndpsim.simulate.relayout import simulate_relayout
from ndpsim.simulate.session import Session, simulate_dimm
from ndpsim.simulate.trace import run_trace
from ndpsim.studies.search.run import optimize
from ndpsim.studies.sweeps.run import sweep

HERE = Path(__file__).parent
COMMAND = "python docs/generate.py"
MADE = f"<!-- Made by `{COMMAND}`. -->\n\n"

# ---- configuration.md ------------------------------------------------------------------------------------

# Allowed values of keys whose type does not describe them.
_ALLOWED = {
    "dram.standard": "a name of `ndpsim list standards`",
    "dram.org": "a name of `ndpsim list orgs`",
    "dram.timing": "a name of `ndpsim list timings`",
    "dram.mapping.order": "a list of `FIELD` and `FIELD:BITS`",
    "dram.mapping.xor": "lists of `FIELD:BIT` and `FIELD:LOW-HIGH` by `FIELD` or `FIELD:BIT`",
    **{
        f"{section}.part": f"a name of `ndpsim list parts`, a {PART_KINDS[kind]}, or a path ending in `.yaml`"
        for section, kind in PART_SECTIONS.items()
    },
    "gpu.expert_times": "names of `ndpsim list expert-times`, or `.csv` files",
    "host.cpu_expert_times": "names of `ndpsim list expert-times`, or `.csv` files",
    "host.measured_power": "names of bundled tables, or `.csv` files",
    "name": "a text of at most 100 characters",
    "title": "a text of at most 500 characters",
    "paper": "a text of at most 500 characters",
}

_CONFIGURATION = """\
# Every key of a hardware file

A file for `--hw FILE.yaml` has these keys. `--set KEY=VALUE` changes one key; in Python, `sets=["KEY=VALUE"]`
does the same. [hardware.md](hardware.md) explains how to write a file. `ndpsim show hw NAME` prints all
values of a file with their sources. `ndpsim show schema hw` prints the JSON schema for editors.

If a section is present, its keys without a default are required. Either the file gives them, or the part that
the section names. Each default has a reason. `null` means "not known": a command that needs the value prints
an error, and the total energy names the components that it does not include.

Clocks in `dram.overrides` of a file belong to the file's `dram.timing`. If `--set` selects another timing,
these clocks are dropped, and one line lists them. Clocks that are given by `--set` are kept.

Short forms: `--set dram.nCL=38` is `--set dram.overrides.nCL=38`. `--set ndp.gemv=NAME` uses a unit from
another file of `rtl_params/`. `--set gpu.part=NAME` uses another part ([hardware.md](hardware.md#parts)).
"""

_ENVIRONMENT = """\
## Timings in `dram.overrides`

{timings}

## Environment variables

| variable | meaning |
|---|---|
| `NDPSIM_CACHE_DIR` | folder of compiled kernels and results, instead of the user's cache folder |
| `NDPSIM_MEMORY_GIB` | GiB that one call may use, instead of 4 GiB or half of a smaller machine's memory |
| `NDPSIM_PUBLIC_NUMBA=1` | compile kernels with Numba's public interface only ([running.md](running.md)) |
| `NUMBA_DISABLE_JIT=1` | run all kernels as Python: slow, for debuggers |
| `NO_COLOR`, `COLUMNS` | as in other programs: no colours, and the width of the terminal |
"""


def configuration_page() -> str:
    """`configuration.md`: each key with unit, what is allowed, default and meaning."""
    timings = "\n".join(
        f"- {standard.name}: {', '.join(f'`{name}`' for name in _timings(standard))}"
        for standard in standards().values()
    )
    sections = "\n".join(_section(System, ()))
    return f"{MADE}{_CONFIGURATION}\n{sections}\n{_ENVIRONMENT.format(timings=timings)}"


def _timings(standard: Any) -> list[str]:
    """The timings of a standard that are counted in clocks."""
    org, speed = next(iter(standard.organisations)), next(iter(standard.speeds))
    device = ndpsim.resolve(standard.name, org, speed)
    return [name for name in device.timings if name not in ("rate", "tCK_ps")]


def _section(model: type[Section], path: tuple[str, ...]) -> Iterator[str]:
    """A section's heading, what it is, a table of its leaves, and the sections in it."""
    leaves = [key for key, field in model.model_fields.items() if section_of(field) is None]
    text = _reflowed(_code(inspect.getdoc(model) or ""))
    missing = "" if _needed(path) else "\n\nThe section is optional."
    title = f"`{'.'.join(path)}`" if path else "The file"
    yield f"## {title}\n\n{text}{missing}\n"
    if leaves:
        yield "| key | unit | allowed | default | meaning |\n|---|---|---|---|---|"
        yield "\n".join(_row((*path, key)) for key in leaves) + "\n"
    for key, field in model.model_fields.items():
        inner = section_of(field)
        if inner is not None:
            yield from _section(inner, (*path, key))


def _needed(path: tuple[str, ...]) -> bool:
    field = field_at(path)
    return field is None or field.is_required()


def _row(path: tuple[str, ...]) -> str:
    field = field_at(path)
    assert field is not None
    key = ".".join(path)
    words = _ALLOWED.get(key) or allowed(field, with_unit=False)
    default = _default_of(field, path)
    meaning = field.description
    assert meaning, f"{key} has no description"
    return f"| `{key}` | {unit_of(path)} | {_cell(words)} | {_cell(default)} | {_cell(meaning)} |"


def _default_of(field: Any, path: tuple[str, ...]) -> str:
    if field.is_required():
        return ""
    return "none" if field.default == {} else f"{_plain(field.default)}: {default_reason(path)}"


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# ---- python.md -------------------------------------------------------------------------------------------

# The sections of the page: the packages whose public names they show.
_SECTIONS = (
    ("Experts, relayouts, traces", ("ndpsim.simulate", "ndpsim.dram", "ndpsim.base.options.dram")),
    (
        "Whole models",
        (
            "ndpsim.inference.layers",
            "ndpsim.inference.serving",
            "ndpsim.policies",
            "ndpsim.inference.prediction",
        ),
    ),
    ("Sweeps", ("ndpsim.studies.sweeps", "ndpsim.studies.search")),
    ("Results", ("ndpsim.simulate.results",)),
    (
        "Hardware and models",
        (
            "ndpsim.config",
            "ndpsim.workload.models",
            "ndpsim.dimm.layout",
            "ndpsim.inference.processors",
            "ndpsim.dram.spec",
        ),
    ),
    ("Routing", ("ndpsim.workload.routing",)),
    ("Requests to a serving system", ("ndpsim.workload.requests",)),
    (
        "Traces and checks",
        ("ndpsim.dram.traces", "ndpsim.audit", "ndpsim.simulate.timing", "ndpsim.config.importers"),
    ),
    ("Mistakes", ("ndpsim.base.errors",)),
)
_OF_POLICIES = "Policies of your own"

_PYTHON = """\
# From Python

Every command calls functions of `ndpsim`. A mistake in an argument is an `InputError`, and its `key`
names the argument. Arguments may be NumPy numbers, `Path`s, and results of `load_hardware` and
`load_model`. Results compare by value. Traces have `to_arrays()` and `to_pandas()`. `help(ndpsim)` lists
the calls.

`to_dict()` of a result is plain data for JSON. `to_dict(flat=True)` has only scalars, for one row of a
DataFrame. Keys of mappings are joined by dots: `busy.memory`. A list of numbers gives `.count`, `.min` and
`.max`. A list of records gives `.count`, and `.min` and `.max` of each number, by the names of the records
if they have names: `phases.down.end_ns.max`. Any other list becomes its JSON text.

Changes of hardware are texts or a mapping: `sets=["dimm.ranks=2"]` or `sets={"dimm.ranks": 2}`.
Hardware may be a mapping with the contents of a file. `result.plot()` draws a result as `--plot` does,
and returns a figure of matplotlib; `result.plot("expert.pdf")` also writes it. `progress=True` shows a
bar, in a notebook one of its own. A notebook shows results as tables, with the best run marked.
`MoeResult.to_pandas()`, `SweepResult.to_pandas()` and `SweepResult.to_xarray()` are for further work on
them. `ndpsim.__version__` is the version. Type checkers read the types of the package.

With `cache=True`, or `cache=ndpsim.ResultCache(folder)`, a call finds the result of an equal call in
memory (in about 0.1 ms) or on disk (within 1 ms). Calls are equal if they have the same resolved
hardware, weights, options, contents of traces and version of ndpsim. `wall_s` is then the time of the
call that found the result. `ndpsim.ResultCache(folder, memory_entries=4096, disk_bytes=1 << 28)` sets
the size.

```python
import ndpsim

result = ndpsim.simulate_expert("trimoe", "qwen3-235b-a22b", tokens=8, sets=["dimm.ranks=2"])
print(result.time_ns, result.bandwidth_gbps, result.bound, result.to_dict()["phases"][0])
```
"""


def python_page() -> str:
    """`python.md`: every public name of `ndpsim` and of `ndpsim.policies`, from its docstring."""
    shown = {name: getattr(ndpsim, name) for name in ndpsim.__all__}
    sections = []
    for title, homes in _SECTIONS:
        names = [name for name, what in shown.items() if _home(what) in homes]
        if names:
            sections.append((title, "ndpsim", sorted(names, key=_classes_last(shown))))
    missing = set(shown) - {name for _, _, names in sections for name in names}
    assert not missing, f"{sorted(missing)} are in no section of python.md: see _SECTIONS in {__file__}"
    policies = {name: getattr(ndpsim.policies, name) for name in ndpsim.policies.__all__ if name not in shown}
    sections.append((_OF_POLICIES, "ndpsim.policies", sorted(policies, key=_classes_last(policies))))
    index = "\n".join(
        f"- {title}: {', '.join(f'[`{name}`](#{_anchor(home, name)})' for name in names)}"
        for title, home, names in sections
    )
    body = "\n".join(
        f"## {title}\n\n" + "\n".join(_entry(home, name, {**shown, **policies}[name]) for name in names)
        for title, home, names in sections
    )
    return f"{MADE}{_PYTHON}\n{index}\n\n{body}"


def _home(what: Any) -> str:
    """The package of `_SECTIONS` that has an object."""
    every = [home for _, homes in _SECTIONS for home in homes]
    return max((home for home in every if f"{what.__module__}.".startswith(f"{home}.")), key=len, default="")


def _classes_last(names: dict[str, Any]) -> Callable[[str], tuple[bool, str]]:
    return lambda name: (inspect.isclass(names[name]), name)


def _anchor(home: str, name: str) -> str:
    return f"{home}.{name}".lower().replace(".", "")


def _entry(home: str, name: str, what: Any) -> str:
    heading = f"### `{home}.{name}`\n\n"
    if not callable(what):
        return f"{heading}The number {what!r}: {_constant(home, name)}.\n"
    text = inspect.getdoc(what) or ""
    parts = [heading, _signature(name, what), _markdown(text, what)]
    if inspect.isclass(what):
        parts.append(_members(what))
    return "".join(parts).rstrip() + "\n"


def _constant(home: str, name: str) -> str:
    """The text of the comment before a constant, ``#: ...``."""
    for module in (home, f"{home}.views"):
        source = inspect.getsource(importlib.import_module(module))
        if found := re.search(rf"#: (.+)\n{name}\b", source):
            return found[1].rstrip(".")
    raise AssertionError(f"{home}.{name} has no comment that begins with #:")


#: Classes that callers are given and do not make, beside results.
_RETURNED = ("FoundRate", "Hardware", "Report", "ScheduleReport", "SweepResult")


def _signature(name: str, what: Any) -> str:
    """The call, one argument a line where they do not fit one; none for classes that ndpsim alone makes."""
    if inspect.isclass(what) and (issubclass(what, Exception) or hasattr(what, "wall_s")):
        return ""
    try:
        parameters = list(inspect.signature(what).parameters.values())
    except ValueError:
        return ""
    if inspect.isclass(what) and (len(parameters) > 10 or name in _RETURNED):
        return ""
    words = _arguments(parameters)
    result = "" if inspect.isclass(what) else _type(inspect.signature(what).return_annotation, " -> ")
    line = f"{name}({', '.join(words)}){result}"
    if len(line) > 100:
        line = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){result}"
    return f"```text\n{line}\n```\n\n"


def _arguments(parameters: list[inspect.Parameter]) -> list[str]:
    words = []
    star = False
    for parameter in parameters:
        if parameter.name == "self":
            continue
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            words.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        words.append(f"{prefix}{parameter.name}{_type(parameter.annotation, ': ')}{_default(parameter)}")
    return words


def _type(annotation: Any, before: str) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return before + re.sub(r"\b(?:ndpsim|np|numpy|typing|pathlib)(?:\.\w+)*\.(?=\w)", "", text)


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return ""
    text = repr(parameter.default)
    if "<" in text or "0x" in text or len(text) > 40:
        text = "..."
    return f" = {text}"


def _members(what: type) -> str:
    """Public methods and properties, except those of other packages, and `to_dict` and `plot` of results."""
    lines = []
    for name, member in inspect.getmembers(what):
        if name.startswith("_") or not _of_ndpsim(what, name) or member in (Reported.to_dict, Reported.plot):
            continue
        plain = inspect.getattr_static(what, name)
        value = isinstance(plain, property) or hasattr(plain, "func")
        if not (value or inspect.isroutine(member)):
            continue
        text = inspect.getdoc(plain if value else member)
        if not text:
            continue
        call = name if value else f"{name}({', '.join(_arguments(_of_method(member)))})"
        lines.append(f"- `{call}`: {_indented(_method_text(text))}")
    return "Methods and properties:\n\n" + "\n".join(lines) + "\n\n" if lines else ""


def _of_ndpsim(what: type, name: str) -> bool:
    owner = next((base for base in what.__mro__ if name in vars(base)), what)
    return owner.__module__.startswith("ndpsim")


def _of_method(member: Any) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(member).parameters.values())
    return [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]


def _method_text(text: str) -> str:
    return _markdown(text, None).rstrip()


def _indented(text: str) -> str:
    return textwrap.indent(text, "  ").strip()


_HEADINGS = ("Args:", "Raises:", "Attributes:")


def _markdown(text: str, what: Any) -> str:
    """A docstring as Markdown: its Args, Raises and Attributes as lists, its examples as code."""
    blocks = []
    for block in re.split(r"\n\s*\n", _code(text)):
        lines = block.splitlines()
        if lines[0] in _HEADINGS:
            types = _types(what) if lines[0] == "Attributes:" else {}
            blocks.append(f"{lines[0]}\n\n{_items(lines[1:], types)}")
        elif lines[0] in ("Returns:", "Yields:"):
            blocks.append(f"{lines[0]} {_reflowed(' '.join(lines[1:]))}")
        elif lines[0].startswith(">>> "):
            blocks.append("```pycon\n" + re.sub(r"  # doctest: .*", "", block) + "\n```")
        elif lines[0].startswith("- ") or lines[0].startswith("    "):
            blocks.append(block)
        else:
            blocks.append(_reflowed(block))
    return "\n\n".join(blocks) + "\n\n"


def _types(what: Any) -> dict[str, str]:
    if not dataclasses.is_dataclass(what):
        return {}
    return {field.name: _type(field.type, "") for field in dataclasses.fields(what)}


def _items(lines: list[str], types: dict[str, str]) -> str:
    """``name, name: text`` with deeper lines that go on, as a list."""
    items: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if line.startswith(" ") and items:
            items[-1] += " " + line.strip()
        else:
            items.append(line)
    return "\n".join(f"- {_item(item, types)}" for item in items)


def _item(item: str, types: dict[str, str]) -> str:
    found = re.match(r"([\w, *]+): (.*)", item)
    if found is None:
        return item
    names = [name.strip() for name in found[1].split(",")]
    of = {types[name] for name in names if name in types}
    kind = f" ({of.pop()})" if len(of) == 1 else ""
    return f"{', '.join(f'`{name}`' for name in names)}{kind}: {found[2]}"


def _code(text: str) -> str:
    """Code of a docstring, in two backticks, as Markdown has it."""
    return re.sub(r"``(.+?)``", r"`\1`", text)


def _reflowed(text: str) -> str:
    """Lines of a paragraph joined, paragraphs apart."""
    return "\n\n".join(" ".join(block.split()) for block in re.split(r"\n\s*\n", text))


# ---- commands.md -----------------------------------------------------------------------------------------

_COMMANDS = """\
# Every command and its options

`ndpsim COMMAND --help` prints the same. Sweeps use the names of options without the dashes.
"""


def commands_page() -> str:
    """The content of commands.md."""
    context = click.Context(cli)
    return (
        MADE
        + _COMMANDS
        + "".join(
            _command(f"ndpsim {name}", cli.get_command(context, name)) for name in cli.list_commands(context)
        )
    )


def _command(typed: str, command: click.Command | None) -> str:
    """The part of a command, and of those within it."""
    if isinstance(command, CommandGroup) and command.commands:
        return "".join(_command(f"{typed} {name}", one) for name, one in command.commands.items())
    if not isinstance(command, TableCommand):  # of `sweep`: its own options are the same for all commands
        return f"\n## `{typed}`\n\n" + _options(SWEEP_OPTIONS)
    text = _reflowed(inspect.cleandoc(command.help or ""))
    return f"\n## `{typed}`\n\n{text}\n\n{_options(command.table)}"


def _options(table: Table) -> str:
    rows = ["| option | what it is | allowed | default |", "|---|---|---|---|"]
    for one in table.values():
        typed = one.typed if one.positional or one.is_flag else f"{one.typed} {one.form}"
        needs = " or ".join(f"`--{needed.replace('=', ' ')}`" for needed in one.needs.split())
        needs = needs and f"needs {needs}"
        allowed = "; ".join(filter(None, (one.kind.allowed, needs)))
        cells = f"`{_cell(typed)}`", _cell(one.help), _cell(allowed), _cell(one.stated_default)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


# ---- memories.md -----------------------------------------------------------------------------------------

_TABLES = f"<!-- The tables below are made by `{COMMAND}`. -->\n"
_END = "<!-- End of the tables. -->\n"
_MOST_SOURCES = 3  # in a cell
_MOST_NAMED = 6

_TIMINGS = """
## Timings of the two sets of rules

`ndpsim show timing PRESET` prints the timings of one preset. Each row here is a timing in clocks, for the
presets and devices that share it. "same" means that `--rules reference` has the value of `--rules standard`.
"24 to 46" means that presets differ, but not the rules. "no such preset" means that the other set of rules
alone has these presets. The source is that of the value under `standard`.
"""


def memories_page() -> str:
    """`memories.md` with its tables made anew; the rest of the page is written by hand."""
    page = (HERE / "memories.md").read_text(encoding="utf-8")
    before, _, rest = page.partition(_TABLES)
    after = rest.partition(_END)[2]
    tables = "".join(_tables_of(standard) for standard in standards().values())
    return f"{before}{_TABLES}{_TIMINGS}{tables}\n{_END}{after}"


def _tables_of(standard: Standard) -> str:
    """The timings of a standard, and the rules that only one set of rules has."""
    lines = [f"\n### {standard.name}\n", "| timing | presets | standard | reference | source |"]
    lines += ["|---|---|---|---|---|", *_timing_lines(standard)]
    rules = _rule_lines(standard)
    if rules:
        lines += [f"\nRules of {standard.name} that only one set has:\n"]
        lines += ["| set | rule | level | from | to | clocks |", "|---|---|---|---|---|---|", *rules]
    return "\n".join(lines) + "\n"


def _timing_lines(standard: Standard) -> Iterator[str]:
    presets = dict.fromkeys(name for rules in RULES for name in standard.under(rules).speeds)
    values: dict[tuple[str, str], dict[str, Any]] = {}
    for preset in presets:
        having = [rules for rules in RULES if preset in standard.under(rules).speeds]
        for row in timing_rows(standard, preset, None, having):
            values.setdefault((row.name, row.of), {})[preset] = row
    for (name, of), rows in sorted(values.items(), key=lambda one: list(values).index(one[0])):
        timing = f"{name} ({of})" if of else name
        groups: dict[Any, list[Any]] = {}
        for preset, row in rows.items():
            groups.setdefault(_relation(row.standard, row.reference), []).append((preset, row))
        for relation, those in groups.items():
            shown = _range([row.standard for _, row in those])
            other = relation if relation == "same" else _range([row.reference for _, row in those])
            cells = timing, _named(those, presets), shown, other, _sources(row.source for _, row in those)
            yield f"| {' | '.join(map(_cell, cells))} |"


def _relation(standard: int | None, reference: int | None) -> Any:
    """What the presets of a row have in common: equal values, a missing preset, or the two values."""
    if standard == reference:
        return "same"
    return (standard is None, reference is None) if None in (standard, reference) else (standard, reference)


def _range(clocks: Sequence[int | None]) -> str:
    known = sorted({one for one in clocks if one is not None})
    if not known:
        return "no such preset"
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"


def _named(rows: Sequence[tuple[str, Any]], presets: Collection[str]) -> str:
    """The presets of a row: those that differ by name, if they are few."""
    if len(rows) == len(presets):
        return "all"
    return ", ".join(name for name, _ in rows) if len(rows) <= _MOST_NAMED else f"{len(rows)} presets"


def _sources(given: Iterable[str]) -> str:
    found = list(dict.fromkeys(source or NO_SOURCE for source in given))
    return "; ".join(found) if len(found) <= _MOST_SOURCES else "by preset: `ndpsim show timing`"


def _rule_lines(standard: Standard) -> list[str]:
    """Each rule of one set that the other has not, for the commands that it adds."""
    edges = {
        rules: {edge for rule in standard.under(rules).rules for edge in _edges_of(rule)} for rules in RULES
    }
    lines = []
    for rules, other in (RULES, RULES[::-1]):
        for rule in standard.under(rules).rules:
            more = [edge for edge in _edges_of(rule) if edge not in edges[other]]
            if more:
                before, after = (", ".join(dict.fromkeys(edge[place] for edge in more)) for place in (0, 1))
                where = f"another {rule.level}" if rule.siblings else rule.level
                clocks = rule.latency if rule.window == 1 else f"{rule.latency}, of {rule.window + 1}"
                lines.append(f"| {rules} | {rule.name} | {where} | {before} | {after} | {clocks} |")
    return lines


def _edges_of(rule: Rule) -> list[tuple[Any, ...]]:
    """The pairs of commands that a rule holds apart, with what it asks, but not its name."""
    asked = rule.level, rule.latency, rule.window, rule.siblings
    return [(before, after, *asked) for before in rule.previous for after in rule.next]


# ---- The stub of ndpsim ----------------------------------------------------------------------------------

_MADE_FROM = "# ---- Made by `python docs/generate.py` from the settings of these calls\n"
_WITH_SETTINGS = (
    *(optimize, predict, run_moe, run_serving, run_trace, simulate_contention, simulate_dimm),
    *(simulate_expert, simulate_host_read, simulate_relayout, sweep, ControllerOptions, Memory, Session),
)


def stub() -> str:
    """`ndpsim/__init__.pyi`, whose last part has the calls whose arguments are settings."""
    written, _, _ = (HERE / _STUB).read_text(encoding="utf-8").partition(_MADE_FROM)
    return f"{written}{_MADE_FROM}\n{''.join(map(_stub_of, _WITH_SETTINGS))}"


def _stub_of(made: Callable[..., Any]) -> str:
    if not inspect.isclass(made):
        return _stub_of_call(made, f"  # {made.__module__}")
    text = f"\nclass {made.__name__}(_{made.__name__}):\n"
    for name, member in vars(made).items():
        call = getattr(member, "__func__", member)
        if hasattr(call, "__signature__") or (name == "__init__" and issubclass(made, Settings)):
            decorated = "@classmethod\n" if isinstance(member, classmethod) else ""
            text += textwrap.indent(decorated + _stub_of_call(call), "    ")
    return text


def _stub_of_call(call: Callable[..., Any], comment: str = "") -> str:
    signature, lines = inspect.signature(call), []
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and "    *,\n" not in lines:
            lines.append("    *,\n")
        default = "" if one.default is one.empty else " = ..."
        annotation = "" if one.annotation is one.empty else f": {one.annotation}"
        lines.append(f"    {one.name}{annotation}{default},\n")
    ends = f") -> {signature.return_annotation}: ...\n"
    return f"def {call.__name__}({comment}\n{''.join(lines)}{ends}"


_STUB = "../ndpsim/__init__.pyi"

#: What each page must hold, by the name of its file.
PAGES = {
    "configuration.md": configuration_page,
    "commands.md": commands_page,
    "python.md": python_page,
    "memories.md": memories_page,
    _STUB: stub,
    "../hwconfigs/ranges.json": ranges_text,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
