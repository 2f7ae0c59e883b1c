"""lodestar.data.arrow.text_format: delimiter, header and columns of a file."""

import gzip

import pytest

from lodestar.data import DataError
from lodestar.data.arrow.text_format import find_text_format, is_criteo_line


@pytest.fixture
def found(tmp_path):
    """Returns a function that detects the format of a file's content."""

    def find(content, name="in.csv", **options):
        path = tmp_path / name
        if isinstance(content, str):
            content = content.encode()
        if name.endswith(".gz"):
            content = gzip.compress(content)
        path.write_bytes(content)
        return find_text_format(str(path), **options)

    return find


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|", "::"])
@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz"])
def test_every_delimiter_is_found(found, delimiter, name):
    lines = ["user,item,rating", "1,2,3"]
    text = "\n".join(line.replace(",", delimiter) for line in lines)
    layout = found(text, name)
    assert layout.columns == ("user", "item", "rating")
    assert layout.delimiter == delimiter
    assert layout.has_header
    assert layout.quote == ("" if delimiter == "::" else '"')
    # Any other delimiter must be named.
    layout = found(text.replace(delimiter, "~~"), delimiter="~~")
    assert layout.columns == ("user", "item", "rating")


@pytest.mark.parametrize(
    ("text", "options", "delimiter"),
    [
        # Names of which one delimiter makes fields decide.
        ("a;b,c\n1;2,3\n", {"names": [["b,c"]]}, ";"),
        ("a;b,c\n1;2,3\n", {"names": [["x", "c"]]}, ","),
        ("a;b,c\n1;2\n", {"names": [["a"], ["b,c"]]}, ";"),
        ("1::Toy Story (1995)::A|B\n", {"columns": ["id", "title", "g"]}, "::"),
        ("1|2|x,y\n", {"columns": ["a", "b", "c"]}, "|"),
        ("1,a;b\n2,c;d\n", {"columns": ["a", "b"], "delimiter": ","}, ","),
        # Otherwise, the number of fields of all lines.
        ("a;b,c\n1;2\n", {}, ";"),
        ("a;b\n1,5;2,5\n", {}, ";"),
        ('a,"b|c"\n1,2\n', {}, ","),
        ('"a;b","c"\n"1;2","3"\n', {}, ","),
        ("a,b\n1,x|y\n2,x|y\n", {}, ","),
        ('a\tb\n1\t"x\n2\t"y" z\n', {}, "\t"),
        ("name\nx\n", {}, ","),
    ],
)
def test_which_delimiter(found, text, options, delimiter):
    options = {"header": "columns" not in options, **options}
    assert found(text, **options).delimiter == delimiter


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("a;b,c\n1;2,3\n", {}, "the delimiter may be ',' or ';': each splits"),
        ('a,"b|c"\n1,2|3\n', {}, "the delimiter may be ',' or '|': each"),
        ("a;b,c\n", {"names": [["a;b"], ["a"]]}, "the delimiter may be ',' or"),
        (
            "a,b;c\n1,2;3\n",
            {"columns": ["a", "b"]},
            "line 1: the delimiter may be ',' or ';'",
        ),
        (
            "a,b,c\n1,2,3\n4,5\n",
            {},
            "line 1: no delimiter splits the first lines into equally many "
            "fields: ',' splits this line into 3, and record 3 into 2; pass "
            "`delimiter=`",
        ),
        ("title\nHello, world\nBye\n", {}, "no delimiter splits the first"),
        (
            "\n|1x3 Cross validator\n25, Private, 7\n38, State, 8\n",
            {},
            "line 2: found 1 fields separated by ',', but 3 in all lines after "
            "it; if it is not part of the table, pass `skip_lines=2`",
        ),
        (
            "|1x3 Cross validator\n25, Private, 7\n",
            {"columns": ["a", "b", "c"], "delimiter": ","},
            "pass `skip_lines=1`",
        ),
        (
            "|1x3\n25, x, 7\n",
            {"names": [["a"], ["b"]]},
            "pass `skip_lines=1`",
        ),
        ("sep=;\na;b\n1;2\n", {}, "`skip_lines=1, delimiter=';'`"),
        (
            "a,b\n1,2,\n3,4,\n",
            {},
            "line 1: found 2 fields, but ',' ends every line after it, which "
            "makes 3 fields, the last empty; remove these delimiters, or pass "
            "`skip_lines=1, header=False` and `columns` with 3 names",
        ),
        ("a,b\n1,2,\n", {"names": [["a"], ["b"]]}, "',' ends every line"),
        ("a,b\n1,2,\n", {"header": True}, "',' ends every line"),
    ],
)
def test_an_unclear_delimiter_or_first_line(found, text, options, error):
    with pytest.raises(DataError) as raised:
        found(text, **options)
    assert error in str(raised.value)


CERTAIN = [
    # The names that are read decide.
    ("a,b\nx,y\n", {"names": [["a"], ["b_0", "b"]]}, True),
    ("1,2\n3,4\n", {"names": [["1"]]}, True),
    # So does a column of numbers below names.
    ("a,b\nx,0.5\n", {}, True),
    ("a,b\nx,?\ny,1e5\n", {"na_values": ["", "?"]}, True),
    (",b\nx,7\n", {}, True),
    # `columns` are the header, or names for numbers.
    ("a, b\nx,y\n", {"columns": ["a", "b"]}, True),
    ("1,\n3,4\n", {"columns": ["a", "b"]}, False),
    # The caller decides.
    ("x,y\nz,w\n", {"header": True}, True),
    ("1,2\n3,4\n", {"header": True}, True),
    ("x,y\nz,w\n", {"header": True, "columns": ["a", "b"]}, True),
    ("x,y\nz,w\n", {"header": False, "columns": ["a", "b"]}, False),
    ("x,y\nz,w\n", {"names": [["c"]], "header": True}, True),
]


@pytest.mark.parametrize(("text", "options", "has_header"), CERTAIN)
def test_a_certain_header(found, text, options, has_header):
    layout = found(text, **options)
    assert layout.has_header == has_header
    if "columns" in options:
        assert layout.columns == ("a", "b")


UNCLEAR = [
    # UserBehavior, Yoochoose and Adult
    ("1,2268318,2520377,pv,1511544070\n", {}),
    ("1,2014-04-07T10:51:09.277Z,214536502,0\n", {}),
    ("39, State-gov, 77516, <=50K\n50, Private, 83311, <=50K\n", {}),
    ("a,b\nx,y\n", {}),
    ("a,b\n", {}),
    ("a,b\nx,?\n", {"na_values": ["", "?"]}),
    ("a,?\nx,1\n", {"na_values": ["", "?"]}),
    ("a,\nx,1\n", {"na_values": ["?"]}),
    ("a,a\nx,1\n", {}),
    ("a,b\nx,1\n", {"columns": ["c", "d"]}),
    ("1,b\n2,1\n", {"columns": ["c", "d"]}),
    ("a,b\nx,y\n", {"names": [["c"]]}),
]


@pytest.mark.parametrize(("text", "options"), UNCLEAR)
def test_an_unclear_header(found, tmp_path, text, options):
    with pytest.raises(DataError) as error:
        found(text, **options)
    shown = ", ".join(
        field.strip() for field in text.splitlines()[0].split(",")
    )
    assert str(error.value).startswith(f"{tmp_path}/in.csv: line 1: ")
    assert f"may be a header or data: {shown}; pass `header=" in str(
        error.value
    )
    # Each of the advised options works.
    assert found(text, **options, header=True).has_header
    names = [f"c{i}" for i in range(len(shown.split(", ")))]
    options = {**options, "columns": names}
    assert not found(text, **options, header=False).has_header


def test_a_header_that_contradicts_the_options(found):
    with pytest.raises(DataError, match="line 1: is the header a, b, but"):
        found("a,b\n1,2\n", columns=["a", "b"], header=False)
    with pytest.raises(DataError, match="`header=False` needs names"):
        found("1,2\n3,4\n", header=False)
    with pytest.raises(DataError, match="found 2 fields .*, expected 3 as in"):
        found("x,y\n3,4\n", columns=["a", "b", "c"], header=True)
    # Names of which only some are there are a header with missing columns.
    assert found("a,b\nx,y\n", names=[["a"], ["c"]]).has_header


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_headers(found, end):
    for text in (" a , b\t,c", '"a","b","c"', "\ufeffa,b,c"):
        layout = found(f"{text}{end}1,2,3{end}")
        assert layout.columns == ("a", "b", "c"), text
    layout = found(f'a,"b, ""c""\nd"{end}1,2{end}', delimiter=",")
    assert layout.columns == ("a", 'b, "c"\nd')
    layout = found(f"{end}{end}a,b{end}1,2")
    assert layout.columns == ("a", "b") and layout.first_line == 3
    layout = found(f'"{end}{end}x{end}{end}a,b{end}1,2', skip_lines=3)
    assert layout.columns == ("a", "b") and layout.first_line == 5


def test_quotes_and_the_layout_in_one_line(found):
    assert found("a;b\n1;2\n").describe() == (
        "delimiter ';', quote '\"', header in line 1"
    )
    layout = found('"a,b"\n1,2\n', quote="", header=True)
    assert layout.columns == ('"a', 'b"')
    layout = found("1::2\n", columns=["a", "b"], encoding="latin-1")
    assert layout.describe() == (
        "delimiter '::', no quote, no header, encoding latin-1"
    )
    # With other quotes, the commas of this file are not certain.
    text = "'a,b',c\n'1,2',3\n"
    assert found(text, quote="'").columns == ("a,b", "c")
    assert len(found(text).columns) == 3


def test_a_long_header(found, monkeypatch):
    monkeypatch.setattr("lodestar.data.arrow.text_format._HEAD_BYTES", 64)
    names = [f"column {i}" for i in range(100)]
    text = ",".join(names) + "\n1\n"
    assert found(text, header=True, delimiter=",").columns == tuple(names)
    quoted = ",".join(f'"{n}\n"' for n in names)
    assert found(quoted + "\n", header=True).columns == tuple(names)
    text = "#\n" * 100 + "a,b\n1,2\n"
    assert found(text, skip_lines=100).columns == ("a", "b")


CRITEO = "\t".join(["1", *["5"] * 12, "", *["68fd1e64"] * 25, ""])


def test_criteo_logs(found):
    assert is_criteo_line(CRITEO) and is_criteo_line(CRITEO[2:] + "\n")
    layout = found(CRITEO + "\n", "day_0")
    assert layout.columns[:2] == ("label", "I1")
    assert layout.columns[-1] == "C26" and len(layout.columns) == 40
    assert (layout.delimiter, layout.has_header) == ("\t", False)
    assert found(CRITEO[2:]).columns[0] == "I1"
    names = [f"c{i}" for i in range(40)]
    assert found(CRITEO, columns=names, header=False).columns == tuple(names)
    layout = found("#\n" + CRITEO + "\n", skip_lines=1, header=False, quote="")
    assert layout.columns[-1] == "C26" and not layout.quote
    assert not is_criteo_line(CRITEO + "\t1")
    assert not is_criteo_line(CRITEO.replace("68fd1e64", "68fd1e6z"))


def test_encodings(found):
    data = "navn,Østfold\n1,2\n".encode("latin-1")
    assert found(data, encoding="latin-1").columns == ("navn", "Østfold")
    with pytest.raises(
        DataError, match="line 1: byte 6 is not utf-8; give `encoding`"
    ):
        found(data)
    for name in ("utf-16", "UTF_16_LE", "utf32", "cp037"):
        with pytest.raises(DataError, match="does not extend ASCII"):
            found(data, encoding=name)
    for name in ("klingon", 3):
        with pytest.raises(DataError, match="`encoding`=.* is unknown"):
            found(data, encoding=name)


@pytest.mark.parametrize(
    ("content", "options", "text"),
    [
        ("", {}, "the file is empty"),
        ("\n\r\n", {}, "the file is empty"),
        ("a\0b,c\n", {}, "line 1: is not text: found a NUL byte"),
        ("1,2\n", {}, "line 1: looks like data, not like a header: 1, 2; name"),
        ("1.5,,-2e3\n", {}, "looks like data"),
        ("a\n\n", {"skip_lines": 1}, "the file is empty after 1 skipped lines"),
        ("a\n", {"skip_lines": 9}, "the file is empty after 9 skipped lines"),
        ("#\n\na\0\n", {"skip_lines": 1}, "line 3: is not text: found a NUL"),
        ("1,2\n", {"columns": ["a", "a"]}, "`columns`: 'a' occurs twice"),
        ("1,2\n", {"columns": ["a", ""]}, "`columns`: column 2 has no name"),
        (
            "1,2\n",
            {"columns": ["a", "b", "c"]},
            "line 1: found 2 fields separated by ',', expected 3 as in",
        ),
        ("a,b\n", {"delimiter": '"'}, "`delimiter` must be a string without"),
        ("a,b\n", {"delimiter": ""}, "`delimiter` must be a string"),
        ("a,b\n", {"delimiter": 3}, "`delimiter` must be a string"),
        ("a,b\n", {"delimiter": "\n"}, "`delimiter` must be a string"),
        ("a,b\n", {"quote": "''"}, "`quote` must be '\"' or another ASCII"),
        ("a,b\n", {"quote": "é"}, "`quote` must be"),
        ("a,b\n", {"quote": ",", "delimiter": ","}, "`quote` must be"),
        (
            "a::b\n",
            {"quote": '"', "delimiter": "::"},
            "`quote` must be '' because `delimiter`='::' has several",
        ),
        ("a,b\n", {"header": 1}, "`header` must be True, False or None, got 1"),
        ("a,b\n", {"skip_lines": -1}, "`skip_lines` must be an integer in [0,"),
        ("a,b\n", {"skip_lines": True}, "`skip_lines` must be an integer"),
    ],
)
def test_errors_name_the_cause(found, tmp_path, content, options, text):
    with pytest.raises(DataError) as error:
        found(content, **options)
    assert text in str(error.value)
    if "`" not in text[:1]:
        assert str(error.value).startswith(f"{tmp_path}/in.csv: ")
