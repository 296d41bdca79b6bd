"""No output replaces an input of the same call, whatever names and links are given for both."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from calls import refused_call, said
from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.base.files import ensure_writable, open_plain_or_gzip, replacing
from ndpsim.base.inputs import inputs_protected, note_input
from ndpsim.base.text_files import first_bytes
from ndpsim.config import data_path, load_hardware
from ndpsim.config.nodes import read_text
from ndpsim.dram.traces import read_commands, write_commands
from ndpsim.policies.choose import choose_policy
from ndpsim.studies.sweeps.parameters import file_digests
from ndpsim.workload.models import load_model
from ndpsim.workload.routing.arrays import read_npy, read_npz
from ndpsim.workload.routing.tensors import read_saved

HEADER = "clock,command,rank,bankgroup,bank,row,column\n"
PRESET = "--standard DDR5 --org DDR5_16Gb_x8 --timing DDR5_4800AN"
SMALL = "gemv --shape 64,64"
_LINES = data_path("hwconfigs", "trimoe").read_text().splitlines()
_UNIT_LINE = 1 + next(n for n, line in enumerate(_LINES) if "gemv: trimoe_gemv" in line)


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an input of every kind, by more names than one; nothing is simulated."""
    hardware = data_path("hwconfigs", "trimoe").read_text()
    assert "gemv: trimoe_gemv" in hardware
    (here / "hw.yaml").write_text(hardware.replace("gemv: trimoe_gemv", "gemv: ./unit.yaml"))
    (here / "unit.yaml").write_text(data_path("rtl_params", "trimoe_gemv").read_text())
    (here / "model").mkdir()
    config = '{"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_local_experts": 2, "num_experts_per_tok": 1}'
    (here / "model" / "config.json").write_text(config)
    (here / "t").write_text("LD 0x0\nST 0x40\n")
    (here / "c.csv").write_text(HEADER)
    (here / "in.ini").write_text("[dram_structure]\nprotocol = DDR4\n")
    (here / "soft").symlink_to("hw.yaml")
    (here / "folder").symlink_to("model")
    os.link(here / "t", here / "hard")

    def simulated(*arguments: object, **options: object) -> None:
        raise AssertionError("simulated before the clash was found")

    monkeypatch.setattr("ndpsim.simulate.lane.run_channel", simulated)
    monkeypatch.setattr("ndpsim.simulate.trace.ThreadPoolExecutor", simulated)
    return here


@pytest.mark.parametrize(
    ("call", "option", "read"),
    [
        (f"{SMALL} --hw hw.yaml --json hw.yaml", "--json", "hw.yaml"),
        (f"{SMALL} --hw hw.yaml --json soft", "--json", "hw.yaml"),
        (f"{SMALL} --hw hw.yaml --timeline model/../hw.yaml", "--timeline", "hw.yaml"),
        (f"{SMALL} --hw hw.yaml --plot unit.yaml", "--plot", "unit.yaml"),
        (f"{SMALL} --hw hw.yaml --commands unit.yaml", "--commands", "unit.yaml"),
        ("dram t --report hard", "--report", "t"),
        (f"{SMALL} --set ndp.gemv=./unit.yaml --json unit.yaml", "--json", "unit.yaml"),
        ("gemv --model model --json model/config.json", "--json", "model/config.json"),
        (f"{SMALL} --engine host-read --hw hw.yaml --json hw.yaml", "--json", "hw.yaml"),
        ("relayout --model model --commands folder/config.json", "--commands", "model/config.json"),
        ("dram hard --plot t", "--plot", "hard"),
        ("dram t --hw hw.yaml --json hw.yaml", "--json", "hw.yaml"),
        ("compare ramulator t --json t", "--json", "t"),
        (f"check c.csv {PRESET} --json c.csv", "--json", "c.csv"),
        ("import in.ini --out in.ini --force", "--out", "in.ini"),
        ("show hw ./hw.yaml --json hw.yaml", "--json", "hw.yaml"),
        ("show model model --json model/config.json", "--json", "model/config.json"),
        ("show layout striped --hw hw.yaml --json soft", "--json", "hw.yaml"),
    ],
)
def test_an_output_that_is_an_input_is_refused_before_any_work(folder, monkeypatch, call, option, read):
    monkeypatch.setattr("ndpsim.report.pictures.canvas.check_format", lambda path: "png")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    place = f"hw.yaml:{_UNIT_LINE} ndp.gemv" if read == "unit.yaml" else option
    place = "--set ndp.gemv" if "--set" in call else place
    assert refused_call(*call.split()) == f"unwritable {place}"
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_what_an_earlier_call_has_read_is_an_input_of_the_next_as_well(folder):
    bundled = data_path("hwconfigs", "trimoe")
    load_hardware("trimoe")  # from now on it need not be opened
    assert refused_call(*f"{SMALL} --json {bundled}".split()) == "unwritable --json"


def test_a_later_call_may_write_what_an_earlier_one_read(folder):
    (folder / "c.csv").write_text(f"{HEADER}9,ACT,0,0,0,0,-1\n")
    for words in (
        f"check c.csv {PRESET} --json a.json",
        "show schema hw --json c.csv",
        "show schema hw --json a.json",
    ):
        said(*words.split())
    assert (folder / "c.csv").read_bytes() == (folder / "a.json").read_bytes()


def test_python_may_write_back_what_it_read(folder):
    write_commands("c.csv", read_commands("c.csv"))
    assert (folder / "c.csv").read_text() == HEADER


# Every place where a file that the user names is opened; most are reached by several commands.
READERS = {
    "text, plain or gzip": first_bytes,
    "YAML": read_text,
    "a model": lambda path: load_model(str(path)),
    "an array": read_npy,
    "arrays": lambda path: read_npz(path, bool),
    "tensors": read_saved,
    "a policy": lambda path: choose_policy(str(path)),
    "what a sweep varies": file_digests,
}


@pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))
@pytest.mark.parametrize("first", ["read", "written"])
def test_whoever_reads_a_file_it_is_an_input(folder, read, first):
    Path("some.py").write_text("[")  # content that nobody reads to its end
    os.link("some.py", "linked")
    with inputs_protected():
        if first == "written":
            ensure_writable("linked", "--json")
            with refused("unwritable --json"):
                read(Path("some.py"))
        with suppress(InputError):
            read(Path("some.py"))
        with refused("unwritable --plot"):
            ensure_writable("linked", "--plot")


def test_devices_and_files_that_are_not_read_may_be_written(folder):
    with inputs_protected():
        ensure_writable("c.csv", "--plot")
        with open_plain_or_gzip(Path("/dev/null")), replacing("/dev/null") as file:
            file.write(b"a device is no file that could be lost")
        ensure_writable("c.csv", "--plot")


def test_a_file_that_becomes_an_input_meanwhile_is_not_replaced(folder):
    with inputs_protected(), refused("unwritable"), replacing("new") as file:
        file.write(b"new")
        os.link("t", "new")
        note_input("t")
    assert Path("new").read_text() == "LD 0x0\nST 0x40\n"


def test_an_output_on_the_file_of_standard_output_is_refused(folder, monkeypatch):
    monkeypatch.setattr(
        "ndpsim.base.files.os.stat", lambda file, **options: os.lstat("t" if file == 1 else file)
    )
    assert refused_call(*["show", "schema", "hw", "--json", "t"]) == "twice --json"
    assert refused_call(*["dram", "t"]) == "unwritable standard output"
