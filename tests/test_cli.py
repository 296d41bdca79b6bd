"""The command line from the user's side: output, streams and exit status."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import os
import re
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

import ndpsim
from calls import call, refused_call, said
from ndpsim.base.reported import quantities
from ndpsim.cli.main import main
from ndpsim.cli.names import NAMES
from ndpsim.config import data_path
from ndpsim.inference.processors import ExpertTime
from trace_events import trace_events

HEADER = ["clock", "command", "rank", "bankgroup", "bank", "row", "column"]


def strictly(text: str) -> Any:
    """Parse JSON without the NaN and Infinity that Python would accept."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suppress the notice about compiling kernels."""
    monkeypatch.setattr("ndpsim.cli.notices._Notices.emit", lambda self, record: None)
    monkeypatch.setattr("ndpsim.cli.notices._Notices.finish", lambda self: None)


@pytest.fixture
def no_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything is simulated, since mistakes must be found before."""

    def simulated(*arguments: object, **options: object) -> None:
        raise AssertionError("simulated before the mistake was found")

    monkeypatch.setattr("ndpsim.simulate.lane.run_channel", simulated)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


# The program itself


def test_an_unknown_command_is_refused_with_the_nearest():
    assert refused_call("gemw") == "unknown-name ? gemv"
    assert refused_call("zzz") == "unknown-name"


@pytest.mark.parametrize("command", [[], ["gemv"], ["list"], ["show"]])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(command, option):
    assert said(*command, option).startswith("Usage: ndpsim")


@pytest.mark.parametrize("command", [(), ("routing",), ("sweep",)])
def test_without_a_command_the_help_is_printed_as_help(command):
    done = call(*command)
    assert (done.status, done.err) == (0, "")
    assert done.out == said(*command, "--help")


class Full(io.StringIO):
    """A standard output on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "hw"],
        ["show", "hw", "trimoe"],
        ["gemv", "--shape", "64,64"],
        ["gemv", "--shape", "64,64", "--json", "-"],
    ],
    ids=" ".join,
)
def test_a_full_standard_output_is_said_in_one_line(arguments):
    err = io.StringIO()
    with redirect_stdout(Full()), redirect_stderr(err), pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code not in (0, None)
    assert err.getvalue().startswith("ndpsim: error: ")
    assert len(err.getvalue().splitlines()) == 1


def test_version():
    name, number = said("--version").replace(", version", "").split()
    assert name == "ndpsim"
    assert number[0].isdigit()


def test_an_interruption_is_said_and_leaves_nothing(folder, compiled, monkeypatch):
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ndpsim.simulate.lane.run_channel", interrupt)
    done = call("gemv", "--shape", "64,64", "--json", "a.json", "--commands", "c.csv", "--timeline", "t.json")
    assert (done.status, done.out, done.err.strip()) == (130, "", "ndpsim: interrupted")
    assert list(folder.iterdir()) == []


# list


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        ("hw", ["trimoe"]),
        ("rtl", ["trimoe_activation", "trimoe_gemv", "trimoe_relayout"]),
        ("models", ["deepseek-v2", "mixtral-8x7b", "qwen3-235b-a22b"]),
        ("layouts", ["localized"]),
        ("standards", ["DDR4", "DDR5"]),
        ("orgs", ["DDR4_8Gb_x8", "DDR5_32Gb_x8"]),
        ("timings", ["DDR4_3200AA", "DDR5_4800BN"]),
    ],
)
def test_list_prints_one_name_a_line(kind, some):
    names = said("list", kind).splitlines()
    assert set(some) <= set(names)
    assert len(set(names)) == len(names)
    assert all(name == name.strip() and " " not in name for name in names)


def test_list_of_everything_is_a_short_line_a_kind():
    *lines, last = said("list").splitlines()
    assert "ndpsim list KIND" in last
    assert max(map(len, lines)) <= 80
    for kind, line in zip(NAMES, lines, strict=True):
        names = NAMES[kind]()
        first, *rest = line.split()
        assert first == f"{kind}:"
        if rest[-1:] == ["more"]:
            *rest, _, more, _ = rest
            assert len(rest) + int(more) == len(names)
        assert rest == names[: len(rest)]
        assert rest


def test_list_of_policies_has_their_engines_what_they_need_and_their_papers():
    first, *rows = said("list", "policies").splitlines()
    assert first.split() == ["policy", "engines", "needs", "paper"]
    assert [row.split()[0] for row in rows] == list(NAMES["policies"]())
    assert any(re.match("monde +gpu ndp +ndp +Kim", row) for row in rows)
    assert any(re.match("klotski +gpu +- +Fang", row) for row in rows)


def test_list_of_something_else_is_refused():
    assert refused_call("list", "model") == "unknown-name WHAT ? models"


# show


def test_show_hw_says_value_unit_and_source():
    text = said("show", "hw", "trimoe")
    line = next(line for line in text.splitlines() if line.startswith("dram.overrides.nCL"))
    assert line.split(maxsplit=3) == ["dram.overrides.nCL", "40", "clocks", line.split(maxsplit=3)[3]]
    assert "Table 1" in line
    peak = next(line for line in text.splitlines() if line.startswith("derived.dimm_peak_inside"))
    assert peak.split()[1:3] == ["153.6", "GB/s"]


def test_show_hw_takes_changes():
    shown = strictly(
        said("show", "hw", "trimoe", "--set", "dimm.ranks=2", "--set", "dram.nCL=38", "--json", "-")
    )
    assert shown["dimm"]["ranks"] == 2
    assert shown["timings"]["nCL"] == 38
    assert shown["derived"]["lanes"] == 4
    assert shown["derived"]["dimm_peak_gbps"] == pytest.approx(76.8)
    text = said("show", "hw", "trimoe", "--set", "dimm.ranks=2")
    assert any("--set dimm.ranks=2" in line for line in text.splitlines() if line.startswith("dimm.ranks"))


def test_show_model_names_the_kinds_of_attention_with_their_layers():
    text = " ".join(said("show", "model", "gpt-oss-120b").split())
    # 8 heads of 64 keys and 64 values, 2 B each.
    assert (
        "attention 1 18 layers of gqa window of 128, each caches 2048 B a token, 128 tokens at most" in text
    )
    assert "attention 2 18 layers of gqa, each caches 2048 B a token (heads 64, kv_heads 8" in text
    shown = strictly(said("show", "model", "qwen3-next-80b-a3b", "--json", "-"))["attention_layers"]
    # 32 states of 128 x 128 numbers of 4 B, three tokens of 8192 channels of 2 B; 2 heads of 256.
    assert shown == [
        {
            "kind": "linear (gated delta net)",
            "layers": 36,
            "kv_bytes_per_token": 0,
            "kv_tokens": 0,
            "state_bytes": 2097152 + 49152,
        },
        {"kind": "gated gqa", "layers": 12, "kv_bytes_per_token": 2048, "kv_tokens": None, "state_bytes": 0},
    ]
    assert "attention 61 layers of mla, each caches 1152 B" in " ".join(
        said("show", "model", "deepseek-r1").split()
    )


def test_show_model():
    text = said("show", "model", "qwen3-235b-a22b")
    values = dict(line.split(maxsplit=1) for line in text.splitlines() if len(line.split()) > 1)
    assert values["hidden"].strip() == "4096"
    assert values["expert_intermediate"].strip() == "1536"
    shown = strictly(said("show", "model", "qwen3-235b-a22b", "--json", "-"))
    assert (shown["routed_experts"], shown["experts_per_token"], shown["layers"]) == (128, 8, 94)


def test_show_processor_says_how_long_an_expert_takes():
    lines = said("show", "processor", "gpu", "--model", "deepseek-v2", "--tokens", "1,512").splitlines()
    assert lines[0] == "One expert of deepseek-v2 on the GPU of trimoe: 45.00 MiB, roofline"
    labels = [of.label for of in quantities(ExpertTime).values() if of.label != "weights"]
    assert sorted(re.split("  +", lines[1])) == sorted(labels)
    # 47.19 MB at 0.8 x 2.04 TB/s and 18 us; 24.16 GFLOP at 0.7 x 819.6 TFLOPS and 18 us.
    assert lines[2].split()[:3] == ["1", "46.91", "µs"]
    assert lines[3].split()[:3] == ["512", "60.11", "µs"]
    assert len(lines) == 4
    cpu = said("show", "processor", "cpu", "--set", "host.cpu_added_tokens=0", "--tokens", "64")
    assert "host's memory channels" in cpu.splitlines()[-1]
    shown = strictly(said("show", "processor", "cpu", "--bits", "4", "--tokens", "1,2", "--json", "-"))
    assert [(one["tokens"], one["weight_bytes"]) for one in shown["expert_times"]] == [
        (1, 9437184),
        (2, 9437184),
    ]
    table = said("show", "processor", "gpu", "--model", "mixtral-8x7b", "--set", f"gpu.expert_times={TABLE}")
    assert "h100_mixtral-8x7b.csv: casys-kaist/LLMServingSim" in " ".join(table.split())
    assert "measured" in table


TABLE = "h100_mixtral-8x7b"


def test_show_org_and_timing():
    assert strictly(said("show", "org", "DDR5_16Gb_x8", "--json", "-")) == {
        "density_mb": 16384,
        "dq": 8,
        "bankgroups": 8,
        "banks_per_group": 4,
        "rows": 65536,
        "columns": 1024,
    }
    timing = strictly(said("show", "timing", "DDR5_4800AN", "--json", "-"))
    assert (timing["rate"], timing["nCL"], timing["tCK_ps"]) == (4800, 34, 1250 / 3)
    assert ["bankgroups", "8"] in [line.split() for line in said("show", "org", "DDR5_16Gb_x8").splitlines()]


def test_show_timing_has_every_timing_with_ns_both_rules_and_source():
    """DDR4-2400 (JESD79-4): tFAW of x4, x8, x16 is 16, 26, 36 clocks; CL 16 is 13.33 ns."""
    rows = [line.split() for line in said("show", "timing", "DDR4_2400R").splitlines()]
    assert rows[0][:1] == ["DDR4_2400R,"]
    assert [row[:3] for row in rows if row[0] == "nFAW"] == [
        ["nFAW", "x4", "16"], ["nFAW", "x8", "26"], ["nFAW", "x16", "36"]
    ]  # fmt: skip
    assert [row[:3] for row in rows if row[0] == "nCL"] == [["nCL", "16", "13.333"]]
    of_one = said("show", "timing", "DDR4_2400R", "--org", "DDR4_8Gb_x8", "--rules", "reference")
    assert ["nFAW", "26", "21.667"] in [line.split()[:3] for line in of_one.splitlines()]
    assert of_one.splitlines()[0].endswith("--rules reference")
    plain = strictly(said("show", "timing", "DDR4_2400R", "--org", "DDR4_8Gb_x8", "--json", "-"))
    device = ndpsim.resolve("DDR4", "DDR4_8Gb_x8", "DDR4_2400R")
    reference = ndpsim.resolve("DDR4", "DDR4_8Gb_x8", "DDR4_2400R", rules="reference")
    for row in plain["timings"]:
        assert (row["standard"], row["reference"]) == tuple(
            of.timings.get(row["name"]) for of in (device, reference)
        )
        assert row["ns"] == pytest.approx(float(row["standard"] * device.timing_clock_ps) / 1000)
        assert row["source"]
        assert plain[row["name"]] == row["standard"]
    assert {row["name"] for row in plain["timings"]} == set(device.timings) - {"rate", "tCK_ps"}


def test_a_trace_of_another_standard_names_it(folder):
    lines = "1,ACT,0,0,0,5,-1\n100,REFsb,0,-1,0,-1,-1\n"
    (folder / "c.csv").write_text(f"clock,command,rank,bankgroup,bank,row,column\n{lines}")
    (folder / "h.csv").write_text(
        "clock,command,pseudochannel,stack,bankgroup,bank,row,column\n1,ACT,0,0,0,0,5,-1\n"
    )
    ddr4 = "--standard", "DDR4", "--org", "DDR4_8Gb_x8", "--timing", "DDR4_3200AA"
    for file, expected in (("c.csv", "conflict c.csv"), ("h.csv", "form h.csv:1")):
        assert refused_call("check", file, *ddr4) == expected
        assert ("--standard DDR5" if file == "c.csv" else "--standard HBM3") in call("check", file, *ddr4).err
        assert refused_call("dram", file) == f"form {file}:1"
        assert "ndpsim check judges it" in call("dram", file).err


def test_show_schema_is_a_json_schema():
    schema = strictly(said("show", "schema", "hw"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "dimm" in schema["properties"]


def test_show_writes_a_file(folder):
    assert said("show", "timing", "DDR5_4800AN", "--json", "t.json") == ""
    assert strictly((folder / "t.json").read_text())["nCL"] == 34


def hardware_named(folder: Path, name: str) -> str:
    """A hardware file like trimoe with another name and title."""
    text = data_path("hwconfigs", "trimoe").read_text()
    text = re.sub(r"(?m)^(name|title):.*$", lambda line: f"{line[1]}: {json.dumps(name)}", text)
    (folder / "mine.yaml").write_text(text)
    return "./mine.yaml"


# Brackets are markup to rich, dollars are formulas to matplotlib.
@pytest.mark.parametrize("name", ["[/y]", "[bold]x", "$_$^", "a$", "\\"])
def test_names_are_printed_and_drawn_as_they_are(folder, compiled, name):
    file = hardware_named(folder, name)
    assert name in said("show", "hw", file).splitlines()[0]
    assert f" on {name}, " in said("gemv", "--hw", file, "--shape", "64,64", "--plot", "p.png")
    shape = {"hidden_size": 64, "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_experts": 4}
    (folder / f"{name.replace('/', '')}.json").write_text(json.dumps(shape | {"num_experts_per_tok": 2}))
    model = f"./{name.replace('/', '')}.json"
    assert model.removesuffix(".json").removeprefix("./") in said("show", "model", model)
    assert f"One expert of {model.removesuffix('.json').removeprefix('./')} (" in said(
        "gemv", "--model", model
    )


# gemv: refusals

OUTPUTS = ["--json", "--commands", "--plot", "--plot-commands", "--report", "--timeline"]


@pytest.mark.usefixtures("compiled", "no_simulation")
@pytest.mark.parametrize("option", OUTPUTS)
@pytest.mark.parametrize("target", ["none/out.png", "/dev/null/out.png"])
def test_gemv_refuses_an_output_it_cannot_write(folder, option, target):
    assert refused_call("gemv", "--shape", "64,64", option, target) == f"unwritable {option}"
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("compiled", "no_simulation")
def test_gemv_refuses_two_outputs_into_one_file(folder):
    outputs = ("--json", "same.json", "--timeline", "./same.json")
    assert refused_call("gemv", "--shape", "64,64", *outputs) == "twice --timeline"
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("compiled", "no_simulation")
@pytest.mark.parametrize("name", ["p.nothing", "p.csv"])
def test_gemv_refuses_a_picture_format_before_it_simulates(folder, name):
    others = ["--json", "a.json", "--commands", "c.csv", "--timeline", "t.json"]
    assert refused_call("gemv", "--shape", "64,64", *others, "--plot", name) == "unknown-name --plot"
    assert list(folder.iterdir()) == []


# gemv: results


class Outputs(NamedTuple):
    result: dict[str, Any]
    out: str
    err: str
    folder: Path


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """One simulation with all its outputs."""
    folder = tmp_path_factory.mktemp("outputs")
    files = {
        option: str(folder / name)
        for option, name in {
            "--commands": "all.csv",
            "--timeline": "time.json",
            "--plot": "picture.png",
            "--plot-commands": "commands.png",
        }.items()
    }
    done = call(
        "gemv", "--shape", "512,256", "--json", "-", *(part for pair in files.items() for part in pair)
    )
    assert done.status == 0, done.err
    return Outputs(strictly(done.out), done.out, done.err, folder)


def table(text: str) -> list[dict[str, str]]:
    rows = csv.DictReader(io.StringIO(text))
    assert rows.fieldnames == HEADER
    return list(rows)


def test_standard_output_is_one_json_object_and_nothing_else(outputs):
    value, end = json.JSONDecoder().raw_decode(outputs.out)
    assert isinstance(value, dict)
    assert outputs.out[end:] == "\n"
    assert all(line.startswith("ndpsim: ") for line in outputs.err.splitlines())  # compiling, at most


def test_nothing_else_is_written(outputs):
    names = ["all.csv", "commands.png", "picture.png", "time.json"]
    assert sorted(path.name for path in outputs.folder.iterdir()) == names
    for name in names[1:3]:
        assert (outputs.folder / name).read_bytes().startswith(b"\x89PNG\r\n")


def test_a_timeline_has_the_first_commands_of_each_lane_that_differs(outputs):
    """Each command of the first lane within 5 us is a slice, and each read a burst on the data bus."""
    events = trace_events(outputs.folder / "time.json")
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    lane = next(pid for pid, name in names.items() if name.startswith("lane 0"))
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X" and event["pid"] == lane]
    shown = Counter(
        (each["args"]["clock"], each["name"]) for each in spans if rows[each["tid"]] != "data bus"
    )
    commands = [row for row in table((outputs.folder / "all.csv").read_text()) if row["rank"] == "0"]
    within = [row for row in commands if int(row["clock"]) < 1 + 12_000]  # clocks of 0.41667 ns
    assert set(shown) == {(int(row["clock"]), row["command"]) for row in within}
    assert {"ACT", "RD", "REFab"} <= {name for _, name in shown}
    bursts = [each for each in spans if rows[each["tid"]] == "data bus"]
    assert len(bursts) == sum(row["command"] == "RD" for row in within)


def test_the_same_call_gives_the_same_result_and_files(outputs, folder):
    done = call(
        "gemv", "--shape", "512,256", "--json", "-", "--commands", "again.csv", "--timeline", "again.json"
    )
    again = strictly(done.out)
    untimed = {"wall_s": None, "compile_s": None}
    assert again | untimed == outputs.result | untimed
    assert (folder / "again.csv").read_bytes() == (outputs.folder / "all.csv").read_bytes()
    assert (folder / "again.json").read_bytes() == (outputs.folder / "time.json").read_bytes()


def test_commands_can_be_compressed(outputs, folder):
    assert call("gemv", "--shape", "512,256", "--commands", "all.csv.gz").status == 0
    assert gzip.decompress((folder / "all.csv.gz").read_bytes()) == (outputs.folder / "all.csv").read_bytes()


def test_a_model_of_ones_own(folder, compiled):
    shape = {
        "hidden_size": 64,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    }
    (folder / "mine.json").write_text(json.dumps(shape))
    result = strictly(said("gemv", "--model", "mine.json", "--json", "-"))
    assert result["config"]["model"] == "mine"
    assert result["weight_bytes"] == 3 * 64 * 32 * 2


def test_the_smallest_expert_leaves_lanes_empty(folder, compiled):
    result = strictly(said("gemv", "--shape", "1,1", "--commands", "c.csv", "--json", "-"))
    rows = table((folder / "c.csv").read_text())
    assert [row["rank"] for row in rows if row["command"] == "RD"] == ["0", "0"]
    assert result["commands"]["RD"] == 2
    said("gemv", "--shape", "1,1", "--commands", "c.csv", "--lane", "7")
    assert table((folder / "c.csv").read_text()) == []


def test_more_tokens_than_the_buffer_holds_are_tiled_and_read_again(compiled):
    # 256 KiB hold 170 tokens of (512 + 256) x 2 bytes.
    result = strictly(said("gemv", "--shape", "512,256", "--tokens", "200", "--json", "-"))
    assert result["token_tiles"] == [100, 100]
    assert result["commands"]["RD"] == 2 * 12288
