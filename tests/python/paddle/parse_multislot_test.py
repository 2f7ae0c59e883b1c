"""Compares parsing lines in tensors with MultiSlotDataset on files."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar._errors import describe_error
from lodestar.data import Column, Schema
from lodestar.paddle import MultiSlotGenerator, parse_multislot
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("I", (2, 1)),
        Column.dense("P", (-1, 2)),
        Column.sparse("C"),
        Column.sparse("w", dtype="float", weights_of="C"),
        Column.one_hot("day", 7),
        Column.sparse("none", used=False),
    ]
)
LINES = [
    "1 1 2 .5 1e3 2 1 2 2 7 -8 2 .25 -1 1 6 0",
    "1 0 2 -0.1 0x1p3 2 3 4 0 0 1 0 3 1 2 3",
    "1 0 2 7 16777218 2 5 6 1 18446744073709551615 1 .125 1 3 0",
]


def flat(element):
    """Returns the tensors of an element; a ragged tensor becomes two."""
    return [
        np.asarray(part)
        for part in tf.nest.flatten(element, expand_composites=True)
    ]


def assert_equal(found, wanted):
    tf.nest.assert_same_structure(found, wanted, expand_composites=True)
    for a, b in zip(flat(found), flat(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "count, end, sparse", [(1, "", "ragged"), (2, "\n", "lod"), (3, "", "csr")]
)
def test_equals_the_dataset(tmp_path, count, end, sparse):
    path = tmp_path / "file"
    lines = LINES[:count]
    path.write_text("".join(line + "\n" for line in lines))
    (wanted,) = MultiSlotDataset(path, SPEC, 10, sparse=sparse)
    found = parse_multislot([line + end for line in lines], SPEC, sparse=sparse)
    assert_equal(found, wanted)


def test_no_lines_make_an_empty_batch():
    features, label = parse_multislot([], SPEC)
    assert label.shape == (0, 1)
    assert features["I"].shape == (0, 2, 1)
    assert features["P"].shape == (0, 0, 2)
    assert features["C"].shape.as_list() == [0, None]
    assert features["day"].shape == (0, 7)


@pytest.mark.parametrize("shape", [[None], [3], None])
def test_in_a_function(shape):
    @tf.function(input_signature=[tf.TensorSpec(shape, tf.string)])
    def parse(lines):
        features, label = parse_multislot(lines, SPEC)
        rows = 3 if shape == [3] else None
        assert features["I"].shape.as_list() == [rows, 2, 1]
        assert features["C"].shape.as_list() == [rows, None]
        assert label.shape.as_list() == [rows, 1]
        return features, label

    assert_equal(
        parse(tf.constant(LINES)), parse_multislot(tf.constant(LINES), SPEC)
    )


def test_in_map_after_a_generator():
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(LINES), output_signature=tf.TensorSpec([], tf.string)
    )
    found = list(dataset.batch(2).map(lambda text: parse_multislot(text, SPEC)))
    assert len(found) == 2
    assert_equal(found[0], parse_multislot(LINES[:2], SPEC))
    assert_equal(found[1], parse_multislot(LINES[2:], SPEC))


def test_in_a_serving_signature(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(lines):
        features, label = parse_multislot(lines, SPEC)
        return {"sum": tf.reduce_sum(features["I"], [1, 2]), "label": label}

    tf.saved_model.save(
        tf.Module(), tmp_path / "model", signatures={"serve": serve}
    )
    loaded = tf.saved_model.load(tmp_path / "model").signatures["serve"]
    found = loaded(lines=tf.constant(LINES))
    np.testing.assert_allclose(found["sum"], [1000.5, 7.9, 16777224], rtol=1e-6)
    np.testing.assert_array_equal(found["label"][:, 0], [1, 0, 0])


def test_without_a_label_there_are_only_features():
    features = parse_multislot(["1 5"], [Column.sparse("C")])
    assert features["C"].to_list() == [[5]]


def test_weights_are_paired():
    schema = [Column.sparse("C"), Column.sparse("w", dtype="float")]
    assert parse_multislot(["1 5 0"], schema)["w"].to_list() == [[]]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="found 0 weights, expected one for",
    ):
        parse_multislot(["1 5 0"], schema, weights={"C": "w"})


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "slot 'C' at byte 1: the line ends before its count"),
        ("\n", "slot 'C' at byte 1: the line ends before its count"),
        ("1 x", "slot 'C' at byte 3: value 1 of 1 is 'x', expected an integer"),
        ("1 5\n1 5", "a newline at byte 4, expected one line"),
        ("1 5\n\n", "a newline at byte 4, expected one line"),
        ("1 \0", "not a text file: a NUL byte at byte 3"),
    ],
)
def test_an_error_names_the_index_of_the_line(line, message):
    lines = tf.constant(["1 5", "1 5", line, "1 6"])
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        parse_multislot(lines, [Column.sparse("C")])
    assert f"`text[2]`: {message}" in describe_error(error.value)


def test_samples_of_a_batch_must_agree_on_a_free_dim():
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="sample 1 of the batch has 4 val"
    ):
        parse_multislot(["2 1 2", "4 1 2 3 4"], [Column.dense("P", (-1, 2))])


@pytest.mark.parametrize(
    "lines",
    [tf.constant([1, 2]), tf.constant("1 5"), tf.constant([["1 5"]]), "1 5"],
)
def test_lines_must_be_a_vector_of_strings(lines):
    with pytest.raises(ValueError, match="`lines` must be a string tensor of"):
        parse_multislot(lines, [Column.sparse("C")])


def test_the_op_checks_its_attributes():
    op = lodestar._library.gen_ops.lodestar_parse_multi_slot
    layout = lodestar.data.schema_layout.SchemaLayout(
        Schema([Column.sparse("C")])
    )
    good = layout.op_attributes()
    for change, message in [
        ({"slot_limits": [0, 0]}, "must have one length, found 1, 1, 1, 2, 1"),
        ({"output_types": [tf.int64]}, "`output_.*` must"),
        ({"slot_weighs": [5]}, "`slot_weighs` of slot 'C' is 5"),
        (
            {"slot_shapes": [tf.TensorShape([None, None])]},
            "at most one unknown",
        ),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            op(text=["1 5"], **{**good, **change})


class Clicks(MultiSlotGenerator):
    def generate_sample(self, line):
        click, *ids = map(int, line.split())
        yield [("click", [click]), ("C", ids)]


GENERATED = Schema([Column.label("click"), Column.sparse("C")])


@pytest.fixture
def sources(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two.gz"
    one.write_text("".join(f"{i % 2} {i} {i}\n" for i in range(10)))
    two.write_bytes(
        gzip.compress("".join(f"1 {i}\n" for i in range(10, 15)).encode())
    )
    return [one, two]


def firsts(dataset):
    return [ids[0] for x, _ in dataset for ids in x["C"].to_list()]


def test_a_generator_runs_in_process(tmp_path, sources):
    dataset = Clicks(schema=GENERATED).dataset(sources, 4)
    out = [tmp_path / f"out-{i}" for i in range(2)]
    for source, text in zip(sources, out, strict=True):
        Clicks(schema=GENERATED).write(source, text)
    wanted = list(MultiSlotDataset(out, GENERATED, 4))
    for _ in range(2):
        found = list(dataset)
        assert len(found) == 4
        for a, b in zip(found, wanted, strict=True):
            assert_equal(a, b)
    assert (
        dataset.element_spec == MultiSlotDataset(out, GENERATED, 4).element_spec
    )


def test_options_of_a_generated_dataset(sources):
    generator = Clicks(schema=GENERATED)
    assert firsts(generator.dataset(sources, 4, repeat=2)) == [*range(15)] * 2
    assert firsts(generator.dataset(sources, 4, shard=(2, 1))) == [
        *range(10, 15)
    ]
    assert firsts(generator.dataset(sources[0], 4, shard=(3, 1))) == [1, 4, 7]
    dropped = generator.dataset(sources, 4, drop_remainder=True)
    assert firsts(dropped) == [*range(12)]
    assert dropped.element_spec[1].shape == (4, 1)
    shuffled = generator.dataset(sources, 4, shuffle=100, seed=3)
    found = firsts(shuffled)
    assert found != [*range(15)] and sorted(found) == [*range(15)]
    assert found == firsts(generator.dataset(sources, 4, shuffle=100, seed=3))
    assert "csr" in next(iter(generator.dataset(sources, 4, sparse="csr")))[0]


def test_an_error_of_a_generated_dataset_names_the_line(sources):
    sources[0].write_text("1 5\n1 x\n")
    with pytest.raises(
        tf.errors.OpError, match="one:2: generate_sample.. raised ValueError"
    ):
        list(Clicks(schema=GENERATED).dataset(sources, 1))


def test_bad_options_of_a_generated_dataset(sources):
    with pytest.raises(ValueError, match="a Clicks created with `schema`"):
        Clicks().dataset(sources, 4)
    with pytest.raises(ValueError, match="`on_error` is not an option here"):
        Clicks(schema=GENERATED).dataset(sources, 4, on_error="skip")
    with pytest.raises(ValueError, match="`files` must have at least"):
        Clicks(schema=GENERATED).dataset([], 4)
