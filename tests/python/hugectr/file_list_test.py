"""lodestar.hugectr.file_list.read_file_list and write_file_list."""

import os

import pytest
import tensorflow as tf

from lodestar.hugectr.file_list import read_file_list, write_file_list


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.data", "b.data", "c d.data"):
        (tmp_path / name).touch()
    return tmp_path


def test_the_format_word_for_word(here):
    files = ["./a.data", here / "b.data", "c d.data"]
    write_file_list("list.txt", files)
    text = (here / "list.txt").read_bytes().decode()
    assert text == f"3\n./a.data\n{here}/b.data\nc d.data\n"
    assert read_file_list("list.txt") == [os.fspath(file) for file in files]
    assert not list(here.glob("*tmp*"))


@pytest.mark.parametrize(
    "text, count",
    [
        ("1\na.data", 1),
        ("2\r\na.data\r\nb.data\r\n", 2),
        ("2\na.data\nb.data\n\n \n", 2),
        ("2\na.data\nb.data\na.data\nb.data\n", 2),
        ("1\na.data\nnowhere\n\nnowhere\n", 1),
        (" 02 \na.data\nb.data\n", 2),
    ],
    ids=["no_end", "crlf", "blank_end", "names_twice", "ignored", "padded"],
)
def test_forms_that_are_read(here, text, count):
    (here / "list.txt").write_bytes(text.encode())
    assert read_file_list("list.txt") == ["a.data", "b.data"][:count]


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "list:1: the number of files must be a .* got ''"),
        (b"0\na.data\n", "list:1: the number of files must be .* got '0'"),
        (b"-1\na.data\n", "list:1: the number of files must be .* got '-1'"),
        (b"1x\na.data\n", "list:1: the number of files must be .* got '1x'"),
        (b"\n1\na.data\n", "list:1: the number of files must be .* got ''"),
        (
            "\u0661\na.data\n".encode(),
            "list:1: the number of files must be .* got '.'",
        ),
        (
            b"9" * 5000,
            "list:1: the number of files must be .* got '9{200}\\.\\.\\.'",
        ),
        (
            b"2\na.data\n\n",
            "list:1: the number of files is '2', but there are 1 paths",
        ),
        (b"99999999999\na.data\n", "is '99999999999', but there are 1"),
        (b"2\n\na.data\n", "list:2: the path must not be blank"),
        (b"2\na.data\n\r\nb.data\n", "list:3: the path must not be blank"),
        (b"1\na.da\0ta\n", "list:2: the path has a NUL byte"),
        (b"2\na.data\n\xff\n", "list:3: is not UTF-8"),
        (b"1\n/nowhere\n", "list:2: the file '/nowhere' does not exist.$"),
        (
            b"1\nram://nowhere\n",
            "list:2: the file 'ram://nowhere' does not exist.$",
        ),
        (
            b"2\na.data\nsub/b.data\n",
            "list:3: the file 'sub/b.data' does not exist. It is relative to "
            "the working directory /",
        ),
    ],
)
def test_errors_name_the_cause(here, data, message):
    (here / "list").write_bytes(data)
    with pytest.raises(
        ValueError,
        match="^" + message if message.startswith("list") else message,
    ):
        read_file_list("list")


def test_a_missing_list_is_named(here):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_file_list("nowhere")
    with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
        write_file_list("nowhere/list", ["a.data"])


@pytest.mark.parametrize(
    "files, message",
    [
        ([], "list: a file list needs at least one path"),
        (["a.data", ""], "a path must not be empty"),
        (["a\nb"], r"list: the path 'a\\nb' is blank or has a line break"),
        (["a\r"], r"list: the path 'a\\r' is blank or has a line break"),
        ("a.data", "list: `files` must be a list of paths, got 'a.data'"),
    ],
)
def test_paths_that_no_list_can_hold(here, files, message):
    with pytest.raises(ValueError, match=message):
        write_file_list("list", files)
    assert not (here / "list").exists()


def test_a_scheme_that_is_not_local():
    with tf.io.gfile.GFile("ram://file_list_test/a", "w") as file:
        file.write("x")
    path = "ram://file_list_test/list"
    write_file_list(path, ["ram://file_list_test/a"])
    assert read_file_list(path) == ["ram://file_list_test/a"]
