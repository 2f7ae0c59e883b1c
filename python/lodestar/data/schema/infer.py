"""Infers a schema from the first rows of any source."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lodestar._errors import DataError
from lodestar.data.schema.arrow_types import (
    as_text,
    is_list,
    is_list_view,
    is_text,
    is_time,
    without_views,
)
from lodestar.data.schema.column import JSON, Column
from lodestar.data.schema.schema import NA_VALUES, Schema

types = pa.types
# Maximum number of rows to inspect, reduced for tables with many columns.
SAMPLE_ROWS = 100_000
SAMPLE_CELLS = 20_000_000
LEAST_ROWS = 1_000
# With fewer rows, numbers and ids cannot be told apart.
_ENOUGH_ROWS = 1_000
# Ages, hours and percentages have fewer distinct integers.
_MANY = 128
# Ids that occur about this often are worth an embedding.
_OFTEN = 4
# From this fraction of numbers on, strings that are not numbers are suspicious.
_MOSTLY = 0.9
_ID_NAME = re.compile(
    r"(.*[\W_])?ids?|.*[a-z]I[dD]s?|.*[A-Z]ID|I[dD]s?|.*[\W_]I[dD]s?"
)
_INTEGER = r"^\s*[+-]?[0-9]+(\.0*)?\s*$"
_CODE = r"^\s*[+-]?0[0-9]"
_LABEL = "label"
_SHOWN = 3
_NEEDS_UNIT = "needs a unit,"


class _Guess(NamedTuple):
    """An inferred kind, the reason, and `Column` options. Kind None: unclear."""

    kind: str | None
    why: str
    options: Mapping[str, Any] = {}


def infer_schema(
    table: Any,
    where: str,
    *,
    label: str | None = None,
    categorical: Collection[str] = (),
    numeric: Collection[str] = (),
    na_values: Collection[str] | None = None,
    partitions: Collection[str] = (),
) -> Schema:
    """Infers the kind of each column from the first rows.

    The rules, in this order; a column that no rule decides is an error:

    - the label is the column named by `label`, else `"label"`;
    - strings that are not numbers, categories and partition columns: ids;
    - booleans, fractions and lists of them: numbers (dense, or sparse floats
      if the list length varies);
    - lists of integers or strings: ids;
    - integers of any dtype or as strings, and whole floats with missing values:
      ids if the column has an id-like name ("user_id", "itemId"), leading zeros,
      more than 15 digits, or more than 128 distinct values that occur at least 4
      times on average; numbers if some are negative, most are 0, or at least
      1,000 rows do not look like ids. With fewer rows, they are undecided.

    An id column has `encoding="int"` if all its values are integers, and `"hash"`
    otherwise.

    The columns of `table`, a `pyarrow.Table` of the first rows, may be named by
    dotted paths. `where` is the name of the source in errors. Raises DataError, with
    the unclear columns and the options to set, if a column is unknown, occurs twice
    or is unclear.
    """
    na_values = NA_VALUES if na_values is None else na_values
    names = table.schema.names
    label, positive = _label(where, names, label)
    _check_names(where, names, label, categorical, numeric)
    rows = table.num_rows
    columns: list[Column] = []
    unclear: list[tuple[str, str]] = []
    for name in names:
        sample = _Sample(name, table.column(name), na_values)
        try:
            if name == label:
                guess = sample.label(where, positive)
            elif name in categorical:
                guess = sample.ids("named in `categorical`")
            elif name in numeric:
                guess = sample.numbers("named in `numeric`")
            elif name in partitions:
                guess = sample.ids("a partition column")
            else:
                guess = sample.guess()
        except DataError as error:
            raise DataError(f"{where}: column {name!r}: {error}") from error
        if guess.kind is None:
            unclear.append((name, guess.why))
            continue
        why = guess.why
        if name not in (*categorical, *numeric):
            why += f" ({rows} rows of {where})"
        columns.append(
            Column(
                name,
                guess.kind,
                why=why,
                **{
                    "dtype": "float" if guess.kind == "dense" else "uint64",
                    **({"shape": (1,)} if guess.kind == "dense" else {}),
                    **guess.options,
                },
            )
        )
    if unclear:
        raise DataError(_unclear_text(where, rows, unclear))
    if not columns:
        raise DataError(f"{where}: has no columns")
    # The label comes first, as in every format.
    columns.sort(key=lambda column: column.kind != "label")
    return Schema(columns, na_values=na_values)


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
    where: str, names: list[str], label: str | None
) -> tuple[str | None, str | None]:
    """Returns the label column or None, and its positive value."""
    if label is None:
        return (_LABEL if _LABEL in names else None), None
    if label in names:  # a name may contain "="
        return label, None
    column, positive = parse_label(label)
    _check_known(where, names, column)
    return column, positive


def _check_known(where: str, names: list[str], name: str) -> None:
    if name not in names:
        raise DataError(
            f"{where}: has no column {name!r}; its columns are "
            f"{', '.join(names[:50]) or 'none'}"
        )


def _check_names(
    where: str,
    names: list[str],
    label: str | None,
    categorical: Collection[str],
    numeric: Collection[str],
) -> None:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    for name, count in counts.items():
        if count > 1:
            raise DataError(f"{where}: {count} columns are named {name!r}")
    for name in (*categorical, *numeric):
        _check_known(where, names, name)
        if name == label:
            raise DataError(f"{where}: column {name!r} is the label")
        if name in categorical and name in numeric:
            raise DataError(
                f"{where}: column {name!r} is in both `categorical` and "
                "`numeric`"
            )


def _unclear_text(where: str, rows: int, unclear: list[tuple[str, str]]) -> str:
    listed = "; ".join(f"{name!r}: {why}" for name, why in unclear[:20])
    more = ", ..." if len(unclear) > 20 else ""
    names = [name for name, why in unclear if _NEEDS_UNIT not in why]
    advice = "Give a `schema`"
    if names:
        advice = (
            f"Name {'them' if names[1:] else 'it'} in `categorical` (ids) or "
            f"`numeric`, e.g. categorical={names[:3]}, or give a `schema`"
        )
    return (
        f"{where}: {rows} rows do not show what "
        f"{'these columns are' if unclear[1:] else 'a column is'}: {listed}"
        f"{more}. {advice}"
    )


class _Sample:
    """The sampled values of a column."""

    def __init__(self, name: str, column: Any, na_values: Collection[str]):
        self._name = name
        self._na_values = na_values
        self._type = column.type
        self._depth = 0
        self._width: int | None = 1
        arrays = [_plain(chunk) for chunk in column.chunks]
        leaf = self._type
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
        self.count = len(self._array) - self._array.null_count

    def _drop_missing_text(self) -> None:
        na = pa.array(self._na_values, pa.large_string())
        array = pc.if_else(
            pc.is_in(self._array, value_set=na), None, self._array
        )
        if not self._depth and _looks_like_json(array):
            # Inspect the elements of JSON cells.
            texts = [
                None
                if x is None
                else x
                if isinstance(x, str)
                else json.dumps(x)
                for text in array.drop_null().to_pylist()
                for x in json.loads(text)
            ]
            self._is_json = True
            array = pa.chunked_array([pa.array(texts, pa.large_string())])
            self._depth, self._width = 1, None
        self._array = array

    _is_json = False

    def guess(self) -> _Guess:
        """Returns the inferred kind."""
        leaf = self._leaf
        if is_time(leaf):
            return _Guess(
                None,
                f"{leaf} {_NEEDS_UNIT} in a `schema`, e.g. "
                f"Column.dense({self._name!r}, dtype='uint64', unit='D')",
            )
        if not self._is_readable():
            raise DataError(f"found the type {self._type}, which is not read")
        if self.count == 0:
            return _Guess(None, "every value is missing")
        if self._depth:
            return self._guess_list()
        if self._is_category:
            return self.ids("a category")
        if self._is_boolean():
            return self.numbers("booleans")
        if is_text(leaf):
            return self._guess_text()
        if types.is_floating(leaf) or types.is_decimal(leaf):
            if not self._is_whole():
                return self.numbers("numbers")
            if not self._has_missing() and not _ID_NAME.fullmatch(self._name):
                return self.numbers("floating-point numbers")
        return self._guess_whole()

    def label(self, where: str, positive: str | None) -> _Guess:
        """Returns the inferred kind of label."""
        if self._depth or not self._is_readable():
            raise DataError(
                f"found the type {self._type}, expected one number or string "
                "per row for a label"
            )
        if positive is not None:
            texts = self._texts()
            wanted = pa.array([positive, f"{positive}."], pa.large_string())
            if (
                self.count
                and not pc.any(pc.is_in(texts, value_set=wanted)).as_py()
            ):
                found = pc.unique(texts.drop_null()).to_pylist()[:5]
                raise DataError(
                    f"no label is {positive!r}; found "
                    f"{', '.join(map(repr, found))}"
                )
            return _Guess(
                "label", f"1 where it is {positive!r}", {"positive": positive}
            )
        if self.count == 0:
            return _Guess("label", "without values", {"dtype": "float"})
        if self._is_boolean():
            return _Guess("label", "booleans")
        numbers = self._numbers()
        if numbers is None:
            found = pc.unique(self._texts().drop_null()).to_pylist()[:_SHOWN]
            raise DataError(
                f"found text ({', '.join(map(repr, found))}), expected numbers, "
                f"or `label`='{self._name}=POSITIVE' to say which text is 1"
            )
        if bool(np.isin(numbers, (0, 1)).all()):
            return _Guess("label", "all labels are 0 or 1")
        return _Guess("label", "numbers", {"dtype": "float", "binary": False})

    def ids(self, why: str) -> _Guess:
        """Returns a guess that the column holds ids."""
        options: dict[str, Any] = {}
        if self._depth > 1:
            options["depth"] = self._depth
        if self._is_json:
            options["separator"] = JSON
        if is_text(self._leaf) and not self._all_match(_INTEGER):
            options["encoding"] = "hash"
        elif is_text(self._leaf) and (
            self._any_match(_CODE) or not self._fits()
        ):
            options["encoding"] = "hash"
            why += ", with leading zeros or beyond 64 bits"
        return _Guess("sparse", why, options)

    def numbers(self, why: str) -> _Guess:
        """Returns a guess that the column holds numbers."""
        options: dict[str, Any] = {"dtype": "float"}
        if self._is_json:
            options["separator"] = JSON
        if self._depth and (self._width is None or self._depth > 1):
            if self._depth > 1:
                options["depth"] = self._depth
            return _Guess("sparse", why, options)
        return _Guess("dense", why, {**options, "shape": (self._width or 1,)})

    def _guess_list(self) -> _Guess:
        if self._depth > 2:
            raise DataError(
                f"found the type {self._type}, expected at most lists of lists"
            )
        leaf = self._leaf
        if types.is_boolean(leaf):
            return self.numbers("lists of booleans")
        if types.is_floating(leaf) or types.is_decimal(leaf):
            return self.numbers("lists of numbers")
        if self._is_json and not self._all_match(_INTEGER):
            if self._numbers() is not None:
                return self.numbers("JSON lists of numbers")
        kind = "JSON lists" if self._is_json else "lists"
        return self.ids(
            f"{kind} of {'strings' if is_text(leaf) else 'integers'}"
        )

    def _guess_text(self) -> _Guess:
        if self._all_match(_INTEGER):
            if (
                self._any_match(r"\.")
                and not self._has_missing()
                and not _ID_NAME.fullmatch(self._name)
            ):
                return self.numbers("numbers with a decimal point")
            if self._any_match(_CODE):
                return self.ids("integers with leading zeros")
            if not self._fits():
                return self.ids("integers beyond 64 bits")
            return self._guess_whole()
        if self._numbers() is not None:
            return self.numbers("numbers")
        share, odd = self._share_of_numbers()
        if share >= _MOSTLY and self.count >= 10:
            return _Guess(
                None,
                f"{share:.1%} of the values are numbers, but others are "
                f"{', '.join(map(repr, odd))} (missing values are named by "
                "`na_values`)",
            )
        return self.ids("text")

    def _guess_whole(self) -> _Guess:
        """Infers the kind of integers in any representation."""
        if _ID_NAME.fullmatch(self._name):
            return self.ids("integers with the name of an id")
        numbers = self._whole_numbers()
        count = len(numbers)
        unique = np.unique(numbers)
        distinct = len(unique)
        if distinct and float(np.abs(unique.astype(np.float64)).max()) >= 1e15:
            # These look like hashes, and floats cannot represent them.
            return self.ids("integers of more than 15 digits")
        if (unique < 0).any():
            return self.numbers("integers, some of them negative")
        if not (unique > 1).any():
            return self.numbers("0 and 1")
        if 2 * int((numbers == 0).sum()) > count:
            return self.numbers("integers, most of them 0")
        if distinct > _MANY and count >= _OFTEN * distinct:
            return self.ids(
                f"{distinct} distinct integers in {count} values: they recur"
            )
        if count < _ENOUGH_ROWS:
            return _Guess(
                None, f"{distinct} distinct integers in {count} values"
            )
        return self.numbers(f"{distinct} distinct integers in {count} values")

    def _is_readable(self) -> bool:
        leaf = self._leaf
        return (
            is_text(leaf)
            or types.is_boolean(leaf)
            or types.is_integer(leaf)
            or types.is_floating(leaf)
            or types.is_decimal(leaf)
            or types.is_null(leaf)
        )

    def _is_boolean(self) -> bool:
        return types.is_boolean(self._leaf) or (
            is_text(self._leaf) and self._all_match(r"(?i)^(true|false)$")
        )

    def _has_missing(self) -> bool:
        return self.count < len(self._array)

    def _texts(self) -> Any:
        if is_text(self._leaf):
            return self._array
        return self._array.cast(pa.large_string())

    def _all_match(self, pattern: str) -> bool:
        return bool(
            pc.all(pc.match_substring_regex(self._texts(), pattern)).as_py()
        )

    def _any_match(self, pattern: str) -> bool:
        return bool(
            pc.any(pc.match_substring_regex(self._texts(), pattern)).as_py()
        )

    def _fits(self) -> bool:
        """Returns whether integers in strings fit into int64 or uint64."""
        texts = self._array.drop_null()
        try:
            texts.cast(pa.int64())
        except pa.ArrowInvalid:
            return all(map(_fits_64_bits, pc.unique(texts).to_pylist()))
        return True

    def _is_whole(self) -> bool:
        numbers = self._numbers()
        if numbers is None:
            return False
        return bool(
            (np.isfinite(numbers) & (np.trunc(numbers) == numbers)).all()
        )

    def _numbers(self) -> np.ndarray | None:
        """Returns the values as float64; None if some are not numbers."""
        array = self._array.drop_null()
        try:
            if types.is_boolean(self._leaf):
                array = array.cast(pa.int8())
            return array.cast(pa.float64(), safe=False).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    def _whole_numbers(self) -> np.ndarray:
        if types.is_integer(self._leaf):
            array = self._array.drop_null()
            if types.is_uint64(self._leaf):
                return array.to_numpy()
            return array.cast(pa.int64()).to_numpy()
        numbers = self._numbers()
        assert numbers is not None
        return numbers

    def _share_of_numbers(self) -> tuple[float, list[str]]:
        pattern = r"(?i)^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?\s*$"
        array = self._array.drop_null()
        is_number = pc.match_substring_regex(array, pattern)
        odd = pc.unique(array.filter(pc.invert(is_number))).to_pylist()
        share = pc.sum(is_number).as_py() / max(len(array), 1)
        return share, odd[:_SHOWN]


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


def _looks_like_json(array: Any) -> bool:
    """Returns whether every cell is a JSON list of values."""
    texts = array.drop_null()
    if not len(texts):
        return False
    brackets = pc.match_substring_regex(texts, r"^\s*\[.*\]\s*$")
    if not pc.all(brackets).as_py():
        return False
    try:
        lists = [json.loads(text) for text in pc.unique(texts).to_pylist()]
    except ValueError:
        return False
    return all(
        isinstance(found, list)
        and not any(isinstance(x, (list, dict)) for x in found)
        for found in lists
    )
