"""open_writer: the format of the suffix, or as given."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, DataError, Schema, open_dataset, open_writer

SCHEMA = Schema(
    [Column.label("y"), Column.dense("x", [2]), Column.sparse("item")]
)
SAMPLES = [
    {"y": 1, "x": [0.5, 2], "item": [7]},
    {"y": 0, "x": [0, -1], "item": [2**40]},
]


@pytest.mark.parametrize(
    "name, format, writing, reading",
    [
        ("a.txt", "multislot", {}, {}),
        ("a.txt.gz", "multislot", {}, {}),
        ("a.instant", "instant", {"batch_size": 1}, {}),
        ("a.norm", "norm", {"key_type": "int64"}, {"key_type": "int64"}),
        (
            "a.raw",
            "raw",
            {"layout": "multi_hot_float", "key_type": "int64"},
            {"layout": "multi_hot_float", "key_type": "int64"},
        ),
        ("a.parquet", "parquet", {"row_group_size": 1}, {}),
        ("a.tfrecord", "tfrecord", {}, {}),
        ("a.csv", "csv", {"delimiter": ";"}, {}),
        ("a.tsv", "tsv", {}, {}),
    ],
)
def test_written_files_are_read_back(tmp_path, name, format, writing, reading):
    SCHEMA.save(tmp_path / "schema.yaml")
    for path, named, schema in (
        (tmp_path / name, None, SCHEMA),
        (tmp_path / "other", format, tmp_path / "schema.yaml"),
    ):
        with open_writer(path, schema, named, **writing) as writer:
            for sample in SAMPLES:
                writer.write(sample)
        dataset = open_dataset(path, SCHEMA, 2, format=format, **reading)
        ((features, label),) = dataset
        assert label.numpy().tolist() == [[1], [0]]
        assert features["x"].numpy().tolist() == [[0.5, 2], [0, -1]]
        assert features["item"].to_list() == [[7], [2**40]]


@pytest.mark.parametrize(
    "name, format, options, message",
    [
        ("a.jpg", None, {}, "a.jpg: the ending names no format; rename the"),
        ("a.txt", "avro", {}, "`format` must be one of .*, got 'avro'"),
        (
            "a.txt",
            None,
            {"key_type": "int64"},
            "but `key_type` is an option of norm",
        ),
        ("a.arrow", None, {}, "Arrow IPC and JSON files are not written"),
        ("a.jsonl", None, {}, "Arrow IPC and JSON files are not written"),
    ],
)
def test_a_bad_call_writes_nothing(tmp_path, name, format, options, message):
    with pytest.raises(DataError, match=message):
        open_writer(tmp_path / name, SCHEMA, format, **options)
    assert list(tmp_path.iterdir()) == []


WORDS = [["red", "7", " blue "], ["zoë"], []]


@pytest.mark.parametrize(
    ("name", "form", "hash_as"),
    [
        *(("a.csv", "sample", "term"), ("a.csv", "pair", None)),
        *(("a.parquet", "bytes", None), ("a.tfrecord", "ragged", "term")),
        *(("a.txt", "sample", None), ("a.txt", "ragged", "term")),
    ],
)
def test_strings_get_the_ids_that_readers_give_them(
    tmp_path, name, form, hash_as
):
    word = Column.sparse("word", encoding="hash", hash_as=hash_as)
    schema = Schema([Column.label("y"), word])
    text = tmp_path / "text.csv"
    rows = [f"1,{'|'.join(words)}\n" for words in WORDS]
    text.write_text("y,word\n" + "".join(rows))
    separated = Column.sparse(
        "word", encoding="hash", hash_as=hash_as, separator="|"
    )
    ((want, _),) = open_dataset(text, Schema([schema["y"], separated]), 3)
    flat = np.array([word for words in WORDS for word in words])
    with open_writer(tmp_path / name, schema) as writer:
        if form == "sample":
            for words in WORDS:
                writer.write({"y": 1, "word": words})
        else:
            given = {
                "pair": (flat, [0, 3, 4, 4]),
                "bytes": (np.char.encode(flat, "utf-8"), [0, 3, 4, 4]),
                "ragged": tf.ragged.constant(WORDS),
            }
            writer.write_batch({"y": np.ones(3), "word": given[form]})
    ((found, _),) = open_dataset(tmp_path / name, batch_size=3)
    assert found["word"].to_list() == want["word"].to_list()
    assert len(found["word"].to_list()[0]) == 3


def test_hexadecimal_strings_and_ids(tmp_path):
    schema = Schema([Column.label("y"), Column.sparse("ad", encoding="hex")])
    with open_writer(tmp_path / "a.csv", schema) as writer:
        writer.write({"y": 1, "ad": ["ff", "0xFFFFFFFFFFFFFFFF"]})
        writer.write({"y": 1, "ad": [7, -1]})
    ((found, _),) = open_dataset(tmp_path / "a.csv", batch_size=2)
    assert found["ad"].to_list() == [[255, -1], [7, -1]]


@pytest.mark.parametrize(
    "encoding, words, message",
    [
        (
            "hash",
            ["a", "NA"],
            "slot 'w' must be no string of `na_values`, got NA",
        ),
        (
            "hash",
            ["a", "007"],
            "slot 'w' must be integers in their usual .* 007",
        ),
        (
            "hash",
            ["a", 7],
            "slot 'w' must have either strings or ids, got .* 7",
        ),
        ("hex", ["xyz"], "slot 'w' must be hexadecimal numbers .*, got xyz"),
        (
            "int",
            ["a"],
            "slot .w. must have integers, got .*; a column of strings is "
            r"Column.sparse\('w', encoding='hash'\)",
        ),
    ],
)
def test_strings_without_an_id(tmp_path, encoding, words, message):
    schema = Schema([Column.label("y"), Column.sparse("w", encoding=encoding)])
    with pytest.raises(ValueError, match=f"sample 2: {message}"):
        with open_writer(tmp_path / "a.csv", schema) as writer:
            writer.write({"y": 1, "w": []})
            writer.write({"y": 1, "w": words})
    assert list(tmp_path.iterdir()) == []
