"""Schema: the declared meaning of the columns of a data set."""

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import keras
import yaml

from lodestar import _strict_yaml as strict_yaml
from lodestar._checks import check_texts
from lodestar._files import AtomicFile, as_path
from lodestar._input_bytes import open_input
from lodestar._typing import Model, StrPath
from lodestar.schema import merlin_schema, sections
from lodestar.schema.column import Column, Dtype, Kind

# Strings that mean "missing" in every source: the defaults of pandas.read_csv,
# and markers of Hive, the UCI repository and others.
NA_VALUES = (
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "?",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "\\N",
    "n/a",
    "nan",
    "null",
)


# Modules that Schema imports look up the class by this name.
@keras.saving.register_keras_serializable(package="lodestar")
class Schema:
    """The meaning of each column of a data set, from training to serving.

    `open_dataset` infers a schema once and returns it as `dataset.schema`. Read
    later files, validation data and requests with it, so that equal values have
    the same meaning everywhere:

    >>> schema = Schema([Column.label("click"), Column.sparse("item")])
    >>> print(schema)
    column  kind          why
    click   binary label  declared
    item    ids           declared

    A schema is immutable. Iteration yields its columns in order, and
    `schema[name]` returns the column of that name.

    Attributes:
        na_values: Strings that mean missing in every source.
        text: The options of `open_dataset` that say how text files are read, for
            the files that are opened with this schema; empty if none was given.
    """

    def __init__(
        self,
        columns: Iterable[Column],
        *,
        na_values: Collection[str] = NA_VALUES,
        text: Mapping[str, Any] | None = None,
    ):
        r"""Creates a schema.

        Args:
            columns: The columns, in the order in which positional formats
                (MultiSlot, Norm, Raw) store them.
            na_values: Strings that mean missing. Defaults to the strings of
                `pandas.read_csv`, `"?"` and `"\N"`.
            text: The options `columns`, `delimiter`, `quote`, `header`,
                `skip_lines` and `encoding` of text files, as for `open_dataset`.

        Raises:
            TypeError: An element is not a `Column`.
            ValueError: No column is used, a name occurs twice, several columns are
                sample weights, `weights_of` names a column without ids, or one that
                already has weights, or `text` has an unknown option.
        """
        self._columns = tuple(columns)
        self._by_name: dict[str, Column] = {}
        for column in self._columns:
            if not isinstance(column, Column):
                raise TypeError(f"A Schema takes Columns, got {column!r}.")
            if column.name in self._by_name:
                raise ValueError(f"Column {column.name!r} is declared twice.")
            self._by_name[column.name] = column
        if not self._columns:
            raise ValueError("A Schema needs at least one column.")
        if not self.used:
            raise ValueError("A Schema needs at least one used column.")
        weights = self.names("sample_weight")
        if len(weights) > 1:
            raise ValueError(
                "A Schema can have one column of sample weights, got "
                f"{', '.join(map(repr, weights))}."
            )
        check_texts(na_values=na_values)
        self.na_values = tuple(dict.fromkeys(na_values))
        self._text = sections.checked_text(text or {})
        self._weights = self._paired()

    @property
    def text(self) -> dict[str, Any]:
        """The options of text files."""
        return dict(self._text)

    def __iter__(self) -> Iterator[Column]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, name: str) -> Column:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Schema)
            and self._columns == other._columns
            and set(self.na_values) == set(other.na_values)
            and self._text == other._text
        )

    def __hash__(self) -> int:
        return hash(self._columns)

    def __repr__(self) -> str:
        return f"Schema({list(self._columns)!r})"

    def __str__(self) -> str:
        whys, source = self.reasons()
        rows = [("column", "kind", "why")]
        rows += [
            (column.name, column.describe(), why)
            for column, why in zip(self._columns, whys)
        ]
        widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
        lines = [
            f"{name:{widths[0]}}  {kind:{widths[1]}}  {why}"
            for name, kind, why in rows
        ]
        if source is not None:
            lines.append(f"Inferred from {source}.")
        if self._text:
            options = (
                f"{name}={value!r}" for name, value in self._text.items()
            )
            lines.append(f"Text files: {', '.join(options)}.")
        return "\n".join(lines)

    def reasons(self) -> tuple[list[str], str | None]:
        """Returns the reason for each column's kind, and the inference source.

        The source, e.g. `"1000 rows of a.csv"`, is None if inferred columns have
        different sources.
        """
        whys = [column.why for column in self._columns]
        sources = {
            why.rpartition(" (")[2]
            for why in whys
            if why.endswith(")") and " (" in why
        }
        if len(sources) != 1:
            return whys, None
        (source,) = sources
        whys = [why.removesuffix(f" ({source}") for why in whys]
        return whys, source.removesuffix(")")

    def names(self, kind: Kind | None = None) -> list[str]:
        """Returns the names of the columns of one kind, or of all, in order."""
        return [c.name for c in self._columns if kind in (None, c.kind)]

    @property
    def used(self) -> list[Column]:
        """The features and labels."""
        return [c for c in self._columns if c.used]

    @property
    def labels(self) -> list[Column]:
        """The label columns."""
        return [c for c in self._columns if c.kind == "label"]

    @property
    def dense(self) -> list[Column]:
        """The dense columns."""
        return [c for c in self._columns if c.kind == "dense"]

    @property
    def sparse(self) -> list[Column]:
        """The sparse columns."""
        return [c for c in self._columns if c.kind == "sparse"]

    @property
    def one_hot(self) -> list[Column]:
        """The one-hot columns."""
        return [c for c in self._columns if c.kind == "one_hot"]

    @property
    def wide(self) -> list[Column]:
        """The sparse columns with `wide=True`."""
        return [c for c in self._columns if c.wide]

    @property
    def weights(self) -> dict[str, str]:
        """Maps each weighted id column to its weights column."""
        return dict(self._weights)

    def with_weights(self, weights: Mapping[str, str]) -> "Schema":
        """Returns a schema in which sparse columns are weights of id columns.

        In each example, both columns of a pair must have the same number of values.

        >>> schema = Schema([
        ...     Column.sparse("C1"), Column.sparse("w", dtype="float")])
        >>> schema.with_weights({"C1": "w"}).weights
        {'C1': 'w'}

        Args:
            weights: Maps each id column to the sparse float column with a weight
                for each of its ids.

        Raises:
            ValueError: `weights` is not a mapping, a name is unknown, a column has
                the wrong kind, or a column is already paired.
        """
        if not isinstance(weights, Mapping):
            raise ValueError(
                "`weights` must map id columns to the columns of their "
                f"weights, got {weights!r}."
            )
        columns = dict(self._by_name)
        paired = self.weights
        for name, weights_name in weights.items():
            for wanted in (name, weights_name):
                if wanted not in columns:
                    raise ValueError(
                        f"`weights`: {wanted!r} is not a declared column; the "
                        f"columns are {', '.join(columns)}."
                    )
            column = columns[weights_name]
            if column.weights_of is not None:
                raise ValueError(
                    f"`weights`: {weights_name!r} cannot hold the weights of "
                    f"{name!r}: it already holds weights of {column.weights_of!r}."
                )
            if name in paired:
                raise ValueError(
                    f"`weights`: {weights_name!r} cannot hold the weights of "
                    f"{name!r}: {paired[name]!r} holds them."
                )
            paired[name] = weights_name
            columns[weights_name] = dataclasses.replace(column, weights_of=name)
        return self.replace(columns.values())

    def replace(self, columns: Iterable[Column]) -> "Schema":
        """Returns a schema of other columns with the same `na_values` and `text`."""
        return Schema(columns, na_values=self.na_values, text=self._text)

    def stored(self) -> "Schema":
        """Returns the schema of the files that writers produce for these columns.

        Writers store dataset values: ids instead of strings, and numbers instead of
        missing values and dates.
        """
        columns = (
            dataclasses.replace(
                column,
                encoding="int",
                hash_as=None,
                # NaN is written for a missing value.
                fill_value=column.fill_value
                if column.fill_value != column.fill_value
                else None,
                strings_only=False,
                separator=None,
                unit=None,
                positive=(),
                negative=(),
            )
            for column in self._columns
        )
        return Schema(columns, na_values=self.na_values)

    def _paired(self) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for column in self._columns:
            name = column.weights_of
            if name is None:
                continue
            where = (
                f"Column {column.name!r} holds the weights of {name!r}, which"
            )
            if name not in self._by_name:
                raise ValueError(f"{where} is not a declared column.")
            ids = self._by_name[name]
            if not ids.holds_ids:
                raise ValueError(
                    f"{where} is not a sparse id column but a {ids.kind} "
                    f"column of {ids.dtype}."
                )
            if name in pairs:
                raise ValueError(f"{where} has its weights in {pairs[name]!r}.")
            pairs[name] = column.name
        return pairs

    def inputs(self) -> dict[str, Any]:
        """Returns the inputs of a functional Keras model of these features.

        Keras matches a dataset's features to these inputs by name. A model that is
        built on them carries the schema, also in its `.keras` file and its exports;
        `Schema.of(model)` returns it. Keras's `clone_model` replaces the inputs
        unless you pass it `input_tensors=schema.inputs()`.

        When `fit`, `evaluate` or `predict` is traced, a Lodestar layer raises
        ValueError if it gets floats for a column of ids. Eager calls of a model,
        `model(features)`, and `run_eagerly=True` skip this check. Call
        `check(features)` in these cases.

        >>> schema = Schema([Column.sparse("item"), Column.dense("price", [2])])
        >>> inputs = schema.inputs()
        >>> {name: tensor.shape for name, tensor in inputs.items()}
        {'item': (None, None), 'price': (None, 2)}

        Returns:
            KerasTensors by name of the used features: first sparse,
            then dense, then one-hot columns. Sparse columns are ragged,
            `[batch, None]`, or `[batch, None, None]` with `depth=2`, int64 for ids
            and float32 otherwise. Dense columns are float32 or int64
            `[batch, *shape]`; one-hot columns are float32 `[batch, size]`.
        """
        from lodestar.schema import keras_inputs

        return keras_inputs.inputs_of_schema(self)

    def example_features(self) -> dict[str, Any]:
        """Returns the feature specs for `tf.io.parse_example`.

        Use them to parse requests in a serving signature, or records in your own
        pipeline. `open_dataset` reads files, and also converts and checks values.

        >>> schema = Schema([Column.sparse("item"), Column.dense("price", [2])])
        >>> examples = tf.constant([tf.train.Example().SerializeToString()])
        >>> parsed = tf.io.parse_example(examples, schema.example_features())
        >>> parsed["price"].numpy()
        array([[0., 0.]], dtype=float32)

        Returns:
            Feature specs of the used columns by name. Sparse columns are a
            `tf.io.RaggedFeature` of int64, float32, or string if `encoding` is
            `"hash"` or `"hex"`. Dense columns are a `tf.io.FixedLenFeature` with
            `fill_value` as the default, or ragged if a dim is -1. Labels have the
            shape `[1]`, and are strings if they have a `positive` value. One-hot
            columns are int64 scalars. Labels and one-hot columns have no default.
        """
        from lodestar.schema import example_features

        return example_features.features_of_schema(self)

    @classmethod
    def of(cls, model: Model) -> "Schema":
        """Returns the schema of a model.

        Args:
            model: A functional or sequential Keras model built on `inputs()`, also
                if loaded from a `.keras` file; a Keras model with a Schema as its
                attribute `schema`; or an export of such a model, loaded by
                `tf.saved_model.load`.

        Raises:
            ValueError: The model has no schema, or its inputs have different ones.
        """
        from lodestar.schema import model_schema

        return model_schema.schema_of(model)

    def check(self, features: Mapping[str, Any]) -> None:
        """Checks that features have the declared types.

        Features of ids must hold integers or, with the encoding `"hash"` or `"hex"`,
        strings, which only an exported model accepts. They may be ragged, sparse or
        dense, with `depth` dimensions after the batch. Features of numbers must hold
        floats or integers. Dense and one-hot features must be dense and have the
        declared shape. Other features are ignored.

        Args:
            features: Maps column names to eager or symbolic tensors (dense, ragged
                or sparse), NumPy arrays or type specs.

        Raises:
            ValueError: Features are missing or contradict their columns. The
                message names all of them.
        """
        from lodestar.schema import check_features

        check_features.check(self, features)

    @classmethod
    def load(cls, path: StrPath) -> "Schema":
        """Reads a schema file; see docs/internals/formats.md for the format.

        A path that ends in `.pbtxt` is read as a schema of NVIDIA Merlin or NVTabular.
        Its tags `target`, `binary_classification` and `regression` mean a label,
        `categorical` ids (hashed if the type is BYTES), and `continuous` numbers.

        Raises:
            ValueError: The file is not a valid schema.
            FileNotFoundError: The file does not exist.
            tf.errors.OpError: The file cannot be read.
        """
        path = as_path(path)
        with open_input(path) as file:
            data = file.read()
        try:
            text = data.decode()
            if path.endswith(merlin_schema.SUFFIX):
                return cls(merlin_schema.parse(text))
            return cls.parse(text)
        except ValueError as error:  # includes UnicodeDecodeError
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> "Schema":
        """Parses the content of a schema file.

        Raises:
            ValueError: The text is not a valid schema.
        """
        try:
            columns, na_values, options = sections.parse(strict_yaml.load(text))
        except RecursionError as error:
            raise ValueError("is nested too deep") from error
        except yaml.YAMLError as error:
            problem = " ".join(str(error).split())
            raise ValueError(f"not valid YAML: {problem}") from error
        return cls(
            columns,
            na_values=NA_VALUES if na_values is None else na_values,
            text=options,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the config for `from_config`."""
        return {"yaml": self.yaml()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Schema":
        """Returns the schema of a config."""
        return cls.parse(config["yaml"])

    def save(self, path: StrPath) -> None:
        """Writes a schema file, which `load` reads as an equal schema.

        If the path ends in `.pbtxt`, writes a schema of NVIDIA Merlin or NVTabular.

        Raises:
            ValueError: A `.pbtxt` file cannot express an attribute of a column,
                `na_values` or `text`.
        """
        path = as_path(path)
        if not path.endswith(merlin_schema.SUFFIX):
            text = self.yaml()
        elif set(self.na_values) != set(NA_VALUES):
            raise ValueError(
                f"{path}: a {merlin_schema.SUFFIX} file cannot express "
                f"`na_values`={list(self.na_values)}."
            )
        elif self._text:
            raise ValueError(
                f"{path}: a {merlin_schema.SUFFIX} file cannot express `text`="
                f"{self._text}."
            )
        else:
            text = merlin_schema.text_of(self)
        with AtomicFile(path) as file:
            file.write(text.encode())

    def yaml(self) -> str:
        """Returns the content of the schema file."""
        content = sections.sections(self._columns)
        if set(self.na_values) != set(NA_VALUES):
            content["na_values"] = list(self.na_values)
        if self._text:
            content["text"] = dict(self._text)
        text: str = yaml.safe_dump(
            content,
            sort_keys=False,
            # PyYAML reads some characters as line ends unless they are escaped.
            allow_unicode=_is_printable(content),
            default_flow_style=None,
        )
        return text


def _is_printable(content: Any) -> bool:
    """Returns whether all strings of a schema file are printable."""
    if isinstance(content, Mapping):
        return all(_is_printable(pair) for pair in content.items())
    if isinstance(content, (list, tuple)):
        return all(map(_is_printable, content))
    return not isinstance(content, str) or content.isprintable()


SchemaLike: TypeAlias = Schema | StrPath | Iterable[Column] | Model


def as_schema(
    schema: SchemaLike, weights: Mapping[str, str] | None = None
) -> Schema:
    """Converts a value to a schema.

    Args:
        schema: A Schema, the path of a schema file or of an exported SavedModel,
            a list of Columns, or a model with a schema.
        weights: See `Schema.with_weights`.

    Raises:
        TypeError: `schema` has another type.
        ValueError: The model has no schema, or the file is invalid.
    """
    from lodestar.schema import model_schema

    if weights:
        return as_schema(schema).with_weights(weights)
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, (str, os.PathLike)):
        if model_schema.is_saved_model(schema):
            return model_schema.schema_of_saved_model(schema)
        return Schema.load(schema)
    if model_schema.is_model(schema):
        return Schema.of(schema)
    if isinstance(schema, Mapping) or not isinstance(schema, Iterable):
        raise TypeError(
            "`schema` must be a Schema, the path of a schema file or of a "
            "SavedModel, a list of Columns or a Keras model, got "
            f"{schema!r}."
        )
    return Schema(schema)


def label_columns(
    labels: str | Column | Iterable[str | Column],
    dtypes: Mapping[str, Dtype] | None = None,
) -> list[Column]:
    """Returns label columns; names become binary labels with these dtypes."""
    if isinstance(labels, (str, Column)):
        labels = [labels]
    columns = [
        label
        if isinstance(label, Column)
        else Column.label(label, dtype=(dtypes or {}).get(label, "uint64"))
        for label in labels
    ]
    for column in columns:
        if column.kind != "label":
            raise ValueError(
                f"`labels`: column {column.name!r} must be a label, got a "
                f"{column.kind} column."
            )
    return columns
