"""Tests of replacing folders atomically."""

import os
import re
import shutil
import signal
import sys
import threading
import warnings

import pytest
import tensorflow as tf

from lodestar.export import folder
from lodestar.export.folder import whole_folder


def write(path, text):
    with whole_folder(path) as partial:
        fill(partial, text)


def fill(partial, text):
    os.makedirs(os.path.join(partial, "variables"), exist_ok=True)
    for name in ("variables/f", "saved_model.pb"):
        with open(os.path.join(partial, name), "w") as file:
            file.write(text)


def read(path):
    """Returns the content of a complete folder."""
    assert sorted(os.listdir(path)) == ["saved_model.pb", "variables"]
    text = (path / "saved_model.pb").read_text()
    assert (path / "variables" / "f").read_text() == text
    return text


@pytest.fixture(params=["exchange", "two renames"])
def system(request, monkeypatch):
    """Runs with and without a file system that can exchange names."""
    if request.param == "two renames":
        monkeypatch.setattr(folder, "exchange", lambda one, other: False)


@pytest.mark.parametrize("end", ["", "/"])
def test_appears_and_is_replaced(tmp_path, end, system):
    path = tmp_path / "x"
    write(f"{path}{end}", "1")
    assert read(path) == "1"
    write(f"{path}{end}", "2")
    assert read(path) == "2"
    assert os.listdir(tmp_path) == ["x"]


def test_the_folder_appears_when_complete(tmp_path):
    path = tmp_path / "x"
    with whole_folder(path) as partial:
        assert os.listdir(partial) == []
        assert not path.exists()
    assert path.exists()


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_the_old_folder_stays_on_an_error(tmp_path, error):
    path = tmp_path / "x"
    write(path, "1")
    with pytest.raises(error), whole_folder(path) as partial:
        fill(partial, "2")
        raise error
    assert read(path) == "1"
    assert os.listdir(tmp_path) == ["x"]


def test_the_old_folder_is_restored_if_renaming_fails(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write(path, "1")
    rename = os.rename

    def fails(source, target):
        if ".partial-" in source:
            raise PermissionError("denied")
        rename(source, target)

    monkeypatch.setattr(folder, "exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(PermissionError, match="denied"):
        write(path, "2")
    assert read(path) == "1"
    assert os.listdir(tmp_path) == ["x"]


def test_names_are_exchanged_in_one_step(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").mkdir()
    if folder.exchange(str(tmp_path / "a"), str(tmp_path / "b")):
        assert (tmp_path / "b").read_text() == "1"
        assert (tmp_path / "a").is_dir()
    with pytest.raises(OSError, match="No such file"):
        folder.exchange(str(tmp_path / "a"), str(tmp_path / "none"))


def killed_at(step, run):
    """Runs in a process that dies at a disk step; returns whether it got there."""
    child = os.fork()
    if child == 0:
        left = step

        def die(event, unused):
            nonlocal left
            if event.startswith(("open", "os.", "fcntl.", "shutil.", "ctypes")):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        status = 1
        try:
            sys.addaudithook(die)
            run()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0
    return False


class Stop(Exception):
    pass


def test_an_export_that_is_killed_anywhere_leaves_a_model(tmp_path, system):
    exchanges = folder.exchange(str(tmp_path), str(tmp_path))
    path = tmp_path / "x"
    # As if an older export had died; the next export removes it.
    dead = tmp_path / "x.partial-0123abcd"
    step, found = 0, set()
    running = True
    while running:
        step += 1
        shutil.rmtree(tmp_path)
        os.makedirs(dead)
        write_quietly(path, "1")
        fill(dead, "0")
        running = killed_at(step, lambda: write_quietly(path, "2"))
        if exchanges or path.exists():
            found.add(read(path))
        # Restores the folder that was moved away, and cleans up, even after a
        # failure.
        with pytest.raises(Stop), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with whole_folder(path):
                raise Stop
        assert read(path) in ("1", "2"), step
        assert os.listdir(tmp_path) == ["x"], step
    assert read(path) == "2"
    assert step > 30 and found == {"1", "2"}


def write_quietly(path, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(path, text)


def test_the_next_export_reports_removed_leftovers(tmp_path):
    path = tmp_path / "x"
    write(path, "1")
    dead = tmp_path / "x.partial-0123abcd"
    fill(dead, "0")
    with pytest.warns(UserWarning, match=f"Removed '{re.escape(str(dead))}'"):
        write(path, "2")
    away = tmp_path / "x.replaced-0123abcd"
    os.rename(path, away)
    fill(dead, "3")
    with pytest.warns(UserWarning, match="Restored .*/x', which a killed"):
        with pytest.raises(Stop), whole_folder(path):
            raise Stop
    assert read(path) == "2"
    assert os.listdir(tmp_path) == ["x"]


def test_only_dead_exports_are_removed(tmp_path):
    path = tmp_path / "x"
    write(path, "1")
    kept = {
        "x.partial-0123abcd/thesis": "",
        "y.partial-0123abcd/saved_model.pb": "",
        "x.partial-0123abc/saved_model.pb": "",
        "x.partial-0123abcde/saved_model.pb": "",
        "x.replaced-0123ABCD/saved_model.pb": "",
    }
    for name in kept:
        os.makedirs(tmp_path / os.path.dirname(name))
        (tmp_path / name).write_text("precious")
    (tmp_path / "x.replaced-01234567").write_text("a file")
    os.symlink("y.partial-0123abcd", tmp_path / "x.partial-01234567")
    before = sorted(os.listdir(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(path, "2")
    assert sorted(os.listdir(tmp_path)) == before
    assert all((tmp_path / name).read_text() == "precious" for name in kept)


def test_exports_to_one_path_leave_each_other_alone(tmp_path, system):
    path = tmp_path / "x"
    with whole_folder(path) as first:
        fill(first, "1")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            write(path, "2")
        assert read(path) == "2"
    assert read(path) == "1"
    errors = []

    def writes(text):
        try:
            for _ in range(20):
                write_quietly(path, text)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=writes, args=(t,)) for t in "345"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Between two renames another folder may appear; it is not overwritten.
    assert not errors or not folder.exchange(str(tmp_path), str(tmp_path))
    assert read(path) in "345"


def test_one_that_another_export_replaces_while_it_is_looked_at(
    tmp_path, monkeypatch
):
    path = tmp_path / "x"
    write(path, "1")
    # What it is about to remove from the old folder.
    monkeypatch.setattr(tf.io.gfile, "listdir", lambda path: ["variables"])
    write(path, "2")
    assert read(path) == "2"


def test_the_target_of_a_link_is_replaced(tmp_path):
    write(tmp_path / "v1", "1")
    os.symlink("v1", tmp_path / "current")
    write(tmp_path / "current", "2")
    assert os.readlink(tmp_path / "current") == "v1"
    assert read(tmp_path / "v1") == "2"
    assert sorted(os.listdir(tmp_path)) == ["current", "v1"]


def test_an_empty_folder_and_bytes(tmp_path):
    (tmp_path / "x").mkdir()
    write(os.fsencode(tmp_path / "x"), "1")
    assert read(tmp_path / "x") == "1"


def test_other_folders_are_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder/thesis"):
        (tmp_path / name).write_text("precious")
    with pytest.raises(
        ValueError, match="must be a folder, but .*file' is a file"
    ):
        write(tmp_path / "file", "1")
    with pytest.raises(
        ValueError, match=r"must be a SavedModel .* holds \['thesis'\]"
    ):
        write(tmp_path / "folder", "1")
    assert (tmp_path / "file").read_text() == "precious"
    assert (tmp_path / "folder" / "thesis").read_text() == "precious"
    assert os.listdir(tmp_path / "folder") == ["thesis"]
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_name_that_is_not_utf8(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / os.fsdecode(b"caf\xe9")).write_text("precious")
    message = r"folder: holds b'caf\\xe9', whose name is not UTF-8"
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "folder", "1")
    assert os.listdir(os.fsencode(tmp_path / "folder")) == [b"caf\xe9"]


@pytest.mark.parametrize("path", ["", "/"])
def test_no_folder(path):
    with pytest.raises(ValueError, match="`path` must be the path of a folder"):
        write(path, "1")
