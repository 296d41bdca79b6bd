"""Folders of caches: only ndpsim's own files are removed, and damaged or foreign ones are ignored."""

from __future__ import annotations

import errno
import grp
import json
import logging
import os
import pwd
import tempfile
from pathlib import Path
from types import SimpleNamespace

import platformdirs
import pytest

from calls import said
from ndpsim.base import cachedirs
from ndpsim.base.cachedirs import Entries, clear, find_folders, problem_of, roots
from ndpsim.base.run_files import temporary_file

CONTENT = bytes(range(256))
SOMEONE = 54321


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """The folder of NDPSIM_CACHE_DIR, beside that for temporary files."""
    root, temporary = tmp_path / "cache", tmp_path / "temporary"
    root.mkdir(mode=0o700)
    temporary.mkdir(mode=0o1777)
    temporary.chmod(0o1777)
    monkeypatch.setenv("NDPSIM_CACHE_DIR", str(root))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    cachedirs._warn_once.cache_clear()
    return root


def entries(digit: str = "a") -> Entries:
    return Entries("kernels", digit * 20, lambda: {"ndpsim": "1.2.3"})


def folder(root: Path, digit: str = "a") -> Path:
    return root / f"kernels-{digit * 20}"


def fallback(root: Path) -> Path:
    return root.parent / "temporary" / f"ndpsim-{os.geteuid()}"


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


# What may be removed


@pytest.fixture
def others(root) -> set[str]:
    """Files of other programs in the folder: more than the limit of caches, some with names like ours."""
    for number in range(1, 31):
        (root / f"thesis{number}").mkdir()
        (root / f"thesis{number}" / "chapter.tex").write_text("x")
    for name in ("kernels-of-truth", f"kernels-{'b' * 19}", f"kernels-{'b' * 21}", f"kernels-{'B' * 20}"):
        (root / name).mkdir()
        (root / name / "ndpsim-cache.json").write_text("{}")
    folder(root, "c").mkdir()  # by our name, without the marker
    (folder(root, "c") / "mine.entry").write_text("x")
    folder(root, "d").symlink_to(root / "thesis1")
    (root / "thesis1" / "ndpsim-cache.json").write_text("{}")
    folder(root, "e").write_text("a file")
    return tree(root)


def test_new_versions_and_clearing_leave_what_others_put_there(root, others):
    for digit in "0123456789":
        entries(digit).write("one", CONTENT)
    assert others < tree(root)
    clear()
    assert tree(root) == others


def test_a_file_of_the_users_in_a_folder_of_ours_stays_and_is_reported(root):
    entries().write("one", CONTENT)
    notes = folder(root) / "notes.txt"
    notes.write_text("mine")
    (folder(root) / "aside.entry").mkdir()
    (folder(root) / "aside.entry" / "deep.txt").write_text("mine")
    cleared = clear()
    assert (cleared.removed, cleared.left) == ([], [folder(root)])
    assert tree(folder(root)) == {"notes.txt", "aside.entry", "aside.entry/deep.txt", "ndpsim-cache.json"}
    notes.unlink()
    (folder(root) / "aside.entry" / "deep.txt").unlink()
    (folder(root) / "aside.entry").rmdir()
    assert clear().removed == [folder(root)]
    assert tree(root) == set()


def test_what_numba_keeps_in_a_folder_of_ours_goes_with_it(root):
    entries().write("one", CONTENT)
    kept, empty = (folder(root) / f"dram_{digit * 40}" for digit in "ab")
    for path in (kept, empty):
        path.mkdir()
    (kept / "step.py311.nbi").write_bytes(b"12345")
    (kept / "notes.txt").write_text("mine")
    before = find_folders(root)[0].size_bytes
    assert clear().size_bytes == before - (folder(root) / "ndpsim-cache.json").stat().st_size
    assert tree(folder(root)) == {kept.name, f"{kept.name}/notes.txt", "ndpsim-cache.json"}
    (kept / "notes.txt").unlink()
    clear()
    assert tree(root) == set()


def test_links_in_a_folder_of_ours_are_removed_and_not_followed(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "one.entry").write_text("mine")
    (tmp_path / "file").write_text("mine")
    entries().write("one", CONTENT)
    (folder(root) / "two.entry").symlink_to(tmp_path / "file")
    clear()
    assert not folder(root).exists()
    entries().write("one", CONTENT)
    (folder(root) / "three.entry").symlink_to(tmp_path / "elsewhere")
    assert clear().left == [folder(root)]
    assert (tmp_path / "file").read_text() == (tmp_path / "elsewhere" / "one.entry").read_text() == "mine"


def test_a_link_in_place_of_a_folder_of_numbas_is_not_followed(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "step.py311.nbi").write_bytes(b"12345")
    entries().write("one", CONTENT)
    size = find_folders(root)[0].size_bytes
    (folder(root) / f"dram_{'a' * 40}").symlink_to(tmp_path / "elsewhere")
    assert find_folders(root)[0].size_bytes == size
    clear()
    assert (tmp_path / "elsewhere" / "step.py311.nbi").read_bytes() == b"12345"
    assert not (folder(root) / "one.entry").exists()


def test_another_users_folder_is_neither_counted_nor_removed(root, monkeypatch):
    entries().write("one", CONTENT)
    monkeypatch.setattr(os, "geteuid", lambda: SOMEONE)
    assert find_folders(root) == []
    assert clear().removed == []
    assert (folder(root) / "one.entry").exists()


def test_a_damaged_marker_still_says_whose_folder_it_is(root):
    entries().write("one", CONTENT)
    (folder(root) / "ndpsim-cache.json").write_bytes(os.urandom(300))
    assert [one.made_by for one in find_folders(root)] == [{}]
    assert clear().removed == [folder(root)]


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes(root):
    entries().write("one", CONTENT)
    left, other = folder(root) / f".ndpsim-{'0' * 8}-1-{'0' * 16}.tmp", folder(root) / "x.tmp"
    for path in (left, other):
        path.write_text("half")
        os.utime(path, (0, 0))
    with temporary_file(folder(root)) as file:
        entries().write("two", CONTENT)
        assert Path(file.name).exists()
    assert not left.exists()
    assert other.exists()


def test_entries_are_read_whatever_the_users_mask(root):
    before = os.umask(0)
    try:
        entries().write("one", CONTENT)
    finally:
        os.umask(before)
    assert entries().read("one") == CONTENT
    assert find_folders(root)[0].made_by == {"ndpsim": "1.2.3"}


# Bounds

BLOCK = 4096


def bounded(root: Path, blocks: int, digit: str = "a", kind: str = "results") -> Entries:
    return Entries(kind, digit * 20, lambda: {"ndpsim": "1.2.3"}, root, blocks * BLOCK)


def used_at(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))


def names_in(root: Path) -> set[str]:
    return {path.stem for path in root.rglob("*.entry")}


@pytest.mark.parametrize("blocks", [8, 12, 40])
def test_entries_never_take_more_than_their_bound(root, blocks):
    cache = bounded(root, blocks)
    for number in range(3 * blocks):
        cache.write(f"e{number}", CONTENT)
        used_at(root / cache.name / f"e{number}.entry", number)
        found = names_in(root)
        assert len(found) <= blocks
        assert found == {f"e{n}" for n in range(number - len(found) + 1, number + 1)}
    assert len(names_in(root)) >= blocks * 3 // 4


def test_processes_that_write_an_entry_each_keep_to_the_bound(root):
    for number in range(40):
        bounded(root, 16).write(f"e{number}", CONTENT)
    assert 12 <= len(names_in(root)) <= 16


def test_what_was_read_is_not_the_longest_unused(root):
    cache = bounded(root, 8)
    for number in range(7):
        cache.write(f"e{number}", CONTENT)
        used_at(root / cache.name / f"e{number}.entry", number)
    assert cache.read("e0") == CONTENT
    cache.write("e7", CONTENT)
    cache.write("e8", CONTENT)
    assert "e0" in names_in(root)
    assert not {"e1", "e2"} & names_in(root)


def test_the_bound_is_one_of_all_versions_and_of_one_kind(root):
    Entries("kernels", "a" * 20, dict).write("kernel", CONTENT)
    used_at(root / f"kernels-{'a' * 20}" / "kernel.entry", 0)
    before = bounded(root, 8, "b")
    for number in range(6):
        before.write(f"e{number}", CONTENT)
        used_at(root / before.name / f"e{number}.entry", number)
    now = bounded(root, 8, "c")
    for number in range(6, 11):
        now.write(f"e{number}", CONTENT)
    assert names_in(root) == {"kernel", *(f"e{number}" for number in range(4, 11))}


def test_a_folder_of_an_earlier_version_goes_with_its_last_entry(root):
    before, now = bounded(root, 8, "b"), bounded(root, 8, "c")
    for cache, time in ((before, 0), (now, 1)):
        for number in range(7):
            cache.write(f"e{number}", CONTENT)
            used_at(root / cache.name / f"e{number}.entry", time)
    assert {one.path.name for one in find_folders(root)} == {now.name}
    assert tree(root) == {now.name, *(f"{now.name}/{name}" for name in os.listdir(root / now.name))}


def test_kernels_have_a_bound(root, monkeypatch):
    monkeypatch.setattr(Entries.__init__, "__defaults__", (None, 8 * BLOCK))
    for digit in "abc":
        for number in range(6):
            entries(digit).write(f"e{number}", CONTENT)
    assert len(list(root.rglob("*.entry"))) in (7, 8)


def test_a_large_entry_counts_by_its_size_and_too_large_a_one_is_not_written(root):
    cache = bounded(root, 32)
    for number in range(20):
        cache.write(f"e{number}", bytes(3 * BLOCK))  # and a little for the seal
        used_at(root / cache.name / f"e{number}.entry", number)
        assert len(names_in(root)) <= 8
    cache.write("large", bytes(4 * BLOCK))
    assert cache.read("large") is None


def test_making_room_leaves_what_others_put_there(root, others):
    cache = bounded(root, 8)
    Entries("results", "a" * 20, dict).write("first", CONTENT)
    (root / cache.name / "mine.txt").write_text("mine")
    (root / f"results-{'f' * 20}").mkdir()
    (root / f"results-{'f' * 20}" / "mine.entry").write_text("no marker")
    used_at(root / f"results-{'f' * 20}" / "mine.entry", 0)
    for number in range(30):
        cache.write(f"e{number}", CONTENT)
    assert len(list((root / cache.name).glob("*.entry"))) in (7, 8)
    assert (root / cache.name / "mine.txt").read_text() == "mine"
    assert (root / f"results-{'f' * 20}" / "mine.entry").read_text() == "no marker"
    assert others < tree(root)


def test_an_entry_is_read_where_its_use_cannot_be_noted(root, monkeypatch):
    cache = bounded(root, 8)
    cache.write("one", CONTENT)

    def refuse(*arguments) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "utime", refuse)
    assert cache.read("one") == CONTENT


def test_a_folder_of_ones_own_is_used_and_no_other(root, tmp_path):
    cache = Entries("results", "a" * 20, dict, tmp_path / "mine")
    cache.write("one", CONTENT)
    assert (tmp_path / "mine" / cache.name / "one.entry").exists()
    assert tree(root) == set()
    assert not fallback(root).exists()
    assert cache.read("one") == CONTENT
    assert Entries("results", "a" * 20, dict).read("one") is None


# What is damaged


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link_to_marker(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "ndpsim-cache.json")


def link_to_a_copy(path: Path) -> None:
    path.rename(path.parent.parent / "copy")
    path.symlink_to(path.parent.parent / "copy")


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize(
    "damage", [cut, lengthen, link_to_marker, link_to_a_copy, link_to_itself, Path.unlink, make_pipe]
)
def test_a_damaged_entry_is_none_and_is_written_anew(root, damage):
    entries().write("one", CONTENT)
    assert entries().read("one") == CONTENT
    damage(folder(root) / "one.entry")
    assert entries().read("one") is None
    entries().write("one", CONTENT)
    assert entries().read("one") == CONTENT
    assert entries().names() == ["one"]
    assert not fallback(root).exists()


def test_no_flipped_bit_goes_unseen(root):
    entries().write("one", CONTENT)
    path = folder(root) / "one.entry"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        assert entries().read("one") is None, place


def test_an_entry_is_none_under_another_name(root):
    entries().write("one", CONTENT)
    (folder(root) / "one.entry").rename(folder(root) / "two.entry")
    assert entries().read("two") is None


def test_a_gigantic_file_is_not_read(root):
    entries().write("one", CONTENT)
    os.truncate(folder(root) / "one.entry", 1 << 40)
    assert entries().read("one") is None


# Whose it is


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o500])
def test_a_folder_that_only_its_user_writes_is_used(root, mode):
    root.chmod(mode)
    assert problem_of(root) is None


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702, 0o722])
def test_a_folder_that_all_can_write_is_not_read(root, mode, caplog):
    entries().write("one", CONTENT)
    root.chmod(mode)
    assert entries().read("one") is None
    assert [record.getMessage() for record in caplog.records] == [
        f"the cache in {root} is not used: other users can write {root}"
    ]


@pytest.mark.parametrize(("own", "read"), [(True, CONTENT), (False, None)])
def test_a_group_counts_when_it_is_not_the_users_own(root, monkeypatch, own, read):
    entries().write("one", CONTENT)
    monkeypatch.setattr(cachedirs, "_is_own_group", lambda group: own)
    root.chmod(0o770)
    assert entries().read("one") == read
    root.chmod(0o700)
    (folder(root) / "one.entry").chmod(0o660)
    assert entries().read("one") == read
    folder(root).chmod(0o770)
    (folder(root) / "one.entry").chmod(0o600)
    assert entries().read("one") == read


def test_an_access_list_may_name_others_where_only_the_users_own_group_could_write(root, monkeypatch):
    entries().write("one", CONTENT)
    monkeypatch.setattr(cachedirs, "_is_own_group", lambda group: True)
    root.chmod(0o770)
    assert entries().read("one") == CONTENT
    monkeypatch.setattr(os, "listxattr", lambda path: ["system.posix_acl_access"], raising=False)
    assert entries().read("one") is None


@pytest.mark.parametrize(
    ("group", "name", "members", "own"),
    [
        (77, "ann", [], True),
        (77, "ann", ["ann"], True),
        (77, "ann", ["bob"], False),
        (77, "users", [], False),
        (78, "ann", [], False),
    ],
)
def test_ones_own_group_is_the_primary_one_of_ones_name_without_others(
    monkeypatch, group, name, members, own
):
    monkeypatch.setattr(os, "geteuid", lambda: SOMEONE)
    monkeypatch.setattr(os, "getegid", lambda: group if group != 78 else 77)
    monkeypatch.setattr(pwd, "getpwuid", lambda user: SimpleNamespace(pw_name="ann"))
    monkeypatch.setattr(grp, "getgrgid", lambda number: SimpleNamespace(gr_name=name, gr_mem=members))
    assert cachedirs._is_own_group.__wrapped__(group) is own


def test_another_users_folder_is_not_read(root, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: SOMEONE)
    assert problem_of(root) == f"{root} belongs to another user"
    entries().write("one", CONTENT)
    assert tree(root) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_was_given_to_another_user_is_not_read(root):
    entries().write("one", CONTENT)
    for path in (folder(root) / "one.entry", folder(root), root):
        os.chown(path, SOMEONE, -1)
        assert entries().read("one") is None
        os.chown(path, 0, -1)
    assert entries().read("one") == CONTENT


@pytest.mark.parametrize(("mode", "used"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_above_the_folder_nobody_else_may_move_it(root, mode, used):
    root.parent.chmod(mode)
    assert (problem_of(root) is None) is used
    root.parent.chmod(0o700)


def test_the_file_itself_must_be_the_users(root):
    entries().write("one", CONTENT)
    (folder(root) / "one.entry").chmod(0o666)
    assert entries().read("one") is None


# Where it cannot be written, or not read


def failing(monkeypatch, error: int, below: Path) -> None:
    """Let every creation of a file in a folder fail."""

    def refuse(place):
        if place.is_relative_to(below):
            raise OSError(error, os.strerror(error))
        return temporary_file(place)

    monkeypatch.setattr(cachedirs, "temporary_file", refuse)


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.EDQUOT])
def test_a_complete_cache_that_cannot_be_written_is_used(root, monkeypatch, error, caplog):
    entries().write("one", CONTENT)
    failing(monkeypatch, error, root.parent)
    assert entries().read("one") == CONTENT
    assert caplog.records == []


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.EDQUOT])
def test_what_a_folder_cannot_take_goes_to_that_for_temporary_files(root, monkeypatch, error, caplog):
    entries().write("one", CONTENT)
    failing(monkeypatch, error, root)
    entries().write("two", CONTENT)
    assert (entries().read("one"), entries().read("two")) == (CONTENT, CONTENT)
    assert (fallback(root) / folder(root).name / "two.entry").exists()
    assert fallback(root).stat().st_mode & 0o777 == 0o700
    assert caplog.records == []


def test_where_nothing_can_be_written_one_line_says_so(root, monkeypatch, caplog):
    failing(monkeypatch, errno.ENOSPC, root.parent)
    cache = entries()
    cache.write("one", CONTENT)
    cache.write("two", CONTENT)
    assert cache.read("one") is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"nothing can be cached ({folder(root)}: No space left on device)"


def test_a_write_that_fails_half_way_leaves_nothing(root, monkeypatch):
    entries().write("one", CONTENT)
    before = tree(root)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    entries().write("two", CONTENT)
    assert tree(root) == before


def test_no_folder_for_temporary_files_is_no_obstacle(root, monkeypatch):
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert list(roots()) == [root]
    entries().write("one", CONTENT)
    assert entries().read("one") == CONTENT


def test_a_file_in_place_of_the_folder_is_no_obstacle(root, caplog):
    root.rmdir()
    root.write_text("mine")
    entries().write("one", CONTENT)
    assert entries().read("one") == CONTENT
    assert root.read_text() == "mine"
    assert [record.getMessage() for record in caplog.records] == [
        f"the cache in {root} is not used: {root} is not a folder"
    ]


def test_the_folder_may_vanish_at_any_time(root):
    cache = entries()
    cache.write("one", CONTENT)
    clear()
    root.rmdir()
    assert cache.read("one") is None
    cache.write("one", CONTENT)
    assert cache.read("one") == CONTENT


def test_a_link_to_a_folder_may_be_chosen(root, monkeypatch, tmp_path):
    (tmp_path / "link").symlink_to(root)
    monkeypatch.setenv("NDPSIM_CACHE_DIR", str(tmp_path / "link"))
    entries().write("one", CONTENT)
    assert (folder(root) / "one.entry").exists()


@pytest.mark.parametrize("kind", ["a link", "another user's", "one that all can write"])
def test_what_another_put_in_the_place_for_temporary_files_is_neither_read_nor_written(
    root, monkeypatch, tmp_path, kind
):
    failing(monkeypatch, errno.EROFS, root)
    place = fallback(root)
    elsewhere = tmp_path / "elsewhere"
    (place if kind != "a link" else elsewhere).mkdir()
    if kind == "a link":
        place.symlink_to(elsewhere)
    entries().write("one", CONTENT)
    assert (entries().read("one") == CONTENT) is (kind != "a link")
    if kind == "another user's":
        other = os.geteuid() + 1
        monkeypatch.setattr(cachedirs, "roots", lambda: [place])
        monkeypatch.setattr(os, "geteuid", lambda: other)
    elif kind == "one that all can write":
        place.chmod(0o777)
    before = tree(tmp_path)
    assert entries().read("one") is None
    entries().write("two", CONTENT)
    assert tree(tmp_path) == before


def test_without_a_home_nothing_is_made_in_the_working_folder(root, monkeypatch, tmp_path):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("NDPSIM_CACHE_DIR")
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: f"~/.cache/{name}")
    entries().write("one", CONTENT)
    assert tree(tmp_path / "work") == set()
    assert entries().read("one") == CONTENT


# The command


def test_cache_says_where_it_is_and_what_is_in_it(root):
    entries().write("one", CONTENT)
    entries().write("two", CONTENT)
    sizes = sum(path.stat().st_size for path in folder(root).iterdir())
    found = json.loads(said("cache", "--json", "-"))
    first, second = found["roots"]
    assert (first["folder"], first["problem"], first["size_bytes"]) == (str(root), None, sizes)
    assert second["folder"] == str(fallback(root))
    (one,) = first["folders"]
    assert one["folder"] == str(folder(root))
    assert (one["kind"], one["entries"], one["size_bytes"], one["current"]) == ("kernels", 2, sizes, False)
    assert one["made_by"] == {"ndpsim": "1.2.3"}
    text = said("cache")
    assert str(root) in text
    assert "ndpsim 1.2.3" in text


def test_the_folder_written_last_is_the_first(root):
    for seconds, digit in ((1, "b"), (3, "a"), (2, "c")):
        entries(digit).write("one", CONTENT)
        used_at(folder(root, digit), seconds)
    assert [one.path.name[-1] for one in find_folders(root)] == ["a", "c", "b"]


def test_cache_clear_removes_it_and_says_how_much(root, others):
    entries().write("one", CONTENT)
    size = sum(path.stat().st_size for path in folder(root).iterdir())
    cleared = json.loads(said("cache", "clear", "--json", "-"))
    assert cleared == {"removed": [str(folder(root))], "size_bytes": size, "left": []}
    assert tree(root) == others
    assert said("cache", "clear") == "removed 0 folders, 0 B\n"


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], set()),
        (["--results"], {"kernels"}),
        (["--kernels"], {"results"}),
        (["--kernels", "--results"], set()),
    ],
)
def test_kernels_and_results_are_cleared_together_or_apart(root, options, left):
    for kind in ("kernels", "results"):
        for digit in "ab":
            Entries(kind, digit * 20, dict).write("one", CONTENT)
    found = json.loads(said("cache", "--json", "-"))["roots"][0]["folders"]
    assert sorted(one["kind"] for one in found) == ["kernels", "kernels", "results", "results"]
    assert "results-aaaaaaaaaaaaaaaaaaaa" in said("cache")
    said("cache", "clear", *options)
    assert {path.name for path in root.iterdir()} == {
        f"{kind}-{digit * 20}" for kind in left for digit in "ab"
    }


def test_cache_says_which_folders_this_version_uses(root):
    from ndpsim.base import jit
    from ndpsim.simulate.results.cache import version

    results = f"results-{version()}"
    for kind, digits in (name.split("-") for name in (jit.entries().name, results)):
        Entries(kind, digits, dict).write("one", CONTENT)
        Entries(kind, "a" * 20, dict).write("one", CONTENT)
    found = json.loads(said("cache", "--json", "-"))
    assert found["current"] == {"kernels": jit.entries().name, "results": results}
    current = {Path(one["folder"]).name for one in found["roots"][0]["folders"] if one["current"]}
    assert current == {jit.entries().name, results}


def test_cache_says_why_a_folder_of_kernels_is_not_used(root):
    from ndpsim.base import jit

    Entries("kernels", jit.entries().name.partition("-")[2], dict).write("one", CONTENT)
    folder = root / jit.entries().name
    folder.chmod(0o777)
    found = json.loads(said("cache", "--json", "-"))
    assert [one["problem"] for one in found["roots"][0]["folders"]] == [f"other users can write {folder}"]
    assert "not used" in said("cache")


def test_cache_says_why_a_folder_is_not_used(root):
    root.chmod(0o777)
    assert f"not used: other users can write {root}" in said("cache")
