"""Schema files: writing, reading, and errors."""

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies as st

from lodestar.data import Column, Schema
from lodestar.schema.schema import NA_VALUES

EXAMPLE = """
label: [click]
dense: {I: [13]}
sparse: [C1, C2]
wide: [C2]
one_hot: {weekday: 7}
"""


# Seven lines that expand to 4 MB.
BOMB = (
    "a: &a ["
    + "x," * 9
    + "]\n"
    + "".join(
        f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n"
        for a, b in zip("abcdef", "bcdefg")
    )
)

TEXT = st.text(min_size=1)
MAYBE_TEXT = st.none() | TEXT
DTYPES = st.sampled_from(["uint64", "float"])
READING = {
    "separator": MAYBE_TEXT,
    "unit": st.sampled_from([None, "s", "ms", "us", "ns", "D"]),
}
LABELS = st.builds(
    Column.label,
    TEXT,
    dtype=DTYPES,
    binary=st.booleans(),
    used=st.booleans(),
    rounded=st.just(False),
) | st.builds(
    lambda name, words, **options: Column.label(
        name, positive=words[:1], negative=words[1:], **options
    ),
    TEXT,
    st.lists(TEXT, min_size=2, max_size=4, unique=True),
    optional=st.booleans(),
)
SHAPES = st.lists(st.integers(1, 9), max_size=3).flatmap(
    lambda shape: st.sampled_from(
        [shape] + [[*shape[:i], -1, *shape[i + 1 :]] for i in range(len(shape))]
    )
)
MISSING = st.none() | st.just("error")
DENSE = st.builds(
    Column.dense,
    TEXT,
    SHAPES,
    dtype=st.just("float"),
    used=st.booleans(),
    fill_value=MISSING
    | st.floats(width=32, allow_infinity=False)
    | st.integers(-(2**70), 2**70),
    **READING,
) | st.builds(
    Column.dense,
    TEXT,
    SHAPES,
    dtype=st.just("uint64"),
    fill_value=MISSING | st.integers(-(2**63), 2**63 - 1),
    **READING,
)
SPARSE_OPTIONS = {"fill_value": MISSING, "depth": st.integers(1, 2), **READING}
FLOATS = st.builds(
    Column.sparse,
    TEXT,
    dtype=st.just("float"),
    used=st.booleans(),
    **SPARSE_OPTIONS,
)
IDS = st.builds(
    lambda name, use, encoding, hash_as, **options: Column.sparse(
        name,
        used=use != "unused",
        wide=use == "wide",
        encoding=encoding,
        hash_as=hash_as if encoding == "hash" else None,
        **options,
    ),
    TEXT,
    use=st.sampled_from(["unused", "deep", "wide"]),
    encoding=st.sampled_from(["int", "hash", "hex"]),
    hash_as=MAYBE_TEXT,
    **SPARSE_OPTIONS,
)
ONE_HOT = st.builds(
    Column.one_hot, TEXT, st.integers(1, 2**31 - 1), used=st.booleans()
)


@st.composite
def schemas(draw):
    columns = draw(
        st.lists(
            st.one_of(LABELS, DENSE, IDS, FLOATS, ONE_HOT),
            min_size=1,
            max_size=8,
            unique_by=lambda column: column.name,
        )
    )
    hypothesis.assume(any(column.used for column in columns))
    ids = [column.name for column in columns if column.holds_ids]
    floats = [
        column.name
        for column in columns
        if column.kind == "sparse" and not column.holds_ids
    ]
    pairs = zip(draw(st.permutations(ids)), draw(st.permutations(floats)))
    na_values = draw(st.just(NA_VALUES) | st.lists(st.text(), max_size=3))
    return Schema(columns, na_values=na_values).with_weights(
        dict(pair for pair in pairs if draw(st.booleans()))
    )


def write(tmp_path, text):
    path = tmp_path / "schema.yaml"
    path.write_text(text)
    return path


def test_reads_the_sections_in_their_default_order(tmp_path):
    schema = Schema.load(write(tmp_path, EXAMPLE))
    assert list(schema) == [
        Column.label("click"),
        Column.dense("I", (13,)),
        Column.sparse("C1"),
        Column.sparse("C2", wide=True),
        Column.one_hot("weekday", 7),
    ]
    assert [s.name for s in schema.wide] == ["C2"]
    assert schema["I"].num_values == 13
    assert schema["C1"].num_values is None
    assert "nobody" not in schema


def test_order_is_the_order_on_the_line(tmp_path):
    text = EXAMPLE + "order: [C2, click, weekday, C1, I]\n"
    schema = Schema.load(write(tmp_path, text))
    assert schema.names() == ["C2", "click", "weekday", "C1", "I"]
    assert schema.names("sparse") == ["C2", "C1"]


def test_long_forms(tmp_path):
    text = """
label: {click: binary, rating: float, kind: integer, bought: binary_float}
dense: {a: 3, b: {shape: [2, 2], dtype: uint64}, c: []}
sparse: {C1: uint64, C1_weight: float}
"""
    schema = Schema.load(write(tmp_path, text))
    assert list(schema) == [
        Column.label("click"),
        Column.label("rating", dtype="float", binary=False),
        Column.label("kind", binary=False),
        Column.label("bought", dtype="float"),
        Column.dense("a", (3,)),
        Column.dense("b", (2, 2), dtype="uint64"),
        Column.dense("c", ()),
        Column.sparse("C1"),
        Column.sparse("C1_weight", dtype="float"),
    ]


@pytest.mark.parametrize("text", ["\x85", "\u2028", "\ufeff", "\0", "\r\n"])
def test_any_character(text):
    schema = Schema(
        [
            Column.sparse(f"a{text}", separator=text),
            Column.sparse("b", encoding="hash", hash_as=text),
            Column.label("y", positive=text, negative="no"),
        ],
        na_values=[f"a{text}b"],
    )
    assert Schema.parse(schema.yaml()) == schema


def test_how_values_are_read(tmp_path):
    text = """
label:
  click: {type: binary, positive: clk, negative: ['no', none]}
  rating: float
  bought: {type: binary_float, optional: true}
sample_weight: [weight]
dense:
  price: {shape: 1, fill_value: -1.5}
  n: {shape: [2], dtype: uint64, fill_value: error, separator: '|'}
  at: {shape: [], dtype: uint64, unit: s}
sparse:
  user: {}
  city: {encoding: hash, hash_as: place, fill_value: error}
  zip: {encoding: hash, strings_only: true}
  tags: {encoding: hex, separator: json, depth: 2}
  day: {unit: D}
  w: float
na_values: ['-', '']
"""
    schema = Schema.load(write(tmp_path, text))
    assert list(schema) == [
        Column.label("click", positive="clk", negative=["no", "none"]),
        Column.label("rating", dtype="float", binary=False),
        Column.label("bought", optional=True),
        Column.sample_weight("weight"),
        Column.dense("price", [1], fill_value=-1.5),
        Column.dense(
            "n", [2], dtype="uint64", fill_value="error", separator="|"
        ),
        Column.dense("at", [], dtype="uint64", unit="s"),
        Column.sparse("user"),
        Column.sparse(
            "city", encoding="hash", hash_as="place", fill_value="error"
        ),
        Column.sparse("zip", encoding="hash", strings_only=True),
        Column.sparse("tags", encoding="hex", separator="json", depth=2),
        Column.sparse("day", unit="D"),
        Column.sparse("w", dtype="float"),
    ]
    assert schema.na_values == ("-", "")
    assert Schema.parse("sparse: [a]").na_values == NA_VALUES
    assert Schema.parse("sparse: [a]\nna_values: []").na_values == ()
    # Defaults are not written.
    assert Schema([Column.sparse("a", unit="D")]).yaml() == (
        "sparse:\n  a: {dtype: uint64, unit: D}\n"
    )


@pytest.mark.parametrize(
    "schema",
    [
        Schema([Column.label("click"), Column.sparse("C1")]),
        Schema([Column.sparse("C1", wide=True), Column.dense("d", (2, 3))]),
        Schema(
            [
                Column.one_hot("h", 3),
                Column.label("r", dtype="float", binary=False),
                Column.label("b", dtype="float"),
                Column.sparse("w", dtype="float"),
                Column.dense("n", (4,), dtype="uint64"),
                Column.dense("scalar", ()),
                Column.sparse("naïve: \t[name]"),
                Column.sparse("\x85"),
                Column.sparse("yes"),
                Column.sparse("12"),
            ]
        ),
    ],
)
def test_written_and_read_back_is_equal(tmp_path, schema):
    path = tmp_path / "schema.yaml"
    schema.save(path)
    assert Schema.load(path) == schema
    assert [p.name for p in tmp_path.iterdir()] == ["schema.yaml"]


@hypothesis.settings(max_examples=50, deadline=None, database=None)
@hypothesis.given(schemas())
def test_any_schema_written_and_read_back_is_equal(tmp_path_factory, schema):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    schema.save(path)
    again = Schema.load(path)
    assert again == schema
    assert again.weights == schema.weights
    assert Schema.parse(schema.yaml()) == schema


def test_unused_columns_are_declared_and_no_features(tmp_path):
    text = EXAMPLE + "unused: [C1, I, weekday]\n"
    schema = Schema.load(write(tmp_path, text))
    assert schema.names() == ["click", "I", "C1", "C2", "weekday"]
    assert [column.name for column in schema.used] == ["click", "C2"]
    assert not schema["I"].used
    assert [column.name for column in schema.sparse] == ["C1", "C2"]
    for column in schema:
        used = dataclasses.replace(column, used=True)
        assert dataclasses.replace(used, used=column.used) == column


@pytest.mark.parametrize(
    "shape, num_values, multiple",
    [
        ([], 1, 1),
        ([13], 13, 13),
        ([2, 3], 6, 6),
        ([-1], None, 1),
        ([-1, 4], None, 4),
        ([2, -1, 3], None, 6),
    ],
)
def test_number_of_values_of_a_shape(tmp_path, shape, num_values, multiple):
    path = write(tmp_path, f"dense: {{I: {shape}}}\n")
    (column,) = Schema.load(path)
    assert column == Column.dense("I", shape)
    assert column.num_values == num_values
    assert column.multiple == multiple


@pytest.mark.parametrize(
    "text, message",
    [
        ("labels: [click]", "unknown key 'labels'"),
        (
            "[click]",
            "must be a mapping with the keys label, sample_weight, dense",
        ),
        ("", "must be a mapping with the keys label, sample_weight, dense"),
        ("label: []", "declares no columns"),
        ("label: click", "key 'label': must be a list of column names"),
        ("sparse: [C1, C1]", "key 'sparse': 'C1' occurs twice"),
        ("sparse: [C1]\nlabel: [C1]", "column 'C1' is declared twice"),
        ("sparse: [C1]\nsparse: [C2]", "key 'sparse' occurs twice.* line 2"),
        ("one_hot: {a: 2, a: 3}", "key 'a' occurs twice"),
        ("sparse: [1]", "must be a string, got 1; put it in quotes"),
        ("sparse: [yes]", "must be a string, got True"),
        ("sparse: ['']", "must be a non-empty string"),
        ("sparse: {C1: int32}", "`dtype` must be one of .*, got 'int32'"),
        ("dense: {I: [0]}", "key 'dense': Column 'I': `shape` must be"),
        ("dense: {I: [65536, 65536]}", "must have at most 2147483647 elements"),
        ("one_hot: {a: 2147483648}", "in .1, 2147483647., got 2147483648"),
        ("[" * 5000, "is nested too deep"),
        ("dense: {I: x}", "shape of 'I' must be a list of positive"),
        ("dense: {I: {dtype: float}}", "'I' has no 'shape'"),
        ("dense: {I: {shape: [1], size: 2}}", "unknown key 'size'"),
        ("one_hot: [a]", "key 'one_hot': must be a mapping from name to size"),
        ("one_hot: {a: 0}", "`size` must be an integer in .*, got 0"),
        ("label: {click: maybe}", "'click' must be one of binary,"),
        ("sparse: [C1]\nwide: [C2]", "key 'wide': 'C2' is not under 'sparse'"),
        ("sparse: {w: float}\nwide: [w]", "only a sparse id column can ha"),
        ("sparse: [C1]\norder: [C2]", "key 'order': 'C2' is not a declared"),
        ("sparse: [a, b]\norder: [a]", "key 'order': column 'b' is missing"),
        ("sparse: [a]\nunused: [b]", "key 'unused': 'b' is not a declared"),
        ("sparse: [a]\nunused: [a, a]", "key 'unused': 'a' occurs twice"),
        ("sparse: [a]\nunused: a", "key 'unused': must be a list of column"),
        ("sparse: [a]\nunused: [a]", "at least one used column"),
        ("sparse: [a]\nwide: [a]\nunused: [a]", "only a used column can have"),
        ("dense: {I: [-1, -1]}", "must have at most one -1, got \\[-1, -1\\]"),
        ("dense: {I: [-2]}", "at most one of them -1, got \\[-2\\]"),
        ("dense: {I: [-1, 65536, 65536]}", "at most 2147483647 elements"),
        ("sparse: [a]\nweights: [a]", "key 'weights': must be a mapping"),
        (
            "sparse: [a]\nweights: {a: 1}",
            "the name of a column must be .* got 1",
        ),
        ("sparse: [a]\nweights: {b: a}", "key 'weights': 'b' is not under"),
        ("sparse: [a]\nweights: {a: b}", "key 'weights': 'b' is not under"),
        (
            "dense: {I: 1}\nsparse: {w: float}\nweights: {I: w}",
            "key 'weights': 'I' is not under 'sparse'",
        ),
        (
            "sparse: {a: uint64, b: uint64}\nweights: {a: b}",
            "Column 'b': only a sparse float column can have `weights_of`",
        ),
        (
            "sparse: {a: uint64, b: uint64, w: float}\nweights: {a: w, b: w}",
            "key 'weights': 'w' holds the weights of both 'a' and 'b'",
        ),
        ("sparse: [a", "not valid YAML"),
        (
            "sparse: &a [C1]\nwide: *a",
            r"yaml: alias '\*a' on line 2; a schema f",
        ),
        ("sparse: &a [*a]", r"yaml: alias '\*a' on line 1"),
        (BOMB, r"yaml: alias '\*a' on line 2"),
        ("dense: {I: 010}", "yaml: '010' on line 1 is not a decimal integer"),
        ("one_hot:\n  m: 1:30", "'1:30' on line 2 is not a decimal integer"),
        ("dense: {I: [0x10]}", "'0x10' on line 1 is not a decimal integer"),
        ("dense: {I: [0b1]}", "'0b1' on line 1 is not a decimal integer"),
        ("dense: {I: 1_000}", "'1_000' on line 1 is not a decimal integer"),
        ("sparse: [007]", "'007' on line 1 .* put names in quotes"),
        ("dense: {I: !!int x}", "yaml: 'x' on line 1 is not a decimal integer"),
        ("dense: {I: " + "9" * 5000 + "}", "'9{40}' on line 1 is not a dec"),
        ("a: b: c", "not valid YAML"),
        ("sparse: {a: {encoding: md5}}", "Column 'a': `encoding` must be one"),
        (
            "sparse: {a: {type: int}}",
            "'sparse': 'a' has the unknown key 'type'",
        ),
        (
            "one_hot: {a: {fill_value: 1}}",
            "'a' has the unknown key 'fill_value'",
        ),
        ("one_hot: {a: {}}", "'a' has no 'size'"),
        ("label: {y: {positive: yes}}", "`positive` of 'y' .* got True; put"),
        (
            "label: {y: {negative: [no]}}",
            r"must be strings, got \[False\]; put",
        ),
        ("label: {y: {positive: [1]}}", r"`positive` must be .* got \[1\]"),
        ("sparse: [a]\nna_values: '-'", "key 'na_values': must be a list of"),
        ("sparse: [a]\nna_values: [1]", "key 'na_values': must be .* got .1."),
    ],
)
def test_a_bad_schema_file_names_file_and_key(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as error:
        Schema.load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_binary_schema_file_is_refused(tmp_path):
    path = tmp_path / "schema.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"schema\.yaml: "):
        Schema.load(path)


def test_a_missing_schema_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        Schema.load(tmp_path / "nowhere.yaml")
