"""Completion in shells, through click's own interface and in a real bash; and its help."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete, get_completion_class

from ndpsim.base.options import Choice, Table
from ndpsim.cli.main import _COMMANDS, cli, main
from ndpsim.config import hardware_names

COMMANDS = list(_COMMANDS)


def complete(*words: str) -> list[str]:
    """The completions of the last word."""
    shell = ShellComplete(cli, {}, "ndpsim", "_NDPSIM_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture
def folder(here: Path) -> Path:
    """The current folder, with files of several kinds."""
    for name in (
        "mine.yaml",
        "config.json",
        "my trace.gz",
        ".hidden.yaml",
        "sub/deep.yaml",
        "sub/config.json",
    ):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    return here


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["gem"], ["gemv"]),
        (["gemv", "--hw", ""], [*hardware_names(), "mine.yaml", "sub/"]),
        (["gemv", "--hw", "tri"], ["trimoe"]),
        (["gemv", "--hw", "sub/"], ["sub/deep.yaml"]),
        (["gemv", "--hw", "."], [".hidden.yaml"]),
        (["gemv", "--hw", "./m"], ["./mine.yaml"]),
        (["gemv", "--hw", "nowhere/"], []),
        (["gemv", "--model", "mix"], ["mixtral-8x22b", "mixtral-8x7b"]),
        (["gemv", "--model", "c"], ["config.json"]),
        (["relayout", "--model", "sub/c"], ["sub/config.json"]),
        (["gemv", "--layout", ""], ["localized", "striped", "sharded:"]),
        (["gemv", "--engine", ""], ["ndp", "host-read"]),
        (["gemv", "--host-pattern", "s"], ["sequential", "sub/"]),
        (["gemv", "--host-pattern", "my"], ["my trace.gz"]),
        (["dram", "--refresh", ""], ["all-bank", "elastic", "none", "per-bank", "same-bank", "staggered"]),
        (["dram", "--standard", "D"], ["DDR4", "DDR5"]),
        (["dram", "--org", "DDR5_32"], ["DDR5_32Gb_x4", "DDR5_32Gb_x8", "DDR5_32Gb_x16"]),
        (["dram", "--standard", "DDR4", "--timing", "DDR5"], []),
        (["check", "--timing", "DDR5_4800"], ["DDR5_4800AN", "DDR5_4800B", "DDR5_4800BN", "DDR5_4800C"]),
        (["dram", "--format", "ram"], ["ramulator1", "ramulator2", "ramulator2-vector"]),
        (["dram", "--commands-format", "drampower"], ["drampower", "drampower5"]),
        (["bench", "--row", "expert"], ["expert_trimoe", "expert_edge", "experts"]),
        (["moe", "--policy", "mon"], ["monde"]),
        (["moe", "--routing", "sk"], ["skewed"]),
        (["sweep", "re"], ["relayout"]),
        (["sweep", "m"], ["moe", "mine.yaml"]),
        (["sweep", "gemv", "--mod"], ["--model"]),
        (["sweep", "gemv", "--vary", "to"], ["tokens="]),
        (["sweep", "moe", "--vary", "policy=mon"], ["policy=monde"]),
        (["sweep", "gemv", "--vary", "dimm.r"], ["dimm.ranks="]),
        (["sweep", "gemv", "--baseline", "dram.refresh=n"], ["dram.refresh=none"]),
        (["optimize", "mi"], ["mine.yaml"]),
        (["list", "re"], ["request-formats"]),
        (["routing", "d"], ["describe"]),
        (["routing", "generate", "popularity:o"], ["popularity:olmoe-1b-7b"]),
        (["show", "sch"], ["schema"]),
        (["show", "hw", "s"], ["sub/"]),
        (["show", "part", "rtx-508"], ["rtx-5080"]),
        (["gemv", "--set", "gpu.part=rtx-509"], ["gpu.part=rtx-5090"]),
        (
            ["gemv", "--set", "host.memory.part=ddr5-5"],
            [f"host.memory.part=ddr5-5{rate}00" for rate in (2, 6)],
        ),
        (["gemv", "--set", "pcie.part=m"], ["pcie.part=mine.yaml"]),
        (["show", "org", "DDR4_2Gb_x1"], ["DDR4_2Gb_x16"]),
        (["show", "schema", ""], ["hw"]),
        (["show", "layout", "sh"], ["sharded:"]),
        (["show", "processor", ""], ["gpu", "cpu"]),
        (["show", "nothing", ""], []),
        (["predict", "--cpu", "epyc-935"], ["epyc-9354", "epyc-9355"]),
        (["predict", "--memory", "ddr5-48"], ["ddr5-4800x"]),
        (["predict", "--gpu", "rtx-508"], ["rtx-5080"]),
        (["predict", "--gpu", "no"], ["none"]),
        (["predict", "--program", "kt"], ["ktransformers", "ktransformers-amx"]),
        (
            ["gemv", "--set", "dimm."],
            ["dimm.command_bus=", "dimm.count=", "dimm.ranks=", "dimm.subchannels="],
        ),
        (
            ["gemv", "--set", "dram.refresh="],
            [
                f"dram.refresh={m}"
                for m in ("all-bank", "elastic", "none", "per-bank", "same-bank", "staggered")
            ],
        ),
        (["gemv", "--set", "dram.scheduler=FRFCFS-"], ["dram.scheduler=FRFCFS-RowHit"]),
        (["gemv", "--set", "dram.nCCDL_W"], ["dram.nCCDL_WR=", "dram.nCCDL_WR_L="]),
        (["gemv", "--set", "ndp.gemv=t"], ["ndp.gemv=trimoe_gemv"]),
        (["gemv", "--set", "dimm.ranks="], []),
        (
            ["gemv", "--set", "dram.timing=DDR5_3200"],
            [f"dram.timing=DDR5_3200{bin_}" for bin_ in ("AN", "B", "BN", "C")],
        ),
        (["dram", "--set", "nRCD"], ["nRCD=", "nRCDRD=", "nRCDWR=", "nRCDr=", "nRCDw="]),
        (["dram", "--hw", "trimoe", "--set", "dimm.r"], ["dimm.ranks="]),
        (["nothing", "--hw", "t"], []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_shell_is_offered(words, offered):
    assert sorted(complete(*words)) == sorted(offered)


@pytest.mark.parametrize(
    "words", [["gemv", "--json", "x"], ["dram", ""], ["check", "c"], ["import", "--out", ""]]
)
def test_other_files_are_left_to_the_shell(words):
    shell = ShellComplete(cli, {}, "ndpsim", "_NDPSIM_COMPLETE")
    (item,) = shell.get_completions(words[:-1], words[-1])
    assert (item.type, item.value) == ("file", words[-1])


def test_every_key_that_is_offered_is_a_key_of_hardware():
    from ndpsim.config import load_hardware
    from ndpsim.config.keys import field_at, leaves, section_of
    from ndpsim.config.system import System

    offered = [key.removesuffix("=") for key in complete("gemv", "--set", "")]
    assert all(field_at(tuple(key.split("."))) is not None for key in offered)
    assert len(set(offered)) == len(offered)
    for name in ("trimoe", "edge", "cxl"):
        keys = {".".join(path) for path, _ in leaves(load_hardware(name).system)}
        assert {key for key in keys if not key.startswith("dram.overrides.")} <= set(offered)
    sections = {key for key, field in System.model_fields.items() if section_of(field) is not None}
    assert not sections & set(offered)


def test_names_that_stand_for_files_are_those_of_their_homes():
    """Names of files, which completion and ``list`` use to avoid imports, equal those of their homes."""
    from ndpsim.cli.names import NAMES
    from ndpsim.dimm.arbitrations import NAMES as ARBITRATIONS
    from ndpsim.dimm.link import TOPOLOGIES
    from ndpsim.dram.traces import command_forms, request_formats
    from ndpsim.policies.choose import policy_names
    from ndpsim.workload.routing import routing_formats

    assert NAMES["policies"]() == policy_names()
    assert NAMES["command-forms"]() == sorted(command_forms())
    assert NAMES["request-formats"]() == sorted(request_formats())
    assert NAMES["routing-formats"]() == list(routing_formats())
    assert sorted(complete("gemv", "--arbitration", "")) == sorted(ARBITRATIONS)
    assert sorted(complete("relayout", "--topology", "")) == sorted((*TOPOLOGIES, "groups", "all"))


def tables() -> dict[str, Table]:
    """The parameters of all commands, by the words of the command."""
    context = click.Context(cli)
    found = {}
    for name in COMMANDS:
        command = cli.get_command(context, name)
        for within in (None, *getattr(command, "commands", {})):
            one = command if within is None else command.commands[within]
            if hasattr(one, "table"):
                found[" ".join(filter(None, [name, within]))] = one.table
    return found | {"sweep moe": cli.get_command(context, "sweep").get_command(context, "moe").table}


@pytest.mark.parametrize("command", tables())
def test_every_option_whose_value_has_a_name_is_completed(command):
    for one in tables()[command].values():
        if one.form in ("NAME", "NAME|FILE", "FILE") and one.name not in ("name", "x", "y"):
            assert one.names or one.files or isinstance(one.kind, Choice), one.name


@pytest.mark.parametrize(
    "words",
    [
        ["gemv", "--set", "dram."],
        ["sweep", "gemv", "--vary", "to"],
        ["predict", "--program", ""],
    ],
    ids=" ".join,
)
def test_completing_imports_nothing_that_takes_its_time(words):
    code = f"""
import sys
from click.shell_completion import ShellComplete
from ndpsim.cli.main import cli
assert ShellComplete(cli, {{}}, "ndpsim", "_NDPSIM_COMPLETE").get_completions({words[:-1]!r}, {words[-1]!r})
print(*{{"numba", "pydantic", "matplotlib", "yaml"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# Shells


def answer(shell: str, monkeypatch, words: str, place: int) -> tuple[list[str], str]:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(place))
    return get_completion_class(shell)(cli, {}, "ndpsim", "_NDPSIM_COMPLETE").get_completion_args()


@pytest.mark.parametrize(
    ("words", "before", "typed"),
    [
        (["ndpsim", "gemv", "--set", "dram.refresh", "=", "no"], ["gemv", "--set"], "dram.refresh=no"),
        (["ndpsim", "gemv", "--set", "dram.refresh", "="], ["gemv", "--set"], "dram.refresh="),
        (["ndpsim", "gemv", "--layout", "sharded", ":", "4", ""], ["gemv", "--layout", "sharded:4"], ""),
        (["ndpsim", "gemv", "--hw", "'my fi"], ["gemv", "--hw"], "my fi"),
        (["ndpsim", "gemv", "--hw", "my\\ fi"], ["gemv", "--hw"], "my fi"),
        (["ndpsim", ""], [], ""),
    ],
)
def test_bash_words_that_it_took_apart_are_one_again(words, before, typed, monkeypatch):
    assert answer("bash", monkeypatch, "\n".join(words), len(words) - 1) == (before, typed)


def bash(line: str, folder: Path) -> list[str]:
    """The completions of the last word by bash itself, after the line from the help."""
    (switch,) = [line for line in help_of().splitlines() if line.split()[:1] == ["bash"]]
    script = f"""
PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH
{switch.strip().removeprefix("bash").strip()}
complete -p ndpsim >&2
compopt() {{ local IFS=" "; echo "option $*"; }}
# As readline takes a line apart: at blanks, and "=" and ":" are words of their own.
COMP_WORDS=({" ".join(shlex.quote(word) for word in taken_apart(line))})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_ndpsim_completion ndpsim "${{COMP_WORDS[-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stderr == "complete -o nosort -F _ndpsim_completion ndpsim\n"
    return [offered for offered in done.stdout.splitlines() if offered]


def taken_apart(line: str) -> list[str]:
    words = line.replace("=", " = ").replace(":", " : ").split(" ")
    return [word for word in words[:-1] if word] + ([words[-1]] if words[-1] or line[-1] not in "=:" else [])


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ndpsim gemv --hw tri", ["trimoe"]),
        ("ndpsim gemv --set dram.scheduler=FRFCFS-", ["FRFCFS-RowHit"]),
        ("ndpsim gemv --set dram.row_policy=", ["open", "closed-cap"]),
        ("ndpsim gemv --set dimm.su", ["option -o nospace", "dimm.subchannels="]),
        ("ndpsim gemv --layout sh", ["option -o nospace", "sharded:"]),
        ("ndpsim gemv --layout sharded:4 --eng", ["--engine"]),
        ("ndpsim gemv --host-pattern my", ["my\\ trace.gz"]),
        ("ndpsim check c", ["option -o default"]),
        ("ndpsim nothing --h", ["--help"]),
    ],
)
def test_bash_completes(folder, line, offered):
    assert bash(line, folder) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_for_each_shell_prints_its_script(shell, capsys, monkeypatch):
    monkeypatch.setenv("_NDPSIM_COMPLETE", f"{shell}_source")
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 0
    assert "_NDPSIM_COMPLETE=" + shell + "_complete" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_an_option_and_its_value_in_one_word_are_completed_as_one(shell):
    completes = get_completion_class(shell)(cli, {}, "ndpsim", "_NDPSIM_COMPLETE")
    assert [item.value for item in completes.get_completions(["gemv"], "--hw=tri")] == ["--hw=trimoe"]
    assert [item.value for item in completes.get_completions(["gemv"], "--set=dimm.r")] == [
        "--set=dimm.ranks="
    ]
    assert [item.value for item in completes.get_completions(["gemv", "--hw"], "tri")] == ["trimoe"]


def test_zsh_puts_no_blank_after_what_goes_on():
    source = get_completion_class("zsh").source_template
    assert "-S '' -- ${(M)completions:#*[=:/]}" in source


# Help


def help_of(*command: str) -> str:
    context = cli.make_context("ndpsim", [], resilient_parsing=True)
    for name in command:
        command = cli.get_command(context, name)
        context = click.Context(command, context, info_name=name, **command.context_settings)
    return context.command.get_help(context)


def examples_of(command: str) -> list[list[str]]:
    lines = help_of(command).replace(" \\\n", "").splitlines()
    assert lines[:3] == [lines[0], "", "Examples:"]
    return [shlex.split(line) for line in lines[3 : lines.index("", 3)]]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_two_examples_and_tells_once_how_completion_is_switched_on(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    examples = examples_of(command)
    assert len(examples) == 2
    for example in examples:
        assert example[:2] == ["ndpsim", command]
        cli.get_command(click.Context(cli), command).make_context(command, example[2:])
    assert "_NDPSIM_COMPLETE" not in help_of(command)
    assert [line.split()[0] for line in help_of().splitlines()[-3:]] == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("command", ["list", "check"])
def test_the_examples_run(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("commands.csv").write_text("clock,command,rank,bankgroup,bank,row,column\n0,ACT,0,0,0,1,-1\n")
    for example in examples_of(command):
        with pytest.raises(SystemExit) as caught:
            main(example[1:])
        assert caught.value.code in (0, None)


@pytest.mark.parametrize("command", [None, *COMMANDS])
@pytest.mark.parametrize("columns", [60])
def test_help_fits_and_breaks_no_option_in_two(command, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = help_of(*filter(None, [command]))
    for line in text.splitlines():
        assert len(line) <= columns or len(line.split()) == 1, line
        assert line == line.rstrip()
        assert not re.search(r"\w-$", line)
    for parameter in cli.get_command(click.Context(cli), command).params if command else ():
        if isinstance(parameter, click.Option):
            assert re.search(rf"\n  (-\w, )?{max(parameter.opts, key=len)}", text)


def test_every_option_has_its_section():
    assert all(one.section or one.positional for table in tables().values() for one in table.values())
