"""Every command of README.md and docs/ runs with the shown output; every Python block runs."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import pytest

from builders.swept_fake import run_here
from calls import call
from docs_commands import (
    PAGES,
    ROOT,
    Command,
    all_commands,
    blocks,
    commands_of,
    differs,
    named_file,
    without,
    words_of,
)
from ndpsim.cli.main import cli

# Commands that are not run here, by their beginnings, with reasons.
NOT_RUN = {
    "python3 -m venv": "installs; .ci/run runs the line with [test]",
    "python3 -m pip": "installs",
    "pip install": "installs",
    ". .venv/bin/activate": "is for the reader's shell",
    "mkdir -p out": "is made in the folder of every command",
    ".venv/bin/ndpsim": "is the installed command, which is run by its bare name",
    ".venv-test/bin/pytest": "runs the tests",
    ".venv/bin/pip": "installs",
    "ndpsim rtl": "needs Yosys; see test_rtl.py",
    "ndpsim gemv --rtl": "needs Yosys, a compiler and a unit of the reader's; see test_rtl.py",
    "ndpsim bench": "measures every row for minutes; see test_bench.py",
    "ndpsim cache clear": "would have the kernels of all other tests compiled anew; see test_caching.py",
}
RUN_ALL_THE_SAME = ("ndpsim bench --row stream", "ndpsim bench --row trace")

# Commands that take long, by their beginnings: another command of a page covers the same.
LONG = (
    "ndpsim bench --row stream_lpddr5",
    "ndpsim gemv --commands all.csv.gz",
    "ndpsim gemv --hw hbm3.yaml",
    "ndpsim gemv --hw trimoe --model qwen3-30b-a3b --refresh-phases 4",
    "ndpsim gemv --plot expert.svg",
    "ndpsim gemv --tokens 8 --plot eight.png",
    "ndpsim gemv --tokens 8 --plot out/eight.png",
    "ndpsim gemv --tokens 8 --report out/expert.html",
    "ndpsim serve --model qwen3-30b-a3b --requests poisson:requests=600",
    "ndpsim validate cache-mixtral-speedup-best",
    "ndpsim validate cxl-decode-largest",
    "ndpsim validate dali-prefill-over-llama-cpp",
    "ndpsim validate edge-dimm-bandwidth --set",
    "ndpsim validate edge-end-to-end-mean",
    "ndpsim validate trimoe-speedup-most",
    "ndpsim sweep gemv --vary tokens=1,8,64 --vary dimm.ranks=1,2,4 -o out",
    "ndpsim moe --hw cxl --model mixtral-8x7b --policy cxl --policy monde",
    "ndpsim moe --hw dali-7532-3090 --model mixtral-8x7b --policy all",
    "ndpsim moe --hw edge",
    "ndpsim moe --model deepseek-v2 --batch 128",
    "ndpsim optimize examples/optimize/cheapest_trimoe.yaml",
    "ndpsim predict --cpu ryzen-9-7950x --memory ddr5-5200x2 --gpu rtx-4080",
    "ndpsim relayout --experts 4 --bits 4",
    "ndpsim relayout --experts 4 --from localized --to striped --topology all --plot",
    "ndpsim routing describe skewed --model deepseek-v2 --plot",
    "ndpsim show layout striped --plot",
    "ndpsim sweep examples/edge_dimm_count.yaml",
    "ndpsim sweep examples/trimoe_ndp_count.yaml",
    "ndpsim sweep gemv --model mixtral-8x7b",
    "ndpsim sweep moe --hw dali-7532-3090",
    "ndpsim sweep serve --requests examples/requests.csv --vary rate=1,4 --vary policy=trimoe,balance",
    "ndpsim validate cxl-8x7b-ndp-2bit --sensitivity",
)

# Commands without a shown output run whole models and relayouts in a smaller form: with these options after
# their own, of which the last counts.
SMALL_MODEL = ("--model", "small.json", "--batch", "16", "--steps", "2")
SMALL_EXPERT = ("--shape", "512,256")
SMALL_SERVING = (
    *("--model", "small.json", "--max-batch", "16", "--max-tokens", "16"),
    *("--requests", "poisson:rate=2,requests=4,input_tokens=16,output_tokens=3"),
)

SMALL_CONFIG = """{
  "model_type": "mixtral", "hidden_size": 256, "intermediate_size": 128, "num_local_experts": 16,
  "num_experts_per_tok": 4, "num_hidden_layers": 16, "vocab_size": 1000, "num_attention_heads": 8,
  "num_key_value_heads": 8, "hidden_act": "silu"
}"""


def smaller(words: list[str]) -> list[str]:
    """The smaller form of a command without a shown output."""
    if words[0] == "moe":
        small = [*SMALL_MODEL]
        if "--prompt" in words:
            small += ["--prompt", "16"]
        if "--check-layer" in words:  # of so small a layer a few clocks are a large share
            small += ["--check-layer", "1,12", "--check-limit", "1"]
        words = [*without(words, small[::2]), *small]
    elif words[0] == "predict":
        # DIMMs with as many ranks as the whole model needs, for which other tests compile the kernels, too.
        small = ("--model", "small.json", "--generated", "8", "--set", "dimm.ranks=2")
        words = [*without(words, ["--model"]), *small]
    elif "--attention" in words:
        pass  # small as it is, and of a model and a machine that belong together
    elif words[0] == "serve" or words[:2] == ["sweep", "serve"]:
        words = [*without(words, SMALL_SERVING[::2]), *SMALL_SERVING]
    elif words[0] == "validate":  # test_validate.py has the exact claims; the others take minutes
        papers = ("trimoe", "edge", "cxl", "cache", "dali", "serving", "llmservingsim")
        options = [word for word in words[1:] if word not in papers]
        words = ["validate", "trimoe-link-bandwidth", *options]
    elif words[0] == "sweep" and words[1].startswith("examples/"):
        words = [*words, *_first_point(words[1])]
    elif words[0] == "optimize":
        small = ["model=small.json", *(["batch=4", "steps=1"] if "cheapest" in words[1] else [])]
        words = [*words, "--runs", "3", *(word for text in small for word in ("--set", text))]
    elif words[0] == "relayout" and "--model" not in words and "--shape" not in words:
        words = [*words, *SMALL_EXPERT]
    return words


def _first_point(example: str) -> list[str]:
    """Options that reduce an example to its first point, with a small model; test_docs_pages.py has the others."""
    from ndpsim.studies.sweeps.file import read_definition

    definition = read_definition(ROOT / example)
    small = {"model": "small.json"}
    if definition.command == "moe":
        small |= {"batch": "4", "steps": "1", "routing": "skewed"} | (
            {"prompt": "4"} if "edge" in example else {}
        )
    varied = {key: f"{small.pop(key, values[0])};" for key, values in definition.varied.items()}
    given = (f"{key}={value}" for key, value in small.items())
    return [
        *(word for key, value in varied.items() for word in ("--vary", f"{key}={value}")),
        *(word for text in given for word in ("--set", text)),
    ]


def done(*words: str) -> None:
    status, _, err = call(*words)
    assert status == 0, err


def _dram_commands() -> None:
    words = ("--ranks", "4", "--set", "nCL=42", "--commands", "commands.csv")
    done("dram", "examples/requests.trace", *words)


# Files that commands read and earlier commands of a page write, by name.
FILES: dict[str, Callable[[], object]] = {
    "lane.csv.gz": lambda: done("gemv", "--commands", "lane.csv.gz", "--lane", "0"),
    "commands.csv": lambda: _dram_commands(),
    "log.jsonl.gz": lambda: done("moe", "--log", "log.jsonl.gz", *SMALL_MODEL),
    "bursts.csv": lambda: done("requests", "generate", "gamma", "-o", "bursts.csv"),
    "units.csv": lambda: done(
        *("pim", "examples/banks/attacc_attention.csv", "--hw", "attacc", "--commands", "units.csv")
    ),
    "trace.npz": lambda: done("routing", "generate", "skewed", *SMALL_MODEL, "-o", "trace.npz"),
}


@cache
def page_files() -> dict[str, str]:
    """Files with their full text in pages, by name."""
    texts = (page.read_text(encoding="utf-8") for page in PAGES)
    given = ((named_file(block), block.text) for text in texts for block in blocks(text))
    return {name: text for name, text in given if name is not None}


def prepare(words: list[str], output_of: set[str]) -> None:
    """Create the files that `words` name in the current folder."""
    for name in ("hwconfigs", "rtl_params", "examples"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, name)
    Path("out").mkdir(exist_ok=True)
    Path("small.json").write_text(SMALL_CONFIG)
    given = page_files()
    for word in words:
        name = next((name for name in (*FILES, *given) if re.split(r"[:=]", word)[0] == name), None)
        if name is None or name in output_of or Path(name).exists():
            continue
        FILES[name]() if name in FILES else Path(name).write_text(given[name])


def outputs(words: list[str]) -> set[str]:
    """The files that a command writes."""
    writing = (
        "--plot",
        "--plot-commands",
        "--json",
        "--timeline",
        "--commands",
        "--log",
        "-o",
        "--out",
        "--report",
    )
    return {after for word, after in pairwise(words) if word in writing and after != "-"}


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from ndpsim.studies.sweeps import run as sweeps

    monkeypatch.setattr(sweeps, "run_locally", run_here)  # test_sweep_processes.py has the processes
    return here


def to_run() -> list[Command]:
    return [command for command in all_commands() if reason_not_to_run(command.line) is None]


def status_of(command: Command) -> int:
    """The exit status that a page shows, or 0."""
    shown = "".join(command.shown)
    if "ndpsim: error" in shown:
        return 2
    return int("fails the check" in shown or " lacks for " in shown)


def reason_not_to_run(line: str) -> str | None:
    """The reason why a command of a page is not run here; None if it is run."""
    if line.startswith(RUN_ALL_THE_SAME):
        return None
    if {Path(name).stem for name in page_files()} & set(line.split()):
        return "names what the reader has added to the package; see test_adding.py"
    return next((reason for start, reason in NOT_RUN.items() if line.startswith(start)), None)


RUNS = [
    pytest.param(command, marks=[pytest.mark.long] if command.line.startswith(LONG) else [], id=command.line)
    for command in to_run()
]


@pytest.mark.parametrize("command", RUNS)
def test_command(command, folder, request):
    assert command.line.startswith("ndpsim"), f"{command.pages}: what is it? NOT_RUN takes what cannot be run"
    words = words_of(command.line)
    written = outputs(words)
    if command.shown:
        request.getfixturevalue("plan_of_users")
    else:
        words = smaller(words)
    prepare(words, written)
    status, out, err = call(*words)
    assert status == status_of(command), f"{command.pages}: {err}"
    for name in written:
        assert Path(name).exists(), f"{command.pages}: {name} was not written"
    for shown in command.shown:
        line = differs(shown, out or err)
        assert line is None, f"{command.pages} show {line!r}; printed is\n{out or err}"


PYTHON_PAGES = [page for page in PAGES if any(b.language == "python" for b in blocks(page.read_text()))]


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run_in_order(page, folder):
    names: dict[str, object] = {}
    text = page.read_text(encoding="utf-8")
    for name, content in page_files().items():
        Path(name).write_text(content)
    for block in blocks(text):
        if block.language == "python" and named_file(block) is None:
            with redirect_stdout(io.StringIO()):
                exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_only_files_that_are_in_the_checkout_or_on_a_page_or_written_by_a_command_before(page):
    there = set(page_files())
    for line, _ in commands_of(page.read_text(encoding="utf-8")):
        if reason_not_to_run(line) is None:
            words = words_of(line)
            there |= outputs(words)
            named = (re.split(r"[:=]", word)[0] for word in words)
            read = [
                name for name in named if re.search(r"\.(trace|csv|gz|npz|npy|jsonl?|ini|ya?ml|py)$", name)
            ]
            assert [name for name in read if name not in there and not (ROOT / name).is_file()] == [], line


def test_every_command_is_on_a_page():
    named = {command.line.split()[1] for command in to_run()}
    assert named >= set(cli.list_commands(click.Context(cli))) - {"compare", "rtl"}  # Ramulator 2.1, Yosys
