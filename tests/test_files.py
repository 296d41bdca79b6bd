"""Files are written whole or not at all."""

from __future__ import annotations

import gzip
import os
import resource
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from mistakes import refused
from ndpsim.base.errors import InputError
from ndpsim.base.files import ensure_writable, open_plain_or_gzip, reading, replacing
from ndpsim.base.run_files import temporary_folder


def read_plain_or_gzip(path: Path) -> bytes:
    """All of a file, as the readers of traces take it piece by piece."""
    with open_plain_or_gzip(path) as file, reading(path):
        return file.read()


def _is_bound() -> bool:
    """Whether permissions bind this user, which they do not bind as root."""
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0)
        return not os.access(file.name, os.R_OK | os.W_OK)


needs_user = pytest.mark.skipif(not _is_bound(), reason="permissions do not bind this user")
needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)


def test_a_file_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "out.json"
    with replacing(target) as file:
        file.write(b"first ")
        file.write(b"second")
        file.flush()
        assert not target.exists()
    assert target.read_bytes() == b"first second"
    assert names(tmp_path) == ["out.json"]


def test_an_old_file_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "out.json"
    target.write_bytes(b"a longer old text")
    with replacing(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"a longer old text"
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["out.json"]


@pytest.mark.parametrize("problem", [ValueError("no"), KeyboardInterrupt(), InputError("no"), SystemExit(2)])
def test_nothing_is_left_when_the_block_fails(tmp_path, problem):
    with pytest.raises(type(problem)), replacing(tmp_path / "out.json") as file:
        file.write(b"half")
        raise problem
    assert names(tmp_path) == []


@pytest.mark.parametrize("problem", [ValueError("no"), KeyboardInterrupt()])
def test_an_old_file_is_kept_when_the_block_fails(tmp_path, problem):
    target = tmp_path / "out.json"
    target.write_bytes(b"old")
    with pytest.raises(type(problem)), replacing(target) as file:
        file.write(b"half")
        raise problem
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["out.json"]


def test_a_new_file_has_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "out.json", b"x")
        assert os.umask(0o027) == 0o027  # the mask of the process is as it was
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_keeps_one_that_another_run_has_put_there_meanwhile(tmp_path, monkeypatch, links):
    def refusing(*paths):
        raise PermissionError(1, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", refusing)
    with replacing(tmp_path / "first", new=True) as file:
        file.write(b"ours")
    with refused("unwritable"), replacing(tmp_path / "second", new=True) as file:
        file.write(b"ours")
        (tmp_path / "second").write_bytes(b"theirs")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "first": b"ours",
        "second": b"theirs",
    }


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    target = tmp_path / "out.json"
    target.write_bytes(b"old")
    target.chmod(0o604)
    write(target, b"new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


def test_a_relative_name_lies_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("out.json"), b"x")
    assert names(tmp_path) == ["out.json"]


@needs_pipes
def test_a_pipe_is_written_in_place(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"through")
    reader.join()
    assert got == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["pipe"]


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="no /dev/null here")
def test_a_device_stays_a_device():
    write(Path("/dev/null"), b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_device_is_an_input_error():
    with refused("unwritable"):
        write(Path("/dev/full"), b"x" * 100_000)


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    # /dev/stdout is such a link; with output redirected to a file it leads to a regular file.
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert names(tmp_path) == ["link", "real"]


def test_a_link_to_nothing_yet_is_followed(tmp_path):
    (tmp_path / "link").symlink_to("later")
    write(tmp_path / "link", b"new")
    assert names(tmp_path) == ["later", "link"]
    (tmp_path / "other").symlink_to("none/later")
    with refused("unwritable"):
        ensure_writable(tmp_path / "other")


@pytest.mark.parametrize("through", ["loop", "other", "loop/out"])
def test_a_link_to_itself_is_refused(tmp_path, through):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "other").symlink_to("loop")
    with refused("unwritable --json"):
        ensure_writable(tmp_path / through, "--json")
    with refused("unwritable"):
        write(tmp_path / through, b"x")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_is_no_file_name_is_refused(name):
    with refused("unwritable"):
        ensure_writable(name)
    if name:
        with refused("form"):
            read_plain_or_gzip(Path(name))


def test_the_name_of_a_folder_makes_no_file(tmp_path):
    with refused("unwritable"):
        write(f"{tmp_path}/none/", b"x")
    assert names(tmp_path) == []


def test_an_open_file_is_written_where_it_stands(tmp_path):
    # As `{ echo first; ndpsim ... --json /dev/stdout; echo last; } > out` must.
    with open(tmp_path / "out", "wb", buffering=0) as out:
        out.write(b"first ")
        write(f"/dev/fd/{out.fileno()}", b"second ")
        out.write(b"last")
        number = out.fileno()
    assert (tmp_path / "out").read_bytes() == b"first second last"
    with refused("unwritable"):
        ensure_writable(f"/dev/fd/{number}")


def test_a_file_that_grows_too_large_leaves_the_old_one(tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with refused("unwritable"):
            write(tmp_path / "out", bytes(1 << 17))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "out").read_bytes() == b"old"
    assert names(tmp_path) == ["out"]


def test_an_error_of_another_file_names_that_file(tmp_path):
    with refused("unwritable"), replacing(tmp_path / "out"):
        open("/none/font")  # noqa: SIM115


def test_the_new_content_is_on_the_disk_before_the_old_goes(tmp_path, monkeypatch):
    done, sync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append(os.fstat(file).st_size), sync(file)))
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("replace"), replace(*names)))
    write(tmp_path / "out", b"content")
    assert done == [7, "replace"]


def test_a_temporary_folder_goes_with_its_block():
    with temporary_folder() as folder:
        (folder / "some").write_bytes(b"x")
    assert not folder.exists()


def test_a_folder_is_refused(tmp_path):
    with refused("unwritable --json"):
        ensure_writable(tmp_path, "--json")
    with refused("unwritable"):
        write(tmp_path, b"x")


def test_a_missing_folder_is_refused_and_named(tmp_path):
    with refused("unwritable --json") as caught:
        ensure_writable(tmp_path / "none" / "out.json", "--json")
    assert str(tmp_path / "none") in caught.value.problem


@pytest.mark.parametrize("length", [250, 300, 5000])
def test_a_name_is_written_or_refused_in_one_line_however_long(tmp_path, length):
    target = tmp_path / ("a" * length)
    try:
        ensure_writable(target)
    except InputError as error:
        assert length > 255, "this file could be written"
        assert len(str(error).splitlines()) == 1
        assert names(tmp_path) == []
    else:  # what was promised is kept
        write(target, b"x")
        assert names(tmp_path) == [target.name]


def test_asking_leaves_no_trace(tmp_path):
    assert ensure_writable(str(tmp_path / "out.json")) == tmp_path / "out.json"
    assert names(tmp_path) == []


@needs_user
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    try:
        with refused("unwritable"):
            ensure_writable(tmp_path / "out.json")
    finally:
        tmp_path.chmod(0o755)


@needs_user
def test_a_read_only_file_is_refused(tmp_path):
    target = tmp_path / "out.json"
    target.write_bytes(b"old")
    target.chmod(0o444)
    with refused("unwritable"):
        write(target, b"new")
    assert target.read_bytes() == b"old"


@needs_user
def test_a_folder_that_may_not_be_entered_is_refused(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    try:
        with refused("unwritable"):
            ensure_writable(closed / "deeper" / "out.json")
    finally:
        closed.chmod(0o755)


# Reading


@pytest.mark.parametrize("data", [b"", b"plain", b"\x1f", gzip.compress(b"")[:1]])
def test_a_plain_file_is_read_as_it_is(tmp_path, data):
    (tmp_path / "in").write_bytes(data)
    assert read_plain_or_gzip(tmp_path / "in") == data


@pytest.mark.parametrize("name", ["in.gz", "in.csv"])
def test_gzip_is_known_by_its_content(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(b"a text") + gzip.compress(b" in two parts"))
    assert read_plain_or_gzip(tmp_path / name) == b"a text in two parts"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-9],
        lambda data: data[:6],
        lambda data: data[:12] + b"????" + data[16:],
        lambda data: data + b"junk",
    ],
    ids=["cut off", "hardly begun", "changed", "lengthened"],
)
def test_damaged_gzip_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "in.gz"
    path.write_bytes(damage(gzip.compress(bytes(range(256)))))
    with refused("unreadable in.gz"):
        read_plain_or_gzip(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with refused("unreadable none") as caught:
        read_plain_or_gzip(tmp_path / "none")
    assert caught.value.file == str(tmp_path / "none")
    with refused("unreadable test_a_file_that_cannot_be_rea0"):
        read_plain_or_gzip(tmp_path)
