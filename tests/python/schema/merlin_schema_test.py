"""Schema files of NVIDIA Merlin and NVTabular, read and written."""

import hypothesis
import pytest
from hypothesis import strategies as st

from lodestar.data import Column, Schema

STRUCT = "type.googleapis.com/google.protobuf.Struct"
# As Merlin writes the output of NVTabular: two of its columns and a list.
EXAMPLE = r"""
feature {
  name: "user_id"
  type: INT
  int_domain { name: "user_id" max: 294736 is_categorical: true }
  annotation {
    tag: "user_id"
    tag: "user"
    tag: "categorical"
    extra_metadata {
      type_url: "type.googleapis.com/google.protobuf.Struct"
      value: "\n\021\n\013num_buckets\022\002\010\000\n\r\n\007is_list\022\002 \000\n\017\n\tis_ragged\022\002 \000"
    }
  }
}
feature {
  name: "genres"
  value_count { min: 1 }
  type: INT
  int_domain { name: "genres" max: 18 is_categorical: true }
  annotation { tag: "categorical" tag: "item" }
  presence { min_fraction: 1.0 }
}
feature {
  name: "price"
  type: FLOAT
  float_domain { name: "price" min: 0.0 max: 1e4 disallow_nan: true }
  annotation { tag: "continuous" }
}
feature { name: "click" type: INT annotation { tag: "TARGET" tag: "binary_classification" } }
unknown_field: [1, 2]
"""  # noqa: E501


def load(tmp_path, text, name="schema.pbtxt"):
    path = tmp_path / name
    path.write_text(text)
    return Schema.load(path)


def feature(text, tmp_path):
    (column,) = load(tmp_path, f'feature {{ name: "x" {text} }}')
    return column


def test_a_schema_of_nvtabular(tmp_path):
    assert list(load(tmp_path, EXAMPLE)) == [
        Column.sparse("user_id"),
        Column.sparse("genres"),
        Column.dense("price"),
        Column.label("click"),
    ]


@pytest.mark.parametrize(
    "text, column",
    [
        ('type: INT annotation { tag: "id" }', Column.sparse("x")),
        ('type: INT annotation { tag: "item_id" }', Column.sparse("x")),
        ("type: INT int_domain { is_categorical: true }", Column.sparse("x")),
        ('type: FLOAT annotation { tag: "categorical" }', Column.sparse("x")),
        ("type: BYTES", Column.sparse("x", encoding="hash", strings_only=True)),
        ("type: 1", Column.sparse("x", encoding="hash", strings_only=True)),
        (
            'annotation { tag: "session_id" }',
            Column.sparse("x", encoding="hash", strings_only=True),
        ),
        (
            'type: BYTES annotation { tag: "categorical" tag: "wide" }',
            Column.sparse("x", encoding="hash", strings_only=True, wide=True),
        ),
        ("type: FLOAT", Column.dense("x")),
        ("type: FLOAT value_count { min: 1 max: 1 }", Column.dense("x")),
        ("type: FLOAT value_count { min: 3 max: 3 }", Column.dense("x", [3])),
        (
            "type: FLOAT shape { dim { size: 2 } dim { size: 3 } }",
            Column.dense("x", [2, 3]),
        ),
        (
            'type: INT annotation { tag: "continuous" }',
            Column.dense("x", dtype="uint64"),
        ),
        (
            "type: FLOAT value_count { min: 2 max: 20 }",
            Column.sparse("x", dtype="float"),
        ),
        ("type: FLOAT value_count { }", Column.sparse("x", dtype="float")),
        (
            'type: FLOAT annotation { tag: "list" tag: "time" }',
            Column.sparse("x", dtype="float"),
        ),
        (
            f'type: FLOAT annotation {{ extra_metadata {{ type_url: "{STRUCT}" '
            r'value: "\n\r\n\007is_list\022\002 \001" } }',
            Column.sparse("x", dtype="float"),
        ),
        (
            f"type: FLOAT annotation {{ extra_metadata {{ [{STRUCT}] "
            '{ fields { key: "is_list" value { bool_value: true } } } } }',
            Column.sparse("x", dtype="float"),
        ),
        ('type: INT annotation { tag: "target" }', Column.label("x")),
        (
            'type: INT int_domain { max: 1 } annotation { tag: "target" }',
            Column.label("x"),
        ),
        (
            'type: INT int_domain { max: 4 } annotation { tag: "target" }',
            Column.label("x", binary=False),
        ),
        (
            'type: INT annotation { tag: "multi_class_classification" }',
            Column.label("x", binary=False),
        ),
        (
            'type: FLOAT annotation { tag: "target" tag: "regression" }',
            Column.label("x", dtype="float", binary=False),
        ),
        (
            'type: FLOAT annotation { tag: "binary_classification" }',
            Column.label("x", dtype="float"),
        ),
    ],
)
def test_features(tmp_path, text, column):
    assert feature(text, tmp_path) == column


@pytest.mark.parametrize(
    "text, message",
    [
        ("feature {", r"schema\.pbtxt: not a Schema: 1:"),
        ('feature { name: "x" type: TEXT }', "not a Schema: 1:.*TEXT"),
        ("", "A Schema needs at least one column"),
        ("feature { type: FLOAT }", "feature '': The name of a column must"),
        ('feature { name: "x" type: STRUCT }', "'x': features of the type STR"),
        (
            'feature { name: "x" type: INT }',
            "feature 'x': the type INT does not",
        ),
        (
            'feature { name: "x" type: BYTES annotation { tag: "target" } }',
            "feature 'x': a label must be one number, got the type BYTES",
        ),
        (
            'feature { name: "x" type: INT value_count { } '
            'annotation { tag: "target" } }',
            "feature 'x': a label must be one number, got a list",
        ),
        (
            f'feature {{ name: "x" annotation {{ extra_metadata {{ type_url: '
            f'"{STRUCT}" value: "\\n" }} }} }}',
            "feature 'x': `extra_metadata` must be a Struct",
        ),
        (
            'feature { name: "x" type: FLOAT } feature { name: "x" type: FLOAT }',
            "'x' is declared twice",
        ),
    ],
)
def test_defaults_of_a_file(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as error:
        load(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path}/schema.pbtxt: ")


NAMES = st.text(min_size=1)
COLUMNS = st.one_of(
    st.builds(
        Column.label,
        NAMES,
        dtype=st.sampled_from(["uint64", "float"]),
        binary=st.booleans(),
    ),
    st.builds(
        Column.dense,
        NAMES,
        st.lists(st.integers(1, 9), min_size=1, max_size=3),
        dtype=st.sampled_from(["uint64", "float"]),
    ),
    st.builds(Column.sparse, NAMES, wide=st.booleans()),
    st.builds(
        Column.sparse,
        NAMES,
        encoding=st.just("hash"),
        strings_only=st.just(True),
        wide=st.booleans(),
    ),
    st.builds(Column.sparse, NAMES, dtype=st.just("float")),
)


@hypothesis.settings(max_examples=50, deadline=None, database=None)
@hypothesis.given(
    st.lists(COLUMNS, min_size=1, max_size=8, unique_by=lambda c: c.name)
)
def test_written_and_read_back_is_equal(tmp_path_factory, columns):
    path = tmp_path_factory.getbasetemp() / "any.pbtxt"
    Schema(columns).save(path)
    assert Schema.load(path) == Schema(columns)


def test_weights_are_written(tmp_path):
    schema = Schema(
        [
            Column.sparse("w", dtype="float", weights_of="C"),
            Column.sparse("C"),
        ]
    )
    schema.save(tmp_path / "schema.pbtxt")
    assert "weighted_feature" in (tmp_path / "schema.pbtxt").read_text()
    assert Schema.load(tmp_path / "schema.pbtxt") == schema


@pytest.mark.parametrize(
    "column, text",
    [
        (Column.one_hot("x", 7), "`kind`='one_hot'"),
        (Column.dense("x", []), r"`shape`=\(\)"),
        (Column.dense("x", [-1]), r"`shape`=\(-1,\)|`kind`='dense'"),
        (Column.dense("x", [-1, 2]), r"`shape`=\(-1, 2\)|`kind`='dense'"),
        (Column.dense("x", fill_value=1.0), "`fill_value`=1.0"),
        (Column.sparse("x", encoding="hex"), "`encoding`='hex'"),
        (Column.sparse("x", encoding="hash", hash_as="y"), "`hash_as`='y'"),
        (Column.sparse("x", separator="|"), r"`separator`='\|'"),
        (Column.sparse("x", unit="s"), "`unit`='s'"),
        (Column.sparse("x", depth=2), "`depth`=2"),
        (Column.sparse("x", used=False), "`used`=False"),
        (
            Column.label("x", positive="yes", negative="no"),
            r"`positive`=\('yes',\)",
        ),
        (Column.sample_weight("x"), "`kind`='sample_weight'"),
        (Column.dense("x", rounded=True), "`rounded`=True"),
        (Column.sparse("x", encoding="hash"), "`strings_only`=False"),
    ],
)
def test_columns_that_a_file_cannot_express(tmp_path, column, text):
    path = tmp_path / "schema.pbtxt"
    with pytest.raises(
        ValueError, match=f"'x': a .pbtxt file cannot .* {text}"
    ):
        Schema([column, Column.label("y")]).save(path)
    assert not path.exists()


def test_na_values_are_not_written(tmp_path):
    schema = Schema([Column.sparse("x")], na_values=["-"])
    with pytest.raises(ValueError, match=r"cannot express `na_values`=\['-'\]"):
        schema.save(tmp_path / "schema.pbtxt")
