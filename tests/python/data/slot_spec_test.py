"""lodestar.data.SlotSpec: slot files there and back, and what is refused."""

import pytest
import tensorflow as tf

from lodestar.data import Slot, SlotSpec

EXAMPLE = """
label: [click]
dense: {I: [13]}
sparse: [C1, C2]
wide: [C2]
one_hot: {weekday: 7}
"""


def write(tmp_path, text):
    path = tmp_path / "slots.yaml"
    path.write_text(text)
    return path


def test_reads_the_sections_in_their_default_order(tmp_path):
    spec = SlotSpec.from_yaml(write(tmp_path, EXAMPLE))
    assert list(spec) == [
        Slot.label("click"),
        Slot.dense("I", (13,)),
        Slot.sparse("C1"),
        Slot.sparse("C2", wide=True),
        Slot.one_hot("weekday", 7),
    ]
    assert [s.name for s in spec.wide] == ["C2"]
    assert spec["I"].num_values == 13
    assert spec["C1"].num_values is None
    assert "nobody" not in spec


def test_order_is_the_order_on_the_line(tmp_path):
    text = EXAMPLE + "order: [C2, click, weekday, C1, I]\n"
    spec = SlotSpec.from_yaml(write(tmp_path, text))
    assert spec.names() == ["C2", "click", "weekday", "C1", "I"]
    assert spec.names("sparse") == ["C2", "C1"]


def test_long_forms(tmp_path):
    text = """
label: {click: binary, rating: float, kind: integer, bought: binary_float}
dense: {a: 3, b: {shape: [2, 2], dtype: uint64}, c: []}
sparse: {C1: uint64, C1_weight: float}
"""
    spec = SlotSpec.from_yaml(write(tmp_path, text))
    assert list(spec) == [
        Slot.label("click"),
        Slot.label("rating", dtype="float", binary=False),
        Slot.label("kind", binary=False),
        Slot.label("bought", dtype="float"),
        Slot.dense("a", (3,)),
        Slot.dense("b", (2, 2), dtype="uint64"),
        Slot.dense("c", ()),
        Slot.sparse("C1"),
        Slot.sparse("C1_weight", dtype="float"),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        SlotSpec([Slot.label("click"), Slot.sparse("C1")]),
        SlotSpec([Slot.sparse("C1", wide=True), Slot.dense("d", (2, 3))]),
        SlotSpec(
            [
                Slot.one_hot("h", 3),
                Slot.label("r", dtype="float", binary=False),
                Slot.label("b", dtype="float"),
                Slot.sparse("w", dtype="float"),
                Slot.dense("n", (4,), dtype="uint64"),
                Slot.dense("scalar", ()),
                Slot.sparse("naïve: \t[name]"),
                Slot.sparse("yes"),
                Slot.sparse("12"),
            ]
        ),
    ],
)
def test_written_and_read_back_is_equal(tmp_path, spec):
    path = tmp_path / "slots.yaml"
    spec.to_yaml(path)
    assert SlotSpec.from_yaml(path) == spec
    assert [p.name for p in tmp_path.iterdir()] == ["slots.yaml"]


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
        ("sparse: [a", "not valid YAML"),
        ("a: b: c", "not valid YAML"),
    ],
)
def test_a_bad_slot_file_names_file_and_key(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as error:
        SlotSpec.from_yaml(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_binary_slot_file_is_refused(tmp_path):
    path = tmp_path / "slots.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"slots\.yaml: "):
        SlotSpec.from_yaml(path)


def test_a_missing_slot_file_is_named(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match=r"nowhere\.yaml"):
        SlotSpec.from_yaml(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Slot("a", "scalar"), "`kind`='scalar' is not in"),
        (lambda: Slot("a", "sparse", shape=(2,)), "only a dense slot has"),
        (lambda: Slot("a", "dense", size=2), "only a one-hot slot has"),
        (lambda: Slot("a", "label", wide=True), "can be `wide`"),
        (lambda: Slot("a", "one_hot", dtype="float", size=2), "holds uint64"),
        (lambda: SlotSpec([]), "at least one slot"),
        (lambda: SlotSpec([Slot.sparse("a")] * 2), "'a' is declared twice"),
    ],
)
def test_bad_slots_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_spec_takes_slots_only():
    with pytest.raises(TypeError, match="takes Slots, found 'C1'"):
        SlotSpec(["C1"])
