"""IdTable: keys to int64 ids."""

import uuid

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops import id_table_ops

_KEY_DTYPES = (tf.string, tf.int64, tf.int32)


def _is_initializer(keys) -> bool:
    return isinstance(
        keys,
        (tf.lookup.KeyValueTensorInitializer, tf.lookup.TextFileInitializer),
    )


def _contents(keys, values, key_dtype):
    """Returns keys `[N]` and int64 values `[N]`, eager where they can be."""
    if _is_initializer(keys):
        if values is not None:
            raise ValueError("`values` come with the initializer in `keys`")
        if keys.value_dtype != tf.int64:
            raise TypeError(
                f"the initializer's values are {keys.value_dtype.name}, wanted "
                "int64"
            )
        # Anonymous: a named one would be that of an older read of the same file.
        keys, values = tf.lookup.StaticHashTable(
            keys, -1, experimental_is_anonymous=True
        ).export()
    keys = tf.convert_to_tensor(keys, dtype_hint=key_dtype)
    if key_dtype is not None and keys.dtype != key_dtype:
        if keys.dtype.is_integer and tf.as_dtype(key_dtype).is_integer:
            keys = tf.cast(keys, key_dtype)
        elif keys.shape.num_elements() == 0:
            keys = tf.zeros([0], key_dtype)
        else:
            raise TypeError(
                f"`keys` have dtype {keys.dtype.name}, but `key_dtype` is "
                f"{tf.as_dtype(key_dtype).name}"
            )
    if keys.dtype not in _KEY_DTYPES:
        raise TypeError(
            f"`keys` have dtype {keys.dtype.name}, wanted string, int64 or int32"
        )
    if keys.shape.rank != 1:
        raise ValueError(f"`keys` must have rank 1, found shape {keys.shape}")
    if values is None:
        values = tf.range(tf.size(keys, out_type=tf.int64))
    values = tf.cast(tf.convert_to_tensor(values), tf.int64)
    if not values.shape.is_compatible_with(keys.shape):
        raise ValueError(
            f"`keys` have shape {keys.shape}, but `values` {values.shape}"
        )
    return keys, values


class IdTable(tf.saved_model.experimental.TrackableResource):
    """A table of string or integer keys to int64 ids.

    >>> table = IdTable(["emerson", "lake", "palmer"])
    >>> table.lookup(tf.constant(["lake", "nobody"])).numpy().tolist()
    [1, -1]

    The handle is that of a TensorFlow lookup table, so `tf.raw_ops.LookupTable*`
    take it. The content is saved with checkpoints and SavedModels. A mutable
    table may be read and written by any number of threads at once.

    Args:
      keys: `[N]` string, int64 or int32; or a `tf.lookup` initializer with int64
        values.
      values: `[N]` integers, or None to number the keys 0, 1, 2, ...
      default_value: The id of a key that is not there.
      key_dtype: The dtype of keys; by default that of `keys`.
      mutable: Whether `insert` and `remove` are allowed.
      name: A name; the resource's own name is unique in any case.

    Raises:
      TypeError: keys of another dtype, or values of an initializer that are not
        int64.
      ValueError: keys that are no vector; values of another number.
      tf.errors.InvalidArgumentError: a key with two values (names the key).
    """

    def __init__(
        self,
        keys,
        values=None,
        *,
        default_value: int = -1,
        key_dtype=None,
        mutable: bool = False,
        name: str | None = None,
    ):
        super().__init__()
        with tf.init_scope():
            keys, values = _contents(keys, values, key_dtype)
            self._name = name or "id_table"
            self._shared_name = f"{self._name}_{uuid.uuid4().hex}"
            self._key_dtype = keys.dtype
            self._default_value = int(default_value)
            self._mutable = bool(mutable)
            self.import_(keys, values)

    # What TensorFlow calls to make, drop, save and restore the resource; all
    # are traced into a SavedModel, so that it loads without this class.

    def _create_resource(self):
        return gen_ops.lodestar_id_table(
            shared_name=self._shared_name,
            key_dtype=self._key_dtype,
            mutable=self._mutable,
        )

    def _initialize(self):
        pass

    def _destroy_resource(self):
        tf.raw_ops.DestroyResourceOp(
            resource=self.resource_handle, ignore_lookup_error=True
        )

    def _serialize_to_tensors(self):
        keys, values = self.export()
        return {"keys": keys, "values": values}

    def _restore_from_tensors(self, restored):
        return self.import_(restored["keys"], restored["values"])

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    @property
    def key_dtype(self) -> tf.DType:
        """The dtype of keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> tf.DType:
        """int64."""
        return tf.int64

    @property
    def default_value(self) -> int:
        """The id of a key that is not there."""
        return self._default_value

    @property
    def mutable(self) -> bool:
        """Whether `insert` and `remove` are allowed."""
        return self._mutable

    def convert_keys(self, keys):
        """Returns `keys` as tensors of the table's key dtype.

        Raises:
          TypeError: keys of another kind.
        """
        if not isinstance(keys, (tf.RaggedTensor, tf.SparseTensor)):
            keys = tf.convert_to_tensor(keys, dtype_hint=self._key_dtype)
        if keys.dtype == self._key_dtype:
            return keys
        if keys.dtype == tf.int32 and self._key_dtype == tf.int64:
            return tf.cast(keys, tf.int64)
        raise TypeError(
            f"`keys` have dtype {keys.dtype.name}, but the keys of table "
            f"'{self._name}' are {self._key_dtype.name}"
        )

    def lookup(self, keys, default_value: int | None = None):
        """Returns the ids of keys.

        Args:
          keys: Dense of any rank, ragged of any depth, or sparse.
          default_value: In place of the table's.

        Returns:
          int64 ids of the same kind and shape.
        """
        if default_value is None:
            default_value = self._default_value
        return id_table_ops.find(
            self.resource_handle, self.convert_keys(keys), default_value
        )

    def __getitem__(self, keys):
        """Returns `lookup(keys)`."""
        return self.lookup(keys)

    def insert(self, keys, values):
        """Adds keys, or gives them other ids; the last of equal keys wins.

        Args:
          keys: Any shape.
          values: Integers of that shape.

        Raises:
          tf.errors.FailedPreconditionError: the table is not mutable.
          tf.errors.InvalidArgumentError: shapes that differ.
        """
        return gen_ops.lodestar_id_table_insert(
            handle=self.resource_handle,
            keys=self.convert_keys(keys),
            values=tf.cast(values, tf.int64),
        )

    def remove(self, keys):
        """Removes keys; those that are not there are passed over.

        Raises:
          tf.errors.FailedPreconditionError: the table is not mutable.
        """
        return gen_ops.lodestar_id_table_remove(
            handle=self.resource_handle, keys=self.convert_keys(keys)
        )

    def import_(self, keys, values):
        """Makes these keys all that the table holds.

        Raises:
          tf.errors.InvalidArgumentError: a key with two values (names the key);
            the table is as before.
        """
        return gen_ops.lodestar_id_table_import(
            handle=self.resource_handle,
            keys=self.convert_keys(keys),
            values=tf.cast(values, tf.int64),
        )

    def export(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns keys `[N]` and ids `[N]`, in ascending order of ids."""
        return gen_ops.lodestar_id_table_export(
            handle=self.resource_handle, Tkeys=self._key_dtype
        )

    def size(self) -> tf.Tensor:
        """Returns the number of keys, an int64 scalar."""
        return gen_ops.lodestar_id_table_size(handle=self.resource_handle)
