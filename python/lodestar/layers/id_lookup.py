"""IdLookup: keys to ids as a Keras layer."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar._checks import after, check_count, check_unmasked
from lodestar._typing import Shape, TensorLike
from lodestar.embedding.ids import check_casts
from lodestar.layers import id_encoding
from lodestar.layers.seen_inputs import SeenInputs
from lodestar.layers.table_layer import scope_for
from lodestar.lookup import IdTable, text_arrays
from lodestar.ops import id_table_ops
from lodestar.ops.flat_values import flat_values, map_flat

_OUTPUT_MODES = ("int", "one_hot", "multi_hot", "count")


def _dtype_of(vocabulary: Any) -> str:
    """Returns "int64" if the keys are integers, else "string"."""
    if vocabulary is None or isinstance(vocabulary, str):
        return "string"
    if isinstance(vocabulary, (tf.Tensor, np.ndarray)):
        return "int64" if tf.as_dtype(vocabulary.dtype).is_integer else "string"
    first = next(iter(vocabulary), None)
    return "int64" if isinstance(first, (int, np.integer)) else "string"


def _as_bytes(token: str | bytes) -> bytes:
    # What get_vocabulary() returns for bytes that are no UTF-8 comes back.
    if isinstance(token, str):
        return token.encode(errors="surrogateescape")
    return bytes(token)


def _as_keys(tokens: TensorLike, dtype: str) -> tf.Tensor:
    """Returns tokens of any kind as keys `[N]`."""
    if isinstance(tokens, tf.Tensor):
        tokens = tf.reshape(tokens, [-1])
        return tf.cast(tokens, tf.int64) if dtype == "int64" else tokens
    if dtype == "int64":
        return tf.constant(np.asarray(tokens, np.int64).reshape(-1))
    tokens = np.asarray(tokens, object).reshape(-1).tolist()
    return tf.constant([_as_bytes(t) for t in tokens], tf.string, [len(tokens)])


@keras.saving.register_keras_serializable(package="lodestar")
class IdLookup(keras.layers.Layer):
    """Turns strings or integers into ids by a vocabulary, or ids back.

    The numbering is that of `keras.layers.StringLookup` and `IntegerLookup`: the
    mask token is 0 if there is one, the ids of unknown keys come next, the
    vocabulary last. (The buckets of `lodestar.lookup.IdTable` come last, as in
    TensorFlow.)

    >>> IdLookup(["a", "b"])(tf.constant(["a", "b", "nobody"])).numpy().tolist()
    [1, 2, 0]

    Input: strings or integers, dense, ragged or sparse. Output: int64 of that
    shape and kind; with another `output_mode` than "int" `[..., size]` of the
    layer's compute dtype, where the mask token counts for nothing.

    The vocabulary is saved as weights are, in checkpoints, SavedModels and
    `.keras` files; `get_config` does not hold it.

    Args:
        vocabulary: Keys, all different, with or without the special tokens
            before them; a list, array or tensor, or the path of a file with one
            key a line; or None, for `adapt` or `set_vocabulary`.
        num_oov_indices: Ids for unknown keys. With one, all get it; with more,
            strings are spread by `tf.strings.to_hash_bucket_fast` and integers
            by their remainder; with 0 an unknown key is an error.
        mask_token: The key with id 0, or None.
        oov_token: What `invert=True` gives for an unknown key's id; by default
            "[UNK]", or -1.
        vocabulary_dtype: "string" or "int64"; by default that of `vocabulary`,
            or "string".
        invert: Turns ids into keys instead.
        output_mode: "int", "one_hot", "multi_hot" or "count": a row of zeros
            and ones for each key, or for each last axis which keys it has, or
            how often.
        max_tokens: The most ids that there may be, special tokens included;
            `adapt` keeps the most frequent keys.
        pad_to_max_tokens: Makes the last axis of rows `max_tokens` long.
        sparse: Whether rows are a SparseTensor.
        **kwargs: As for every Keras layer.

    Raises:
        ValueError: an option out of range, or a vocabulary that is empty, too
            large, or has a key twice or a special token among its keys.
        tf.errors.OpError: a vocabulary file that cannot be read, as
            `IdTable.load_file` says.
    """

    def __init__(
        self,
        vocabulary: TensorLike | None = None,
        num_oov_indices: int = 1,
        mask_token: str | bytes | int | None = None,
        oov_token: str | bytes | int | None = None,
        *,
        vocabulary_dtype: str | None = None,
        invert: bool = False,
        output_mode: str = "int",
        max_tokens: int | None = None,
        pad_to_max_tokens: bool = False,
        sparse: bool = False,
        **kwargs: Any,
    ):
        vocabulary_size = kwargs.pop("vocabulary_size", None)
        kwargs.setdefault("autocast", False)
        super().__init__(**kwargs)
        check_count("num_oov_indices", num_oov_indices, 0)
        if output_mode not in _OUTPUT_MODES:
            raise ValueError(
                f"`output_mode` is {output_mode!r}, wanted one of "
                + ", ".join(_OUTPUT_MODES)
            )
        if invert and output_mode != "int":
            raise ValueError("`invert` goes with `output_mode='int'` only")
        if sparse and output_mode == "int":
            raise ValueError(
                "`sparse` goes with another `output_mode` than int"
            )
        if max_tokens is not None:
            check_count("max_tokens", max_tokens, 2)
        if pad_to_max_tokens and max_tokens is None:
            raise ValueError("`pad_to_max_tokens` needs `max_tokens`")
        if vocabulary_dtype is None:
            vocabulary_dtype = _dtype_of(vocabulary)
        if vocabulary_dtype not in ("string", "int64"):
            raise ValueError(
                f"`vocabulary_dtype` is {vocabulary_dtype!r}, wanted 'string' or "
                "'int64'"
            )
        self.num_oov_indices = int(num_oov_indices)
        self.mask_token = mask_token
        default_oov = "[UNK]" if vocabulary_dtype == "string" else -1
        self.oov_token = default_oov if oov_token is None else oov_token
        self.vocabulary_dtype = vocabulary_dtype
        self.invert = bool(invert)
        self.output_mode = output_mode
        self.max_tokens = max_tokens
        self.pad_to_max_tokens = bool(pad_to_max_tokens)
        self.sparse = bool(sparse)
        self.supports_jit = False
        self._seen = SeenInputs()
        # Of the rows that the layer's users were told of; None: not known yet.
        self._row_size = vocabulary_size
        # Keys, the mask token among them, to the ids that call() gives.
        self._table = IdTable([], key_dtype=vocabulary_dtype, name=self.name)
        self._keys: tf.Variable = None  # unless `invert`
        if self.invert:
            self._keys = tf.Variable(
                tf.zeros([0], vocabulary_dtype), shape=[None], trainable=False
            )
        self.built = True
        if vocabulary is not None:
            self.set_vocabulary(vocabulary)

    @property
    def _first_oov(self) -> int:
        has_mask_id = self.mask_token is not None and self.output_mode == "int"
        return int(has_mask_id)

    @property
    def _first_key(self) -> int:
        return self._first_oov + self.num_oov_indices

    def _one_key(self, token: Any) -> tf.Tensor:
        return _as_keys([token], self.vocabulary_dtype)

    def set_vocabulary(self, vocabulary: TensorLike) -> None:
        """Takes a vocabulary in place of the one there is.

        Args:
            vocabulary: As the layer's argument.

        Raises:
            ValueError: no key, too many, a key twice, or a special token among
                them; another number of keys than before, where rows have one
                number for each.
            tf.errors.OpError: a file that cannot be read.
        """
        with tf.init_scope():
            if isinstance(vocabulary, str):
                file_table = IdTable([], key_dtype=self.vocabulary_dtype)
                file_table.load_file(vocabulary)
                vocabulary = file_table.export()[0]
            self._set_keys(_as_keys(vocabulary, self.vocabulary_dtype))

    def _set_keys(self, keys: tf.Tensor) -> None:
        if len(keys) == 0:
            raise ValueError("`vocabulary` is empty")
        special = [self.mask_token] * self._first_oov
        special = _as_keys(
            special + [self.oov_token] * self.num_oov_indices,
            self.vocabulary_dtype,
        )
        head = keys[: len(special)]
        if len(head) == len(special) and bool(tf.reduce_all(head == special)):
            keys = keys[len(special) :]
        self._refuse(keys, "mask_token", self.mask_token)
        if self.invert:
            self._refuse(keys, "oov_token", self.oov_token)
        size = self._first_key + len(keys)
        if self.max_tokens is not None and size > self.max_tokens:
            raise ValueError(
                f"`vocabulary` makes {size} ids, but `max_tokens` is "
                f"{self.max_tokens}"
            )
        if self.output_mode != "int" and not self.pad_to_max_tokens:
            if self._row_size not in (None, size):
                raise ValueError(
                    f"`vocabulary` makes {size} ids, but rows have "
                    f"{self._row_size} numbers since the layer was first given "
                    "one"
                )
            self._row_size = size
        ids = tf.range(self._first_key, size, dtype=tf.int64)
        if self.mask_token is not None:
            mask_id = 0 if self.output_mode == "int" else tf.int64.max
            keys = tf.concat([keys, self._one_key(self.mask_token)], 0)
            ids = tf.concat([ids, [mask_id]], 0)
        try:
            self._table.load(keys, ids)
        except tf.errors.InvalidArgumentError:
            unique, _, number = tf.unique_with_counts(keys)
            repeated = tf.boolean_mask(unique, number > 1).numpy().tolist()
            raise ValueError(
                f"`vocabulary` holds {repeated[0]!r} more than once"
            ) from None
        if self._keys is not None:
            self._keys.assign(keys[: size - self._first_key])

    def _refuse(self, keys: tf.Tensor, option: str, token: Any) -> None:
        if token is None or not bool(
            tf.reduce_any(keys == self._one_key(token))
        ):
            return
        raise ValueError(
            f"`vocabulary` holds the `{option}` {token!r} among its keys"
        )

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Learns the vocabulary: keys by falling count, then falling key.

        Special tokens are passed over. What was learned before is forgotten.

        Args:
            data: An array or tensor, dense, ragged or sparse; a list; a
                `tf.data.Dataset` or another iterable of such batches.
            steps: Batches to read; all by default.
        """
        batches: Iterable[Any] = [data]
        if isinstance(data, tf.data.Dataset) or (
            isinstance(data, Iterable)
            and not tf.is_tensor(data)
            and not isinstance(data, (list, tuple, np.ndarray))
        ):
            batches = data
        counts = IdTable(
            [], key_dtype=self.vocabulary_dtype, default_value=0, mutable=True
        )
        for step, batch in enumerate(batches):
            if steps is not None and step == steps:
                break
            check_unmasked("data", batch)
            keys = _as_keys(flat_values(batch), self.vocabulary_dtype)
            keys, _, number = tf.unique_with_counts(keys, tf.int64)
            counts.insert(keys, counts.lookup(keys) + number)
        for token in (self.mask_token, self.oov_token):
            if token is not None:
                counts.remove(self._one_key(token))
        keys, number = (x.numpy() for x in counts.export())
        if len(keys) == 0:
            raise ValueError("`data` holds no key to learn")
        order = np.lexsort((keys, number))[::-1]
        if self.max_tokens is not None:
            order = order[: self.max_tokens - self._first_key]
        self.set_vocabulary(tf.constant(keys[order]))

    def _exported_keys(self) -> tf.Tensor:
        """Returns the keys in the order of their ids, no special tokens."""
        with tf.init_scope():
            keys, ids = self._table.export()
            if self.mask_token is None:
                return keys
            # The mask token's id is below all others, or above them.
            mask = tf.logical_or(ids < self._first_key, ids == tf.int64.max)
            return tf.boolean_mask(keys, tf.logical_not(mask))

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Returns the keys in the order of their ids.

        Bytes that are no UTF-8 are escaped as by `surrogateescape`.
        """
        keys = self._exported_keys().numpy().tolist()
        if self.vocabulary_dtype == "string":
            keys = [key.decode(errors="surrogateescape") for key in keys]
        if not include_special_tokens:
            return keys
        special = [self.mask_token] * self._first_oov
        return special + [self.oov_token] * self.num_oov_indices + keys

    def vocabulary_size(self) -> int:
        """Returns the number of ids."""
        with tf.init_scope():
            size = int(self._table.size())
        if size > 0 and self.mask_token is not None:
            size -= 1
        return self._first_key + size

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer, before which Keras drops the mask of masked arrays."""
        check_unmasked("inputs", inputs)
        with scope_for(self.name):
            return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: Any) -> Any:
        if not isinstance(
            inputs, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)
        ):
            inputs = tf.convert_to_tensor(inputs)
        self._see(inputs)
        if _private.is_symbolic_build():
            # Before weights are loaded there is no vocabulary to look up in,
            # and none is needed: all but the values of the result is known.
            ids = map_flat(self._unknown, inputs)
        else:
            self._check_vocabulary()
            if self.invert:
                return map_flat(self._keys_of, inputs)
            if self.vocabulary_dtype == "int64" and inputs.dtype.is_integer:
                inputs = tf.cast(check_casts(inputs, "inputs"), tf.int64)
            keys = self._table.convert_keys(inputs)
            ids = map_flat(self._ids_of, keys)
        if self.output_mode == "int":
            return ids
        return id_encoding.encode(
            ids,
            self.output_mode,
            self._row_length(),
            dtype=self.compute_dtype,
            sparse=self.sparse,
        )

    def _see(self, inputs: Any) -> None:
        self._seen.see(
            f"`inputs` of the layer '{self.name}'",
            inputs,
            padding=self.mask_token is not None,
        )

    def _check_vocabulary(self) -> None:
        with tf.init_scope():
            if int(self._table.size()) > 0:
                return
        raise ValueError(
            f"{self.name} has no vocabulary. Pass `vocabulary`, or call "
            "adapt(). To load a vocabulary with the weights of a model, build "
            "the model without data first: model(keras.Input(shape, dtype=...))"
        )

    def _unknown(self, inputs: tf.Tensor) -> tf.Tensor:
        dtype = self.vocabulary_dtype if self.invert else tf.int64
        return tf.zeros_like(inputs, dtype)

    def _row_length(self) -> int:
        size = self.max_tokens if self.pad_to_max_tokens else self._row_size
        if size is None:
            raise ValueError(
                f"{self.name} has no vocabulary, so the size of its rows is not "
                "known. Pass `vocabulary`, call adapt() before the layer is "
                "used, or set `max_tokens` and `pad_to_max_tokens`"
            )
        return size

    def _ids_of(self, keys: tf.Tensor) -> tf.Tensor:
        if self.num_oov_indices == 1:
            return self._table.lookup(keys, self._first_oov)
        if self.num_oov_indices > 1 and self.vocabulary_dtype == "string":
            return id_table_ops.find_or_hash(
                self._table.resource_handle,
                keys,
                num_oov_buckets=self.num_oov_indices,
                hasher="fasthash",
                hasher_key=[],
                first_bucket=self._first_oov,
            )
        ids = self._table.lookup(keys, -1)
        unknown = ids < 0
        if self.num_oov_indices > 1:
            oov = tf.math.floormod(keys, self.num_oov_indices) + self._first_oov
            return tf.where(unknown, oov, ids)
        check = tf.debugging.Assert(
            tf.logical_not(tf.reduce_any(unknown)),
            [
                f"{self.name}: `num_oov_indices` is 0, and these keys are not "
                "in the vocabulary: ",
                tf.boolean_mask(keys, unknown),
            ],
        )
        return after(check, ids)

    def _keys_of(self, ids: tf.Tensor) -> tf.Tensor:
        keys = self._keys.value()
        places = tf.cast(ids, tf.int64) - self._first_key
        inside = tf.logical_and(
            places >= 0, places < tf.size(keys, out_type=tf.int64)
        )
        found = tf.gather(keys, tf.where(inside, places, 0))
        found = tf.where(inside, found, self._one_key(self.oov_token)[0])
        if self.mask_token is None:
            return found
        mask = self._one_key(self.mask_token)[0]
        return tf.where(tf.equal(ids, 0), mask, found)

    def compute_output_shape(self, input_shape: Any) -> Shape:
        """Returns the input's shape, with the rows' axis if ids are encoded."""
        input_shape = tuple(input_shape)
        if self.output_mode == "int":
            return input_shape
        return id_encoding.encoded_shape(
            input_shape, self.output_mode, self._row_length()
        )

    def compute_output_spec(
        self, inputs: keras.KerasTensor
    ) -> keras.KerasTensor:
        if keras.backend.is_float_dtype(inputs.dtype):
            raise TypeError(
                f"{self.name} takes strings or integers, but its input has "
                f"dtype {inputs.dtype}. Give the input a dtype: "
                "keras.Input(shape, dtype='string')"
            )
        self._see(inputs)
        dtype = "int64" if self.output_mode == "int" else self.compute_dtype
        if self.invert:
            dtype = self.vocabulary_dtype
        options = {}
        if self.output_mode != "int":
            options["sparse"] = self.sparse
        elif getattr(inputs, "ragged", False):
            options["ragged"] = True
        elif getattr(inputs, "sparse", False):
            options["sparse"] = True
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=dtype, **options
        )

    def save_own_variables(self, store: Any) -> None:
        """Saves the vocabulary, as bytes and lengths where keys are strings."""
        keys = self._exported_keys().numpy()
        if self.vocabulary_dtype == "int64":
            store["vocabulary"] = keys
            return
        store["vocabulary"], store["lengths"] = text_arrays.to_arrays(keys)

    def load_own_variables(self, store: Any) -> None:
        """Loads what `save_own_variables` saved.

        Raises:
            ValueError: nothing was saved, or keys of the other dtype, or none
                for a layer that has a vocabulary.
        """
        names = sorted(store.keys())
        if "vocabulary" not in names:
            raise ValueError(
                f"There is no saved vocabulary for {self.name}: no "
                f"`vocabulary` among {names}"
            )
        saved_dtype = "string" if "lengths" in names else "int64"
        if saved_dtype != self.vocabulary_dtype:
            raise ValueError(
                f"The saved vocabulary has {saved_dtype} keys, but {self.name} "
                f"is to take it, whose `vocabulary_dtype` is "
                f"{self.vocabulary_dtype}"
            )
        keys = np.asarray(store["vocabulary"])
        if self.vocabulary_dtype == "string":
            keys = text_arrays.from_arrays(keys, np.asarray(store["lengths"]))
        if len(keys) > 0:
            self.set_vocabulary(keys)
        elif int(self._table.size()) > 0:
            raise ValueError(
                f"The saved vocabulary is empty, but {self.name} has one of "
                f"{int(self._table.size())} keys"
            )

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` needs; the vocabulary is saved apart."""
        keys = self.get_vocabulary(False) if _private.is_cloning() else []
        return {
            **({"vocabulary": keys} if keys else {}),
            **super().get_config(),
            "num_oov_indices": self.num_oov_indices,
            "mask_token": self.mask_token,
            "oov_token": self.oov_token,
            "vocabulary_dtype": self.vocabulary_dtype,
            "invert": self.invert,
            "output_mode": self.output_mode,
            "max_tokens": self.max_tokens,
            "pad_to_max_tokens": self.pad_to_max_tokens,
            "sparse": self.sparse,
            "vocabulary_size": self._row_size,
        }
