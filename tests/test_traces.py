"""Request traces: every format as its own simulator reads it, and every mistake in one line."""

from __future__ import annotations

import gzip
import random
import re
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ndpsim.dram.traces.reader
from mistakes import mistake, refused
from ndpsim.base.errors import InputError
from ndpsim.dram.traces import Requests, RequestStream, read_requests, request_formats, stream_requests
from ndpsim.dram.traces.chunks import whole_lines
from ndpsim.dram.traces.request_format import Field, RequestFormat

FORMATS = ("dramsim3", "dramsys", "ramulator1", "ramulator2", "ramulator2-vector")
LARGEST = 2**62 - 1
LONGEST = 65536  # bytes in a line


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "requests.trace"


def read(path: Path, data: bytes | str, name: str | None = None, chunk: int | None = None) -> Requests:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with mock.patch.object(ndpsim.dram.traces.reader, "_CHUNK", chunk or ndpsim.dram.traces.reader._CHUNK):
        return read_requests(path, name)


def rows(requests: Requests) -> list[tuple]:
    """(address or coordinates, write, cycle) of each request."""
    where = requests.place if requests.address is None else requests.address
    cycles = [None] * len(requests) if requests.cycle is None else requests.cycle.tolist()
    places = [tuple(place) if isinstance(place, list) else place for place in where.tolist()]
    return list(zip(places, requests.write.tolist(), cycles, strict=True))


def lines_of(requests: Requests) -> list[int]:
    return [requests.line(number) for number in range(len(requests))]


def refusal(path: Path, data: bytes | str, name: str | None = None, chunk: int | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        read(path, data, name, chunk)
    assert "\n" not in str(caught.value)
    return caught.value


# What the simulators and their documents show.

SHOWN = [
    ("ramulator2", "LD 0x12340\nST 4096\n", [(0x12340, 0, None), (4096, 1, None)]),
    (
        "ramulator2-vector",
        "R 0,0,1,3,9674,61\nW 1,2,3,0,65535,127\n",
        [((0, 0, 1, 3, 9674, 61), 0, None), ((1, 2, 3, 0, 65535, 127), 1, None)],
    ),
    ("ramulator1", "0x12345680 R\n0x4cbd56c0 W\n", [(0x12345680, 0, None), (0x4CBD56C0, 1, None)]),
    (
        "dramsim3",
        "0x2000D5C0 READ  30\n0x1FF96FC0 WRITE   160\n0x2000D600 READ  165\n",
        [(0x2000D5C0, 0, 30), (0x1FF96FC0, 1, 160), (0x2000D600, 0, 165)],
    ),
    (
        "dramsys",
        "# Comment lines begin with #\n# cycle: [(length)] command hex-address [hex-data]\n"
        "31: read 0x400140\n33: read 0x400160\n56: write 0x7fff8000 0x123456789abcdef0\n",
        [(0x400140, 0, 31), (0x400160, 0, 33), (0x7FFF8000, 1, 56)],
    ),
    ("dramsys", "0:\twrite\t0x0\n1:\twrite\t0x80\n", [(0, 1, 0), (0x80, 1, 1)]),
]


@pytest.mark.parametrize(("name", "text", "expected"), SHOWN)
@pytest.mark.parametrize("given_name", [True, False])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_what_the_simulators_show_is_read(file, name, text, expected, given_name, pack):
    requests = read(file, pack(text.encode()), name if given_name else None)
    assert rows(requests) == expected
    assert requests.format == name
    assert requests.file == str(file)


# As their own readers take it.

TAKEN = [
    ("ramulator2", "LD 0X1F", [(0x1F, 0, None)]),
    ("ramulator2", "LD 0012", [(12, 0, None)]),
    ("ramulator2", "LD 0xabCD", [(0xABCD, 0, None)]),
    ("ramulator1", "ff R", [(0xFF, 0, None)]),
    ("ramulator1", "10 R", [(0x10, 0, None)]),
    ("ramulator1", "0XfF W", [(0xFF, 1, None)]),
    ("dramsim3", "10 READ 10", [(0x10, 0, 10)]),
    ("dramsim3", "0x1 read 0\n0x2 write 0\n", [(1, 0, 0), (2, 1, 0)]),
    (
        "dramsim3",
        "0x1 P_MEM_RD 1\n0x2 P_FETCH 1\n0x3 P_MEM_WR 1\n0x4 BOFF 1\n",
        [(1, 0, 1), (2, 0, 1), (3, 1, 1), (4, 1, 1)],
    ),
    ("dramsys", "1: read ff", [(0xFF, 0, 1)]),
    ("dramsys", "1: write ff 0x00", [(0xFF, 1, 1)]),
    ("dramsys", "0001: read 0X0", [(0, 0, 1)]),
]


@pytest.mark.parametrize(("name", "text", "expected"), TAKEN)
def test_numbers_and_words_are_taken_as_by_their_own_reader(file, name, text, expected):
    requests = read(file, text)
    assert (requests.format, rows(requests)) == (name, expected)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ramulator2", "LD {}"),
        ("ramulator1", "{:#x} R"),
        ("dramsim3", "{:x} READ {}"),
        ("dramsys", "{}: read {:#x}"),
    ],
)
def test_the_largest_number_is_read_and_the_next_refused(file, name, text):
    kept = read(file, text.format(LARGEST, LARGEST), name)
    assert kept.address.tolist() == [LARGEST]
    for number in (LARGEST + 1, 2**64, 2**64 + 5, 16**30):
        error = refusal(file, f"{text.format(0, 0)}\n{text.format(number, number)}\n", name)
        assert mistake(error) == f"form {file.name}:2"


def test_the_largest_coordinate(file):
    assert read(file, "R 0,0,0,0,2147483647,0").place.tolist() == [[0, 0, 0, 0, 2**31 - 1, 0]]
    assert mistake(refusal(file, "R 0,0,0,0,2147483648,0")) == f"form {file.name}:1"


def test_types_are_those_promised(file):
    requests = read(file, "1: read 0x40\n")
    assert (requests.address.dtype, requests.write.dtype, requests.cycle.dtype) == (
        np.int64,
        np.int8,
        np.int64,
    )
    assert requests.place is None
    requests = read(file, "R 0,0,1,3,9674,61\n" * 3)
    assert requests.place.dtype == np.int32
    assert requests.place.shape == (3, 6)
    assert requests.address is None
    assert requests.cycle is None
    assert read(file, "LD 5").cycle is None


# Lines that hold no request, and the ends of lines.


def test_requests_of_no_file_have_no_line():
    assert Requests.of([64], [0]).line(0) is None


# What is refused.

REFUSED = [
    ("", "form requests.trace"),
    ("# nothing\n# at all", "form requests.trace"),
    ("LD 0x12340\nLX 4096\n", "form requests.trace:2"),
    ("LD 0x12340\nLD\n", "form requests.trace:2"),
    ("LD 0x12340\nLD 0x\n", "form requests.trace:2"),
    ("LD 0x12340\nLD 12a\n", "form requests.trace:2"),
    ("LD 0x12340\nLD 5\rLD 6\n", "form requests.trace:2"),
    ("LD 0x12340\nLD +5\n", "form requests.trace:2"),
    ("LD 0x12340\nLD 5\0\n", "form requests.trace:2"),
    ("LD 0x12340\nLDLDLDLDLD 5\n", "form requests.trace:2"),
    ("LD -5\n", "form requests.trace:1"),
    ("R 0,0,1,3,9674\n", "form requests.trace:1"),
    ("R 0,0,1,3, 9674,61\n", "form requests.trace:1"),
    ("R 0,0,1,3,-1,61\n", "form requests.trace:1"),
    ("0x10 R\n0x10\n", "form requests.trace:2"),
    ("0x10 R x\n", "form requests.trace:1"),
    ("0x10 READ -5\n", "form requests.trace:1"),
    ("0x10 READ 5\n0x10 xP_MEM_WR 5\n", "form requests.trace:2"),
    ("0x10 READ 30\n0x10 READ 20\n", "form requests.trace:2"),
    ("0x1 READ 5\n\n0x1 READ 5\n0x1 READ 4\n", "form requests.trace:4"),
    ("5: read 0x1\n5 read 0x1\n", "form requests.trace:2"),
    ("5: read 0x1 0x12\n", "form requests.trace:1"),
    ("5: write 0x1 12\n", "form requests.trace:1"),
    ("5: read 0x1\n-5: read 0x1\n", "form requests.trace:2"),
    ("1: read 0x1\n81: (128) read 0x400180\n", "form requests.trace:2"),
    ("LD 5\n0x5 R\n", "form requests.trace:2"),
    ("3 20734016\n", "form requests.trace:1"),
    ("\n# x\nfoo\n", "form requests.trace:3"),
    (b"\xff\xfeL\0D\0", "form requests.trace:1"),
    (b"\x7fELF\x02\x01\x01\0\0", "form requests.trace:1"),
    ("LD 5\n\x1b[31mred", "form requests.trace:2"),
    ("LD 5\n" + "x" * 200_000, "form requests.trace:2"),
    ("1: read 0x1\n# " + "x" * LONGEST, "form requests.trace:2"),
    ("LD 5" + " " * LONGEST, "form requests.trace:1"),
    ("1: write 0x1 0x" + "a" * LONGEST, "form requests.trace:1"),
]


@pytest.mark.parametrize(("data", "expected"), REFUSED)
@pytest.mark.parametrize("chunk", [5, 4 << 20])
def test_mistakes_are_told_with_file_and_line(file, data, expected, chunk):
    assert mistake(refusal(file, data, chunk=chunk)) == expected


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("LD 1\nLD 5\rLD 6\n", r"'LD 5\rLD 6'"),
        (b"\xff\xfeL\0D\0", r"'\xff\xfeL\x00D\x00'"),
        ("LD 5\n\x1b[31mred", r"'\x1b[31mred'"),
        ("LD 5\n" + "x" * 200_000, f"'{'x' * 40}'"),
    ],
)
def test_a_line_is_shown_in_part_and_without_control_characters(file, data, shown):
    assert shown in refusal(file, data).problem


def test_the_words_of_an_unknown_format_show_all_that_are_known(file):
    problem = refusal(file, "what is this").problem
    for item in request_formats().values():
        assert f"{item.name} '{item.example}'" in problem


def test_a_line_of_the_longest_length_is_read(file):
    start = "1: write 0x1 0x"
    text = start + "a" * (LONGEST - len(start) - 1) + "\n"
    assert len(text) == LONGEST
    for chunk in (10, 4096, 1 << 20):
        assert rows(read(file, text * 2, chunk=chunk)) == [(1, 1, 1)] * 2


def test_damaged_gzip_is_told(file):
    packed = gzip.compress(b"".join(b"LD %d\n" % number for number in range(5000)))
    for data in (
        packed[:-9],
        packed[:-4],
        packed[:5],
        packed[:2],
        packed[:2000] + b"??" + packed[2002:],
        packed + b"x",
    ):
        for chunk in (64, 4 << 20):
            assert mistake(refusal(file, data, chunk=chunk)) == f"unreadable {file.name}"


def test_gzip_in_several_members_is_one_trace(file):
    assert len(read(file, gzip.compress(b"LD 5\nL") + gzip.compress(b"D 6\n"))) == 2
    assert mistake(refusal(file, gzip.compress(b""))) == f"form {file.name}"


def test_an_unknown_name_gets_the_nearest(file):
    error = refusal(file, "LD 5", "ramulator")
    assert re.fullmatch(r"unknown-name format \? ramulator[12]", mistake(error))
    assert all(name in str(error) for name in FORMATS)


def test_a_named_format_is_the_only_one(file):
    assert mistake(refusal(file, "LD 5", "dramsim3")) == f"form {file.name}:1"
    assert "ramulator2" in refusal(file, "LD 5", "dramsim3").problem


def test_a_request_of_dramsys_whose_cycle_goes_back_is_sent_at_once(file):
    """As `StlPlayer` does; DRAMsim3's traces are refused."""
    text = "4: read 0x0\n2: write 0x40\n9: read 0x80\n0: read 0xc0\n"
    for chunk in (20, 1 << 20):
        assert read(file, text, "dramsys", chunk).cycle.tolist() == [4, 4, 9, 9]
    assert mistake(refusal(file, "0x0 READ 4\n0x40 READ 2\n", "dramsim3")) == f"form {file.name}:2"


def test_cycles_of_a_device_become_clocks_of_the_memory_rounded_up(file):
    """200 MHz beside clocks of 15/14 ns: 14/3 clocks a cycle, by hand; and in a stream of two blocks."""
    ratio = 10**6 / (200 * Fraction(7500, 7))
    file.write_text("0: read 0x0\n1: read 0x40\n3: read 0x80\n2: read 0xc0\n1000: read 0x100\n")
    for chunk in (30, 1 << 20):
        with mock.patch.object(ndpsim.dram.traces.reader, "_CHUNK", chunk):
            stream = stream_requests(file).at_clock(ratio)
            assert stream.joined().cycle.tolist() == [0, 5, 14, 14, 4667]
    last = RequestStream([Requests(np.array([0]), np.array([0]), cycle=np.array([1 << 61]))])
    with refused("range"):
        last.at_clock(Fraction(3)).joined()
    with refused("conflict requests"):
        RequestStream([([0], [0])]).at_clock(Fraction(3))


@pytest.mark.parametrize("suffix", [".rstl", ".rstl.gz"])
def test_relative_times_are_refused(tmp_path, suffix):
    path = tmp_path / f"trace{suffix}"
    for name in (None, "dramsys"):
        error = refusal(path, "31: read 0x400140\n2: read 0x400160\n", name)
        assert mistake(error) == f"unsupported {path.name}"


# Arrays.


@pytest.mark.parametrize(
    ("address", "write", "words"),
    [
        (np.array([], dtype=int), np.array([], dtype=int), "missing requests"),
        ([1, 2], [0], "conflict address"),
        ([[1]], [[0]], "type address"),
        ([1.5], [0], "type address"),
        ([True], [0], "type address"),
        (np.array([1 << 63], np.uint64), [0], "range address"),
        ([[1], [2, 3]], [0], "type address"),
        ([-1], [0], "range address"),
        ([1], [2], "range write"),
        ([1], [300], "range write"),
    ],
)
def test_arrays_are_checked(address, write, words):
    with refused(words):
        Requests.of(address, write)


def test_arrays_become_requests():
    requests = Requests.of(np.array([64, 128], dtype=np.uint32), [True, False])
    assert rows(requests) == [(64, 1, None), (128, 0, None)]
    assert (requests.address.dtype, requests.write.dtype) == (np.int64, np.int8)


# Formats are files.


@pytest.mark.parametrize("name", FORMATS)
def test_an_example_is_in_its_format_only(file, name):
    example = request_formats()[name].example
    assert read(file, example).format == name
    for other in FORMATS:
        if other != name:
            assert refusal(file, example, other).line == 1


def test_a_new_format_is_a_new_file(file, new_format):
    new_format(
        "request_formats",
        "from ndpsim.dram.traces.request_format import Field, RequestFormat\n"
        "FORMAT = RequestFormat('plain', 'fetch@5;0x40', 'x',\n"
        "    (Field('operation'), Field('cycle', after=';'), Field('address', base=16)), ('fetch',), ())\n",
    )
    requests = read(file, "fetch 5;0x40\nfetch 6;41\n")
    assert (requests.format, rows(requests)) == ("plain", [(0x40, 0, 5), (0x41, 0, 6)])
    assert read(file, "LD 5").format == "ramulator2"


@pytest.mark.parametrize(
    ("fields", "reads"),
    [
        ((Field("address"),), ("R",)),
        ((Field("operation"),), ("R",)),
        ((Field("operation"), Field("rank")), ("R",)),
        ((Field("operation"), Field("address"), Field("address")), ("R",)),
        ((Field("operation"), Field("address")), ("NINELETTER",)),
        ((Field("operation"), Field("address")), ("",)),
        ((Field("operation"), Field("address")), ("\u00fc",)),
    ],
)
def test_a_format_that_makes_no_sense_is_noticed(fields, reads):
    with pytest.raises(ValueError, match="^bad: "):
        RequestFormat("bad", "x", "x", fields, reads, ("W",))


@pytest.mark.parametrize("parts", [("color",), ("row", 8), ("row", 10, ";;")])
def test_a_field_that_makes_no_sense_is_noticed(parts):
    with pytest.raises(ValueError, match="^no such field"):
        Field(*parts)


# Pieces of a file.


@given(data=st.binary(max_size=60), size=st.integers(1, 20))
def test_pieces_are_whole_lines_and_lose_nothing(file, data, size):
    if data.startswith(b"\x1f\x8b"):
        return
    file.write_bytes(data)
    with file.open("rb") as stream:
        pieces = [piece.tobytes() for piece in whole_lines(stream, file, size)]
    expected = data.removeprefix(b"\xef\xbb\xbf")
    if expected and not expected.endswith(b"\n"):
        expected += b"\n"
    assert b"".join(pieces) == expected
    assert all(piece.endswith(b"\n") for piece in pieces)
    longest = max((len(line) for line in expected.split(b"\n")), default=0)
    assert all(len(piece) <= max(size, 4, 2 * longest + 2) + 1 for piece in pieces)


def test_a_line_without_end_is_not_gathered(file):
    file.write_bytes(b"x" * 2_000_000)
    with file.open("rb") as stream:
        assert len(next(whole_lines(stream, file, 4096))) <= 4 * LONGEST


# Against a second reader, line by line in plain Python.


@dataclass
class Twin:
    """A format as a regular expression whose groups are address, op, cycle, place."""

    pattern: str
    reads: set[str]
    writes: set[str]
    base: int = 16
    blanks: bool = False
    comments: bool = False
    data: bool = False
    overdue: bool = False
    compiled: re.Pattern = field(init=False)

    def __post_init__(self) -> None:
        self.compiled = re.compile(self.pattern.replace(" ", r"[ \t]+"))


HEX = "(?P<address>(?:0[xX])?[0-9a-fA-F]+)"
TWINS = {
    "ramulator2": Twin(r"(?P<op>\S+) (?P<address>0[xX][0-9a-fA-F]+|[0-9]+)", {"LD"}, {"ST"}, base=0),
    "ramulator2-vector": Twin(r"(?P<op>\S+) (?P<place>[0-9]+(?:,[0-9]+){5})", {"R"}, {"W"}),
    "ramulator1": Twin(rf"{HEX} (?P<op>\S+)", {"R"}, {"W"}),
    "dramsim3": Twin(
        rf"{HEX} (?P<op>\S+) (?P<cycle>[0-9]+)",
        {"READ", "read", "P_MEM_RD", "P_FETCH"},
        {"WRITE", "write", "P_MEM_WR", "BOFF"},
        blanks=True,
    ),
    "dramsys": Twin(
        rf"(?P<cycle>[0-9]+): (?P<op>\S+) {HEX}(?: (?P<data>0[xX][0-9a-fA-F]+))?",
        {"read"},
        {"write"},
        blanks=True,
        comments=True,
        overdue=True,
    ),
}


def twin_line(twin: Twin, line: str) -> tuple | None:
    """The request of a line, None when it is no request of this format."""
    match = twin.compiled.fullmatch(line.strip(" \t"))
    if not match or match["op"] not in twin.reads | twin.writes:
        return None
    groups, write = match.groupdict(), int(match["op"] in twin.writes)
    if groups.get("data") and not write:
        return None
    if groups.get("place"):
        where = tuple(int(number) for number in groups["place"].split(","))
        large = max(where) >= 2**31
    else:
        text = groups["address"]
        decimal = twin.base == 0 and text[:2] not in ("0x", "0X")
        where = int(text, 10 if decimal else 16)
        large = where > LARGEST
    cycle = int(groups["cycle"]) if groups.get("cycle") else None
    return None if large or (cycle or 0) > LARGEST else (where, write, cycle)


def twin_read(data: bytes, name: str | None) -> tuple[str, object, object]:
    """("read", rows, lines), or ("refused", line, None)."""
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    if lines[-1] == "":
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    if name is None:
        for number, line in enumerate(lines, start=1):
            if line.strip(" \t") and not line.startswith("#"):
                names = [name for name, twin in TWINS.items() if twin_line(twin, line)]
                assert len(names) < 2
                if not names:
                    return "refused", number, None
                name = names[0]
                break
        else:
            return "refused", None, None
    twin, found, where, blank, last = TWINS[name], [], [], None, 0
    for number, line in enumerate(lines, start=1):
        if twin.comments and line.startswith("#"):
            continue
        if not line.strip(" \t"):
            blank = blank or number
            continue
        if blank and not twin.blanks:
            return "refused", blank, None
        request = twin_line(twin, line)
        if request is not None and twin.overdue and request[2] < last:
            request = (*request[:2], last)
        if request is None or (request[2] or 0) < last:
            return "refused", number, None
        last = request[2] or 0
        found.append(request)
        where.append(number)
    return ("read", found, where) if found else ("refused", None, None)


def fast_read(path: Path, data: bytes, name: str | None, chunk: int) -> tuple[str, object, object]:
    try:
        requests = read(path, data, name, chunk)
    except InputError as error:
        assert error.file == str(path)
        return "refused", error.line, None
    return "read", rows(requests), lines_of(requests)


def some_number(pick: random.Random) -> int:
    return pick.choice([0, LARGEST, pick.randrange(300), pick.randrange(2**40), pick.randrange(LARGEST)])


def some_blanks(pick: random.Random, least: int = 0) -> str:
    return "".join(pick.choices(" \t", k=pick.choice([least, least, 1, 2])))


def hexadecimal(pick: random.Random, number: int) -> str:
    return pick.choice(["0x", "0X", "", "0x000"]) + pick.choice(["{:x}", "{:X}"]).format(number)


def some_line(pick: random.Random, name: str, cycle: int) -> tuple[str, tuple]:
    """A line of a format, and the request that it is."""
    twin = TWINS[name]
    op, number, gap = pick.choice(sorted(twin.reads | twin.writes)), some_number(pick), some_blanks(pick, 1)
    write, address = int(op in twin.writes), hexadecimal(pick, number)
    request: tuple = (number, write, cycle if "cycle" in twin.pattern else None)
    if name == "ramulator2":
        decimal = f"{number:0{pick.randint(1, 30)}}"
        line = f"{op}{gap}{address if address[:2] in ('0x', '0X') else decimal}"
    elif name == "ramulator2-vector":
        place = tuple(pick.choice([0, pick.randrange(200), 2**31 - 1]) for _ in range(6))
        line, request = f"{op}{gap}{','.join(map(str, place))}", (place, write, None)
    elif name == "ramulator1":
        line = f"{address}{gap}{op}"
    elif name == "dramsim3":
        line = f"{address}{gap}{op}{gap}{cycle}"
    else:
        data = pick.choice(["", f"{gap}0x0", f"{gap}0XfF0123456789abcdef0"]) if write else ""
        line = f"{cycle}:{gap}{op}{gap}{address}{data}"
    return some_blanks(pick) + line + some_blanks(pick), request


def some_trace(pick: random.Random) -> tuple[str, bytes, list[tuple], list[int]]:
    """A format, a file of it, its requests and their lines."""
    name, cycle = pick.choice(FORMATS), 0
    twin, lines, requests, where = TWINS[name], [], [], []
    for _ in range(pick.randint(1, 6)):
        while twin.blanks and pick.random() < 0.3:
            lines.append("# a comment" if twin.comments and pick.random() < 0.5 else some_blanks(pick))
        cycle += pick.choice([0, 1, 100])
        line, request = some_line(pick, name, cycle)
        lines.append(line)
        requests.append(request)
        where.append(len(lines))
    lines += [some_blanks(pick) for _ in range(pick.randint(0, 2))]
    text = "".join(line + pick.choice(["\n", "\n", "\r\n"]) for line in lines)
    text = text if pick.random() < 0.5 else text.removesuffix("\n")
    return name, pick.choice([b"", b"\xef\xbb\xbf"]) + text.encode(), requests, where


SEEDS = st.integers(0, 2**32)
CHUNKS = st.one_of(st.integers(1, 40), st.just(4 << 20))


@settings(max_examples=400, deadline=None)
@given(seed=SEEDS, named=st.booleans(), packed=st.booleans(), chunk=CHUNKS)
def test_a_trace_of_any_format_is_read_as_it_was_made(file, seed, named, packed, chunk):
    name, data, requests, where = some_trace(random.Random(seed))
    assert twin_read(data, name if named else None) == ("read", requests, where)
    got = read(file, gzip.compress(data, 1) if packed else data, name if named else None, chunk)
    assert (got.format, rows(got), lines_of(got)) == (name, requests, where)


CHANGES = [
    *(bytes([byte]) for byte in b" \t\r\n#0Xx9aRWLDST:,-+()\x00\xff_g"),
    *(b"", b"", b"", b"9" * 20, b"f" * 16, b"0x", b"\r\n", b"\n\n", b"\n# x\n", b"\xef\xbb\xbf", b"(8) "),
    *(b"\nLD 5\n", b"\nR 0,0,0,0,0,0\n", b"\n0x5 R\n", b"\n0x5 READ 5\n", b"\n5: read 0x5\n", b"\nLD -1\n"),
]


@settings(max_examples=400, deadline=None)
@given(seed=SEEDS, named=st.booleans(), chunk=CHUNKS)
def test_a_changed_trace_is_read_or_refused_as_by_the_plain_reader(file, seed, named, chunk):
    pick = random.Random(seed)
    name, data, _, _ = some_trace(pick)
    for _ in range(pick.randint(1, 3)):
        at = pick.randint(0, len(data))
        data = data[:at] + pick.choice(CHANGES) + data[at + pick.randint(0, 3) :]
    given_name = name if named else None
    assert fast_read(file, data, given_name, chunk) == twin_read(data, given_name)
