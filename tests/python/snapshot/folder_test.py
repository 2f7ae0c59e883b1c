"""The snapshot directory: versions, chains, the lock, and crashes."""

import dataclasses
import errno
import os

import copying_process
import pytest

from lodestar import _files
from lodestar.ops import snapshot_ops
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    SnapshotError,
    SnapshotLockedError,
)
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import (
    Manifest,
    TableEntry,
    VersionId,
)


def mark_of(version, history="ab"):
    return history + f"{version:030d}"


def table(name, whole, **changes):
    entry = TableEntry(
        file=f"table-{name}",
        bytes=3,
        crc32c=0,
        name=name,
        whole=whole,
        dim=4,
        dtype="float32",
        optimizer="",
        slot_names=(),
        rows=0,
        removed=0,
    )
    return dataclasses.replace(entry, **changes)


def add(folder, parent, *tables, history="ab", step=0):
    """Commits a version of tables whose files hold a label."""
    version = folder.begin_version()
    manifest = Manifest(
        version=version,
        mark=mark_of(version),
        parent=parent and VersionId(parent, mark_of(parent, history)),
        same_as=None,
        kind="full" if parent is None else "delta",
        step=step,
        time="",
        tables=tables,
    )
    entries = []
    for entry in tables:
        path = folder.file_path(version, entry.file)
        written = snapshot_ops.write_blobs(path, [], manifest.label(entry))
        entries.append(dataclasses.replace(entry, bytes=written.bytes))
    folder.commit(dataclasses.replace(manifest, tables=tuple(entries)))
    return version


@pytest.fixture
def folder(tmp_path):
    """Returns a folder that does not exist yet."""
    return SnapshotFolder(tmp_path / "a" / "b")


@pytest.mark.parametrize("path", ["gs://bucket/x", "s3://x", "", b"x"])
def test_paths_that_are_not_local_folders(path):
    with pytest.raises(ValueError, match="`path` must be "):
        SnapshotFolder(path)


def test_other_names_in_the_folder_are_left_alone(folder):
    with folder.lock():
        add(folder, None, table("t", True))
        for name in ("x", "0000002", "000000003", "00000004.partial"):
            os.mkdir(os.path.join(folder.path, name))
        (open(os.path.join(folder.path, "y"), "w")).close()
        assert add(folder, None, table("t", True)) == 2
    assert folder.versions() == [1, 2]
    assert set(os.listdir(folder.path)) == {
        "00000001",
        "00000002",
        "0000002",
        "000000003",
        "00000004.partial",
        "LOCK",
        "x",
        "y",
    }


def test_all_names_are_on_the_disk_before_a_version_is_seen(
    folder, monkeypatch
):
    synced = []
    fsync = os.fsync

    def noted(descriptor):
        fsync(descriptor)
        path = os.path.realpath(f"/proc/self/fd/{descriptor}")
        synced.append((path, folder.versions()))

    with folder.lock():
        monkeypatch.setattr(os, "fsync", noted)
        add(folder, None, table("t", True))
    version = os.path.realpath(folder.version_path(1))
    assert sorted(synced) == sorted(
        [
            (os.path.realpath(folder.path), []),
            (os.path.join(version, "MANIFEST.partial"), []),
            (version, []),
            (version, [1]),
        ]
    )


def test_leftovers_are_removed_and_their_numbers_not_reused(folder):
    with folder.lock():
        add(folder, None, table("t", True))
        left = folder.begin_version()
        (open(folder.file_path(left, "MANIFEST.partial"), "w")).close()
        assert folder.versions() == [1]
        assert add(folder, None, table("t", True)) == 3
        assert folder.numbers() == [1, 3]
        folder.remove(3)
        assert folder.begin_version(at_least=9) == 9


def test_a_temporarily_invisible_version_is_not_a_leftover(folder, monkeypatch):
    with folder.lock():
        add(folder, None, table("t", True))
        lstat = os.lstat

        def fails(path, *args, **options):
            if str(path).endswith("MANIFEST"):
                raise OSError(errno.ESTALE, "Stale file handle", path)
            return lstat(path, *args, **options)

        monkeypatch.setattr(os, "lstat", fails)
        with pytest.raises(OSError, match="Stale"):
            folder.begin_version()
        with pytest.raises(OSError, match="Stale"):
            folder.versions()
        monkeypatch.undo()
    assert folder.versions() == [1]
    assert os.path.exists(folder.file_path(1, "table-t"))


def test_the_names_of_all_new_folders_are_brought_to_the_disk(
    tmp_path, monkeypatch
):
    synced = []
    monkeypatch.setattr(_files, "sync", synced.append)
    with SnapshotFolder(tmp_path / "a" / "b" / "c").lock():
        pass
    assert synced == [str(tmp_path / name) for name in ("", "a", "a/b")]


def test_remove_unneeded_removes_leftovers(folder):
    with folder.lock():
        for _ in range(3):
            add(folder, None, table("t", True))
        os.unlink(folder.manifest_path(1))
        above = folder.begin_version()
        assert folder.numbers() == [2, 3, above]
        os.unlink(folder.manifest_path(2))
        assert folder.remove_unneeded(5) == []
        # A number above the newest version would be used again.
        assert folder.numbers() == [3, above]
        assert add(folder, None, table("t", True)) == above + 1


def test_numbers_of_more_than_eight_digits(folder):
    with folder.lock():
        assert folder.begin_version(at_least=10**8) == 10**8
        assert folder.numbers() == [10**8]
        assert folder.begin_version() == 10**8 + 1


def test_chain_follows_parents_from_the_full_version(folder):
    with folder.lock():
        add(folder, None, table("a", True), table("b", True))
        add(folder, 1, table("a", False), table("b", False))
        add(folder, 2, table("a", False), table("b", True))
        add(folder, 3, table("a", False), table("b", False))
        add(folder, None, table("a", True))
    chain = folder.chain(4)
    assert [manifest.version for manifest in chain] == [1, 2, 3, 4]
    assert [m.version for m in folder.chain(5)] == [5]
    for name, versions in (("a", [1, 2, 3, 4]), ("b", [3, 4])):
        (files,) = folder.table_files(chain, name)
        assert [path for path, _ in files] == [
            folder.file_path(v, f"table-{name}") for v in versions
        ]
    assert len(folder.needed_files(chain)) == 6


def part_of(name, whole, part, parts=2):
    return table(
        name, whole, file=f"table-{name}-{part}", part=part, parts=parts
    )


def test_each_part_has_a_chain_of_its_own(folder):
    with folder.lock():
        add(folder, None, *(part_of("a", True, part) for part in range(2)))
        add(folder, 1, part_of("a", False, 0), part_of("a", True, 1))
        add(folder, 2, part_of("a", False, 0), part_of("a", False, 1))
        add(folder, None, table("a", True))
    files = folder.table_files(folder.chain(3), "a")
    assert [[path for path, _ in part] for part in files] == [
        [folder.file_path(v, "table-a-0") for v in (1, 2, 3)],
        [folder.file_path(v, "table-a-1") for v in (2, 3)],
    ]
    assert len(folder.needed_files(folder.chain(3))) == 5


def test_a_delta_is_of_as_many_parts(folder):
    with folder.lock():
        add(folder, None, *(part_of("a", True, part) for part in range(2)))
        add(folder, 1, *(part_of("a", False, part, 3) for part in range(3)))
        add(folder, 1, table("a", False))
    for version, parts in ((2, " in 3 parts"), (3, "")):
        with pytest.raises(
            CorruptSnapshotError,
            match=f"have dim 4 and dtype float32{parts}, but in .* it has dim 4 "
            "and dtype float32 in 2 parts$",
        ):
            folder.chain(version)


@pytest.mark.parametrize(
    "child, history, message",
    [
        (table("a", False), "cd", "the two have different histories"),
        (table("a", False, dim=5), "ab", "have dim 5 .* it has dim 4"),
        (
            table("a", False, dtype="float16"),
            "ab",
            "dtype float16, but in version 1 it has .* float32",
        ),
        (table("b", False), "ab", "'b' have .* it has no rows"),
    ],
)
def test_versions_that_do_not_fit_together(folder, child, history, message):
    with folder.lock():
        add(folder, None, table("a", True))
        add(folder, 1, child, history=history)
    with pytest.raises(CorruptSnapshotError, match=f"2/MANIFEST: .*{message}"):
        folder.chain(2)


def test_a_manifest_of_another_version_is_refused(folder):
    with folder.lock():
        add(folder, None, table("a", True))
        add(folder, None, table("a", True))
        os.replace(folder.manifest_path(2), folder.manifest_path(1))
    with pytest.raises(
        CorruptSnapshotError, match="`version` must be 1, as in the fol"
    ):
        folder.manifest(1)
    with pytest.raises(SnapshotError, match="has no version 2; it has 1$"):
        folder.manifest(2)


def test_remove_unneeded_keeps_parents_of_the_newest(folder):
    with folder.lock():
        add(folder, None, table("a", True))
        add(folder, 1, table("a", False))
        add(folder, None, table("a", True))
        add(folder, 3, table("a", False))
        add(folder, 4, table("a", False))
        assert folder.remove_unneeded(9) == []
        assert folder.remove_unneeded(2) == [2, 1]
        assert folder.versions() == [3, 4, 5]
        add(folder, None, table("a", True))
        assert folder.remove_unneeded(1, also=[4, 9]) == [5]
        assert folder.versions() == [3, 4, 6]
        assert folder.remove_unneeded(1) == [4, 3]
    assert folder.numbers() == [6]


def test_remove_unneeded_removes_nothing_if_it_cannot_tell(folder):
    with folder.lock():
        add(folder, None, table("a", True))
        add(folder, None, table("a", True))
        with open(folder.manifest_path(2), "r+b") as file:
            file.write(b"?")
        with pytest.raises(CorruptSnapshotError):
            folder.remove_unneeded(1)
    assert folder.versions() == [1, 2]


def test_one_writer_at_a_time(folder):
    with folder.lock():
        with pytest.raises(
            SnapshotLockedError,
            match=rf"LOCK: is held by process {os.getpid()} on \S+\. Only one",
        ):
            folder.acquire()
    with folder.lock():
        pass


def test_the_lock_of_a_process_goes_with_it(folder, fork):
    holder = fork(copying_process.hold, folder.path)
    process = int(holder.stdout.readline())
    with pytest.raises(SnapshotLockedError, match=f"process {process} "):
        folder.acquire()
    holder.kill()
    with folder.lock():
        pass


def test_a_lock_of_unreadable_text_is_a_lock(folder):
    with folder.lock():
        with open(os.path.join(folder.path, "LOCK"), "wb") as file:
            file.write(b"\xff{")
        with pytest.raises(
            SnapshotLockedError, match="held by another process"
        ):
            folder.acquire()
