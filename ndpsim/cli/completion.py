"""Completion in the shell: options, names, files, and the keys and values of ``--set``.

The tables of commands (`ndpsim.base.options`) have the values. Completion must be fast, so nothing here
imports Numba, pydantic or matplotlib: keys of hardware come from the bundled JSON schema.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from ndpsim.base.errors import InputError
from ndpsim.base.options import Choice, Parameter, Table
from ndpsim.base.options.hardware import YAML
from ndpsim.cli.names import NAMES


def offered(parameter: Parameter, context: click.Context, typed: str) -> list[CompletionItem]:
    """Values that the shell offers for a parameter, given the text typed so far."""
    if parameter.files == ("",) and not parameter.names:
        return [CompletionItem(typed, type="file")]  # the shell completes files in its own way
    try:
        values = list(_values_of(parameter, context, typed))
    except (InputError, OSError):  # a folder that does not exist or cannot be read
        values = []
    return [CompletionItem(value) for value in values if value.startswith(typed)]


def _values_of(parameter: Parameter, context: click.Context, typed: str) -> Iterator[str]:
    if parameter.name == "set":
        yield from _settings(context, typed)
    elif parameter.name in ("vary", "baseline"):
        yield from _varied(context, typed)
    elif parameter.names == "shown":
        yield from _shown(context, typed)
    elif parameter.names:
        yield from _names(parameter.names, context)
    elif isinstance(parameter.kind, Choice):
        yield from parameter.kind.names
    if parameter.files:
        yield from _files(typed, parameter.files)


# Names


def _names(names: str | tuple[str, ...], context: click.Context) -> Iterable[str]:
    """The names themselves, or the names of several kinds, separated by blanks."""
    if isinstance(names, tuple):
        return names
    return [name for kind in names.split() for name in _kind_names(kind, context)]


def _kind_names(kind: str, context: click.Context) -> Iterable[str]:
    """The names of a kind of `NAMES`, of parts, or the values of a key of hardware; else the word itself."""
    if kind in ("standards", "orgs", "timings") and context.params.get("standard"):
        from ndpsim.dram.spec import standards

        known = standards()
        page = known.get(context.params["standard"])
        if page is not None:
            return {"standards": [page.name], "orgs": page.organisations, "timings": page.speeds}[kind]
    if kind in NAMES:
        return NAMES[kind]()
    if kind.startswith("parts:"):
        from ndpsim.config.files import part_names

        return part_names(kind.removeprefix("parts:"))
    if kind == "dimms":  # NAMEx; the number of DIMMs follows
        return [f"{name}x" for name in _kind_names("parts:memories", context)]
    if kind == "bench-rows":
        from ndpsim.studies.bench import ROWS
        from ndpsim.studies.bench.growth import GROWTH_ROWS
        from ndpsim.studies.bench.scale import SCALE_ROWS

        return [*ROWS, *(row.name for row in GROWTH_ROWS), *(row.name for row in SCALE_ROWS)]
    return _hardware_keys().get(kind, (kind,))


def _shown(context: click.Context, typed: str) -> Iterator[str]:
    """The names of the kind of object that ``show`` prints."""
    from ndpsim.base.options.show import SHOWN

    names, files = SHOWN.get(context.params.get("what") or "", ("", ()))
    yield from _names(names, context)
    yield from _files(typed, files) if files else ()


# Files


def _files(typed: str, endings: Sequence[str]) -> Iterator[str]:
    """Files with the typed beginning and one of the endings, and folders; hidden files if requested."""
    folder, slash, start = typed.rpartition("/")
    with os.scandir(os.path.expanduser(folder + slash) or ".") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
                continue
            if entry.is_dir():
                yield f"{folder}{slash}{entry.name}/"
            elif entry.name.endswith(tuple(endings)):
                yield f"{folder}{slash}{entry.name}"


# Keys and values of hardware


@functools.cache
def _hardware_keys() -> dict[str, tuple[str, ...]]:
    """The dotted keys of a hardware file, and their values if they are enumerated."""
    from ndpsim.config.files import data_folder

    schema = json.loads((data_folder("hwconfigs") / "schema.json").read_text())
    return dict(_keys_under(schema, schema["$defs"], ""))


def _keys_under(
    model: dict[str, Any], definitions: dict[str, Any], prefix: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, leaf in model["properties"].items():
        if name == "part" and prefix.startswith("ndp."):  # of a file; the option is ndp.gemv=NAME
            continue
        choices = [leaf, *leaf.get("anyOf", ())]
        sections = [choice["$ref"].rpartition("/")[2] for choice in choices if "$ref" in choice]
        for section in sections:
            yield from _keys_under(definitions[section], definitions, f"{prefix}{name}.")
        values = tuple(value for choice in choices for value in choice.get("enum", ()))
        if not sections or len(choices) > len(sections) + 2:  # a unit can also be named: ndp.gemv=NAME
            yield prefix + name, values


def _settings(context: click.Context, typed: str) -> Iterable[str]:
    """``--set``: timings if the options name the DRAM, else keys of hardware; values after the "="."""
    names_dram = any(parameter.name == "standard" for parameter in context.command.params)
    key, equals, value = typed.partition("=")
    if names_dram and not context.params.get("hw"):
        return () if equals else [f"{name}=" for name in _timing_names()]
    if equals:
        return [f"{key}={offered}" for offered in _key_values(context, key, value)]
    timings = [f"dram.{name}=" for name in _timing_names()] if key.startswith("dram.") else []
    return [*(f"{name}=" for name in _hardware_keys()), *timings]


def _timing_names() -> list[str]:
    from ndpsim.dram.spec import standards

    known = standards().values()
    names = {name for standard in known for speed in standard.speeds.values() for name in speed}
    names |= {name for standard in known for name in standard.derived}
    return sorted(names - {"rate", "tCK_ps"})


def _key_values(context: click.Context, key: str, typed: str) -> Iterable[str]:
    """Values of a key of hardware."""
    named = {"dram.standard": "standards", "dram.org": "orgs", "dram.timing": "timings"}
    if key in named:
        return _kind_names(named[key], context)
    from ndpsim.config.files import PART_SECTIONS, rtl_names

    section, _, last = key.rpartition(".")
    if last == "part" and section in PART_SECTIONS:
        return [*_kind_names(f"parts:{PART_SECTIONS[section]}", context), *_files(typed, YAML)]
    from ndpsim.config.system import UNITS

    if key.startswith("ndp.") and key.removeprefix("ndp.") in UNITS:
        return [name for name in rtl_names() if name.endswith(key.removeprefix("ndp."))]
    return _hardware_keys().get(key, ())


def _varied(context: click.Context, typed: str) -> Iterable[str]:
    """``--vary``: options of the command that is swept, then keys of hardware; values after the "="."""
    from ndpsim.base.options.swept import SWEPT

    table = SWEPT.get(context.info_name or "", Table())
    key, equals, value = typed.partition("=")
    if key in table and equals:
        return [f"{key}={item}" for item in _values_of(table[key], context, value)]
    if equals:
        return [f"{key}={item}" for item in _key_values(context, key, value)]
    return [*(f"{name}=" for name in table), *(f"{name}=" for name in _hardware_keys())]


def names_or_files(names: Iterable[str], endings: Sequence[str], typed: str) -> list[CompletionItem]:
    """Names, and files with one of the endings, with the typed beginning."""
    return [CompletionItem(name) for name in (*names, *_files(typed, endings)) if name.startswith(typed)]


# Shells

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' completion
    for completion in $(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
            %(complete_var)s=bash_complete $1); do
        case $completion in
            plain,*) COMPREPLY+=("${completion#plain,}") ;;
            dir,*) compopt -o dirnames ;;
            file,*) compopt -o default ;;
        esac
    done
    if [[ ${#COMPREPLY[@]} -eq 1 && $COMPREPLY == *[=:/] ]]; then
        compopt -o nospace
    fi
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


_SPECIAL, _ESCAPED = re.compile(r"([^\w@%+=:,./~-])"), r"\\\1"  # in a word that is typed without quotes


class _Bash(BashComplete):
    """Bash. It splits ``dram.refresh=none`` and ``sharded:4`` into three words and expects the third."""

    source_template = _BASH
    _before = ""  # words before the typed one, which bash has split off

    def get_completion_args(self) -> tuple[list[str], str]:
        parts = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
        words: list[str] = []
        goes_on = False
        for part in parts:
            is_break = re.fullmatch("[=:]+", part) is not None
            if words and (is_break or goes_on):
                self._before = words[-1] + part if is_break else words[-1]
                words[-1] += part
            else:
                self._before = ""
                words.append(part)
            goes_on = is_break
        plain = ["".join(split_arg_string(word)) for word in words]
        return plain[1:-1], plain[-1]

    def format_completion(self, item: CompletionItem) -> str:
        value = str(item.value).removeprefix(self._before)
        return f"{item.type},{_SPECIAL.sub(_ESCAPED, value)}"


class _WithOption(ShellComplete):
    """A shell in which ``--hw=trimoe`` is one word: its completions begin with ``--hw=``."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if equals and option.startswith("--"):
            for item in items:
                item.value = f"{option}={item.value}" if item.type == "plain" else item.value
        return items


class _Fish(_WithOption, FishComplete):
    """Fish."""


class _Zsh(_WithOption, ZshComplete):
    """Zsh. There is no blank after a completion that continues."""

    source_template = ZshComplete.source_template.replace(
        "compadd -U -V unsorted -a completions",
        "compadd -U -V unsorted -S '' -- ${(M)completions:#*[=:/]}\n"
        "        compadd -U -V unsorted -- ${completions:#*[=:/]}",
    )


add_completion_class(_Bash)
add_completion_class(_Fish)
add_completion_class(_Zsh)
