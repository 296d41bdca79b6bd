"""What the shell can complete: names, files, and the keys and values of ``--set``.

Completion must answer while one types, so nothing here imports Numba, pydantic or matplotlib: enumerated
values come from the bundled JSON schema, and names whose home is slow to import are repeated.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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

from ndpsim.errors import InputError
from ndpsim.plugins import option_names
from ndpsim.report.panels import SIZES

#: What may be completed of a parameter, from the context and what is typed of it; more than fits is no harm.
Offers = Callable[[click.Context, str], Iterable[str]]

ARBITRATIONS = option_names("dimm/arbitrations", "host-first")
COMMAND_FORMS = option_names("traces/command_formats", "drampower")
ENGINES = ("ndp", "host-read")
KV_PLACES = ("auto", "gpu", "host")
HOST_PATTERNS = ("sequential", "random")
LAYOUTS = ("localized", "striped", "sharded:")
LIST_KINDS = (
    "hw",
    "parts",
    "rtl",
    "models",
    "expert-times",
    "layouts",
    "standards",
    "orgs",
    "request-formats",
    "policies",
    "routing",
    "routing-formats",
    "command-forms",
    "timings",
    "weights",
)
PROGRAMS = (
    "ik_llama.cpp",
    "ik_llama.cpp-repacked",
    "llama.cpp",
    "ktransformers",
    "ktransformers-amx",
    "streaming",
)
ROUTING_FORMATS = option_names("routing/formats", "counts")
REQUEST_FORMATS = option_names("traces/request_formats", "dramsim3")
ROWS = (
    "stream_r1",
    "stream_r4",
    "random_r1",
    "random_r4",
    "mixed_r1",
    "mixed_r4",
    "capped_stream_r4",
    "capped_mixed_r4",
    "queue65_r4",
    "queue256_r1",
    "queue256_r4",
    "stream_lpddr5",
    "random_lpddr5",
    "mixed_lpddr5",
    "stream_hbm3",
    "random_hbm3",
    "mixed_hbm3",
    "stream_gddr6",
    "random_gddr6",
    "mixed_gddr6",
    "stream_ff_r1",
    "stream_ff_r8",
    "expert_trimoe",
    "expert_edge",
    "unlike_trimoe",
    "unlike_edge",
    "unlike_cxl",
    "queue_trimoe",
    "beside_host",
    "relayout_four",
    "import",
    "compile",
)
SAMPLERS = ("tpe", "nsga2", "random")
SWEEP_KINDS = ("lines", "bars", "heat", "pareto")
_WEIGHTS = "bits group-size scale-bits zero-point-bits weights"
#: The options of the commands that can be swept.
SWEPT_KEYS = {
    "gemv": f"hw model shape tokens release-ns start-clock refresh-phases engine layout {_WEIGHTS} "
    "host-traffic host-reads host-pattern arbitration slice-clocks",
    "moe": "hw model policy batch steps routing seed prompt prefix layers bits dense-bits weights kv kv-bits "
    "context gpu-experts arbitration",
    "relayout": f"hw model shape experts from to from-dimms to-dimms topology no-host other-dimms {_WEIGHTS}",
    "dram": "trace hw standard org timing ranks channels mapper scheduler row-policy row-cap refresh "
    "rules wck read-buffer write-buffer format wrap",
}
SHOW_KINDS = (
    "hw", "part", "model", "org", "timing", "schema", "layout", "processor", "policy", "weights"
)  # fmt: skip


# Names


def _one_of(*names: str) -> Offers:
    return lambda context, typed: names


def _hardware_names() -> list[str]:
    from ndpsim.config import hardware_names

    return hardware_names()


def _part_names(*kinds: str) -> list[str]:
    from ndpsim.config.files import PART_KINDS, part_names

    return [name for kind in kinds or PART_KINDS for name in part_names(kind)]


def _parts(kind: str, *others: str) -> Offers:
    """Parts of a kind, and files of parts."""
    return _names_or_files(lambda: [*_part_names(kind), *others], ".yaml", ".yml")


def _dimms(context: click.Context, typed: str) -> list[str]:
    """``NAMEx``, behind which the number of DIMMs follows."""
    return [f"{name}x" for name in _part_names("memories")]


def _model_names() -> list[str]:
    from ndpsim.moe import model_names

    return model_names()


def _policy_names() -> list[str]:
    """By the names of their files: their classes would bring Numba and pydantic."""
    return sorted((*option_names("policies/published", "trimoe"), *option_names("policies/own", "balance")))


def _weight_names(context: click.Context, typed: str) -> list[str]:
    from ndpsim.moe.weights import weight_names

    return weight_names()


def _routing_names() -> list[str]:
    from ndpsim.routing import routing_names

    return routing_names()


def _standards(context: click.Context) -> list[Any]:
    """The standard that ``--standard`` gives, else all."""
    from ndpsim.spec import standards

    known = standards()
    given = context.params.get("standard")
    return [known[given]] if given in known else list(known.values())


def _standard_names(context: click.Context, typed: str) -> list[str]:
    return [standard.name for standard in _standards(context)]


def _orgs(context: click.Context, typed: str) -> list[str]:
    return [org for standard in _standards(context) for org in standard.organisations]


def _timings(context: click.Context, typed: str) -> list[str]:
    return [timing for standard in _standards(context) for timing in standard.speeds]


# Files


def _files(typed: str, endings: Sequence[str]) -> Iterator[str]:
    """Files that begin as typed and have one of the endings, and folders; hidden ones when asked for."""
    folder, slash, start = typed.rpartition("/")
    with os.scandir(os.path.expanduser(folder + slash) or ".") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
                continue
            if entry.is_dir():
                yield f"{folder}{slash}{entry.name}/"
            elif entry.name.endswith(tuple(endings)):
                yield f"{folder}{slash}{entry.name}"


def _names_or_files(names: Callable[[], Iterable[str]], *endings: str) -> Offers:
    return lambda context, typed: [*names(), *_files(typed, endings)]


# Keys and values of hardware


@functools.cache
def _hardware_keys() -> dict[str, tuple[str, ...]]:
    """The keys of a hardware file, dotted, and their values where they are enumerated."""
    from ndpsim.config.files import data_folder

    schema = json.loads((data_folder("hwconfigs") / "schema.json").read_text())
    return dict(_keys_under(schema, schema["$defs"], ""))


def _keys_under(
    model: dict[str, Any], definitions: dict[str, Any], prefix: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, leaf in model["properties"].items():
        choices = [leaf, *leaf.get("anyOf", ())]
        sections = [choice["$ref"].rpartition("/")[2] for choice in choices if "$ref" in choice]
        for section in sections:
            yield from _keys_under(definitions[section], definitions, f"{prefix}{name}.")
        values = tuple(value for choice in choices for value in choice.get("enum", ()))
        if not sections or len(choices) > len(sections) + 2:  # a unit can also be named: ndp.gemv=NAME
            yield prefix + name, values


def _of_key(key: str) -> Offers:
    return lambda context, typed: _hardware_keys()[key]


def _settings(context: click.Context, typed: str) -> Iterable[str]:
    """``--set``: timings where the options name the DRAM, else keys of hardware; values after the "="."""
    names_dram = any(parameter.name == "standard" for parameter in context.command.params)
    key, equals, value = typed.partition("=")
    if names_dram and not context.params.get("hw"):
        return () if equals else [f"{name}=" for name in _timing_names()]
    if equals:
        return [f"{key}={offered}" for offered in _values_of(context, key, value)]
    timings = [f"dram.{name}=" for name in _timing_names()] if key.startswith("dram.") else []
    return [*(f"{name}=" for name in _hardware_keys()), *timings]


def _timing_names() -> list[str]:
    from ndpsim.spec import standards

    known = standards().values()
    names = {name for standard in known for speed in standard.speeds.values() for name in speed}
    names |= {name for standard in known for name in standard.derived}
    return sorted(names - {"rate", "tCK_ps"})


def _values_of(context: click.Context, key: str, typed: str) -> Iterable[str]:
    named = {"dram.standard": _standard_names, "dram.org": _orgs, "dram.timing": _timings}
    if key in named:
        return named[key](context, typed)
    from ndpsim.config.files import PART_SECTIONS, rtl_names

    section, _, last = key.rpartition(".")
    if last == "part" and section in PART_SECTIONS:
        return [*_part_names(PART_SECTIONS[section]), *_files(typed, (".yaml", ".yml"))]
    from ndpsim.config.system import UNITS

    if key.startswith("ndp.") and key.removeprefix("ndp.") in UNITS:
        return [name for name in rtl_names() if name.endswith(key.removeprefix("ndp."))]
    return _hardware_keys().get(key, ())


def _varied(context: click.Context, typed: str) -> Iterable[str]:
    """``--vary``: options of the command that is swept, then keys of hardware; values after the "="."""
    key, equals, value = typed.partition("=")
    if f"--{key}" in _OFFERS and equals:
        return [f"{key}={offered}" for offered in _OFFERS[f"--{key}"](context, value)]
    if equals:
        return [f"{key}={offered}" for offered in _values_of(context, key, value)]
    options = SWEPT_KEYS.get(context.info_name or "", "")
    return [*(f"{name}=" for name in options.split()), *(f"{name}=" for name in _hardware_keys())]


def names_or_files(names: Iterable[str], endings: Sequence[str], typed: str) -> list[CompletionItem]:
    """What is offered for a name, or a file with one of the endings, that begins as typed."""
    offered = [*names, *_files(typed, endings)]
    return [CompletionItem(name) for name in offered if name.startswith(typed)]


# Parameters


def _shown(context: click.Context, typed: str) -> Iterable[str]:
    """The names of what ``show`` is to show."""
    kinds: dict[str, Offers] = {
        "hw": _OFFERS["--hw"],
        "part": _names_or_files(_part_names, ".yaml", ".yml"),
        "model": _OFFERS["--model"],
        "org": _orgs,
        "timing": _timings,
        "schema": _one_of("hw"),
        "layout": _one_of(*LAYOUTS),
        "processor": _one_of("gpu", "cpu"),
        "policy": _names_or_files(_policy_names, ".py"),
        "weights": _weight_names,
    }
    what = context.params.get("what")
    return kinds[what](context, typed) if what in kinds else ()


def _listed(context: click.Context, typed: str) -> Iterable[str]:
    return LIST_KINDS if context.info_name == "list" else SHOW_KINDS


_OFFERS: dict[str, Offers] = {
    "--hw": _names_or_files(_hardware_names, ".yaml", ".yml"),
    "--model": _names_or_files(_model_names, ".json"),
    "--layout": _one_of(*LAYOUTS),
    "--from": _one_of(*LAYOUTS),
    "--to": _one_of(*LAYOUTS),
    "--engine": _one_of(*ENGINES),
    "--bits": _one_of("16", "8", "6", "5", "4", "3", "2", "1"),
    "--weights": _weight_names,
    "--policy": _names_or_files(lambda: ["all", *_policy_names()], ".py"),
    "--routing": _names_or_files(_routing_names, ".npz"),
    "--kv": _one_of(*KV_PLACES),
    "--arbitration": _one_of(*ARBITRATIONS),
    "--host-pattern": _names_or_files(lambda: HOST_PATTERNS, ""),
    "--host-traffic": _one_of("saturate"),
    "--topology": lambda context, typed: (*_hardware_keys()["link.topology"], "all"),
    "--size": _one_of(*SIZES),
    "--standard": _standard_names,
    "--org": _orgs,
    "--timing": _timings,
    "--mapper": lambda context, typed: [m for m in _hardware_keys()["dram.mapper"] if m != "custom"],
    "--scheduler": _of_key("dram.scheduler"),
    "--row-policy": _of_key("dram.row_policy"),
    "--refresh": _of_key("dram.refresh"),
    "--format": lambda context, typed: ROUTING_FORMATS if context.info_name == "import" else REQUEST_FORMATS,
    "--commands-format": _one_of(*COMMAND_FORMS),
    "--row": _one_of(*ROWS),
    "--kind": _one_of(*SWEEP_KINDS),
    "--sampler": _one_of(*SAMPLERS),
    "--cpu": _parts("cpus"),
    "--memory": _dimms,
    "--gpu": _parts("gpus", "none"),
    "--link": _parts("links"),
    "--program": _one_of(*PROGRAMS),
    "--set": _settings,
    "--vary": _varied,
    "--baseline": _varied,
    "study": _names_or_files(lambda: (), ".yaml", ".yml"),
    "what": _listed,
    "name": _shown,
    "routing": _names_or_files(_routing_names, ".npz"),
    "spec": lambda context, typed: _routing_names(),
    "simulator": _one_of("ramulator"),
}
_OWN_FILES = ("FILE", "NAME.yaml", "TRACE", "COMMANDS.csv|LOG.jsonl")  # forms of parameters that are any file


class _Completed(click.types.StringParamType):
    """Text that the shell completes with what is offered."""

    name = "name"  # what help calls the value where the option says nothing else

    def __init__(self, offers: Offers) -> None:
        self.offers = offers

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            offered = list(self.offers(ctx, incomplete))
        except (InputError, OSError):  # a folder that is not there, or may not be read
            offered = []
        return [CompletionItem(value) for value in offered if value.startswith(incomplete)]


class _AnyFile(click.types.StringParamType):
    """Text that the shell completes as the name of a file, in its own way."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def completing(parameter: click.Parameter) -> click.Parameter:
    """`parameter`, which the shell completes from now on where there is something to offer."""
    if isinstance(parameter.type, click.types.StringParamType):
        is_option = isinstance(parameter, click.Option)
        name = max(parameter.opts, key=len) if is_option else str(parameter.name)
        form = parameter.metavar or str(parameter.name).upper()
        if name in _OFFERS:
            parameter.type = _Completed(_OFFERS[name])
        elif form in _OWN_FILES:
            parameter.type = _AnyFile()
    return parameter


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
    """Bash, to which ``dram.refresh=none`` and ``sharded:4`` are three words each; it expects the third."""

    source_template = _BASH
    _before = ""  # what bash takes for words of their own, before the one that is typed

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
    """A shell to which ``--hw=trimoe`` is one word, so that ``--hw=`` is part of what it expects."""

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
    """Zsh, without a blank after what goes on."""

    source_template = ZshComplete.source_template.replace(
        "compadd -U -V unsorted -a completions",
        "compadd -U -V unsorted -S '' -- ${(M)completions:#*[=:/]}\n"
        "        compadd -U -V unsorted -- ${completions:#*[=:/]}",
    )


add_completion_class(_Bash)
add_completion_class(_Fish)
add_completion_class(_Zsh)
