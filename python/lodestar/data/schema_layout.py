"""SchemaLayout: converts flat tensors to `(features, label)`."""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import tensorflow as tf

from lodestar._checks import after, assert_true, check_choice
from lodestar._formats import SparseForm
from lodestar.ragged import LoDTensor
from lodestar.ragged.csr import to_csr
from lodestar.schema import Column, Schema

CSR = "csr"
# The optional leading fields of MultiSlot lines, in order, and their features.
_FIELDS = {
    "ins_id": {"ins_id": tf.string},
    "content": {"content": tf.string},
    "logkey": {
        "search_id": tf.int64,
        "cmatch": tf.int64,
        "rank": tf.int64,
    },
}


def line_fields(ins_id: bool, content: bool, logkey: bool) -> list[str]:
    """Returns the names of the leading fields of lines, in order."""
    given = zip(_FIELDS, (ins_id, content, logkey), strict=True)
    return [name for name, is_given in given if is_given]


class SchemaLayout:
    """The layout of a schema's columns in flat tensors.

    First come the features of the lines' leading fields, `[B]` each, then the used
    columns in schema order. A sparse column has two tensors, the values `[N]` and the
    int64 row splits `[B + 1]`. Others have one: `[B]` for one-hot ids, `[B, 1]` for a
    label or a sample weight, and `[B, *shape]` for a dense column. Values are int64, or
    float32 for float columns. A missing label is NaN.

    Attributes:
        spec: The Schema.
        tensor_specs: One `tf.TensorSpec` per flat tensor.
    """

    def __init__(
        self,
        spec: Schema,
        *,
        sparse: SparseForm = "ragged",
        rows: int | None = None,
        as_columns: bool = False,
        fields: Iterable[str] = (),
    ):
        """Creates a layout.

        `rows` is the size of every batch, or None if it varies. With `as_columns`,
        elements have the form for a writer's `write_batch`, without the leading fields.
        `fields` are the names from `line_fields`.

        Raises:
            ValueError: A column has the name of a field's feature; `sparse` is not in
                `SparseForm`; or with `"csr"`, the schema has no sparse id column,
                or has another column named "csr".
        """
        check_choice("sparse", sparse, get_args(SparseForm))
        self.spec = spec
        self._sparse = sparse
        self._as_columns = as_columns
        self._rows = rows
        self._fields = {
            name: dtype
            for field in fields
            for name, dtype in _FIELDS[field].items()
        }
        for name in self._fields:
            if name in spec:
                raise ValueError(
                    f"Slot {name!r} has the name of a field that lines begin "
                    "with; rename the slot."
                )
        self._in_csr = [
            slot.name
            for slot in spec.used
            if sparse == CSR and slot.kind == "sparse" and slot.dtype != "float"
        ]
        for slot in spec.used:
            if sparse == CSR and slot.depth > 1:
                raise ValueError(
                    f"`sparse`='csr' does not support lists of lists: column "
                    f"{slot.name!r}."
                )
        if sparse == CSR:
            if not self._in_csr:
                raise ValueError("`sparse`='csr' needs a sparse slot of ids.")
            if CSR in spec and CSR not in self._in_csr:
                raise ValueError(
                    "`sparse`='csr' makes a feature 'csr', but there is a slot "
                    f"of this name and the kind {spec[CSR].kind!r}."
                )
        self.tensor_specs = tuple(
            tf.TensorSpec([rows], dtype) for dtype in self._fields.values()
        ) + tuple(
            tensor for slot in spec.used for tensor in self._tensors(slot)
        )

    def _tensors(self, slot: Column) -> list[tf.TensorSpec]:
        dtype = dtype_of(slot)
        if slot.kind != "sparse":
            return [tf.TensorSpec([self._rows, *tensor_shape(slot)], dtype)]
        rows = [None if self._rows is None else self._rows + 1]
        inner = [tf.TensorSpec([None], tf.int64)] * (slot.depth - 1)
        return [
            tf.TensorSpec([None], dtype),
            *inner,
            tf.TensorSpec(rows, tf.int64),
        ]

    def op_attributes(self) -> dict[str, Any]:
        """Returns the dataset op attributes that describe columns and tensors."""
        names = self.spec.names()
        return {
            "slot_names": names,
            "slot_types": [dtype_of(slot) for slot in self.spec],
            "slot_shapes": [
                tf.TensorShape(
                    None if slot.kind == "sparse" else tensor_shape(slot)
                )
                for slot in self.spec
            ],
            "slot_limits": [limit(slot) for slot in self.spec],
            "slot_weighs": [
                names.index(slot.weights_of) if slot.weights_of else -1
                for slot in self.spec
            ],
            "slot_used": [slot.used for slot in self.spec],
            "output_types": [spec.dtype for spec in self.tensor_specs],
            "output_shapes": [spec.shape for spec in self.tensor_specs],
        }

    def _columns(self, *tensors: tf.Tensor) -> dict[str, Any]:
        """Returns tensors by column; `(values, row_splits)` for sparse columns."""
        remaining = iter(tensors)
        return {
            slot.name: self._column(slot, remaining) for slot in self.spec.used
        }

    def _column(self, slot: Column, remaining: Iterator[tf.Tensor]) -> Any:
        column: Any = next(remaining)
        if slot.kind == "sparse":
            for _ in range(slot.depth):
                column = (column, next(remaining))
        return column

    def features_and_label(self, *tensors: tf.Tensor) -> Any:
        """Converts flat tensors to a dataset element, as Keras unpacks it.

        The element is `features`, `(features, label)`, or with a sample weight or an
        optional label `(features, label, weights)`. With several labels, `label` and
        `weights` are dicts. `weights` are float32 `[B]`, 0 for a missing label, which
        is 0 then.

        `features` maps each column name to its tensor. With `sparse="csr"`, one feature
        `"csr"` replaces the S sparse id columns: `row_offsets` `[B * S + 1]` and
        `values` `[N]`, with the columns of an example adjacent.
        """
        if self._as_columns:
            return self._columns(*tensors[len(self._fields) :])
        labels, masks, in_csr = {}, {}, []
        weight = None
        remaining = iter(tensors)
        features = {name: next(remaining) for name in self._fields}
        for slot in self.spec.used:
            values = next(remaining)
            if slot.kind == "sparse":
                # The tensors begin with the innermost splits.
                levels = [next(remaining) for _ in range(slot.depth)][::-1]
                if slot.name in self._in_csr:
                    in_csr.append(LoDTensor(values, tuple(levels)))
                elif self._sparse == "lod":
                    features[slot.name] = LoDTensor(values, tuple(levels))
                else:
                    features[slot.name] = (
                        tf.RaggedTensor.from_nested_row_splits(
                            values, levels, validate=False
                        )
                    )
            elif slot.kind == "one_hot":
                features[slot.name] = tf.one_hot(values, slot.size)
            elif slot.kind == "label":
                if slot.optional:
                    is_missing = tf.math.is_nan(values)
                    masks[slot.name] = tf.cast(~is_missing[:, 0], tf.float32)
                    values = tf.where(is_missing, 0.0, values)
                labels[slot.name] = _label(slot, values)
            elif slot.kind == "sample_weight":
                weight = values[:, 0]
            else:
                features[slot.name] = values
        if in_csr:
            features[CSR] = self._csr(in_csr)
        if not labels:
            return features
        elements: list[Any] = [labels]
        if masks or weight is not None:
            every = tf.ones_like(next(iter(labels.values()))[:, 0], tf.float32)
            if weight is not None:
                every = weight
            elements.append(
                {
                    name: every * masks[name] if name in masks else every
                    for name in labels
                }
            )
        if len(labels) == 1:
            elements = [next(iter(found.values())) for found in elements]
        return features, *elements

    def _csr(self, schema: list[LoDTensor]) -> dict[str, tf.Tensor]:
        offsets, values = to_csr(schema)
        if self._rows is not None:
            offsets = tf.ensure_shape(offsets, [self._rows * len(schema) + 1])
        return {"row_offsets": offsets, "values": values}


def _label(slot: Column, values: tf.Tensor) -> tf.Tensor:
    """Returns labels as float32, after checking that it holds them."""
    label = tf.cast(values, tf.float32)
    if slot.binary or slot.rounded or slot.dtype == "float":
        return label
    # The cast of a float beyond int64 is undefined.
    is_held = (label < 2.0**63) & (tf.cast(label, tf.int64) == values)
    wrong = tf.boolean_mask(values, ~is_held)
    message = (
        f"Labels of {slot.name!r} must be integers that float32 holds, got"
    )
    return after(assert_true(tf.reduce_all(is_held), [message, wrong]), label)


def dtype_of(slot: Column) -> tf.DType:
    """Returns the dtype of a column's values in flat tensors."""
    return tf.float32 if slot.dtype == "float" else tf.int64


def tensor_shape(slot: Column) -> list[int | None]:
    """Returns the shape of one example of a non-sparse column."""
    if not slot.is_feature:
        return [1]
    return [None if dim == -1 else dim for dim in slot.shape]


def limit(slot: Column) -> int:
    """Returns the exclusive upper bound of integer values; 0 means no limit."""
    return 2 if slot.kind == "label" and slot.binary else slot.size
