"""Column: the declared meaning of one column of training data."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, get_args

from lodestar._arguments import explained_class
from lodestar._checks import is_number
from lodestar._reprs import short_repr

# The limit of tf.one_hot on the number of values per example.
_MAX_VALUES = 2**31 - 1
_MAX_DEPTH = 2
_MAX_FLOAT32 = (2 - 2**-23) * 2.0**127
Kind: TypeAlias = Literal[
    "label", "sample_weight", "dense", "sparse", "one_hot"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Kinds that are not features.
TARGETS = ("label", "sample_weight")
Dtype: TypeAlias = Literal["uint64", "float"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
Encoding: TypeAlias = Literal["int", "hash", "hex"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns", "D"]
UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)
JSON = "json"
ERROR = "error"


class ColumnArguments(TypedDict, total=False):
    """Attributes of a Column that all its class methods take."""

    wide: bool
    binary: bool
    used: bool
    weights_of: str | None
    rounded: bool
    encoding: Encoding
    hash_as: str | None
    strings_only: bool
    fill_value: float | str | None
    separator: str | None
    unit: TimeUnit | None
    positive: str | Iterable[str]
    negative: str | Iterable[str]
    optional: bool
    depth: int
    why: str


@explained_class
@dataclasses.dataclass(frozen=True, repr=False)
class Column:
    """One column of training data: its type, and how to read its values.

    Prefer the class methods, which fill in the defaults.

    Attributes:
        name: Name of the column, and of the feature in a dataset. A struct field
            is named by its dotted path, e.g. `"user.id"`.
        kind: `"label"`, `"sample_weight"`, `"dense"`, `"sparse"` or `"one_hot"`.
        dtype: `"uint64"` (64-bit ids, int64 in tensors) or `"float"` (float32).
            A fraction is rounded to float32. A number of 2^24 or more that float32
            does not hold, such as 16777217, is an error unless it is `rounded`.
        shape: Dense columns: the shape of one example. At most one dim may be
            -1. Its size must be equal within a batch, and may be 0.
        size: One-hot columns: number of ids; the ids are 0 to `size - 1`.
        wide: Sparse columns: whether the column feeds the wide part of a model.
        binary: Labels: whether only 0 and 1 are valid.
        used: False for a column that is checked, but is not a feature.
        weights_of: Sparse float columns: the id column that this column holds
            weights for, one per id.
        rounded: Float columns and labels, which are float32 in batches: whether to
            round numbers of 2^24 or more that float32 does not hold.
        encoding: Sparse id columns: how to convert a value to an id. `"int"`: the
            value is an integer, stored as any integer dtype, string, category or
            whole float. uint64 values keep their bits. `"hash"`: the id is
            `lodestar.hash_ids(text, column=hash_as or name)`; integers are
            hashed as decimal strings, so another spelling of an integer, such as
            `"007"` or `"7.0"`, is an error. `"hex"`: the value is a hexadecimal
            string. Whitespace around strings is ignored.
        hash_as: With `"hash"`: the column name to hash along with each string.
            Columns that share a table must share it. Defaults to `name`.
        strings_only: With `"hash"`: whether all values are strings, which are
            hashed as they are, `"007"` too. Numbers are errors then, as a reader
            may have removed their leading zeros.
        fill_value: The replacement for nulls and strings in `Schema.na_values`.
            Dense columns: a number; None means 0. Sparse columns: None, for no
            value. `"error"`: raise an error that names the row. Labels, sample
            weights and one-hot columns always raise it.
        separator: Splits a string into several values, e.g. `"|"`; `"json"`
            reads a JSON list, e.g. `"[27, 9]"`. None reads one value, or in CSV
            columns with a variable number of values, splits at spaces.
        unit: `"s"`, `"ms"`, `"us"`, `"ns"` or `"D"`: dates and timestamps are
            read as an integer, the number of whole units since 1970-01-01 (UTC).
        positive: Labels: the strings that mean 1. Needs `negative`.
        negative: Labels: the strings that mean 0. Any string that is neither
            positive nor negative is an error.
        optional: Labels: whether the label may be missing. A batch then also has
            sample weights, 0 for the missing labels. `dtype` must be `"float"`.
        depth: Sparse columns: 2 for a list of lists, a RaggedTensor
            `[batch, None, None]`.
        why: The reason for the column's type. Not compared.
    """

    name: str
    kind: Kind
    dtype: Dtype = "uint64"
    shape: tuple[int, ...] = ()
    size: int = 0
    wide: bool = False
    binary: bool = True
    used: bool = True
    weights_of: str | None = None
    rounded: bool = False
    encoding: Encoding = "int"
    hash_as: str | None = None
    strings_only: bool = False
    fill_value: float | str | None = None
    separator: str | None = None
    unit: TimeUnit | None = None
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    optional: bool = False
    depth: int = 1
    why: str = dataclasses.field(default="declared", compare=False)

    def __repr__(self) -> str:
        return short_repr(self)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(
                "The name of a column must be a non-empty string, got "
                f"{self.name!r}."
            )
        self._check_values()
        for field in ("positive", "negative"):
            object.__setattr__(self, field, self._texts(field))
        self._check_uses()
        if self.kind == "dense":
            self._check_shape()
        if self.kind == "one_hot" and not (
            _is_int(self.size) and 1 <= self.size <= _MAX_VALUES
        ):
            raise self._error(
                f"`size` must be an integer in [1, {_MAX_VALUES}], got "
                f"{self.size!r}."
            )
        self._check_label()
        self._check_fill_value()

    def _error(self, text: str) -> ValueError:
        return ValueError(f"Column {self.name!r}: {text}")

    def _check_values(self) -> None:
        for field, allowed in (
            ("kind", KINDS),
            ("dtype", DTYPES),
            ("encoding", ENCODINGS),
            ("unit", (None, *UNITS)),
        ):
            value = getattr(self, field)
            if value not in allowed:
                raise self._error(
                    f"`{field}` must be one of {allowed}, got {value!r}."
                )
        for kind, dtype in (("one_hot", "uint64"), ("sample_weight", "float")):
            if self.kind == kind and self.dtype != dtype:
                raise self._error(
                    f"a {kind} column has the dtype {dtype!r}, got "
                    f"{self.dtype!r}."
                )
        for field in ("used", "rounded", "strings_only", "optional"):
            if not isinstance(getattr(self, field), bool):
                raise self._error(
                    f"`{field}` must be True or False, got "
                    f"{getattr(self, field)!r}."
                )
        for field in ("hash_as", "separator"):
            value = getattr(self, field)
            if value is not None and (not isinstance(value, str) or not value):
                raise self._error(
                    f"`{field}` must be a non-empty string or None, got "
                    f"{value!r}."
                )

    def _check_shape(self) -> None:
        shape = self.shape
        if not isinstance(shape, (tuple, list)) or not all(
            _is_int(dim) and (dim > 0 or dim == -1) for dim in shape
        ):
            raise self._error(
                "`shape` must be a list of positive integers, at most one of "
                f"them -1, got {_shown(shape)}."
            )
        if shape.count(-1) > 1:
            raise self._error(
                f"`shape` must have at most one -1, got {_shown(shape)}: files "
                "have the number of values, which determines one free "
                "dimension. Read the column as sparse, or reshape it later."
            )
        if abs(math.prod(shape)) > _MAX_VALUES:
            raise self._error(
                f"`shape` must have at most {_MAX_VALUES} elements, got "
                f"{_shown(shape)}."
            )
        object.__setattr__(self, "shape", tuple(shape))

    def _check_uses(self) -> None:
        """Raises ValueError if columns like this one do not have an attribute."""
        kind = self.kind
        for fields, is_allowed, which in (
            (["shape"], kind == "dense", "a dense column"),
            (["size"], kind == "one_hot", "a one-hot column"),
            (["wide", "encoding"], self.holds_ids, "a sparse id column"),
            (["wide"], self.used, "a used column"),
            (
                ["weights_of"],
                kind == "sparse" and not self.holds_ids,
                "a sparse float column",
            ),
            (
                ["hash_as", "strings_only"],
                self.encoding == "hash",
                "a column with the encoding 'hash'",
            ),
            (
                ["rounded"],
                kind == "label" or self.dtype == "float",
                "a float column or a label",
            ),
            (
                ["separator", "unit"],
                kind in ("dense", "sparse"),
                "a dense or sparse column",
            ),
            (["positive", "negative", "optional"], kind == "label", "a label"),
        ):
            for field in () if is_allowed else fields:
                value = getattr(self, field)
                if value != getattr(Column, field):
                    raise self._error(
                        f"only {which} can have `{field}`, got {value!r}."
                    )
        if (
            not _is_int(self.depth)
            or not 1 <= self.depth <= _MAX_DEPTH
            or (self.depth > 1 and self.kind != "sparse")
        ):
            raise self._error(
                "`depth` must be 1, or 2 for a sparse column, got "
                f"{self.depth!r}."
            )

    def _texts(self, field: str) -> tuple[str, ...]:
        found = getattr(self, field)
        texts = (found,) if isinstance(found, str) else found
        if not isinstance(texts, (tuple, list)) or not all(
            isinstance(text, str) and text for text in texts
        ):
            raise self._error(
                f"`{field}` must be a non-empty string or a list of them, got "
                f"{found!r}."
            )
        return tuple(texts)

    def _check_label(self) -> None:
        both = set(self.positive) & set(self.negative)
        if both:
            raise self._error(
                f"{sorted(both)[0]!r} is both `positive` and `negative`."
            )
        if bool(self.positive) != bool(self.negative):
            raise self._error(
                "`positive` and `negative` need each other: the strings that "
                "mean 1, and those that mean 0, e.g. positive='yes', "
                "negative='no'."
            )
        if self.optional and self.dtype != "float":
            raise self._error(
                "an `optional` label has the dtype 'float', got "
                f"{self.dtype!r}."
            )

    def _check_fill_value(self) -> None:
        fill: Any = self.fill_value
        if fill == ERROR and self.kind in (*TARGETS, "one_hot"):
            object.__setattr__(self, "fill_value", None)  # always an error
            return
        if fill is None or fill == ERROR:
            return
        allowed = "'error' or None"
        if self.kind == "dense" and self.dtype == "float":
            if is_number(fill) and not abs(fill) > _MAX_FLOAT32:
                # math.nan is a single object, so the column equals itself.
                value = math.nan if fill != fill else float(fill)
                object.__setattr__(self, "fill_value", value)
                return
            allowed = f"a float32, {allowed}"
        elif self.kind == "dense":
            if _is_int(fill) and -(2**63) <= fill < 2**63:
                return
            allowed = f"an int64, {allowed}"
        raise self._error(f"`fill_value` must be {allowed}, got {fill!r}.")

    @classmethod
    def _make(
        cls, name: str, kind: Kind, options: Mapping[str, Any], **others: Any
    ) -> "Column":
        return cls(name, kind, **others, **options)

    @classmethod
    def label(
        cls,
        name: str,
        *,
        dtype: Dtype | None = None,
        **options: Unpack[ColumnArguments],
    ) -> "Column":
        """Returns a label: one value per example, 0 or 1 unless `binary=False`.

        Args:
            name: Name of the column.
            dtype: `"uint64"` or `"float"`, the default of an `optional` label.
            **options: Other attributes of a `Column`.
        """
        if dtype is None:
            dtype = "float" if options.get("optional") else "uint64"
        return cls._make(name, "label", options, dtype=dtype)

    @classmethod
    def sample_weight(
        cls, name: str, **options: Unpack[ColumnArguments]
    ) -> "Column":
        """Returns a column of the weight of each example in the loss.

        Args:
            name: Name of the column.
            **options: Other attributes of a `Column`.
        """
        return cls._make(name, "sample_weight", options, dtype="float")

    @classmethod
    def dense(
        cls,
        name: str,
        shape: Iterable[int] = (1,),
        *,
        dtype: Dtype = "float",
        **options: Unpack[ColumnArguments],
    ) -> "Column":
        """Returns a column of numbers with a fixed shape per example.

        Args:
            name: Name of the column.
            shape: Shape of one example. One dim may be -1 if its size varies.
            dtype: `"float"` or `"uint64"`.
            **options: Other attributes of a `Column`.
        """
        if isinstance(shape, Iterable):  # others are refused with a message
            shape = tuple(shape)
        return cls._make(name, "dense", options, dtype=dtype, shape=shape)

    @classmethod
    def sparse(
        cls,
        name: str,
        *,
        dtype: Dtype = "uint64",
        **options: Unpack[ColumnArguments],
    ) -> "Column":
        """Returns a column of ids with any number of values per example.

        With `dtype="float"` the values are numbers. With `weights_of`, each example
        must have as many values as in that id column.

        Args:
            name: Name of the column.
            dtype: `"uint64"` or `"float"`.
            **options: Other attributes of a `Column`.
        """
        return cls._make(name, "sparse", options, dtype=dtype)

    @classmethod
    def one_hot(
        cls, name: str, size: int, **options: Unpack[ColumnArguments]
    ) -> "Column":
        """Returns a column of one id per example, read as a one-hot vector.

        Args:
            name: Name of the column.
            size: Number of ids; the ids are 0 to `size - 1`.
            **options: Other attributes of a `Column`.
        """
        return cls._make(name, "one_hot", options, size=size)

    @property
    def num_values(self) -> int | None:
        """Number of values per example; None if it varies."""
        if self.kind == "sparse" or -1 in self.shape:
            return None
        return math.prod(self.shape)

    @property
    def multiple(self) -> int:
        """A divisor of the number of values of every example.

        The product of a dense column's known dims; 1 otherwise.
        """
        return abs(math.prod(self.shape))

    @property
    def holds_ids(self) -> bool:
        """Whether this is a sparse column of ids."""
        return self.kind == "sparse" and self.dtype == "uint64"

    @property
    def is_feature(self) -> bool:
        """Whether models read the column; labels and weights are targets."""
        return self.kind not in TARGETS

    @property
    def missing_is_error(self) -> bool:
        """Whether a missing value is an error."""
        if self.kind in (*TARGETS, "one_hot"):
            return not self.optional
        return self.fill_value == ERROR

    def describe(self) -> str:
        """Returns a short description of the column."""
        used = "" if self.used else "unused "
        if self.kind == "label":
            what = "binary label" if self.binary else "label"
            if self.positive:
                what += f", 1 for {_alternatives(self.positive)}"
                what += f", 0 for {_alternatives(self.negative)}"
            if self.optional:
                what += ", optional"
        elif self.kind == "sample_weight":
            what = "sample weight"
        elif self.kind == "one_hot":
            what = f"one-hot vector of {self.size}"
        elif self.kind == "dense":
            of = "" if self.dtype == "float" else " of integers"
            shape = "" if self.shape == (1,) else f" {_shown(self.shape)}"
            what = f"dense{of}{shape}"
        else:
            what = "ids" if self.holds_ids else "floats"
            if self.encoding != "int":
                what += f", {self.encoding}"
            if self.strings_only:
                what += " of strings"
            if self.weights_of is not None:
                what = f"weights of {self.weights_of!r}"
            if self.depth > 1:
                what += ", lists of lists"
        return used + what


def _alternatives(texts: tuple[str, ...]) -> str:
    shown = " or ".join(map(repr, texts[:3]))
    return shown if len(texts) < 4 else f"{shown} and {len(texts) - 3} others"


def _shown(shape: Any) -> str:
    return repr(list(shape) if isinstance(shape, tuple) else shape)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
