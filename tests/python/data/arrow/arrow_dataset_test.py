"""lodestar.data.arrow.arrow_dataset: elements of every source, errors, fit."""

import os

import keras
import numpy as np
import pandas
import pyarrow as pa
import pytest
import tensorflow as tf
from row_cases import SPEC, read, set_block_bytes, table, write

import lodestar
from lodestar._errors import describe_error
from lodestar.data import Column, DataError, SkippedRecords, open_dataset

SUFFIXES = ["parquet", "arrow", "arrows", "csv", "jsonl", "tfrecord"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_elements_are_those_of_a_table(tmp_path, suffix):
    data = table(0, 40)
    path = write(tmp_path / f"a.{suffix}", data)
    ram = f"ram://arrow_dataset/a.{suffix}"
    tf.io.gfile.copy(str(path), ram, overwrite=True)
    options = {"shuffle": 6, "seed": 3, "repeat": 2}
    of_table = open_dataset(data, SPEC, 8, **options)
    wanted = list(of_table)
    for name in (path, f"file://{path}", ram):
        found = open_dataset(name, SPEC, 8, **options)
        assert found.element_spec == of_table.element_spec
        for a, b in zip(found, wanted, strict=True):
            tf.nest.map_structure(
                np.testing.assert_array_equal,
                tf.nest.flatten(a, expand_composites=True),
                tf.nest.flatten(b, expand_composites=True),
            )


def test_labels_may_be_integers():
    data = pa.table({"y": pa.array([3, 2**40], pa.int64())})
    ((_, label),) = open_dataset(data, [Column.label("y", binary=False)], 8)
    assert label.numpy().tolist() == [[3.0], [2.0**40]]


@pytest.mark.parametrize("run", ["eager", "function", "fit"])
def test_an_error_of_a_row_is_a_few_lines(run):
    frame = pandas.DataFrame({"label": [0.0, 1.0], "i": ["7", "x"]})
    dataset = open_dataset(
        frame, [Column.label("label"), Column.sparse("i")], 2
    )

    @tf.function
    def read_all():
        for batch in dataset:
            tf.nest.map_structure(tf.print, batch)

    def fit():
        ids = keras.Input((None,), dtype="int64", ragged=True, name="i")
        rows = lodestar.layers.DynamicEmbedding(2, combiner="sum")(ids)
        model = keras.Model({"i": ids}, keras.layers.Dense(1)(rows))
        model.compile(lodestar.optimizers.SGD(), "mse")
        model.fit(dataset, verbose=0)

    runs = {"eager": lambda: list(dataset), "function": read_all, "fit": fit}
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        runs[run]()
    text = str(error.value)
    assert "Traceback" not in text and len(text.splitlines()) < 10
    assert (
        "pandas.DataFrame: row 1: column 'i': found 'x', expected an integer of "
        "64 bits; `on_error='skip'` leaves such rows out"
    ) in text


def longer(path):
    with open(path, "ab") as file:
        file.write(b"\n")


def of_the_same_size(path):
    with open(path, "r+b") as file:
        file.write(file.read(1))
    os.utime(path, (1, 1))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("change", [longer, of_the_same_size])
@pytest.mark.parametrize(
    "suffix", ["parquet", "arrow", "arrows", "csv", "jsonl"]
)
def test_a_file_that_changes_while_it_is_read(
    tmp_path, monkeypatch, suffix, change, on_error
):
    set_block_bytes(monkeypatch, 100)
    monkeypatch.setattr("lodestar.data.arrow.table_source._GROUP_ROWS", 2)
    path = write(tmp_path / f"a.{suffix}", table(0, 40), 2)
    options = {"prefetch": 0, "num_parallel_files": 1, "on_error": on_error}
    iterator = iter(open_dataset(path, SPEC, 2, **options))
    next(iterator)
    size = path.stat().st_size
    change(path)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(iterator)
    text = describe_error(error.value)
    assert text.startswith(f"{path}: changed while it was read: it ")
    if change is longer:
        assert f"it had {size} bytes when it was opened" in text


CUT = {
    "parquet": ([0, 3, 8, 100, -1, -9], "not a whole Parquet file: "),
    "arrow": ([8, 100, 400, -20], "not a whole Arrow IPC file: "),
    "arrows": ([8, 100, 400, -20], "not a whole Arrow IPC file: "),
}


@pytest.mark.parametrize(
    ("suffix", "size"), [(s, n) for s, (sizes, _) in CUT.items() for n in sizes]
)
def test_truncated_files(tmp_path, suffix, size):
    good = write(tmp_path / f"good.{suffix}", table(0, 20), 6)
    cut = tmp_path / f"cut.{suffix}"
    cut.write_bytes(good.read_bytes()[:size])
    format = suffix.removesuffix("s")
    where = f"{cut}: {CUT[suffix][1]}"
    with pytest.raises(DataError) as error:
        open_dataset(cut, SPEC, 8, format=format)
    assert str(error.value).startswith(where)
    with pytest.raises(DataError) as error:  # the format may be unknown
        open_dataset(cut, SPEC, 8)
    assert str(error.value).startswith(f"{cut}: ")
    skipped = SkippedRecords()
    options = {"on_error": "skip", "skipped": skipped, "format": format}
    dataset = open_dataset([cut, good], SPEC, 8, **options)
    assert sum(read(dataset), []) == list(range(20))
    assert skipped.count == 1
    assert skipped.messages[0].startswith(where)
    with pytest.raises(DataError, match="no file of 1 can be read"):
        open_dataset(cut, SPEC, 8, **options)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_changed_after_a_checkpoint(tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}", table(0, 30))
    for on_error in ("raise", "skip"):
        iterator = iter(open_dataset(path, SPEC, 8, on_error=on_error))
        next(iterator), next(iterator)
        saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
        write(path, table(0, 29))
        again = iter(open_dataset(path, SPEC, 8, on_error=on_error))
        tf.train.Checkpoint(iterator=again).restore(saved)
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="had .* when the iterator was saved",
        ):
            list(again)
        write(path, table(0, 30))


def test_model_fit_knows_the_steps_of_an_epoch():
    inputs = SPEC.inputs()
    rows = [
        lodestar.layers.DynamicEmbedding(2, combiner="sum")(inputs[name])
        for name in ("C1", "C2")
    ]
    score = keras.layers.Dense(1, activation="sigmoid")(
        keras.layers.concatenate([*rows, inputs["I1"], inputs["day"]])
    )
    model = keras.Model(inputs, score)
    model.compile(
        lodestar.optimizers.SGD(),
        "binary_crossentropy",
    )
    steps = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: seen.append(steps.params["steps"])
    )
    seen = []
    # A model that is built on the schema's inputs can replace the schema.
    dataset = open_dataset(table(0, 20), model, 8, shuffle=20)
    assert sorted(sum(read(dataset), [])) == list(range(20))
    history = model.fit(dataset, epochs=2, verbose=0, callbacks=[steps])
    assert seen == [3]
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("options", [{}, {"shuffle": 3}, {"split": 0.5}])
def test_rows_of_text_that_cannot_be_parsed_are_omitted(tmp_path, options):
    path = tmp_path / "in.csv"
    path.write_text('label,a\n1,2\n3,4\n0\n0,"5\n"\n1,6,7\n')
    schema = [Column.label("label"), Column.sparse("a")]
    skipped = SkippedRecords()
    found = open_dataset(
        path, schema, 8, on_error="skip", skipped=skipped, **options
    )
    parts = found if "split" in options else [found]
    batches = [batch for part in parts for batch in part]
    assert sorted(sum((x["a"].to_list() for x, _ in batches), [])) == [[2], [5]]
    assert sorted(skipped.messages) == [
        f"{path}: line 3: column 'label': found 3, expected 0 or 1",
        f"{path}: line 4: found 1 fields, expected 2",
        f"{path}: line 7: found 3 fields, expected 2",
    ]
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_dataset(path, schema, 8))
    assert describe_error(error.value).startswith(f"{path}: line 3: column")
