"""Options of text files: in open_dataset, in schemas, and for several files."""

import gzip

import numpy as np
import pandas
import pytest
import tensorflow as tf
from text_ids import hash_ids

from lodestar._data_tool import command as tool
from lodestar.data import (
    Column,
    DataError,
    Schema,
    SkippedRecords,
    open_dataset,
)

BEHAVIOR = "1,2268318,2520377,pv,1511544070\n1,2333346,2520771,buy,1511561733\n"
NAMES = ["user", "item", "category", "behavior", "timestamp"]
IDS = {"categorical": NAMES}


def write(path, text, encoding="utf-8"):
    data = text if isinstance(text, bytes) else text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def rows(dataset, name):
    return sum((features[name].to_list() for features in dataset), [])


def test_the_first_row_of_a_file_without_a_header_is_read(tmp_path):
    path = write(tmp_path / "UserBehavior.csv", BEHAVIOR)
    with pytest.raises(DataError, match="line 1: may be a header or data"):
        open_dataset(path)
    with pytest.raises(DataError, match="line 1: is not `columns`, so it may"):
        open_dataset(path, columns=NAMES, **IDS)
    dataset = open_dataset(path, columns=NAMES, header=False, **IDS)
    assert rows(dataset, "item") == [[2268318], [2333346]]
    assert rows(dataset, "behavior") == [
        [i] for i in hash_ids("behavior", ["pv", "buy"]).tolist()
    ]


def test_the_index_of_a_frame_is_ignored(tmp_path):
    frame = pandas.DataFrame({"user": ["a", "b"], "x": [0.5, 1.5]})
    path = tmp_path / "frame.csv"
    frame.to_csv(path)
    dataset = open_dataset(path, verbose=False)
    assert dataset.schema.names() == ["user", "x"]
    assert rows(dataset, "user") == rows(open_dataset(frame), "user")
    # `columns` can rename the columns, and give the index a name.
    names = ["row", "u", "x"]
    with pytest.raises(DataError, match="or `header=True` if `columns` repl"):
        open_dataset(path, columns=names, categorical=["row"])
    dataset = open_dataset(
        path, columns=names, header=True, categorical=["row"], verbose=False
    )
    assert rows(dataset, "row") == [[0], [1]]


def test_a_schema_carries_the_options(tmp_path, capsys):
    options = {
        "columns": ["user", "text"],
        "delimiter": ";",
        "quote": "",
        "header": False,
        "skip_lines": 1,
        "encoding": "latin-1",
    }
    text = '#\n1;"a\n2;é"\n'
    path = write(tmp_path / "train.txt", text, "latin-1")
    train = open_dataset(path, categorical=["user", "text"], **options)
    assert train.schema.text == options
    printed = capsys.readouterr().err
    for line in (
        "Text files: columns=['user', 'text'], delimiter=';', quote='', "
        "header=False, skip_lines=1, encoding='latin-1'.\n",
        "Text: delimiter ';', no quote, no header, encoding latin-1.\n",
    ):
        assert line in printed
    wanted = rows(train, "text")
    assert wanted == [[i] for i in hash_ids("text", ['"a', 'é"']).tolist()]
    # The next day, also from the saved schema.
    train.schema.save(tmp_path / "saved.yaml")
    loaded = Schema.load(tmp_path / "saved.yaml")
    assert loaded == train.schema and loaded.text == options
    config = Schema.from_config(train.schema.get_config())
    assert config == train.schema
    later = write(tmp_path / "later", text, "latin-1")
    assert rows(open_dataset(later, loaded), "text") == wanted
    # The caller's options take precedence; other formats have no such options.
    other = write(tmp_path / "other.csv", '#\n1,"a\n2,é"\n')
    dataset = open_dataset(other, loaded, delimiter=",", encoding="utf-8")
    assert rows(dataset, "text") == wanted
    frame = pandas.DataFrame({"user": [1, 2], "text": ['"a', 'é"']})
    assert rows(open_dataset(frame, loaded), "text") == wanted
    frame.to_parquet(tmp_path / "a.parquet")
    assert rows(open_dataset(tmp_path / "a.parquet", loaded), "text") == wanted


def test_text_options_of_a_schema(tmp_path):
    columns = [Column.sparse("a"), Column.sparse("w", dtype="float")]
    plain = Schema(columns)
    schema = Schema(columns, text={"columns": ("a", "w"), "header": False})
    assert plain.text == {} and schema != plain
    assert schema.text == {"columns": ["a", "w"], "header": False}
    assert schema == Schema(columns, text=schema.text)
    schema.text["delimiter"] = ";"
    assert "delimiter" not in schema.text
    assert schema.replace(columns[:1]).text == schema.text
    assert schema.with_weights({"a": "w"}).text == schema.text
    # Files that writers produce have a header.
    assert schema.stored().text == {}
    assert Schema.parse(schema.yaml()) == schema
    assert "Text files" not in str(plain)
    with pytest.raises(ValueError, match="cannot express `text`="):
        schema.save(tmp_path / "a.pbtxt")
    for text, message in (
        ({"sep": ";"}, "`text`: unknown option 'sep'; the options are columns"),
        ({"columns": "a"}, "`columns` must be a list of strings, got 'a'"),
        ({"columns": [1]}, "`columns` must be a list of strings"),
        ({"header": 1}, "`header` must be bool, got 1"),
        ({"skip_lines": True}, "`skip_lines` must be int, got True"),
    ):
        with pytest.raises(ValueError, match=message):
            Schema(columns, text=text)
    with pytest.raises(ValueError, match="'text': must be a mapping"):
        Schema.parse("sparse: [a]\ntext: [1]\n")


def test_a_certain_header_decides_for_other_files(tmp_path):
    paths = [
        write(tmp_path / "0.csv", "city,n\n"),
        write(tmp_path / "1.csv", "city,n\nx,0.5\n"),
        write(tmp_path / "2.csv", "city;n\ny\n"),
    ]
    with pytest.raises(DataError, match="0.csv: line 1: may be a header or"):
        open_dataset(paths[0])
    skipped = SkippedRecords()
    dataset = open_dataset(
        paths, verbose=False, on_error="skip", skipped=skipped
    )
    assert len(rows(dataset, "city")) == 1
    assert skipped.count == 1
    assert "2.csv: line 2: found 1 fields, expected 2" in skipped.messages[0]


def test_a_header_without_labels_or_with_parts_of_a_column(tmp_path):
    schema = Schema(
        [Column.label("y"), Column.dense("x", [2]), Column.sparse("day")]
    )
    (tmp_path / "day=7").mkdir()
    path = write(
        tmp_path / "day=7" / "a.csv", "x_0;x_1\n,1.5\n".replace(",", ";")
    )
    (features,) = open_dataset(path, schema, verbose=False)
    assert features["x"].numpy().tolist() == [[0, 1.5]]
    assert features["day"].to_list() == [[7]]


@pytest.mark.parametrize(("bad", "batch_size"), [(b"\xff", 50), (b"\0", 512)])
def test_only_the_row_of_a_bad_byte_is_skipped(tmp_path, bad, batch_size):
    lines = [b"%d,t%d" % (i, i % 3) for i in range(1000)]
    lines[500] += bad
    path = write(tmp_path / "a.csv", b"n,t\n" + b"\n".join(lines) + b"\n")
    spec = [Column.sparse("n"), Column.sparse("t", encoding="hash")]
    skipped = SkippedRecords()
    dataset = open_dataset(
        path, spec, batch_size, on_error="skip", skipped=skipped
    )
    assert rows(dataset, "n") == [[i] for i in range(1000) if i != 500]
    assert skipped.count == 1
    assert skipped.messages[0].startswith(f"{path}: line 502: ")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="a.csv: line 502: "
    ):
        rows(open_dataset(path, spec, batch_size), "n")
    # Inference does not see the row.
    options = {"numeric": ["n"], "categorical": ["t"], "verbose": False}
    dataset = open_dataset(path, on_error="skip", **options)
    assert sum(len(f["n"]) for f in dataset) == 999
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="a.csv: line 502: "
    ):
        rows(open_dataset(path, **options), "n")


def test_the_data_tool_has_the_options(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in", "# x\n7;'a;b'\n8;c\n7;c\n")
    command = "convert --columns label,city --delimiter ; --skip-lines 1"
    command += " --label label=8 --categorical city --quote '"
    code = tool.main([*command.split(), "in", "out.txt"])
    assert code == 2 and "or data: 7, a;b; pass" in capsys.readouterr().err
    code = tool.main([*command.split(), "--no-header", "in", "out.txt"])
    assert code == 0
    first, second = hash_ids("city", ["a;b", "c"]).view(np.uint64)
    assert (tmp_path / "out.txt").read_text() == (
        f"1 0 1 {first}\n1 1 1 {second}\n1 0 1 {second}\n"
    )
    assert tool.main([*command.split(), "--header", "in", "out.txt"]) == 0
    assert (tmp_path / "out.txt").read_text().count("\n") == 2
    # The options of a schema apply without repeating them.
    schema = Schema(
        [Column.label("label"), Column.sparse("city", encoding="hash")],
        text={"columns": ["label", "city"], "delimiter": ";", "header": False},
    )
    schema.save("s.yaml")
    write(tmp_path / "in.csv", "1;c\n")
    assert tool.main("convert --schema s.yaml in.csv out.txt".split()) == 0
    assert (tmp_path / "out.txt").read_text() == f"1 1 1 {second}\n"
    assert Schema.load("out.txt.schema.yaml").text == {}
