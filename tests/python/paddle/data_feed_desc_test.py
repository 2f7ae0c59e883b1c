"""DataFeedDesc: Paddle's text form, read as a Schema and written."""

import pytest

from lodestar.data import Column, Schema
from lodestar.paddle import DataFeedDesc
from lodestar.paddle.multislot_dataset import MultiSlotDataset

TEXT = """
name: "MultiSlotDataFeed"
batch_size: 2
pipe_command: "python gen.py --seed 'a b'"  # a comment
thread_num: 3
multi_slot_desc {
  slots { name: "words" type: "uint64" is_dense: false is_used: true }
  slots { name: "dense_feature" type: "float" is_dense: true is_used: true
          shape: -1 shape: 2 }
  slots { name: "aside" type: "float" }
  slots { name: "label" type: "uint64" is_dense: true is_used: true
          shape: -1 shape: 1 }
}
"""


def desc(schema="", rest=""):
    return f"multi_slot_desc {{ {schema} }} {rest}"


def test_the_slots_the_batch_size_and_the_command(tmp_path):
    path = tmp_path / "data.prototxt"
    path.write_text(TEXT)
    found = DataFeedDesc.read(path, "label")
    assert found == DataFeedDesc.parse(TEXT, iter(["label"]))
    assert found == DataFeedDesc.parse(TEXT, Column.label("label"))
    assert list(found.schema) == [
        Column.sparse("words"),
        Column.dense("dense_feature", [2]),
        Column.sparse("aside", dtype="float", used=False),
        Column.label("label"),
    ]
    assert found.batch_size == 2
    assert found.pipe_command == ["python", "gen.py", "--seed", "a b"]
    assert found.num_parallel_files == 3
    plain = DataFeedDesc.parse(TEXT)
    assert plain.schema["label"] == Column.dense("label", [1], dtype="uint64")


def test_it_reads_the_file_that_it_describes(tmp_path):
    (tmp_path / "in").write_text("2 7 8 2 .5 1 0 1 1\n0 2 1 2 1 3 1 0\n")
    found = DataFeedDesc.parse(
        TEXT.replace("python gen.py --seed 'a b'", "cat"), "label"
    )
    assert found.pipe_command is None
    ((features, label),) = MultiSlotDataset(
        tmp_path / "in", found.schema, found.batch_size
    )
    assert sorted(features) == ["dense_feature", "words"]
    assert features["words"].to_list() == [[7, 8], []]
    assert label.numpy().tolist() == [[1], [0]]


def test_omissions():
    found = DataFeedDesc.parse(
        desc('slots { name: "r" type: "float" is_used: true }'
             'slots { name: "d" type: "float" is_dense: true }'
             'slots { name: "free" type: "float" is_dense: true shape: [3, 4] }')
    )  # fmt: skip
    assert found.schema == Schema(
        [
            Column.sparse("r", dtype="float"),
            Column.dense("d", [1], used=False),
            Column.dense("free", [3, 4], used=False),
        ]
    )
    assert (found.batch_size, found.pipe_command) == (32, None)
    assert found.num_parallel_files == 2


ONE_HOT = 'slots { name: "day" type: "uint64" is_dense: true is_used: true }'


def test_columns_are_declared():
    text = desc(
        ONE_HOT
        + 'slots { name: "ids" type: "uint64" is_used: true }'
        + 'slots { name: "w" type: "float" is_used: true }'
    )
    declared = [
        Column.one_hot("day", 7),
        Column.sparse("w", dtype="float", weights_of="ids"),
    ]
    found = DataFeedDesc.parse(text, declare=iter(declared))
    assert list(found.schema) == [
        declared[0],
        Column.sparse("ids"),
        declared[1],
    ]
    assert DataFeedDesc.parse(found.text(), declare=declared) == found
    plain = DataFeedDesc.parse(text)
    assert plain.schema["day"] == Column.dense("day", dtype="uint64")


@pytest.mark.parametrize(
    "declared, message",
    [
        (Column.one_hot("no", 7), "`declare` has 'no', which is not a column"),
        (
            Column.sparse("day"),
            "Column 'day' has the type 'uint64' and is dense of integers in the "
            "text, but `declare` has the dtype 'uint64' and ids",
        ),
        (Column.dense("day", dtype="float"), "`declare` has the dtype 'float'"),
        (
            Column.one_hot("day", 7, used=False),
            "and unused one-hot vector of 7",
        ),
        (Column.sample_weight("day"), "cannot express a sample-weight column"),
    ],
)
def test_a_declared_column_must_fit_its_slot(declared, message):
    with pytest.raises(ValueError, match=message):
        DataFeedDesc.parse(desc(ONE_HOT), declare=[declared])


SLOT = 'slots { name: "a" type: "uint64" is_used: true }'


@pytest.mark.parametrize(
    "text, labels, message",
    [
        ("", (), "needs at least one column"),
        ("slots {}", (), r'not a DataFeedDesc: 1:1 : .*"slots"'),
        ("multi_slot_desc { slots { name: 7 } }", (), "not a DataFeedDesc: 1:33"),
        (desc(SLOT, 'batch_size: "x"'), (), "not a DataFeedDesc: 1:"),
        (desc(SLOT, "batch_size: 0"), (), "`batch_size` must be at least 1, got 0"),
        (desc('slots { name: "a" }'), (), "not a DataFeedDesc: .* required|got ''"),
        (desc(SLOT.replace("uint64", "int")), (), "the type must be .*, got 'int'"),
        (desc(SLOT * 2), (), "Column 'a' is declared twice"),
        (desc(SLOT), "b", "`labels` has 'b', which is not a column; the columns are a"),
        (desc(SLOT), Column.sparse("a"), "`labels`: column 'a' must be a label"),
        (
            desc(SLOT),
            Column.label("a", dtype="float"),
            "Column 'a' has the type 'uint64', but the label in `labels` has the ",
        ),
        (
            desc('slots { name: "a" type: "float" is_dense: true shape: [-1, -1] }'),
            (),
            r"Column 'a': `shape` must have at most one -1, .* got \[-1, -1\]",
        ),
        (
            desc('slots { name: "a" type: "float" is_dense: true shape: [-1, 0] }'),
            (),
            "Column 'a': `shape` must be a list of positive",
        ),
        (desc(SLOT, "thread_num: 0"), (), "`thread_num` must be at least 1, got 0"),
        (desc(SLOT, 'rank_offset: "r"'), (), "`rank_offset`: 'r' is not supported"),
        (desc(SLOT, "input_type: 1"), (), "`input_type`: 1 is not supported"),
        (desc(SLOT, 'so_parser_name: "s"'), (), "`so_parser_name`: 's' is not sup"),
        (desc(SLOT + 'uid_slot: "a"'), (), "`uid_slot`: 'a' is not supported"),
        (desc(SLOT, 'pipe_command: "a \'"'), (), "`pipe_command` .*: No closing"),
    ],
)  # fmt: skip
def test_a_bad_text_is_refused(tmp_path, text, labels, message):
    path = tmp_path / "in"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        DataFeedDesc.read(path, labels)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_schema_is_written_and_read_back(tmp_path):
    schema = Schema(
        [
            Column.label("click"),
            Column.dense("price", [2]),
            Column.dense("count", dtype="uint64", used=False),
            Column.sparse("item", wide=True),
            Column.sparse("weight", dtype="float", weights_of="item"),
        ]
    )
    path = tmp_path / "data.prototxt"
    DataFeedDesc(schema, 64, ["python", "gen.py", "a b"], 5).save(path)
    found = DataFeedDesc.read(path, "click")
    assert (found.batch_size, found.pipe_command) == (
        64,
        ["python", "gen.py", "a b"],
    )
    assert found.num_parallel_files == 5
    # The message has no field for `wide` and `weights_of`.
    assert list(found.schema) == [
        *list(schema)[:3],
        Column.sparse("item"),
        Column.sparse("weight", dtype="float"),
    ]
    text = DataFeedDesc(schema).text()
    assert 'pipe_command: "cat"' in text and "batch_size: 32" in text
    assert DataFeedDesc.parse(text).pipe_command is None


@pytest.mark.parametrize(
    "column, message",
    [
        (Column.dense("a", [-1, 2]), r"the shape \[-1, 2\]"),
        (Column.sparse("a", encoding="hash"), "`encoding`='hash'"),
        (Column.sparse("a", depth=2), "`depth`=2"),
        (
            Column.label("a", positive="yes", negative="no"),
            r"`positive`=\('yes',\)",
        ),
        (Column.label("a", optional=True), "`optional`=True"),
        (Column.dense("a", rounded=True), "`rounded`=True"),
        (Column.sample_weight("a"), "a sample-weight column"),
        (Column.sparse("a", separator="|"), r"`separator`='\|'"),
        (Column.dense("a", unit="s"), "`unit`='s'"),
    ],
)
def test_unsupported_columns_are_named(tmp_path, column, message):
    desc = DataFeedDesc(Schema([column]))
    with pytest.raises(
        ValueError, match=f"Column 'a': a DataFeedDesc cannot express {message}"
    ):
        desc.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
