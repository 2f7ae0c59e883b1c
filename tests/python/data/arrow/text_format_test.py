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
    ("line", "options", "delimiter"),
    [
        ("a;b,c", {"wanted": ["b,c"]}, ";"),
        ("a;b,c", {"wanted": ["c"]}, ","),
        ("a;b,c", {}, ","),
        ("a;b;c,d", {}, ";"),
        ('a,"b|c"', {}, ","),
        ("1::Toy Story (1995)::A|B", {"columns": ["id", "title", "g"]}, "::"),
        ("1|2|x,y", {"columns": ["a", "b", "c"]}, "|"),
        ("name", {}, ","),
    ],
)
def test_which_delimiter(found, line, options, delimiter):
    assert found(line + "\n", **options).delimiter == delimiter


def test_names_of_a_file_without_a_header(found):
    layout = found("1,2\n3,4\n", columns=["a", "b"])
    assert layout.columns == ("a", "b") and not layout.has_header
    # If the file contains the names as well, that line is a header.
    layout = found("a, b\n3,4\n", columns=["a", "b"])
    assert layout.columns == ("a", "b") and layout.has_header


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_headers(found, end):
    for text in (" a , b\t,c", '"a","b","c"', "\ufeffa,b,c"):
        layout = found(f"{text}{end}1,2,3{end}")
        assert layout.columns == ("a", "b", "c"), text
    layout = found(f'a,"b, ""c""\nd"{end}1,2{end}')
    assert layout.columns == ("a", 'b, "c"\nd')
    assert found(f"{end}{end}a,b{end}1,2").columns == ("a", "b")


def test_a_long_header(found, monkeypatch):
    monkeypatch.setattr("lodestar.data.arrow.text_format._HEAD_BYTES", 64)
    names = [f"column {i}" for i in range(100)]
    assert found(",".join(names) + "\n1\n").columns == tuple(names)
    quoted = ",".join(f'"{n}\n"' for n in names)
    assert found(quoted + "\n").columns == tuple(names)


CRITEO = "\t".join(["1", *["5"] * 12, "", *["68fd1e64"] * 25, ""])


def test_criteo_logs(found):
    assert is_criteo_line(CRITEO) and is_criteo_line(CRITEO[2:] + "\n")
    layout = found(CRITEO + "\n", "day_0")
    assert layout.columns[:2] == ("label", "I1")
    assert layout.columns[-1] == "C26" and len(layout.columns) == 40
    assert (layout.delimiter, layout.has_header) == ("\t", False)
    assert found(CRITEO[2:]).columns[0] == "I1"
    names = [f"c{i}" for i in range(40)]
    assert found(CRITEO, columns=names).columns == tuple(names)
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
        ("a,b,a\n", {}, "column 'a' occurs twice in the header"),
        ("a,,b\n", {}, "column 2 has no name in the header"),
        ("1,2\n", {"columns": ["a", "a"]}, "column 'a' occurs twice; name"),
        ("1,2\n", {"columns": ["a", ""]}, "column 2 has no name; name the"),
        (
            "1,2\n",
            {"columns": ["a", "b", "c"]},
            "line 1: found 2 fields separated by ',', expected 3 as in",
        ),
        ("a,b\n", {"delimiter": '"'}, "`delimiter` must be a string without"),
        ("a,b\n", {"delimiter": ""}, "`delimiter` must be a string"),
        ("a,b\n", {"delimiter": 3}, "`delimiter` must be a string"),
        ("a,b\n", {"delimiter": "\n"}, "`delimiter` must be a string"),
    ],
)
def test_errors_name_the_cause(found, tmp_path, content, options, text):
    with pytest.raises(DataError) as error:
        found(content, **options)
    assert text in str(error.value)
    if "`" not in text[:1]:
        assert str(error.value).startswith(f"{tmp_path}/in.csv: ")
