"""lodestar.data.Schema: slot files there and back, and what is refused."""

import dataclasses

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from lodestar.data import Column, Schema

EXAMPLE = """
label: [click]
dense: {I: [13]}
sparse: [C1, C2]
wide: [C2]
one_hot: {weekday: 7}
"""


# Seven lines that stand for 4 MB.
BOMB = (
    "a: &a ["
    + "x," * 9
    + "]\n"
    + "".join(
        f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n"
        for a, b in zip("abcdef", "bcdefg")
    )
)

LABELS = st.builds(
    Column.label,
    st.text(min_size=1),
    dtype=st.sampled_from(["uint64", "float"]),
    binary=st.booleans(),
    used=st.booleans(),
)
SHAPES = st.lists(st.integers(1, 9), max_size=3).flatmap(
    lambda shape: st.sampled_from(
        [shape] + [[*shape[:i], -1, *shape[i + 1 :]] for i in range(len(shape))]
    )
)
DENSE = st.builds(
    Column.dense,
    st.text(min_size=1),
    SHAPES,
    dtype=st.sampled_from(["uint64", "float"]),
    used=st.booleans(),
)
SPARSE = st.builds(
    lambda name, dtype, use: Column.sparse(
        name,
        dtype=dtype,
        used=use != "unused",
        wide=use == "wide" and dtype == "uint64",
    ),
    st.text(min_size=1),
    st.sampled_from(["uint64", "float"]),
    st.sampled_from(["unused", "deep", "wide"]),
)
ONE_HOT = st.builds(
    Column.one_hot,
    st.text(min_size=1),
    st.integers(1, 2**31 - 1),
    used=st.booleans(),
)


@st.composite
def slot_specs(draw):
    schema = draw(
        st.lists(
            st.one_of(LABELS, DENSE, SPARSE, ONE_HOT),
            min_size=1,
            max_size=8,
            unique_by=lambda slot: slot.name,
        )
    )
    hypothesis.assume(any(slot.used for slot in schema))
    sparse = [slot for slot in schema if slot.kind == "sparse"]
    ids = [slot.name for slot in sparse if slot.dtype == "uint64"]
    floats = [slot.name for slot in sparse if slot.dtype == "float"]
    pairs = zip(draw(st.permutations(ids)), draw(st.permutations(floats)))
    return Schema(schema).with_weights(
        dict(pair for pair in pairs if draw(st.booleans()))
    )


def write(tmp_path, text):
    path = tmp_path / "schema.yaml"
    path.write_text(text)
    return path


def test_reads_the_sections_in_their_default_order(tmp_path):
    spec = Schema.load(write(tmp_path, EXAMPLE))
    assert list(spec) == [
        Column.label("click"),
        Column.dense("I", (13,)),
        Column.sparse("C1"),
        Column.sparse("C2", wide=True),
        Column.one_hot("weekday", 7),
    ]
    assert [s.name for s in spec.wide] == ["C2"]
    assert spec["I"].num_values == 13
    assert spec["C1"].num_values is None
    assert "nobody" not in spec


def test_order_is_the_order_on_the_line(tmp_path):
    text = EXAMPLE + "order: [C2, click, weekday, C1, I]\n"
    spec = Schema.load(write(tmp_path, text))
    assert spec.names() == ["C2", "click", "weekday", "C1", "I"]
    assert spec.names("sparse") == ["C2", "C1"]


def test_long_forms(tmp_path):
    text = """
label: {click: binary, rating: float, kind: integer, bought: binary_float}
dense: {a: 3, b: {shape: [2, 2], dtype: uint64}, c: []}
sparse: {C1: uint64, C1_weight: float}
"""
    spec = Schema.load(write(tmp_path, text))
    assert list(spec) == [
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


@pytest.mark.parametrize(
    "spec",
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
def test_written_and_read_back_is_equal(tmp_path, spec):
    path = tmp_path / "schema.yaml"
    spec.save(path)
    assert Schema.load(path) == spec
    assert [p.name for p in tmp_path.iterdir()] == ["schema.yaml"]


@hypothesis.settings(deadline=None, database=None)
@hypothesis.given(slot_specs())
def test_any_spec_written_and_read_back_is_equal(tmp_path_factory, spec):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    spec.save(path)
    again = Schema.load(path)
    assert again == spec
    assert again.weights == spec.weights


def test_unused_slots_are_declared_and_no_features(tmp_path):
    text = EXAMPLE + "unused: [C1, I, weekday]\n"
    spec = Schema.load(write(tmp_path, text))
    assert spec.names() == ["click", "I", "C1", "C2", "weekday"]
    assert [slot.name for slot in spec.used] == ["click", "C2"]
    assert not spec["I"].used
    assert [slot.name for slot in spec.sparse] == ["C1", "C2"]
    for slot in spec:
        used = dataclasses.replace(slot, used=True)
        assert dataclasses.replace(used, used=slot.used) == slot


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
    (slot,) = Schema.load(path)
    assert slot == Column.dense("I", shape)
    assert slot.num_values == num_values
    assert slot.multiple == multiple


def test_number_of_values_of_the_other_kinds():
    assert (Column.sparse("s").num_values, Column.sparse("s").multiple) == (
        None,
        1,
    )
    for slot in Column.label("l"), Column.one_hot("h", 7):
        assert (slot.num_values, slot.multiple) == (1, 1)


def test_weights_pair_a_float_slot_with_an_id_slot(tmp_path):
    text = "sparse: {w1: float, C1: uint64, C2: uint64, w2: float}\n"
    plain = Schema.load(write(tmp_path, text))
    assert plain.weights == {}
    assert plain.with_weights({}) == plain
    both = Schema.load(write(tmp_path, text + "weights: {C2: w2, C1: w1}\n"))
    assert both["w1"] == Column.sparse("w1", dtype="float", weights_of="C1")
    assert both.weights == {"C1": "w1", "C2": "w2"}
    assert plain.with_weights({"C1": "w1", "C2": "w2"}) == both
    assert plain.with_weights({"C1": "w1"}).with_weights({"C2": "w2"}) == both
    both.weights.clear()
    assert both.weights == {"C1": "w1", "C2": "w2"}


@pytest.mark.parametrize(
    "weights, message",
    [
        ({"C9": "w1"}, "`weights`: 'C9' is not a declared slot; .* C1, C2"),
        ({"C1": "w9"}, "`weights`: 'w9' is not a declared slot"),
        ({"C1": "C2"}, "'C2': only a sparse float slot holds the weights"),
        ({"C1": "I"}, "'I': only a sparse float slot holds the weights"),
        ({"w1": "w2"}, "of 'w1', which is not a sparse id slot but a sparse"),
        ({"w1": "w1"}, "of 'w1', which is not a sparse id slot but a sparse"),
        ({"I": "w1"}, "which is not a sparse id slot but a dense slot of fl"),
        ({"C1": "w1", "C2": "w1"}, "'w1' cannot hold .* it holds those of 'C1"),
        ({"C3": "w1"}, "'w1' cannot hold the weights of 'C3': 'w3' holds them"),
        ({"C1": "w3"}, "'w3' cannot hold .* it holds those of 'C3'"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    spec = Schema(
        [Column.dense("I"), *map(Column.sparse, ("C1", "C2", "C3"))]
        + [Column.sparse(name, dtype="float") for name in ("w1", "w2")]
        + [Column.sparse("w3", dtype="float", weights_of="C3")]
    )
    with pytest.raises(ValueError, match=message):
        spec.with_weights(weights)


@pytest.mark.parametrize(
    "text, message",
    [
        ("labels: [click]", "unknown key 'labels'"),
        ("[click]", "wanted a mapping"),
        ("", "wanted a mapping"),
        ("label: []", "declares no slots"),
        ("label: click", "key 'label': wanted a list of slot names"),
        ("sparse: [C1, C1]", "key 'sparse': 'C1' occurs twice"),
        ("sparse: [C1]\nlabel: [C1]", "slot 'C1' is declared twice"),
        ("sparse: [C1]\nsparse: [C2]", "key 'sparse' occurs twice.* line 2"),
        ("one_hot: {a: 2, a: 3}", "key 'a' occurs twice"),
        ("sparse: [1]", "must be a string, found 1; put it in quotes"),
        ("sparse: [yes]", "must be a string, found True"),
        ("sparse: ['']", "must be a non-empty string"),
        ("sparse: {C1: int32}", "`dtype`='int32' is not in"),
        ("dense: {I: [0]}", "key 'dense': Slot 'I': `shape` must be"),
        ("dense: {I: [65536, 65536]}", "must have at most 2147483647 elements"),
        ("one_hot: {a: 2147483648}", "of at most 2147483647, found 2147483648"),
        ("[" * 5000, "is nested too deep"),
        ("dense: {I: x}", "shape of 'I' must be a list of positive"),
        ("dense: {I: {dtype: float}}", "'I' has no 'shape'"),
        ("dense: {I: {shape: [1], size: 2}}", "unknown key 'size'"),
        ("one_hot: [a]", "key 'one_hot': wanted a mapping from name to size"),
        ("one_hot: {a: 0}", "`size` must be a positive integer .*, found 0"),
        ("label: {click: maybe}", "'click' must be one of binary,"),
        ("sparse: [C1]\nwide: [C2]", "key 'wide': 'C2' is not under 'sparse'"),
        ("sparse: {w: float}\nwide: [w]", "only a sparse id slot can be"),
        ("sparse: [C1]\norder: [C2]", "key 'order': 'C2' is not a declared"),
        ("sparse: [a, b]\norder: [a]", "key 'order': slot 'b' is missing"),
        ("sparse: [a]\nunused: [b]", "key 'unused': 'b' is not a declared"),
        ("sparse: [a]\nunused: [a, a]", "key 'unused': 'a' occurs twice"),
        ("sparse: [a]\nunused: a", "key 'unused': wanted a list of slot"),
        ("sparse: [a]\nunused: [a]", "at least one used slot"),
        ("sparse: [a]\nwide: [a]\nunused: [a]", "unused slot cannot be `wi"),
        ("dense: {I: [-1, -1]}", "at most one of them -1, found \\[-1, -1\\]"),
        ("dense: {I: [-2]}", "at most one of them -1, found \\[-2\\]"),
        ("dense: {I: [-1, 65536, 65536]}", "at most 2147483647 elements"),
        ("sparse: [a]\nweights: [a]", "key 'weights': wanted a mapping"),
        ("sparse: [a]\nweights: {a: 1}", "a slot's name must be .* found 1"),
        ("sparse: [a]\nweights: {b: a}", "key 'weights': 'b' is not under"),
        ("sparse: [a]\nweights: {a: b}", "key 'weights': 'b' is not under"),
        (
            "dense: {I: 1}\nsparse: {w: float}\nweights: {I: w}",
            "key 'weights': 'I' is not under 'sparse'",
        ),
        (
            "sparse: {a: uint64, b: uint64}\nweights: {a: b}",
            "Slot 'b': only a sparse float slot holds the weights of",
        ),
        (
            "sparse: {a: uint64, b: uint64, w: float}\nweights: {a: w, b: w}",
            "key 'weights': 'w' holds the weights of both 'a' and 'b'",
        ),
        ("sparse: [a", "not valid YAML"),
        ("sparse: &a [C1]\nwide: *a", r"yaml: alias '\*a' on line 2; a slot f"),
        ("sparse: &a [*a]", r"yaml: alias '\*a' on line 1"),
        (BOMB, r"yaml: alias '\*a' on line 2"),
        ("dense: {I: 010}", "yaml: '010' on line 1 is not a decimal integer"),
        ("one_hot:\n  m: 1:30", "'1:30' on line 2 is not a decimal integer"),
        ("dense: {I: [0x10]}", "'0x10' on line 1 is not a decimal integer"),
        ("dense: {I: [0b1]}", "'0b1' on line 1 is not a decimal integer"),
        ("dense: {I: 1_000}", "'1_000' on line 1 is not a decimal integer"),
        ("sparse: [007]", "'007' on line 1 .* a name must be put in quotes"),
        ("dense: {I: !!int x}", "yaml: 'x' on line 1 is not a decimal integer"),
        ("dense: {I: " + "9" * 5000 + "}", "'9{40}' on line 1 is not a dec"),
        ("a: b: c", "not valid YAML"),
    ],
)
def test_a_bad_slot_file_names_file_and_key(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as error:
        Schema.load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_binary_slot_file_is_refused(tmp_path):
    path = tmp_path / "schema.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"slots\.yaml: "):
        Schema.load(path)


def test_a_missing_slot_file_is_named(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match=r"nowhere\.yaml"):
        Schema.load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Column("a", "scalar"), "`kind`='scalar' is not in"),
        (lambda: Column("a", "sparse", shape=(2,)), "only a dense slot has"),
        (lambda: Column("a", "dense", size=2), "only a one-hot slot has"),
        (lambda: Column("a", "label", wide=True), "can be `wide`"),
        (lambda: Column("a", "one_hot", dtype="float", size=2), "holds uint64"),
        (lambda: Column.sparse("a", used=1), "`used` must be True or False"),
        (
            lambda: Column("a", "dense", weights_of="b"),
            "'a': only a sparse float slot holds the weights of another, 'b'",
        ),
        (
            lambda: Schema(
                [
                    Column.sparse("a"),
                    Column.sparse("w", dtype="float", weights_of="b"),
                ]
            ),
            "'w' holds the weights of 'b', which is not a declared slot",
        ),
        (lambda: Schema([]), "at least one slot"),
        (lambda: Schema([Column.sparse("a")] * 2), "'a' is declared twice"),
    ],
)
def test_bad_slots_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_spec_takes_slots_only():
    with pytest.raises(TypeError, match="takes Slots, found 'C1'"):
        Schema(["C1"])
