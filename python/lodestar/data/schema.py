"""Schema: which feature slots a sample holds, and in what order."""

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from lodestar._files import AtomicFile, as_path
from lodestar._optional import import_optional
from lodestar._typing import StrPath
from lodestar.data.input_bytes import open_input
from lodestar.data.model_inputs import shapes_of_inputs

# Values of one sample: tf.one_hot takes no more, and no machine holds them.
_MAX_VALUES = 2**31 - 1
KINDS = ("label", "dense", "sparse", "one_hot")
DTYPES = ("uint64", "float")
_SECTIONS = (
    "label",
    "dense",
    "sparse",
    "wide",
    "weights",
    "one_hot",
    "unused",
    "order",
)
# What a schema file calls a label's (dtype, binary).
_LABELS = {
    "binary": ("uint64", True),
    "binary_float": ("float", True),
    "integer": ("uint64", False),
    "float": ("float", False),
}


@dataclasses.dataclass(frozen=True)
class Column:
    """One feature slot. Prefer the class methods, which fill in the defaults.

    Attributes:
        name: What the feature is called, in the dataset and in errors.
        kind: `"label"`, `"dense"`, `"sparse"` or `"one_hot"`.
        dtype: `"uint64"` (64 bits, read as int64) or `"float"` (float32).
        shape: Of a dense slot: the shape of one sample. One dim may be -1: it
            is the same for all samples of a batch, and may be 0.
        size: Of a one-hot slot: its ids are 0 to `size - 1`.
        wide: Of a sparse slot: whether it feeds the wide part of a model.
        binary: Of a label: whether only 0 and 1 are valid.
        used: False for a slot that is in the file and checked, but is no
            feature.
        weights_of: Of a sparse float slot: the id slot with a weight for each
            of its ids here.
    """

    name: str
    kind: str
    dtype: str = "uint64"
    shape: tuple[int, ...] = ()
    size: int = 0
    wide: bool = False
    binary: bool = True
    used: bool = True
    weights_of: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(
                f"A slot's name must be a non-empty string, found {self.name!r}."
            )
        where = f"Slot {self.name!r}:"
        if self.kind not in KINDS:
            raise ValueError(f"{where} `kind`={self.kind!r} is not in {KINDS}.")
        if self.dtype not in DTYPES:
            raise ValueError(
                f"{where} `dtype`={self.dtype!r} is not in {DTYPES}."
            )
        if self.kind == "dense":
            shape = self.shape
            if (
                not isinstance(shape, (tuple, list))
                or not all(
                    _is_int(dim) and (dim > 0 or dim == -1) for dim in shape
                )
                or shape.count(-1) > 1
            ):
                raise ValueError(
                    f"{where} `shape` must be a list of positive integers, "
                    f"at most one of them -1, found {_shown(shape)}."
                )
            if abs(math.prod(shape)) > _MAX_VALUES:
                raise ValueError(
                    f"{where} `shape` must have at most {_MAX_VALUES} "
                    f"elements, found {_shown(shape)}."
                )
            object.__setattr__(self, "shape", tuple(shape))
        elif self.shape != ():
            raise ValueError(f"{where} only a dense slot has a `shape`.")
        if self.kind == "one_hot":
            if not _is_int(self.size) or not 1 <= self.size <= _MAX_VALUES:
                raise ValueError(
                    f"{where} `size` must be a positive integer of at most "
                    f"{_MAX_VALUES}, found {self.size!r}."
                )
            if self.dtype != "uint64":
                raise ValueError(f"{where} a one-hot slot holds uint64.")
        elif self.size != 0:
            raise ValueError(f"{where} only a one-hot slot has a `size`.")
        if self.wide and (self.kind != "sparse" or self.dtype != "uint64"):
            raise ValueError(f"{where} only a sparse id slot can be `wide`.")
        if not isinstance(self.used, bool):
            raise ValueError(
                f"{where} `used` must be True or False, found {self.used!r}."
            )
        if self.wide and not self.used:
            raise ValueError(f"{where} an unused slot cannot be `wide`.")
        if self.weights_of is not None and (
            self.kind != "sparse" or self.dtype != "float"
        ):
            raise ValueError(
                f"{where} only a sparse float slot holds the weights of "
                f"another, {self.weights_of!r}."
            )

    @classmethod
    def label(
        cls,
        name: str,
        *,
        dtype: str = "uint64",
        binary: bool = True,
        used: bool = True,
    ) -> "Column":
        """A label: one value a sample, 0 or 1 unless `binary=False`."""
        return cls(name, "label", dtype=dtype, binary=binary, used=used)

    @classmethod
    def dense(
        cls,
        name: str,
        shape: Iterable[int] = (1,),
        *,
        dtype: str = "float",
        used: bool = True,
    ) -> "Column":
        """As many values a sample as `shape` has elements.

        One dim may be -1: a sample has any multiple of the others' product.
        """
        return cls(name, "dense", dtype=dtype, shape=tuple(shape), used=used)

    @classmethod
    def sparse(
        cls,
        name: str,
        *,
        dtype: str = "uint64",
        wide: bool = False,
        used: bool = True,
        weights_of: str | None = None,
    ) -> "Column":
        """Any number of values a sample, none included.

        With `weights_of`, as many as that id slot has in the same sample.
        """
        return cls(
            name,
            "sparse",
            dtype=dtype,
            wide=wide,
            used=used,
            weights_of=weights_of,
        )

    @classmethod
    def one_hot(cls, name: str, size: int, *, used: bool = True) -> "Column":
        """One id a sample, 0 to `size - 1`, read as a vector of `size`."""
        return cls(name, "one_hot", size=size, used=used)

    @property
    def num_values(self) -> int | None:
        """Values in every sample, or None where samples differ."""
        if self.kind == "sparse" or -1 in self.shape:
            return None
        return math.prod(self.shape)

    @property
    def multiple(self) -> int:
        """What the number of values of a sample is a multiple of, or equals.

        The product of the known dims of a dense slot's shape; 1 for any other.
        """
        return abs(math.prod(self.shape))


class Schema:
    """The feature slots of a data set, in their order in a sample.

    >>> spec = Schema([Column.label("click"), Column.sparse("C1")])
    >>> [slot.name for slot in spec]
    ['click', 'C1']

    Immutable; iterable; `spec[name]` is the slot of that name.
    """

    def __init__(self, schema: Iterable[Column]):
        """Keeps `schema`.

        Raises:
            ValueError: There is no used slot, a name occurs twice, or
                `weights_of` names no id slot, or one that has its weights.
        """
        self._slots = tuple(schema)
        self._by_name: dict[str, Column] = {}
        for slot in self._slots:
            if not isinstance(slot, Column):
                raise TypeError(f"Schema takes Slots, found {slot!r}.")
            if slot.name in self._by_name:
                raise ValueError(f"Slot {slot.name!r} is declared twice.")
            self._by_name[slot.name] = slot
        if not self._slots:
            raise ValueError("A Schema needs at least one slot.")
        if not self.used:
            raise ValueError("A Schema needs at least one used slot.")
        self._weights = self._paired()

    def __iter__(self) -> Iterator[Column]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, name: str) -> Column:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._slots == other._slots

    def __hash__(self) -> int:
        return hash(self._slots)

    def __repr__(self) -> str:
        return f"Schema({list(self._slots)!r})"

    def names(self, kind: str | None = None) -> list[str]:
        """Names in order, of one kind or of all."""
        return [s.name for s in self._slots if kind in (None, s.kind)]

    @property
    def used(self) -> list[Column]:
        """The slots that are features or labels: all but the unused ones."""
        return [s for s in self._slots if s.used]

    @property
    def weights(self) -> dict[str, str]:
        """From the name of an id slot to the name of its weights' slot."""
        return dict(self._weights)

    def with_weights(self, weights: Mapping[str, str]) -> "Schema":
        """Returns a spec that has these pairs, too.

        In a sample both slots of a pair must have equally many values.

        >>> spec = Schema([Column.sparse("C1"), Column.sparse("w", dtype="float")])
        >>> spec.with_weights({"C1": "w"}).weights
        {'C1': 'w'}

        Args:
            weights: From an id slot's name to that of the sparse float slot
                with a weight for each of its ids.

        Raises:
            ValueError: `weights` is no mapping, a name is unknown, a slot is of
                another kind, or one of the two is paired already.
        """
        if not isinstance(weights, Mapping):
            raise ValueError(
                "`weights` must map id slots to the slots of their weights, "
                f"found {weights!r}."
            )
        schema = dict(self._by_name)
        paired = self.weights
        for name, weights_name in weights.items():
            for wanted in (name, weights_name):
                if wanted not in schema:
                    raise ValueError(
                        f"`weights`: {wanted!r} is not a declared slot; the "
                        f"slots are {', '.join(schema)}."
                    )
            slot = schema[weights_name]
            if slot.weights_of is not None:
                raise ValueError(
                    f"`weights`: {weights_name!r} cannot hold the weights of "
                    f"{name!r}: it holds those of {slot.weights_of!r}."
                )
            if name in paired:
                raise ValueError(
                    f"`weights`: {weights_name!r} cannot hold the weights of "
                    f"{name!r}: {paired[name]!r} holds them."
                )
            paired[name] = weights_name
            schema[weights_name] = dataclasses.replace(slot, weights_of=name)
        return Schema(schema.values())

    def _paired(self) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for slot in self._slots:
            name = slot.weights_of
            if name is None:
                continue
            where = f"Slot {slot.name!r} holds the weights of {name!r}, which"
            if name not in self._by_name:
                raise ValueError(f"{where} is not a declared slot.")
            ids = self._by_name[name]
            if ids.kind != "sparse" or ids.dtype != "uint64":
                raise ValueError(
                    f"{where} is not a sparse id slot but a {ids.kind} slot "
                    f"of {ids.dtype}."
                )
            if name in pairs:
                raise ValueError(f"{where} has its weights in {pairs[name]!r}.")
            pairs[name] = slot.name
        return pairs

    @property
    def labels(self) -> list[Column]:
        """The label slots."""
        return [s for s in self._slots if s.kind == "label"]

    @property
    def dense(self) -> list[Column]:
        """The dense slots."""
        return [s for s in self._slots if s.kind == "dense"]

    @property
    def sparse(self) -> list[Column]:
        """The sparse slots."""
        return [s for s in self._slots if s.kind == "sparse"]

    @property
    def one_hot(self) -> list[Column]:
        """The one-hot slots."""
        return [s for s in self._slots if s.kind == "one_hot"]

    @property
    def wide(self) -> list[Column]:
        """The sparse slots marked `wide`; empty if none was marked."""
        return [s for s in self._slots if s.wide]

    @classmethod
    def from_yaml(cls, path: StrPath) -> "Schema":
        """Reads a schema file; docs/data.md gives its form.

        Raises:
            ValueError: The file is not as described; names it and the key.
            tf.errors.OpError: The file cannot be read.
        """
        yaml = import_optional("yaml", "Schema")
        from lodestar.data import schema_yaml

        path = as_path(path)
        with open_input(path) as file:
            data = file.read()
        try:
            return cls(_parse(schema_yaml.load(data.decode())))
        except RecursionError as error:
            raise ValueError(f"{path}: is nested too deep") from error
        except yaml.YAMLError as error:
            text = " ".join(str(error).split())
            raise ValueError(f"{path}: not valid YAML: {text}") from error
        except ValueError as error:  # UnicodeDecodeError is one
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_inputs(
        cls, model: Any, labels: str | Column | Iterable[str | Column] = ()
    ) -> "Schema":
        """The slots of data that a functional Keras model can be fed with.

        A ragged int64 input is a sparse slot, a float32 input a dense one of its
        shape, a None in which is a dim of -1. The names are those of a dict of
        inputs, else of the inputs themselves.

        Args:
            model: The model, or its inputs: a KerasTensor, a list or a dict.
            labels: The label slots, which come first: names, of 0 and 1, or
                Slots.

        Raises:
            ValueError: An input is none of these, which names it; or the model
                has no inputs yet.
        """
        schema = label_slots(labels)
        for name, shape in shapes_of_inputs(model).items():
            schema.append(
                Column.sparse(name)
                if shape is None
                else Column.dense(name, shape)
            )
        return cls(schema)

    def to_yaml(self, path: StrPath) -> None:
        """Writes the schema file that `from_yaml` reads back as an equal spec."""
        text = self.yaml_text()
        with AtomicFile(path) as file:
            file.write(text.encode())

    def yaml_text(self) -> str:
        """Returns the text of the schema file."""
        yaml = import_optional("yaml", "Schema")
        text: str = yaml.safe_dump(
            _sections(self),
            sort_keys=False,
            # PyYAML reads some characters as line ends, unless escaped.
            allow_unicode="".join(self.names()).isprintable(),
            default_flow_style=None,
        )
        return text


def label_slots(
    labels: str | Column | Iterable[str | Column],
    dtypes: Mapping[str, str] | None = None,
) -> list[Column]:
    """Label slots as they are, or by their names: of 0 and 1, and of `dtypes`."""
    if isinstance(labels, (str, Column)):
        labels = [labels]
    schema = [
        label
        if isinstance(label, Column)
        else Column.label(label, dtype=(dtypes or {}).get(label, "uint64"))
        for label in labels
    ]
    for slot in schema:
        if slot.kind != "label":
            raise ValueError(
                f"`labels`: slot {slot.name!r} is a {slot.kind} slot, wanted a "
                "label."
            )
    return schema


SchemaLike: TypeAlias = Schema | StrPath | Iterable[Column]


def as_schema(
    schema: SchemaLike, weights: Mapping[str, str] | None = None
) -> Schema:
    """Returns `schema` itself, or what a schema file's path or a list stands for.

    With `weights`, as `Schema.with_weights` takes them, of these pairs, too.
    """
    if weights:
        return as_schema(schema).with_weights(weights)
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, (str, os.PathLike)):
        return Schema.from_yaml(schema)
    if isinstance(schema, Mapping) or not isinstance(schema, Iterable):
        raise TypeError(
            "`schema` must be a Schema, the path of a schema file or a list of "
            f"Slots, found {schema!r}."
        )
    return Schema(schema)


def _shown(shape: Any) -> str:
    return repr(list(shape) if isinstance(shape, tuple) else shape)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _parse(content: Any) -> list[Column]:
    if not isinstance(content, Mapping):
        raise ValueError(
            f"wanted a mapping with the keys {', '.join(_SECTIONS)}, found "
            f"{type(content).__name__}"
        )
    for key in content:
        if key not in _SECTIONS:
            raise ValueError(
                f"unknown key {key!r}; the keys are {', '.join(_SECTIONS)}"
            )
    schema: dict[str, Column] = {}

    def add(section: str, make: Any, name: Any, **options: Any) -> None:
        _check_name(section, name)
        if name in schema:
            raise ValueError(
                f"key '{section}': slot {name!r} is declared twice"
            )
        try:
            schema[name] = make(name, used=name not in unused, **options)
        except ValueError as error:
            raise ValueError(f"key '{section}': {error}") from error

    wide = _names(content, "wide")
    unused = _names(content, "unused")
    weights = _mapping(content, "weights", "id slot to weights slot")
    weights_of = _inverse(weights)
    sparse = dict(_entries(content, "sparse", "uint64"))
    for section, names in (
        ("wide", wide),
        ("weights", [*weights, *weights_of]),
    ):
        for name in names:
            if name not in sparse:
                raise ValueError(
                    f"key '{section}': {name!r} is not under 'sparse'"
                )
    for name, value in _entries(content, "label", "binary"):
        if not isinstance(value, str) or value not in _LABELS:
            raise ValueError(
                f"key 'label': {name!r} must be one of {', '.join(_LABELS)}, "
                f"found {value!r}"
            )
        dtype, binary = _LABELS[value]
        add("label", Column.label, name, dtype=dtype, binary=binary)
    for name, value in _entries(content, "dense", 1):
        add("dense", Column.dense, name, **_dense_options(name, value))
    for name, value in sparse.items():
        add(
            "sparse",
            Column.sparse,
            name,
            dtype=value,
            wide=name in wide,
            weights_of=weights_of.get(name),
        )
    for name, value in _mapping(content, "one_hot", "name to size").items():
        add("one_hot", Column.one_hot, name, size=value)

    for name in unused:
        if name not in schema:
            raise ValueError(f"key 'unused': {name!r} is not a declared slot")
    if not schema:
        raise ValueError("declares no slots")
    if "order" not in content:
        return list(schema.values())
    order = _names(content, "order")
    for name in order:
        if name not in schema:
            raise ValueError(f"key 'order': {name!r} is not a declared slot")
    for name in schema:
        if name not in order:
            raise ValueError(f"key 'order': slot {name!r} is missing")
    return [schema[name] for name in order]


def _check_name(section: str, name: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(
            f"key '{section}': a slot's name must be a string, found {name!r}; "
            "put it in quotes"
        )


def _dense_options(name: Any, value: Any) -> dict[str, Any]:
    options = {"shape": value}
    if isinstance(value, Mapping):
        for key in value:
            if key not in ("shape", "dtype"):
                raise ValueError(
                    f"key 'dense': {name!r} has the unknown key {key!r}; "
                    "the keys are shape, dtype"
                )
        if "shape" not in value:
            raise ValueError(f"key 'dense': {name!r} has no 'shape'")
        options = dict(value)
    if _is_int(options["shape"]):
        options["shape"] = [options["shape"]]
    if not isinstance(options["shape"], list):
        raise ValueError(
            f"key 'dense': the shape of {name!r} must be a list of positive "
            f"integers, at most one of them -1, found {options['shape']!r}"
        )
    return options


def _mapping(content: Any, section: str, wanted: str) -> Mapping[str, Any]:
    found = content.get(section, {})
    if not isinstance(found, Mapping):
        raise ValueError(
            f"key '{section}': wanted a mapping from {wanted}, found {found!r}"
        )
    return found


def _inverse(weights: Mapping[str, Any]) -> dict[str, str]:
    """From the weights' slot to the id slot."""
    inverse: dict[str, str] = {}
    for name, weights_name in weights.items():
        _check_name("weights", name)
        _check_name("weights", weights_name)
        if weights_name in inverse:
            raise ValueError(
                f"key 'weights': {weights_name!r} holds the weights of both "
                f"{inverse[weights_name]!r} and {name!r}"
            )
        inverse[weights_name] = name
    return inverse


def _entries(content: Mapping[str, Any], section: str, default: Any) -> Any:
    """(name, value) pairs of a list of names or of a mapping."""
    found = content.get(section, [])
    if isinstance(found, Mapping):
        return list(found.items())
    return [(name, default) for name in _names(content, section)]


def _names(content: Mapping[str, Any], section: str) -> dict[str, None]:
    """The names of a list, in its order, as a set is asked for them."""
    found = content.get(section, [])
    if not isinstance(found, list):
        raise ValueError(
            f"key '{section}': wanted a list of slot names, found {found!r}"
        )
    names: dict[str, None] = {}
    for name in found:
        _check_name(section, name)
        if name in names:
            raise ValueError(f"key '{section}': {name!r} occurs twice")
        names[name] = None
    return names


def _sections(spec: Schema) -> dict[str, Any]:
    content: dict[str, Any] = {}
    words = {meaning: word for word, meaning in _LABELS.items()}
    labels = {s.name: words[s.dtype, s.binary] for s in spec.labels}
    if labels:
        plain = set(labels.values()) == {"binary"}
        content["label"] = list(labels) if plain else labels
    if spec.dense:
        content["dense"] = {
            s.name: list(s.shape)
            if s.dtype == "float"
            else {"shape": list(s.shape), "dtype": s.dtype}
            for s in spec.dense
        }
    if spec.sparse:
        dtypes = {s.name: s.dtype for s in spec.sparse}
        plain = set(dtypes.values()) == {"uint64"}
        content["sparse"] = list(dtypes) if plain else dtypes
    if spec.wide:
        content["wide"] = [s.name for s in spec.wide]
    if spec.weights:
        content["weights"] = spec.weights
    if spec.one_hot:
        content["one_hot"] = {s.name: s.size for s in spec.one_hot}
    unused = [s.name for s in spec if not s.used]
    if unused:
        content["unused"] = unused
    if _parse(content) != list(spec):
        content["order"] = spec.names()
    return content
