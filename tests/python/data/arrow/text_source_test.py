"""Compares lodestar.data.arrow.text_source with Python's csv module."""

import csv
import gzip
import io

import numpy as np
import pytest
from arrow_cases import as_lists
from row_cases import set_block_bytes
from text_ids import hash_ids

from lodestar.data import Column, DataError
from lodestar.data.arrow.row_source import read_rows
from lodestar.data.arrow.text_format import find_text_format
from lodestar.data.arrow.text_source import TextSource
from lodestar.data.binding import bind
from lodestar.schema.schema import NA_VALUES


@pytest.fixture
def blocks(monkeypatch):
    """Makes files consist of many blocks."""

    def of(size):
        set_block_bytes(monkeypatch, size)

    return of


@pytest.fixture
def opened(tmp_path):
    """Returns a function that opens content as a TextSource."""

    def open_text(content, name="in.csv", na_values=NA_VALUES, **options):
        if isinstance(content, str):
            content = content.encode(options.get("encoding", "utf-8"))
        path = tmp_path / name
        path.write_bytes(
            gzip.compress(content) if name.endswith(".gz") else content
        )
        options.setdefault("header", "columns" not in options)
        layout = find_text_format(str(path), **options)
        return TextSource(str(path), layout, na_values)

    return open_text


def rows_of(source, columns, na_values=NA_VALUES):
    """Returns the good rows of all groups by column, and the errors of bad rows."""
    found = {column.name: [] for column in columns}
    bad = []
    for group, num_rows in enumerate(source.row_groups):
        if not num_rows:  # a RowReader skips it
            continue
        rows = read_rows(source, group, bind(columns), na_values)
        assert rows.num_rows == num_rows
        bad += [rows.bad[row].text for row in sorted(rows.bad)]
        good = rows.good(0, rows.num_rows)
        for i, column in enumerate(columns):
            found[column.name] += as_lists(good.columns[i])
    return found, bad


def hashed(name):
    return Column.sparse(name, encoding="hash", fill_value="error")


def ids_of(name, texts):
    """Returns the ids of strings after whitespace is stripped."""
    texts = [text.strip(" \t\n\v\f\r") for text in texts]
    return [[i] for i in hash_ids(name, texts).tolist()]


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize(
    ("delimiter", "has_header", "end", "name"),
    [
        (",", True, "\r\n", "in.csv"),
        ("\t", False, "\n", "in.csv.gz"),
        (";", True, "\r", "in.csv.gz"),
        ("|", False, "\r", "in.csv"),
        ("::", True, "\n", "in.csv"),
        ("::", False, "\r\n", "in.csv.gz"),
    ],
)
def test_layouts(opened, blocks, delimiter, has_header, end, name, size):
    blocks(size)
    rows = [[str(i), "abc"[i % 3], str(i / 4)] for i in range(50)]
    lines = [delimiter.join(row) for row in rows]
    options = {"columns": ["n", "c", "x"]}
    if has_header:
        options = {"header": None}  # The columns `n` and `x` decide.
        lines.insert(0, delimiter.join(["n", "c", "x"]))
    source = opened(end.join(lines) + end, name, **options)
    assert source.num_rows == 50 and source.ends_with_newline
    assert (len(source.row_groups) > 1) == (size < 1 << 20)
    columns = [Column.dense("x"), hashed("c"), Column.sparse("n")]
    found, bad = rows_of(source, columns)
    assert not bad
    assert found["n"] == [[i] for i in range(50)]
    assert found["c"] == ids_of("c", [row[1] for row in rows])
    assert found["x"] == [[i / 4] for i in range(50)]


@pytest.mark.parametrize(
    ("seed", "size"), list(enumerate([1, 37, 1000, 37, 1000, 1, 1000, 1]))
)
def test_any_fields_are_those_of_python(opened, blocks, seed, size):
    blocks(size)
    rng = np.random.default_rng(seed)
    end = ["\n", "\r\n", "\r"][seed % 3]
    delimiter = ",;\t|"[seed % 4]
    pieces = ["a", "b c", '"', "\n", "\r\n", ",", ";", "\t", "|", "é", "'", "7"]
    rows = [
        ["x" + "".join(rng.choice(pieces, rng.integers(5))) for _ in range(3)]
        for _ in range(60)
    ]
    file = io.StringIO(newline="")
    writer = csv.writer(
        file,
        delimiter=delimiter,
        lineterminator=end,
        # csv.writer does not quote a "\n" by itself if lines end in "\r".
        quoting=csv.QUOTE_ALL if end == "\r" else csv.QUOTE_MINIMAL,
    )
    writer.writerow(["p", "q", "r"])
    for row in rows:
        if rng.random() < 0.1:
            file.write(end)  # an empty line is not a row
        writer.writerow(row)
    text = file.getvalue()
    if seed % 2:
        text = "\ufeff" + text.rstrip("\r\n")
    source = opened(text, delimiter=delimiter, quote='"')
    assert source.num_rows == 60
    found, bad = rows_of(source, [hashed(name) for name in "pqr"])
    assert not bad
    for i, name in enumerate("pqr"):
        assert found[name] == ids_of(name, [row[i] for row in rows])
    # Errors name the line on which a row begins.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines, ended = [], 0
    for row in reader:
        if row:
            lines.append(f"line {ended + 1}")
        ended = reader.line_num
    assert [
        source.where(group, row)
        for group, rows in enumerate(source.row_groups)
        for row in range(rows)
    ] == lines[1:]


def test_blocks_in_any_order(opened, blocks, rng):
    blocks(50)
    text = "n\n" + "".join(f"{i}\n" for i in range(500))
    columns = [Column.sparse("n")]
    for name in ("in.csv", "in.csv.gz"):
        source = opened(text, name)
        numbers = []
        for group in rng.permutation(len(source.row_groups)).tolist():
            rows = read_rows(source, group, bind(columns), ())
            numbers += sum(as_lists(rows.columns[0]), [])
        assert numbers != sorted(numbers)
        assert sorted(numbers) == list(range(500))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift_jis"])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_encodings(opened, blocks, encoding, size):
    blocks(size)
    texts = ["日本", "語"] if encoding == "shift_jis" else ["Ærø", "blåbær"]
    content = "city,n\n" + "".join(f"{t},1\n" for t in texts)
    source = opened(content, encoding=encoding)
    found, _ = rows_of(source, [hashed("city")])
    assert found["city"] == ids_of("city", texts)


NOT_UTF8 = (
    "found the byte 0xe6, which is not utf-8; give `encoding`, e.g. 'latin-1'"
)
NUL = "is not text: found a NUL byte"


@pytest.mark.parametrize(
    ("size", "name", "delimiter"),
    [(1, "in.csv", ","), (20, "in.csv.gz", "::"), (1 << 20, "in.csv", "::")],
)
def test_bytes_that_are_not_text_make_a_row_bad(
    opened, blocks, size, name, delimiter
):
    blocks(size)
    lines = [
        *(
            b"a,b",
            b"1,2",
            b"",
            b"3,\xe6",
            b"4,\xc3\xa6",
            b"\0,5",
            b"6\xe6\xe6,6",
        ),
        *(b"7,7", b"8,8,\xe6", b"9,9"),
    ]
    text = b"\n".join(lines).replace(b",", delimiter.encode()) + b"\n"
    source = opened(text, name, delimiter=delimiter)
    found, bad = rows_of(source, [Column.sparse("a"), hashed("b")])
    assert found["a"] == [[1], [4], [7], [9]]
    assert found["b"] == ids_of("b", ["2", "æ", "7", "9"])
    assert bad == [
        f"line 4: {NOT_UTF8}",
        f"line 6: {NUL}",
        f"line 7: {NOT_UTF8}",
        "line 9: found 3 fields, expected 2",
    ]


def test_bad_bytes_in_a_field_of_several_lines(opened):
    text = b'a,b\n1,"x\n\xe6\ny"\n2,"\xe6"",\n\0"\n3,z\n'
    source = opened(text, quote='"')
    found, bad = rows_of(source, [Column.sparse("a"), hashed("b")])
    assert found["a"] == [[3]]
    assert bad == [f"line 2: {NOT_UTF8}", f"line 5: {NOT_UTF8}"]


@pytest.mark.parametrize(
    ("encoding", "bad_byte"), [("shift_jis", b"\x85"), ("cp1252", b"\x81")]
)
def test_bad_bytes_of_another_encoding(opened, encoding, bad_byte):
    text = "a,b\n1,é\n2,x\n" if encoding == "cp1252" else "a,b\n1,語\n2,x\n"
    data = text.encode(encoding) + b"3," + bad_byte + b"\n4,y\n"
    source = opened(data, encoding=encoding)
    found, bad = rows_of(source, [Column.sparse("a")])
    assert found["a"] == [[1], [2], [4]]
    assert [text.partition(",")[0] for text in bad] == [
        f"line 4: found the byte 0x{bad_byte.hex()}"
    ]


def test_a_few_bad_bytes_among_many_rows(opened):
    lines = [b"%d,%d" % (i, i) for i in range(200_000)]
    for i in (0, 99_999, 199_999):
        lines[i] += b"\xff"
    source = opened(b"a,b\n" + b"\n".join(lines) + b"\n")
    found, bad = rows_of(source, [Column.sparse("a"), hashed("b")])
    assert len(found["a"]) == 199_997
    assert [text.partition(":")[0] for text in bad] == [
        f"line {i}" for i in (2, 100_001, 200_001)
    ]


def test_missing_values(opened):
    text = "x,c,s\n1.5,a,7\n,,\nNA,?,NULL\n - ,-,-\n" + '"","","NA"\n'
    columns = [
        Column.dense("x", fill_value=-1),
        Column.sparse("c", encoding="hash"),
        Column.sparse("s"),
    ]
    found, bad = rows_of(opened(text), columns)
    # A quoted string in `na_values` is missing as well.
    assert found["x"] == [[1.5], [-1], [-1], [-1]]
    assert found["s"] == [[7], [], [], []]
    assert len(bad) == 1 and "line 5: column 'x': found '-'" in bad[0]
    found, bad = rows_of(opened(text, na_values=["", "-"]), columns, ["", "-"])
    assert len(bad) == 2 and "line 4: column 'x': found 'NA'" in bad[0]
    assert found["c"] == [ids_of("c", ["a"])[0], [], []]
    strict = [
        Column.dense("x", fill_value="error"),
        Column.sparse("s", fill_value="error"),
    ]
    _, bad = rows_of(opened(text), strict)
    assert [text.partition(":")[0] for text in bad] == [
        f"line {i}" for i in (3, 4, 5, 6)
    ]


def test_every_form_of_a_number(opened):
    """Arrow's CSV reader parses common forms, the decoder the others."""
    forms = ["7", "+7", " 7", "7.0", "7.", '"7"', "0x7", "007"]
    text = "n\n" + "\n".join(forms) + "\n"
    found, bad = rows_of(opened(text), [Column.sparse("n")])
    assert (found["n"], bad) == ([[7]] * len(forms), [])
    text = "n\n18446744073709551615\n-9223372036854775808\n"
    found, bad = rows_of(opened(text), [Column.sparse("n")])
    assert (found["n"], bad) == ([[-1], [-(2**63)]], [])
    text = "x\n1e3\n -2.5\n+.5\ninf\nTrue\n1_000\n1e300\n"
    found, bad = rows_of(opened(text), [Column.dense("x")])
    assert found["x"] == [[1000.0], [-2.5], [0.5], [np.inf], [1.0]]
    assert [text.partition(", ")[0] for text in bad] == [
        "line 7: column 'x': found '1_000'",
        "line 8: column 'x': found '1e300'",
    ]


def test_several_values_in_a_field(opened):
    text = 'i,g,j,w\n1 2,Action|Sci Fi,"[27, 9]",0.5 1\n,,[],\n3,Drama,,2\n'
    columns = [
        Column.sparse("i"),
        Column.sparse("g", encoding="hash", separator="|"),
        Column.sparse("j", separator="json"),
        Column.sparse("w", dtype="float", weights_of="i"),
    ]
    found, bad = rows_of(opened(text, delimiter=","), columns)
    assert not bad
    assert found["i"] == [[1, 2], [], [3]]
    assert found["w"] == [[0.5, 1.0], [], [2.0]]
    assert found["j"] == [[27, 9], [], []]
    names = hash_ids("g", ["Action", "Sci Fi", "Drama"]).tolist()
    assert found["g"] == [names[:2], [], names[2:]]


def test_dense_columns_over_several_fields(opened):
    text = "x_0,y,x_1,x_2\n1,a,2,3\n4,b,,x\n7,c,8,9.5\n"
    columns = [Column.dense("x", (3,), fill_value=-1), hashed("y")]
    source = opened(text)
    source.check_names(["x", "y"])
    found, bad = rows_of(source, columns)
    assert found["x"] == [[1, 2, 3], [7, 8, 9.5]]
    assert bad == ["line 3: column 'x': found 'x', expected a float32"]
    found, _ = rows_of(opened(text.replace("x\n", "6\n")), columns)
    assert found["x"][1] == [4, -1, 6]
    with pytest.raises(DataError, match="has no column 'x_3'"):
        rows_of(source, [Column.dense("x", (4,))])
    with pytest.raises(DataError, match="has no column 'z'; its columns are"):
        source.check_names(["z"])


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_rows_of_another_number_of_fields(opened, blocks, size):
    blocks(size)
    text = 'a,b\n1,2\n3\n"4\n",5\n\n6,7,8\n9,10\n'
    source = opened(text, delimiter=",")
    found, bad = rows_of(source, [Column.sparse("a")])
    assert found["a"] == [[1], [4], [9]]
    assert bad == [
        "line 3: found 1 fields, expected 2",
        "line 7: found 3 fields, expected 2",
    ]


def test_partition_values_alone(opened, tmp_path):
    (tmp_path / "day=7").mkdir()
    source = opened("a,b\n1,2\n3,4\n", "day=7/in.csv")
    found, _ = rows_of(source, [Column.sparse("day"), Column.sparse("b")])
    assert found == {"day": [[7], [7]], "b": [[2], [4]]}
    assert rows_of(source, [Column.sparse("day")])[0] == {"day": [[7], [7]]}


def test_the_end_of_a_file(opened):
    assert not opened("a\n1").ends_with_newline
    assert opened("a\n1\n\n\n").ends_with_newline
    for text in ("a,b\n", "a,b"):
        source = opened(text)
        assert source.num_rows == 0
        assert rows_of(source, [Column.sparse("a")]) == ({"a": []}, [])
    with pytest.raises(DataError, match="in.csv: line 2: the quote of a field"):
        opened('a\n"1\n')


HEROES = 'id\ttext\n1\t"heroes\n2\tbeans\n3\tsoup\n4\t"low\n5\t5" disk\n'


def test_quotes_are_declared_or_certain(opened):
    """Quotes never merge the lines of a file without quoting."""
    options = {"delimiter": None, "header": None}
    with pytest.raises(
        DataError,
        match=r"in.csv: line 5: a quoted field from line 2 ends before 'l'.*"
        'Double a quote inside quotes, or pass `quote=""`',
    ):
        opened(HEROES, **options)
    with pytest.raises(DataError, match="line 5: a quoted field from line 2"):
        opened(HEROES, quote='"', **options)
    source = opened(HEROES, quote="", **options)
    found, bad = rows_of(source, [Column.sparse("id"), hashed("text")])
    assert not bad and found["id"] == [[1], [2], [3], [4], [5]]
    assert found["text"] == ids_of(
        "text", ['"heroes', "beans", "soup", '"low', '5" disk']
    )
    # Both readings of this file have two columns.
    joined = HEROES.replace('"low', 'low"')
    with pytest.raises(
        DataError, match="line 2: a quoted field goes on to line 5, but each"
    ):
        opened(joined, **options)
    assert opened(joined, quote='"', **options).num_rows == 2
    assert opened(joined, quote="", **options).num_rows == 5
    # Only one reading of this file has two columns.
    certain = opened(joined.replace("\tsoup", ""), **options)
    found, bad = rows_of(certain, [Column.sparse("id"), hashed("text")])
    assert not bad and found["id"] == [[1], [5]]


def test_another_quote(opened):
    text = "a,b\n1,'x,''y'\n2,\"z\n"
    found, bad = rows_of(opened(text, quote="'"), [hashed("b")])
    assert not bad and found["b"] == ids_of("b", ["x,'y", '"z'])


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz"])
def test_skipped_lines(opened, blocks, size, name):
    blocks(size)
    text = '\ufeff"made by\r\n\n# x,y\na,b\n\n1,2\n3,x\n'
    source = opened(text, name, skip_lines=3)
    assert source.format.first_line == 4
    found, bad = rows_of(source, [Column.sparse("a"), Column.dense("b")])
    assert found["a"] == [[1]]
    assert bad == ["line 7: column 'b': found 'x', expected a float32"]
    # Groups are read in any order, also from a compressed file.
    assert source.where(len(source.row_groups) - 1, 0) != "line 1"
    assert rows_of(source, [Column.sparse("a")])[0]["a"] == [[1], [3]]


def test_columns_without_a_name_and_with_equal_names(opened):
    """The first column of DataFrame.to_csv() is the index."""
    text = ",a,b,c,b\n0,5,x,7,y\n1,6,x,8,y\n"
    source = opened(text)
    assert source.schema.names == ["a", "b", "c", "b"]
    found, bad = rows_of(source, [Column.sparse("c"), Column.sparse("a")])
    assert (found, bad) == ({"c": [[7], [8]], "a": [[5], [6]]}, [])
    with pytest.raises(DataError, match="has 2 columns named 'b'"):
        source.check_names(["a", "b"])
    with pytest.raises(DataError, match="has no column ''"):
        source.check_names([""])


def test_a_number_that_float64_rounds_is_read_from_its_text(opened):
    # 2^53 + 1, whose float64 is 2^53, which float32 holds.
    source = opened(
        "x,y\n1.5,2.5\n9007199254740993,3.5\n9007199254740992,inf\n"
    )
    found, bad = rows_of(source, [Column.dense("x"), Column.dense("y")])
    assert found == {"x": [[1.5], [2.0**53]], "y": [[2.5], [np.inf]]}
    assert bad == [
        "line 3: column 'x': found '9007199254740993', expected a float32"
    ]
