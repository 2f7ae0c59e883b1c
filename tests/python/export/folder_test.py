"""Tests of folders that are replaced whole."""

import os

import pytest
import tensorflow as tf

from lodestar.export.folder import whole_folder


def write(path, text):
    with whole_folder(path) as partial:
        os.makedirs(partial)
        with open(os.path.join(partial, "f"), "w") as file:
            file.write(text)
        open(os.path.join(partial, "saved_model.pb"), "w").close()


def read(path):
    return {name: (path / name).read_text() for name in os.listdir(path)}


@pytest.mark.parametrize("end", ["", "/"])
def test_appears_and_is_replaced(tmp_path, end):
    path = tmp_path / "x"
    write(f"{path}{end}", "1")
    assert read(path)["f"] == "1"
    write(f"{path}{end}", "2")
    assert read(path)["f"] == "2"
    assert os.listdir(tmp_path) == ["x"]


def test_is_not_there_while_it_is_written(tmp_path):
    path = tmp_path / "x"
    with whole_folder(path) as partial:
        os.makedirs(partial)
        assert not path.exists()
    assert path.exists()


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_was_there_stays_on_an_error(tmp_path, error):
    path = tmp_path / "x"
    write(path, "1")
    with pytest.raises(error), whole_folder(path) as partial:
        os.makedirs(partial)
        raise error
    assert read(path)["f"] == "1"
    assert os.listdir(tmp_path) == ["x"]


def test_it_comes_back_if_the_new_one_cannot_take_its_place(
    tmp_path, monkeypatch
):
    path = tmp_path / "x"
    write(path, "1")
    rename = tf.io.gfile.rename

    def fails(source, target, **options):
        if ".partial-" in source:
            raise tf.errors.PermissionDeniedError(None, None, "denied")
        rename(source, target, **options)

    monkeypatch.setattr(tf.io.gfile, "rename", fails)
    with pytest.raises(tf.errors.PermissionDeniedError, match="denied"):
        write(path, "2")
    assert read(path)["f"] == "1"
    assert os.listdir(tmp_path) == ["x"]


def test_the_folder_behind_a_link_is_replaced(tmp_path):
    write(tmp_path / "v1", "1")
    os.symlink("v1", tmp_path / "current")
    write(tmp_path / "current", "2")
    assert os.readlink(tmp_path / "current") == "v1"
    assert read(tmp_path / "v1")["f"] == "2"
    assert sorted(os.listdir(tmp_path)) == ["current", "v1"]


def test_an_empty_folder_and_bytes(tmp_path):
    (tmp_path / "x").mkdir()
    write(os.fsencode(tmp_path / "x"), "1")
    assert read(tmp_path / "x")["f"] == "1"


def test_what_is_no_saved_model_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder/thesis"):
        (tmp_path / name).write_text("precious")
    with pytest.raises(ValueError, match="file' is a file, wanted a folder"):
        write(tmp_path / "file", "1")
    with pytest.raises(ValueError, match=r"than a SavedModel, \['thesis'\]"):
        write(tmp_path / "folder", "1")
    assert (tmp_path / "file").read_text() == "precious"
    assert read(tmp_path / "folder") == {"thesis": "precious"}
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize("path", ["", "/"])
def test_no_folder(path):
    with pytest.raises(ValueError, match="`path` is empty"):
        write(path, "1")
