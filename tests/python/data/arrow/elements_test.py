"""lodestar.data.arrow.elements: values of every Arrow type as ids and numbers."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from text_ids import hash_ids

from lodestar.data import Column, DataError
from lodestar.data.arrow.elements import read_elements
from lodestar.schema.schema import NA_VALUES

IDS = Column.sparse("x")
HASHED = Column.sparse("x", encoding="hash")
STRINGS = Column.sparse("x", encoding="hash", strings_only=True)
NUMBERS = Column.dense("x")
ROUNDED = Column.dense("x", rounded=True)


def read(array, column, na_values=NA_VALUES):
    """Returns the values: None if missing, a string if bad."""
    elements = read_elements(array, column, na_values)
    assert len(elements.values) == len(array)
    assert elements.values.dtype in (np.int64, np.float32)
    found = elements.values.tolist()
    for place in elements.bad.tolist():
        found[place] = elements.describe(place)
    if elements.missing is not None:
        assert not set(np.flatnonzero(elements.missing)) & set(elements.bad)
        for place in np.flatnonzero(elements.missing):
            found[place] = None
    return found


def int64(number):
    """Returns the int64 with the bits of a uint64."""
    return number - 2**64 if number >= 2**63 else number


INTEGERS = ["int8", "int16", "int32", "int64"]
INTEGERS += ["uint8", "uint16", "uint32", "uint64"]
TEXT = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name):
    info = np.iinfo(name)
    numbers = [int(info.min), int(info.max), 7, 0, None]
    array = pa.array(numbers, getattr(pa, name)())
    assert read(array, IDS) == [*map(int64, numbers[:4]), None]
    want = np.array(numbers[:4], np.float64).astype(np.float32).tolist()
    assert read(array, ROUNDED) == [*want, None]
    if info.bits > 16:
        bad = f"found {info.max}, expected a float32, which rounds it to "
        assert read(array, NUMBERS)[1].startswith(bad)
    else:
        assert read(array, NUMBERS) == [*want, None]
    texts = hash_ids("x", map(str, numbers[:4])).tolist()
    assert read(array, HASHED) == [*texts, None]


@pytest.mark.parametrize(
    ("dtype", "exact"),
    [("float16", 2**11), ("float32", 2**24), ("float64", 2**53)],
)
def test_floats_with_whole_values_are_ids(dtype, exact):
    # The limit is also the nearest float of the next integer.
    last = exact - 1
    numbers = [7.0, -0.0, -last, last, np.nan, 0.5, np.inf, exact]
    array = pa.array(np.array(numbers, dtype))
    bits = dtype.removeprefix("float")
    bad = [
        "found 0.5, expected an integer of 64 bits",
        "found inf, expected an integer of 64 bits",
        f"found {float(exact)}, expected an integer of 64 bits; float{bits} "
        f"holds every integer only below {exact}",
    ]
    assert read(array, IDS) == [7, 0, -last, last, None, *bad]
    found = read(array, HASHED)
    texts = ["7", "0", str(-last), str(last)]
    assert found[:4] == hash_ids("x", texts).tolist()
    assert found[4] is None
    assert found[5] == "found 0.5, expected a string or an integer"


def test_integer_labels_of_floats():
    label = Column.label("x", binary=False)
    for arrow_type in (pa.float32(), pa.float64()):
        numbers = [7.0, -(2.0**63), 2.0**62, 2.0**63, 0.5]
        found = read(pa.array(numbers, arrow_type), label)
        assert found[:3] == [7, -(2**63), 2**62]
        for number, text in zip(numbers[3:], found[3:]):
            assert text == (
                f"found {number}, expected an integer that float32 holds"
            )


def test_only_ids_keep_the_bits_of_large_integers():
    label = Column.label("x", binary=False)
    largest = pa.array([2**64 - 1, 7], pa.uint64())
    bad = f"found {2**64 - 1}, expected an integer that float32 holds"
    assert read(largest, label) == [bad, 7]
    assert read(largest, IDS) == [-1, 7]
    texts = largest.cast(pa.string())
    assert read(texts, label) == [
        bad.replace("found ", "found '").replace(",", "',", 1),
        7,
    ]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_as_numbers(dtype):
    numbers = np.array([0.1, -2.5, np.inf, 0], dtype)
    array = pa.array(numbers)
    assert read(array, NUMBERS) == numbers.astype(np.float32).tolist()
    nulls = pa.array(numbers, mask=np.array([False, True, False, False]))
    assert read(nulls, NUMBERS)[1] is None
    # A NaN is missing, as pandas writes it.
    assert read(pa.array(np.array([np.nan, 1], dtype)), NUMBERS) == [None, 1]


def test_a_number_beyond_float32_is_bad():
    array = pa.array([1e300, 1e-300, -1e39, 2.0**127])
    assert read(array, NUMBERS) == [
        "found 1e+300, expected a float32",
        0.0,
        "found -1e+39, expected a float32",
        2.0**127,
    ]
    texts = read(array.cast(pa.string()), NUMBERS)
    assert texts[1::2] == [0.0, 2.0**127]
    assert texts[2] == "found '-1e+39', expected a float32"
    texts = pa.array(["1e300", "true"])  # which Arrow does not parse
    assert read(texts, NUMBERS) == ["found '1e300', expected a float32", 1.0]


WHOLE = [2**24 - 1, 2**24, 2**24 + 1, 20200715, 2**53 + 1, 2**62, 2**63 - 1]


@pytest.mark.parametrize(
    "form",
    [
        lambda n: pa.array([n]),
        lambda n: pa.array([n, None]),
        lambda n: pa.array([n], pa.uint64()),
        lambda n: pa.array([str(n)]),
        lambda n: pa.array([f"{n}.0"]),
        lambda n: pa.array([str(n), "true"]),
        lambda n: pa.array([str(n)]).dictionary_encode(),
        lambda n: pa.array([decimal.Decimal(n)], pa.decimal128(30, 2)),
    ],
)
@pytest.mark.parametrize("number", WHOLE)
def test_whole_numbers_that_float32_does_not_hold(form, number):
    narrow = int(np.float32(number))
    found, *_ = read(form(number), NUMBERS)
    if narrow == number:
        assert found == number
    else:
        assert "expected a float32" in found
    assert read(form(number), ROUNDED)[0] == narrow


def test_fractions_are_rounded():
    numbers = [0.1, 1.0000000001, 16777215.7, 1e-300, -1e-46]
    want = np.float32(numbers).tolist()
    assert read(pa.array(numbers), NUMBERS) == want
    assert read(pa.array(list(map(repr, numbers))), NUMBERS) == want
    for large in (16777217.5, -16777217.5, 1e20):
        for array in (pa.array([large]), pa.array([repr(large)])):
            assert "expected a float32" in read(array, NUMBERS)[0]
            assert read(array, ROUNDED) == [float(np.float32(large))]
    # Also if float64 would round another string.
    texts = pa.array([*map(repr, numbers), str(2**53)])
    assert read(texts, NUMBERS) == [*want, 2.0**53]


def test_booleans():
    array = pa.array([True, None, False])
    assert read(array, IDS) == [1, None, 0]
    assert read(array, NUMBERS) == [1.0, None, 0.0]
    texts = pa.array([" True", "false", "FALSE", "true"])
    assert read(texts, NUMBERS) == [1.0, 0.0, 0.0, 1.0]
    assert read(texts, IDS) == [1, 0, 0, 1]


@pytest.mark.parametrize("make", [pa.decimal128, pa.decimal256])
def test_decimals(make):
    whole = [decimal.Decimal(t) for t in ("7.00", "-3.00", str(2**64 - 1))]
    array = pa.array([*whole, None], make(30, 2))
    assert read(array[:2], IDS) == [7, -3]
    assert read(array, IDS) == [7, -3, -1, None]
    assert read(array, ROUNDED) == [7.0, -3.0, 2.0**64, None]
    assert "expected a float32" in read(array, NUMBERS)[2]
    texts = hash_ids("x", ["7", "-3", str(2**64 - 1)]).tolist()
    assert read(array, HASHED) == [*texts, None]
    mixed = pa.array([decimal.Decimal("7.00"), decimal.Decimal("7.25")])
    assert read(mixed, IDS) == [
        7,
        "found '7.25', expected an integer of 64 bits",
    ]
    assert read(mixed, HASHED) == [
        texts[0],
        "found '7.25', expected a string or an integer",
    ]
    assert read(mixed, NUMBERS) == [7.0, 7.25]
    large = pa.array([decimal.Decimal(2**64)], make(30, 2))
    assert read(large, IDS)[0].endswith("expected an integer of 64 bits")


@pytest.mark.parametrize("arrow_type", TEXT, ids=str)
def test_text(arrow_type):
    texts = ["7", " +8 ", "-9", "10.", "11.000", "0x1F", str(2**64 - 1)]
    texts += [" NULL\t", None, "", "0007"]
    array = pa.array(texts, pa.string()).cast(arrow_type)
    assert read(array, IDS) == [
        *(7, 8, -9, 10, 11, 31, -1),
        *(None, None, None, 7),
    ]
    # Whitespace around strings is ignored.
    present = ["7", "+8", *texts[2:7], "0007"]
    hashed = hash_ids("x", present).tolist()
    assert read(array, STRINGS) == [*hashed[:7], *[None] * 3, hashed[7]]
    found = read(array, HASHED)
    for place, text in (1, "+8"), (3, "10."), (4, "11.000"), (10, "0007"):
        assert found[place] == (
            f"found '{text}', expected a string or an integer; declare it with "
            "`strings_only=True` if it is not another spelling of an integer"
        )
    for place in 0, 2, 5, 6:
        assert found[place] == hashed[place]
    numbers = pa.array(["0.1", " -2.5e3 ", "7", "inf", " N/A ", None])
    assert read(numbers.cast(arrow_type), NUMBERS) == [
        *(float(np.float32(0.1)), -2500.0, 7.0, np.inf),
        *(None, None),
    ]


def test_text_that_is_not_a_number():
    texts = ["a", "1_000", "1.5", "9" * 5000, str(2**64), str(-(2**63) - 1)]
    texts += ["1" + "0" * 20, "1e3", "1 2", "--1", ".", "0x", "ff", "\u0661"]
    array = pa.array([*texts, "7"])
    found = read(array, IDS)
    assert found.pop() == 7
    for text, what in zip(texts, found):
        shown = repr(text)
        if len(shown) > 60:
            shown = shown[:60] + "..."
        assert what == f"found {shown}, expected an integer of 64 bits"
    assert read(array[:2], NUMBERS) == [
        "found 'a', expected a float32",
        "found '1_000', expected a float32",
    ]


def test_text_of_fixed_size_and_beyond_utf8():
    array = pa.array([b"07", b"12", None], pa.binary(2))
    assert read(array, IDS) == [7, 12, None]
    array = pa.array([b"\xff", b"a"])
    assert read(array, IDS) == [
        "found '\\\\xff', expected an integer of 64 bits",
        "found 'a', expected an integer of 64 bits",
    ]
    assert len(set(read(array, HASHED))) == 2


def test_hexadecimal_text():
    column = Column.sparse("x", encoding="hex")
    texts = ["68fd1e64", "0xFF", "ffffffffffffffff", " a ", "", None, "xyz"]
    assert read(pa.array([*texts, "1" * 17]), column) == [
        *(0x68FD1E64, 255, -1, 10, None, None),
        "found 'xyz', expected a hexadecimal number of 64 bits",
        f"found '{'1' * 17}', expected a hexadecimal number of 64 bits",
    ]


def test_hash_as_another_column():
    column = Column.sparse("x", encoding="hash", hash_as="y")
    want = hash_ids("y", ["a", "7"]).tolist()
    assert read(pa.array(["a", "7"]), column) == want
    assert read(pa.array([7]), column) == want[1:]
    assert read(pa.array([7.0]), column) == want[1:]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([7]),
        pa.array([7.0]),
        pa.array([True]),
        pa.array([decimal.Decimal(7)]),
        pa.array([7]).dictionary_encode(),
    ],
    ids=lambda array: str(array.type),
)
def test_numbers_where_only_strings_are_declared(array):
    with pytest.raises(DataError, match="expected strings, whose leading"):
        read(array, STRINGS)
    assert read(pa.nulls(2), STRINGS) == [None, None]


@pytest.mark.parametrize("column", [IDS, HASHED, NUMBERS], ids=str)
def test_dictionaries_are_read_as_their_values(column):
    values = pa.array(["7", None, "8", "7", "?", "7"])
    words = pa.array(["7", "unused", "8", None, "?"])
    codes = pa.array([0, 3, 2, None, 4, 0], pa.int8())
    array = pa.DictionaryArray.from_arrays(codes, words)
    want = read(values, column)
    want[3] = None
    assert read(array, column) == want
    assert read(array[2:5], column) == want[2:5]
    assert read(array[:0], column) == []
    only_null = pa.array([None, None], pa.dictionary(pa.int8(), pa.string()))
    assert read(only_null, column) == [None, None]
    if column is IDS:
        array = pa.array(["7", "a", None, "a"]).dictionary_encode()
        bad = "found 'a', expected an integer of 64 bits"
        assert read(array, IDS) == [7, bad, None, bad]


def test_run_end_encoded():
    array = pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3, 6], pa.int32()), pa.array([5, None, 9])
    )
    assert read(array, IDS) == [5, 5, None, 9, 9, 9]
    assert read(array[1:4], IDS) == [5, None, 9]
    assert read(array, NUMBERS) == [5.0, 5.0, None, 9.0, 9.0, 9.0]


def test_the_null_type():
    for column in (IDS, HASHED, NUMBERS):
        assert read(pa.nulls(3), column) == [None] * 3


class Wrapped(pa.ExtensionType):
    """An extension type over int64."""

    def __init__(self):
        super().__init__(pa.int64(), "lodestar.test.wrapped")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def test_extension_types_are_read_as_their_storage():
    array = pa.ExtensionArray.from_storage(Wrapped(), pa.array([7, None]))
    assert read(array, IDS) == [7, None]
    assert read(array, NUMBERS) == [7.0, None]


MOMENTS = [
    datetime.datetime(2026, 1, 31, 12, 30, 15, 250_000),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime.datetime(1970, 1, 1),
]
EPOCH = datetime.datetime(1970, 1, 1)
PER_UNIT = {"D": 86_400_000_000, "s": 1_000_000, "ms": 1000, "us": 1}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "D"])
@pytest.mark.parametrize("stored", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps(unit, stored, zone):
    micros = [
        (m - EPOCH) // datetime.timedelta(microseconds=1) for m in MOMENTS
    ]
    if stored != "ns":
        micros = [m // PER_UNIT[stored] * PER_UNIT[stored] for m in micros]
    array = pa.array(micros, pa.int64()).cast(pa.timestamp("us"))
    array = array.cast(pa.timestamp(stored)).cast(pa.int64())
    array = array.cast(pa.timestamp(stored, zone))
    array = pa.concat_arrays([array, pa.nulls(1, array.type)])
    want = [m * 1000 if unit == "ns" else m // PER_UNIT[unit] for m in micros]
    column = Column.sparse("x", unit=unit)
    assert read(array, column) == [*want, None]


@pytest.mark.parametrize("arrow_type", [pa.date32(), pa.date64()], ids=str)
def test_dates(arrow_type):
    days = [datetime.date(2026, 1, 31), datetime.date(1969, 12, 30), None]
    array = pa.array(days, arrow_type)
    assert read(array, Column.sparse("x", unit="D")) == [20484, -2, None]
    seconds = Column.sparse("x", unit="s")
    assert read(array, seconds) == [20484 * 86400, -2 * 86400, None]
    assert read(array, Column.dense("x", unit="D")) == [20484.0, -2.0, None]
    hashed = Column.sparse("x", unit="D", encoding="hash")
    assert read(array, hashed)[:2] == hash_ids("x", ["20484", "-2"]).tolist()


def test_times_need_a_unit():
    for arrow_type in (pa.date32(), pa.date64(), pa.timestamp("s")):
        with pytest.raises(
            DataError, match=r"found the type .*declare.*`unit`"
        ):
            read(pa.nulls(1, arrow_type), IDS)


def test_times_beyond_64_bits():
    array = pa.array([2**34, None, -(2**34), 2**33], pa.timestamp("s"))
    column = Column.sparse("x", unit="ns")
    assert read(array, column) == [
        "found 2514-05-30T01:53:04, whose 'ns' since 1970-01-01 are beyond 64 "
        "bits",
        None,
        "found 1425-08-04T22:06:56, whose 'ns' since 1970-01-01 are beyond 64 "
        "bits",
        2**33 * 10**9,
    ]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([{"a": 1}]),
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.time32("s")),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda array: str(array.type),
)
def test_unsupported_types(array):
    for column in (IDS, HASHED, NUMBERS, Column.label("x")):
        with pytest.raises(DataError, match="found the type .*cannot be read"):
            read(array, column)


@pytest.mark.parametrize(
    ("array", "positive", "want"),
    [
        (["yes", " yes ", "no", "", None], "yes no", [1, 1, 0, None, None]),
        ([b"yes", b"no"], "yes no", [1, 0]),
        ([2, 1, None], "2 1", [1, 0, None]),
        ([2.0, 1.5], "2 1.5", [1, 0]),
        ([True, False], "true false", [1, 0]),
        ([True, False], "False True", [0, 1]),
        (pa.array(["yes", "no"]).dictionary_encode(), "yes no", [1, 0]),
        (pa.array([7, 8]).dictionary_encode(), "8 7", [0, 1]),
    ],
)
def test_a_label_of_strings(array, positive, want):
    positive, negative = positive.split()
    label = Column.label("x", positive=positive, negative=negative)
    if not isinstance(array, pa.Array):
        array = pa.array(array)
    assert read(array, label) == want
    floats = Column.label(
        "x", positive=positive, negative=negative, optional=True
    )
    assert read(array, floats) == want


@pytest.mark.parametrize(
    "array",
    [
        *(
            ["YES"],
            ["NO"],
            ["maybe"],
            ["no."],
            ["yes."],
            ["1"],
            ["true"],
            ["y"],
        ),
        *([1], [0], [1.0], [True], [False]),
    ],
    ids=str,
)
def test_another_string_is_no_label(array):
    label = Column.label("x", positive="yes", negative=["no", "never"])
    (found,) = read(pa.array(array), label)
    assert found.endswith(", expected 'yes' or 'no' or 'never'")


def test_missing_strings_of_the_schema():
    array = pa.array(["-", "", "7"])
    assert read(array, IDS, ("-",)) == [
        None,
        "found '', expected an integer of 64 bits",
        7,
    ]
    assert read(array, HASHED, ("-",)) == [None, *hash_ids("x", ["", "7"])]
    assert read(array[1:], HASHED, ()) == hash_ids("x", ["", "7"]).tolist()
