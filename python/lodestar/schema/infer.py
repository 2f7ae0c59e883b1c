"""Infers a schema from the first rows of any source."""

import collections
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lodestar._checks import check_texts, did_you_mean
from lodestar._errors import DataError, UnclearColumnsError
from lodestar.schema.arrow_types import (
    as_text,
    is_list,
    is_list_view,
    is_text,
    is_time,
    without_views,
)
from lodestar.schema.column import JSON, Column, Kind
from lodestar.schema.domain import to_float32
from lodestar.schema.json_text import json_texts, parse_json
from lodestar.schema.schema import NA_VALUES, Schema

types = pa.types
# Maximum number of rows to inspect, reduced for tables with many columns.
SAMPLE_ROWS = 100_000
SAMPLE_CELLS = 20_000_000
LEAST_ROWS = 1_000
# With more distinct integers, the suggested call names a column as ids.
_MANY = 128
# A schema lists the values of a label.
_MOST_LABELS = 100
_INTEGER = r"^[+-]?[0-9]+(\.0*)?$"
_NUMBER = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?)$"
_CODE = r"^[+-]?0[0-9]"
# Digits without a letter that are no number, such as 2,50 or 2026-01-31, values
# around a bar, and lists as Python writes them.
_ODD = r"^[^\pL]*[0-9][^\pL]*$|\||^[\[({].*[\])}]$"
_LABEL = "label"
_SHOWN = 3


class _Guess(NamedTuple):
    """An inferred kind, the reason, and `Column` options."""

    kind: Kind
    why: str
    options: Mapping[str, Any] = {}


class _Doubt(Exception):
    """The values of a column leave several meanings.

    Its text describes what was seen. `option` is the option that a call to paste
    names the column in, and `declare` the code of a `Column` that would do.
    """

    def __init__(self, seen: str, option: str, declare: str | None = None):
        super().__init__(seen)
        self.option = option
        self.declare = declare


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a caller declares of columns to infer.

    Attributes:
        label: `COLUMN`, or `COLUMN=POSITIVE`: 1 where the value is POSITIVE.
        categorical: Names of id columns.
        numeric: Names of number columns.
        ignore: Names of columns to leave out.
        sample_weight: Name of the column of sample weights.
        declare: Columns that are taken as they are.
        na_values: Strings that mean missing. None: the default.
    """

    label: str | None = None
    categorical: Collection[str] = ()
    numeric: Collection[str] = ()
    ignore: Collection[str] = ()
    sample_weight: str | None = None
    declare: Collection[Column] = ()
    na_values: Collection[str] | None = None

    def __post_init__(self) -> None:
        check_texts(
            categorical=self.categorical,
            numeric=self.numeric,
            ignore=self.ignore,
            na_values=self.na_values,
        )
        for column in self.declare:
            if not isinstance(column, Column):
                raise TypeError(f"`declare` takes Columns, got {column!r}.")

    def names(self) -> list[str]:
        """Returns the names of the columns that must exist."""
        return [name for names in self._by_option().values() for name in names]

    def options_of(self, name: str) -> list[str]:
        """Returns the options that name a column."""
        return [o for o, names in self._by_option().items() if name in names]

    def _by_option(self) -> dict[str, list[str]]:
        return {
            "label": [] if self.label is None else [self.label],
            "sample_weight": [self.sample_weight] if self.sample_weight else [],
            "declare": [column.name for column in self.declare],
            "categorical": list(self.categorical),
            "numeric": list(self.numeric),
            "ignore": list(self.ignore),
        }

    @property
    def inferring(self) -> list[str]:
        """The names of the given options, which apply only to inference."""
        return [
            name
            for name in INFERRED
            if getattr(self, name) is not None
            and (name == "na_values" or getattr(self, name))
        ]


# Names of the options that replace a schema.
INFERRED = tuple(field.name for field in dataclasses.fields(Wanted))


class Inferred(NamedTuple):
    """An inferred schema, and notes on it for the user."""

    schema: Schema
    notes: list[str]


def infer_schema(
    table: Any,
    where: str,
    wanted: Wanted,
    partitions: Collection[str] = (),
) -> Inferred:
    """Infers the kind of each column from the first rows.

    A kind is inferred only if the values leave one meaning:

    - the label is the column named by `label`, else `"label"`;
    - strings that are not numbers, categories and partition columns are ids;
    - booleans and fractions are numbers, as are lists of them (dense, or sparse
      floats if the list length varies).

    Integers, in any dtype and as strings, may be ids or numbers. Such a column, and
    any other with several meanings, is an error unless `wanted` names it. An id
    column has `encoding="int"` if all its values are integers, and `"hash"`, of
    strings only, otherwise. A column of a type that cannot be read is left out.

    The columns of `table`, a `pyarrow.Table` of the first rows, may be named by
    dotted paths. `where` is the name of the source in errors. Raises DataError, with
    all columns in doubt and a call that declares them, if a column is unknown,
    occurs twice or is in doubt.
    """
    na_values = NA_VALUES if wanted.na_values is None else wanted.na_values
    names = table.schema.names
    label, positive = _label(where, names, wanted)
    wanted = dataclasses.replace(wanted, label=label)
    _check_names(where, names, wanted)
    rows = table.num_rows
    declared = {column.name: column for column in wanted.declare}
    columns: list[Column] = []
    doubts: dict[str, _Doubt] = {}
    unread: list[str] = []
    for name in names:
        if name in wanted.ignore:
            continue
        if name in declared:
            columns.append(declared[name])
            continue
        sample = _Sample(name, table.column(name), na_values)
        why = ""
        try:
            if name == label:
                guess = sample.label(positive)
            elif name == wanted.sample_weight:
                guess = _Guess("sample_weight", "named in `sample_weight`")
            elif name in wanted.categorical:
                guess = sample.ids("named in `categorical`")
            elif name in wanted.numeric:
                guess = sample.numbers("named in `numeric`")
            elif not sample.is_readable:
                unread.append(f"{name!r} ({sample.type})")
                continue
            elif name in partitions:
                guess = sample.ids("a partition column")
            else:
                guess = sample.guess()
        except _Doubt as doubt:
            doubts[name] = doubt
            continue
        except DataError as error:
            raise DataError(f"{where}: column {name!r}: {error}") from error
        why = guess.why
        if name not in (
            *wanted.categorical,
            *wanted.numeric,
            wanted.sample_weight,
        ):
            why += f" ({rows} rows of {where})"
        options = {"dtype": "float", **guess.options}
        columns.append(Column(name, guess.kind, why=why, **options))
    if doubts:
        raise _unclear(where, rows, doubts, wanted)
    if not columns:
        raise DataError(f"{where}: has no columns")
    # Targets come first, as in every format.
    columns.sort(key=lambda column: column.is_feature)
    notes = []
    if all(column.kind != "label" for column in columns):
        notes.append(
            "No label is declared, so batches have only features: pass "
            "`label='COLUMN'` to train."
        )
    if unread:
        notes.append(f"Not read, for their types: {', '.join(unread)}.")
    return Inferred(Schema(columns, na_values=na_values), notes)


def parse_label(text: str) -> tuple[str, str | None]:
    """Splits `COLUMN[=POSITIVE]` at the first `=`.

    >>> parse_label("Salary=>50K")
    ('Salary', '>50K')
    """
    if not isinstance(text, str):
        raise DataError(
            f"`label` must be a string, COLUMN or COLUMN=POSITIVE, got {text!r}"
        )
    column, found, positive = text.partition("=")
    if not column or (found and not positive):
        raise DataError(
            f"`label` must be COLUMN or COLUMN=POSITIVE, got {text!r}"
        )
    return column, positive if found else None


def _label(
    where: str, names: list[str], wanted: Wanted
) -> tuple[str | None, str | None]:
    """Returns the label column or None, and its positive value."""
    label = wanted.label
    if label is None:
        is_free = _LABEL in names and _LABEL not in wanted.names()
        return (_LABEL if is_free else None), None
    if label in names:  # a name may contain "="
        return label, None
    return parse_label(label)


def _check_names(where: str, names: list[str], wanted: Wanted) -> None:
    known = set(names)
    for name, count in collections.Counter(wanted.names()).items():
        if name not in known:
            raise DataError(
                f"{where}: has no column {name!r}; its columns are "
                f"{', '.join(names[:50]) or 'none'}."
                f"{did_you_mean(name, names)}"
            )
        if count > 1:
            places = [f"`{option}`" for option in wanted.options_of(name)]
            raise DataError(
                f"{where}: column {name!r} is declared twice, in "
                f"{' and '.join(places)}"
            )


def _unclear(
    where: str, rows: int, doubts: Mapping[str, _Doubt], wanted: Wanted
) -> UnclearColumnsError:
    """Returns the error for all columns in doubt."""
    columns = "these columns" if len(doubts) > 1 else "a column"
    heading = f"{where}: {rows} rows leave several meanings for {columns}:"
    if not rows:
        heading = f"{where}: has no rows, which would show its columns' kinds:"
    suggested = {
        option: [
            *getattr(wanted, option),
            *(n for n, doubt in doubts.items() if doubt.option == option),
        ]
        for option in ("categorical", "numeric", "ignore")
    }
    seen = [
        heading,
        *(f"  {name!r}: {doubt}" for name, doubt in doubts.items()),
    ]
    call = [f"{option}={names}" for option, names in suggested.items() if names]
    declare = [doubt.declare for doubt in doubts.values() if doubt.declare]
    example = f", e.g. declare=[{', '.join(declare)}]" if declare else ""
    text = [
        *seen,
        "Declare which are ids (`categorical`), which are numbers (`numeric`) and "
        "which to leave out (`ignore`); `declare` takes a `Column` for anything "
        f"else{example}. For example:",
        f"  open_dataset(..., {', '.join(call)})",
    ]
    return UnclearColumnsError("\n".join(text), seen, suggested)


class _Sample:
    """The sampled values of a column."""

    def __init__(self, name: str, column: Any, na_values: Collection[str]):
        self.type = column.type
        self._name = name
        self._na_values = na_values
        self._depth = 0
        self._width: int | None = 1
        self._is_json = False
        arrays = [_plain(chunk) for chunk in column.chunks]
        leaf = self.type
        while isinstance(leaf, pa.BaseExtensionType):
            leaf = leaf.storage_type
        while is_list(leaf):
            self._width = (
                leaf.list_size if types.is_fixed_size_list(leaf) else None
            )
            leaf = leaf.value_type
            arrays = [array.flatten() for array in arrays]
            self._depth += 1
        self._is_category = types.is_dictionary(leaf)
        if self._is_category:
            leaf = leaf.value_type
            arrays = [array.dictionary_decode() for array in arrays]
        if types.is_run_end_encoded(leaf):
            leaf = leaf.value_type
            arrays = [pc.run_end_decode(array) for array in arrays]
        self._leaf = leaf
        if is_text(leaf):
            arrays = [as_text(array) for array in arrays]
            leaf = pa.large_string()
        elif types.is_floating(leaf):
            leaf = pa.float64()
            arrays = [array.cast(leaf) for array in arrays]
        self._array = pa.chunked_array(arrays, leaf)
        if is_text(leaf):
            self._drop_missing_text()
        elif types.is_floating(leaf):
            # pandas writes missing values as NaN.
            is_nan = pc.is_nan(self._array)
            self._array = pc.if_else(is_nan, None, self._array)
        self._has_missing = self._array.null_count > 0
        self._array = self._array.drop_null()

    def _drop_missing_text(self) -> None:
        na = pa.array(self._na_values, pa.large_string())
        array = pc.if_else(
            pc.is_in(self._array, value_set=na), None, self._array
        )
        if not self._depth:
            lists = _json_lists(array.drop_null())
            if lists is not None:
                # Inspect the elements of JSON cells.
                array = pa.chunked_array([lists])
                self._is_json = True
                self._depth, self._width = 1, None
        self._array = array

    @property
    def is_readable(self) -> bool:
        """Whether values of the type can be read."""
        leaf = self._leaf
        return self._depth < 3 and (
            is_text(leaf)
            or is_time(leaf)
            or types.is_boolean(leaf)
            or types.is_integer(leaf)
            or types.is_floating(leaf)
            or types.is_decimal(leaf)
            or types.is_null(leaf)
        )

    def guess(self) -> _Guess:
        """Returns the inferred kind; raises _Doubt if there are several."""
        leaf = self._leaf
        of = "lists of " if self._depth else ""
        if is_time(leaf):
            raise _Doubt(
                f"{leaf}, which needs a unit",
                "ignore",
                f"Column.dense({self._name!r}, dtype='uint64', unit='D')",
            )
        if not len(self._array):
            seen = (
                "every value is missing" if self._has_missing else "no values"
            )
            raise _Doubt(seen, "ignore")
        if self._is_category:
            return self.ids(f"{of}categories")
        if self._is_boolean():
            return self.numbers(f"{of}booleans")
        if is_text(leaf):
            text = self._guess_text(of)
            if text is not None:
                return text
        lost = self._lost_number()
        whole = self._whole()
        if lost is not None:
            declare = f"Column.dense({self._name!r}, rounded=True)"
            raise _Doubt(
                f"{self._seen()}, of which float32 does not hold {lost}",
                "categorical" if whole else "numeric",
                None if whole or self._depth else declare,
            )
        if whole:
            few = len(pc.unique(self._array)) <= _MANY
            is_number = few and not self._depth
            raise _Doubt(
                self._seen(), "numeric" if is_number else "categorical"
            )
        return self.numbers(f"{of}numbers")

    def _guess_text(self, of: str) -> _Guess | None:
        """Returns the kind of text; None if all of it is numbers."""
        is_number = pc.match_substring_regex(self._array, _NUMBER)
        if pc.all(is_number).as_py():
            if self._any_match(_CODE) and self._whole():
                return self.ids(f"{of}integers with leading zeros")
            if self._whole() and not self._fits():
                return self.ids(f"{of}integers beyond 64 bits")
            return None
        if pc.any(is_number).as_py():
            odd = self._shown(pc.invert(is_number))
            count = pc.sum(is_number).as_py()
            raise _Doubt(
                f"{count} of {len(self._array)} values are numbers, but others "
                f"are {odd} (`na_values` names missing values)",
                "categorical",
            )
        is_odd = pc.match_substring_regex(self._array, _ODD)
        if pc.any(is_odd).as_py() and not self._depth:
            raise _Doubt(
                f"text such as {self._shown(is_odd)}: one value each, or "
                "numbers, dates or lists in a form that must be declared",
                "categorical",
            )
        return self.ids(f"{of}text")

    def label(self, positive: str | None) -> _Guess:
        """Returns the inferred kind of label."""
        if self._depth or not self.is_readable or is_time(self._leaf):
            raise DataError(
                f"found the type {self.type}, expected one number or string "
                "per row for a label"
            )
        if positive is not None:
            return self._text_label(positive)
        if not len(self._array):
            return _Guess("label", "without values")
        if self._is_boolean():
            return _Guess("label", "booleans", {"dtype": "uint64"})
        numbers = self._numbers()
        if numbers is None:
            raise DataError(
                f"found text ({self._shown()}), expected numbers, or `label`="
                f"'{self._name}=POSITIVE' to say which text is 1"
            )
        if bool(np.isin(numbers, (0, 1)).all()):
            why = "all labels are 0 or 1"
            return _Guess("label", why, {"dtype": "uint64"})
        return _Guess("label", "numbers", {"binary": False})

    def _text_label(self, positive: str) -> _Guess:
        found = pc.unique(self._texts()).to_pylist()
        if types.is_boolean(self._leaf) and not positive.islower():
            # As pandas writes them.
            found = [text.capitalize() for text in found]
        others = sorted(set(found) - {positive})
        if positive not in found and found:
            raise DataError(
                f"no label is {positive!r}; found {self._shown(None, 5)}"
            )
        if not 0 < len(others) <= _MOST_LABELS:
            raise DataError(
                f"has {len(others)} values besides {positive!r}, expected 1 to "
                f"{_MOST_LABELS}; a schema, or `declare`, names those that mean "
                f"0: Column.label({self._name!r}, positive={positive!r}, "
                "negative=[...])"
            )
        options = {"dtype": "uint64", "positive": positive, "negative": others}
        return _Guess("label", f"1 where it is {positive!r}", options)

    def ids(self, why: str) -> _Guess:
        """Returns a guess that the column holds ids."""
        options: dict[str, Any] = {"dtype": "uint64"}
        if self._depth > 1:
            options["depth"] = self._depth
        if self._is_json:
            options["separator"] = JSON
        if is_text(self._leaf) and not (
            self._whole() and self._fits() and not self._any_match(_CODE)
        ):
            options.update(encoding="hash", strings_only=True)
        return _Guess("sparse", why, options)

    def numbers(self, why: str) -> _Guess:
        """Returns a guess that the column holds numbers."""
        options: dict[str, Any] = {}
        if self._is_json:
            options["separator"] = JSON
        if self._depth and (self._width is None or self._depth > 1):
            if self._depth > 1:
                options["depth"] = self._depth
            return _Guess("sparse", why, options)
        if self._has_missing:
            why += ", missing ones are 0"
        return _Guess("dense", why, {**options, "shape": (self._width or 1,)})

    def _seen(self) -> str:
        """Describes numbers."""
        distinct = pc.unique(self._array)
        shown = ", ".join(map(str, distinct[:_SHOWN].to_pylist()))
        more = ", ..." if len(distinct) > _SHOWN else ""
        of = " in lists" if self._depth else ""
        whole = "whole " if self._whole() else ""
        return (
            f"{len(distinct)} distinct {whole}numbers in {len(self._array)} "
            f"values{of}: {shown}{more}"
        )

    def _shown(self, mask: Any = None, count: int = _SHOWN) -> str:
        texts = self._texts() if mask is None else self._array.filter(mask)
        return ", ".join(map(repr, pc.unique(texts).to_pylist()[:count]))

    def _lost_number(self) -> Any:
        """Returns the first number that float32 does not hold, or None."""
        numbers = self._numbers()
        assert numbers is not None
        _, is_lost = to_float32(Column.dense("x"), numbers)
        if not is_lost.any():
            return None
        return self._array[int(np.argmax(is_lost))].as_py()

    def _is_boolean(self) -> bool:
        return types.is_boolean(self._leaf) or (
            is_text(self._leaf)
            and bool(len(self._array))
            and self._all_match(r"(?i)^(true|false)$")
        )

    def _texts(self) -> Any:
        if is_text(self._leaf):
            return self._array
        return self._array.cast(pa.large_string())

    def _all_match(self, pattern: str) -> bool:
        matches = pc.match_substring_regex(self._texts(), pattern)
        return bool(pc.all(matches).as_py())

    def _any_match(self, pattern: str) -> bool:
        matches = pc.match_substring_regex(self._texts(), pattern)
        return bool(pc.any(matches).as_py())

    def _fits(self) -> bool:
        """Returns whether integers in strings fit into int64 or uint64."""
        try:
            self._array.cast(pa.int64())
        except pa.ArrowInvalid:
            return all(map(_fits_64_bits, pc.unique(self._array).to_pylist()))
        return True

    def _whole(self) -> bool:
        """Returns whether all values are whole numbers."""
        if is_text(self._leaf):
            return self._all_match(_INTEGER)
        if types.is_integer(self._leaf):
            return True
        numbers = self._numbers()
        return numbers is not None and bool(
            (np.isfinite(numbers) & (np.trunc(numbers) == numbers)).all()
        )

    def _numbers(self) -> np.ndarray | None:
        """Returns the values as float64; None if some are not numbers."""
        array = self._array
        try:
            if types.is_boolean(self._leaf):
                array = array.cast(pa.int8())
            return array.cast(pa.float64(), safe=False).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None


def _fits_64_bits(text: str) -> bool:
    whole = text.partition(".")[0]
    digits = whole.lstrip("+-").lstrip("0") or "0"
    if len(digits) > len(str(2**64)):  # int() rejects thousands of digits
        return False
    return int(digits) <= (2**63 if whole.startswith("-") else 2**64 - 1)


def _plain(array: Any) -> Any:
    while isinstance(array.type, pa.ExtensionType):
        array = array.storage
    return without_views(array) if is_list_view(array.type) else array


def _json_lists(texts: Any) -> Any:
    """Returns the values of cells that all are JSON lists, or None."""
    brackets = pc.match_substring_regex(texts, r"^\s*\[.*\]\s*$")
    if not len(texts) or not pc.all(brackets).as_py():
        return None
    values: list[str | None] = []
    for text in texts.to_pylist():
        try:
            values += json_texts(parse_json(text), Column.sparse("x"))
        except ValueError:
            return None
    return pa.array(values, pa.large_string()).drop_null()
