"""Schema: the declared meaning of every column of a data set."""

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import keras
import yaml

from lodestar import _strict_yaml as strict_yaml
from lodestar._checks import check_texts
from lodestar._files import AtomicFile, as_path
from lodestar._input_bytes import open_input
from lodestar._typing import StrPath
from lodestar.data.schema import merlin_schema, sections
from lodestar.data.schema.column import Column

# Strings that mean "missing" in every source: those of pandas.read_csv, and
# what Hive, the UCI repository and others write.
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


# By which modules that Schema imports find the class.
@keras.saving.register_keras_serializable(package="lodestar")
class Schema:
    """What each column of a data set means, from the first file to serving.

    `open_dataset` infers a schema once and returns it as `dataset.schema`. Read
    later files, validation data and requests with it, so that equal values
    have equal meaning everywhere:

    >>> schema = Schema([Column.label("click"), Column.sparse("item")])
    >>> print(schema)
    column  kind          why
    click   binary label  declared
    item    ids           declared

    A schema is immutable. It iterates over its columns in their order, and
    `schema[name]` is the column of that name.

    Attributes:
        na_values: Strings that stand for a missing value, in every source.
    """

    def __init__(
        self,
        columns: Iterable[Column],
        *,
        na_values: Collection[str] = NA_VALUES,
    ):
        r"""Creates a schema.

        Args:
            columns: The columns, in the order in which a file of positions
                (MultiSlot, Norm, Raw) stores them.
            na_values: Strings that stand for a missing value. Defaults to those
                of `pandas.read_csv`, `"?"` and `"\N"`.

        Raises:
            TypeError: An element is not a `Column`.
            ValueError: No column is used, a name occurs twice, or `weights_of`
                names a column without ids, or one that has weights already.
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
        check_texts(na_values=na_values)
        self.na_values = tuple(dict.fromkeys(na_values))
        self._weights = self._paired()

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
        return "\n".join(lines)

    def reasons(self) -> tuple[list[str], str | None]:
        """Returns why each column is what it is, and the source of inference.

        The source, e.g. `"1000 rows of a.csv"`, is None unless it is the same
        for all columns that were inferred.
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

    def names(self, kind: str | None = None) -> list[str]:
        """Returns the names of the columns of a kind, or of all, in order."""
        return [c.name for c in self._columns if kind in (None, c.kind)]

    @property
    def used(self) -> list[Column]:
        """The features and labels: all columns but the unused ones."""
        return [c for c in self._columns if c.used]

    @property
    def labels(self) -> list[Column]:
        """The labels."""
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
        """The sparse columns marked `wide`; empty if none is."""
        return [c for c in self._columns if c.wide]

    @property
    def weights(self) -> dict[str, str]:
        """Maps the name of an id column to that of the column of its weights."""
        return dict(self._weights)

    def with_weights(self, weights: Mapping[str, str]) -> "Schema":
        """Returns a schema in which these columns hold weights of others.

        In an example, both columns of a pair must have the same number of
        values.

        >>> schema = Schema([
        ...     Column.sparse("C1"), Column.sparse("w", dtype="float")])
        >>> schema.with_weights({"C1": "w"}).weights
        {'C1': 'w'}

        Args:
            weights: Maps the name of an id column to the name of the sparse
                float column with a weight for each of its ids.

        Raises:
            ValueError: `weights` is not a mapping, a name is unknown, a column
                is of another kind, or one of the two is paired already.
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
                    f"{name!r}: it holds those of {column.weights_of!r}."
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
        """Returns a schema of other columns with the same `na_values`."""
        return Schema(columns, na_values=self.na_values)

    def stored(self) -> "Schema":
        """Returns the schema of files to which writers write these columns.

        They store what datasets contain: ids instead of the strings that ids
        are made of, numbers instead of missing values and dates.
        """
        return self.replace(
            dataclasses.replace(
                column,
                encoding="int",
                hash_as=None,
                # NaN is what was written for a missing value.
                missing=column.missing
                if column.missing != column.missing
                else None,
                separator=None,
                unit=None,
                positive=None,
            )
            for column in self._columns
        )

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

        A Keras model takes a dataset's features by name. A model that is built
        on these inputs carries the schema, also in its `.keras` file and its
        exports; `Schema.of(model)` returns it. Keras's `clone_model` replaces
        the inputs; pass `input_tensors=schema.inputs()` to it.

        While it traces `fit`, `evaluate` or `predict`, a layer of Lodestar
        raises ValueError if floats are given where the schema declares ids.
        It cannot see this in an eager call of a model, `model(features)`, or
        with `run_eagerly=True`; call `check(features)` there.

        >>> schema = Schema([Column.sparse("item"), Column.dense("price", [2])])
        >>> inputs = schema.inputs()
        >>> {name: tensor.shape for name, tensor in inputs.items()}
        {'item': (None, None), 'price': (None, 2)}

        Returns:
            KerasTensors by column name, of each used column that is no label:
            sparse columns are ragged, `[batch, None]`, or with `depth=2`
            `[batch, None, None]`, int64 for ids and float32 otherwise; dense
            columns `[batch, *shape]`, float32 or int64; one-hot columns
            float32 `[batch, size]`. First the sparse, then the dense, then the
            one-hot columns.
        """
        from lodestar.data.schema import keras_inputs

        return keras_inputs.inputs_of_schema(self)

    def example_features(self) -> dict[str, Any]:
        """Returns the features that `tf.io.parse_example` takes.

        Use them to parse requests in a serving signature, or records in your
        own pipeline. `ExampleDataset` reads files, and converts and checks
        every value.

        >>> schema = Schema([Column.sparse("item"), Column.dense("price", [2])])
        >>> examples = tf.constant([tf.train.Example().SerializeToString()])
        >>> parsed = tf.io.parse_example(examples, schema.example_features())
        >>> parsed["price"].numpy()
        array([[0., 0.]], dtype=float32)

        Returns:
            Features by column name, of the used columns. Sparse columns are a
            `tf.io.RaggedFeature` of int64, float32, or string if `encoding` is
            `"hash"` or `"hex"`. Dense columns are a `tf.io.FixedLenFeature` of
            their shape whose default is `missing`, or ragged if a dim is -1.
            Labels are `[1]`, string if they have a `positive` value, and
            one-hot columns are an int64 scalar; neither has a default.
        """
        from lodestar.data.schema import example_features

        return example_features.features_of_schema(self)

    @classmethod
    def of(cls, model: Any) -> "Schema":
        """Returns the schema of a model.

        Args:
            model: A functional or sequential Keras model that was built on
                `inputs()`, also one that was loaded from a `.keras` file; a
                Keras model whose attribute `schema` is a Schema; or what
                `tf.saved_model.load` returned for an export of such a model.

        Raises:
            ValueError: The model has no schema, or its inputs have different
                ones.
        """
        from lodestar.data.schema import model_schema

        return model_schema.schema_of(model)

    def check(self, features: Mapping[str, Any]) -> None:
        """Checks that features have the types that the columns declare.

        A feature of ids holds integers or, with the encoding `"hash"` or
        `"hex"`, strings, which only an exported model takes: ragged, sparse or
        dense, with `depth` dimensions besides the batch. A feature of numbers
        holds floats or integers. Dense and one-hot features are dense and have
        the declared shape. Other features than the used columns are ignored.

        Args:
            features: By column name: eager or symbolic tensors, dense, ragged
                or sparse; NumPy arrays; type specs.

        Raises:
            ValueError: Features are missing or contradict their columns. The
                message names all of them.
        """
        from lodestar.data.schema import check_features

        check_features.check(self, features)

    @classmethod
    def load(cls, path: StrPath) -> "Schema":
        """Reads a schema file; docs/internals/formats.md describes its form.

        A name that ends in `.pbtxt` is one of NVIDIA Merlin or NVTabular. Its
        tags say what a feature is: `target`, `binary_classification` and
        `regression` a label, `categorical` ids (hashed, if their type is
        BYTES), `continuous` numbers.

        Raises:
            ValueError: The file is not a schema; names it and the key.
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
        except ValueError as error:  # UnicodeDecodeError is one
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> "Schema":
        """Reads the text of a schema file.

        Raises:
            ValueError: The text is not a schema; names the key.
        """
        try:
            columns, na_values = sections.parse(strict_yaml.load(text))
        except RecursionError as error:
            raise ValueError("is nested too deep") from error
        except yaml.YAMLError as error:
            problem = " ".join(str(error).split())
            raise ValueError(f"not valid YAML: {problem}") from error
        return cls(
            columns, na_values=NA_VALUES if na_values is None else na_values
        )

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes an equal schema of, as Keras does."""
        return {"yaml": self.yaml()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Schema":
        """Returns the schema of a config."""
        return cls.parse(config["yaml"])

    def save(self, path: StrPath) -> None:
        """Writes a schema file, which `load` reads as an equal schema.

        A name that ends in `.pbtxt` makes it one of NVIDIA Merlin or NVTabular.

        Raises:
            ValueError: A `.pbtxt` file cannot express an attribute of a column,
                or `na_values`.
        """
        path = as_path(path)
        if not path.endswith(merlin_schema.SUFFIX):
            text = self.yaml()
        elif set(self.na_values) != set(NA_VALUES):
            raise ValueError(
                f"{path}: a {merlin_schema.SUFFIX} file cannot express "
                f"`na_values`={list(self.na_values)}."
            )
        else:
            text = merlin_schema.text_of(self)
        with AtomicFile(path) as file:
            file.write(text.encode())

    def yaml(self) -> str:
        """Returns the text of the schema file."""
        content = sections.sections(self._columns)
        if set(self.na_values) != set(NA_VALUES):
            content["na_values"] = list(self.na_values)
        text: str = yaml.safe_dump(
            content,
            sort_keys=False,
            # PyYAML reads some characters as line ends, unless escaped.
            allow_unicode=_is_printable(content),
            default_flow_style=None,
        )
        return text


def _is_printable(content: Any) -> bool:
    """Whether all strings in the content of a schema file are printable."""
    if isinstance(content, Mapping):
        return all(_is_printable(pair) for pair in content.items())
    if isinstance(content, (list, tuple)):
        return all(map(_is_printable, content))
    return not isinstance(content, str) or content.isprintable()


SchemaLike: TypeAlias = Schema | StrPath | Iterable[Column] | keras.Model


def as_schema(
    schema: SchemaLike, weights: Mapping[str, str] | None = None
) -> Schema:
    """Returns the schema that a value stands for.

    Args:
        schema: A Schema, the path of a schema file or of an exported
            SavedModel, a list of Columns, or a model as `Schema.of` takes it.
        weights: As `Schema.with_weights` takes it.

    Raises:
        TypeError: `schema` is none of these.
        ValueError: The model has no schema, or the file is not valid.
    """
    from lodestar.data.schema import model_schema

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
    return Schema(cast(Iterable[Column], schema))


def label_columns(
    labels: str | Column | Iterable[str | Column],
    dtypes: Mapping[str, str] | None = None,
) -> list[Column]:
    """Returns labels as they are, or binary ones of these names.

    Args:
        labels: Columns or names.
        dtypes: Dtypes of labels that are given by name.
    """
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
