"""IdLookup: keys to ids as a Keras layer."""

import keras
import numpy as np
import tensorflow as tf

from lodestar.lookup import IdTable
from lodestar.ops import id_table_ops

_OUTPUT_MODES = ("int", "one_hot", "multi_hot", "count")


def _dtype_of(vocabulary) -> str:
    first = None
    if vocabulary is not None and len(vocabulary) > 0:
        first = vocabulary[0]
    is_integer = isinstance(first, (int, np.integer)) or (
        isinstance(first, tf.Tensor) and first.dtype.is_integer
    )
    return "int64" if is_integer else "string"


def _as_array(tokens, dtype: str) -> np.ndarray:
    if isinstance(tokens, tf.Tensor):
        tokens = tokens.numpy()
    if dtype == "int64":
        return np.asarray(tokens, np.int64).reshape(-1)
    tokens = np.asarray(tokens, object).reshape(-1)
    return np.array(
        [t.encode() if isinstance(t, str) else bytes(t) for t in tokens], object
    )


@keras.saving.register_keras_serializable(package="lodestar")
class IdLookup(keras.layers.Layer):
    """Turns strings or integers into ids by a vocabulary, or ids back.

    The numbering is that of `keras.layers.StringLookup` and `IntegerLookup`: the
    mask token is 0 if there is one, the ids of unknown keys come next, the
    vocabulary last. (In `lodestar.lookup.IdTableWithHashBuckets` unknown keys
    come last, as in TensorFlow.)

    Input: strings or integers, dense, ragged or sparse. Output: int64 of that
    shape; with another `output_mode` than "int" float32 `[..., size]`.

    Args:
      vocabulary: Keys, all different; an array, list, or the path of a file with
        one key a line; or None, for `adapt` or `set_vocabulary`.
      num_oov_indices: Ids for unknown keys. With one, all get it; with more,
        strings are spread by `tf.strings.to_hash_bucket_fast` and integers by
        their remainder; with 0 an unknown key is an error.
      mask_token: The key with id 0, or None.
      oov_token: What `invert=True` gives for an unknown key's id; by default
        "[UNK]", or -1.
      vocabulary_dtype: "string" or "int64"; by default that of `vocabulary`,
        or "string".
      invert: Turns ids into keys instead.
      output_mode: "int", "one_hot", "multi_hot" or "count", as Keras's
        `CategoryEncoding`.
      **kwargs: As for every Keras layer.

    Raises:
      ValueError: an option out of range, or a vocabulary with repeated keys or
        with the mask token.
    """

    def __init__(
        self,
        vocabulary=None,
        num_oov_indices: int = 1,
        mask_token=None,
        oov_token=None,
        *,
        vocabulary_dtype: str | None = None,
        invert: bool = False,
        output_mode: str = "int",
        **kwargs,
    ):
        kwargs.setdefault("autocast", False)
        super().__init__(**kwargs)
        if num_oov_indices < 0:
            raise ValueError(
                f"`num_oov_indices` is {num_oov_indices}, wanted 0 or more"
            )
        if output_mode not in _OUTPUT_MODES:
            raise ValueError(
                f"`output_mode` is {output_mode!r}, wanted one of "
                + ", ".join(_OUTPUT_MODES)
            )
        if invert and output_mode != "int":
            raise ValueError("`invert` goes with `output_mode='int'` only")
        if isinstance(vocabulary, str):
            with tf.io.gfile.GFile(vocabulary) as file:
                vocabulary = file.read().splitlines()
            if vocabulary_dtype == "int64":
                vocabulary = [int(line) for line in vocabulary]
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
        self.supports_jit = False
        self._tokens = None
        self._counts = None
        # Its ids are relative: the vocabulary from 0, then the mask token.
        self._table = IdTable([], key_dtype=vocabulary_dtype, name=self.name)
        self.built = True
        if vocabulary is not None:
            self.set_vocabulary(vocabulary)

    @property
    def _offset(self) -> int:
        return (self.mask_token is not None) + self.num_oov_indices

    def set_vocabulary(self, vocabulary) -> None:
        """Takes a vocabulary in place of the one there is.

        Raises:
          ValueError: repeated keys, or the mask token among them.
        """
        tokens = _as_array(vocabulary, self.vocabulary_dtype)
        unique, counts = np.unique(tokens, return_counts=True)
        if (counts > 1).any():
            raise ValueError(
                f"`vocabulary` holds {unique[counts > 1][0]!r} more than once"
            )
        keys = tokens
        if self.mask_token is not None:
            mask = _as_array([self.mask_token], self.vocabulary_dtype)
            if mask[0] in set(tokens.tolist()):
                raise ValueError(
                    f"`vocabulary` holds the mask token {self.mask_token!r}"
                )
            keys = np.concatenate([tokens, mask])
        self._tokens = tokens
        with tf.init_scope():
            self._table.import_(
                tf.constant(keys.tolist(), self.vocabulary_dtype, [len(keys)]),
                tf.range(len(keys), dtype=tf.int64),
            )

    def adapt(self, data, batch_size: int | None = None, steps=None) -> None:
        """Learns the vocabulary: keys by falling count, then falling key.

        Args:
          data: An array, tensor, or `tf.data.Dataset` of inputs.
          batch_size: Not needed; accepted because Keras's layers do.
          steps: Batches of a dataset to read; all by default.
        """
        del batch_size
        counts: dict = {}
        batches = data if isinstance(data, tf.data.Dataset) else [data]
        for step, batch in enumerate(batches):
            if steps is not None and step == steps:
                break
            if isinstance(batch, tf.RaggedTensor):
                batch = batch.flat_values
            elif isinstance(batch, tf.SparseTensor):
                batch = batch.values
            keys, number = np.unique(
                _as_array(batch, self.vocabulary_dtype), return_counts=True
            )
            for key, count in zip(keys.tolist(), number.tolist(), strict=True):
                counts[key] = counts.get(key, 0) + count
        if self.mask_token is not None:
            counts.pop(
                _as_array([self.mask_token], self.vocabulary_dtype)[0], None
            )
        order = sorted(counts, key=lambda key: (counts[key], key), reverse=True)
        self.set_vocabulary(order)

    def get_vocabulary(self, include_special_tokens: bool = True) -> list:
        """Returns the keys in the order of their ids."""
        tokens = [] if self._tokens is None else self._tokens.tolist()
        if self.vocabulary_dtype == "string":
            tokens = [t.decode(errors="surrogateescape") for t in tokens]
        if not include_special_tokens:
            return tokens
        special = [] if self.mask_token is None else [self.mask_token]
        return special + [self.oov_token] * self.num_oov_indices + tokens

    def vocabulary_size(self) -> int:
        """Returns the number of ids."""
        return self._offset + (0 if self._tokens is None else len(self._tokens))

    def call(self, inputs):
        """Looks `inputs` up."""
        if self._tokens is None:
            raise ValueError(
                f"{self.name} has no vocabulary: pass one, or call adapt()"
            )
        if self.invert:
            return id_table_ops.map_flat(inputs, self._keys_of)
        if not isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)):
            inputs = tf.convert_to_tensor(inputs)
        if self.vocabulary_dtype == "int64" and inputs.dtype.is_integer:
            inputs = tf.cast(inputs, tf.int64)
        keys = self._table.convert_keys(inputs)
        ids = id_table_ops.map_flat(keys, self._ids_of)
        if self.output_mode == "int":
            return ids
        return keras.layers.CategoryEncoding(
            self.vocabulary_size(), output_mode=self.output_mode
        )(ids)

    def _ids_of(self, keys: tf.Tensor) -> tf.Tensor:
        vocabulary = len(self._tokens)
        first_oov = int(self.mask_token is not None)
        if self.num_oov_indices > 1 and self.vocabulary_dtype == "string":
            found = id_table_ops.find_or_hash(
                self._table.resource_handle,
                keys,
                num_oov_buckets=self.num_oov_indices,
                hasher="fasthash",
                hasher_key=[],
            )
            oov = found - vocabulary - first_oov
            unknown = oov >= 0
        else:
            found = self._table.lookup(keys)
            unknown = found < 0
            oov = tf.zeros_like(found)
            if self.num_oov_indices > 1:
                oov = tf.math.floormod(keys, self.num_oov_indices)
            elif self.num_oov_indices == 0:
                check = tf.debugging.Assert(
                    tf.logical_not(tf.reduce_any(unknown)),
                    [
                        f"{self.name}: `num_oov_indices` is 0, and these keys "
                        "are not in the vocabulary: ",
                        tf.boolean_mask(keys, unknown),
                    ],
                )
                with tf.control_dependencies([] if check is None else [check]):
                    unknown = tf.identity(unknown)
        ids = tf.where(unknown, oov + first_oov, found + self._offset)
        # The mask token's relative id is the vocabulary's size.
        return tf.where(
            tf.logical_and(
                tf.logical_not(unknown), tf.equal(found, vocabulary)
            ),
            tf.zeros_like(ids),
            ids,
        )

    def _keys_of(self, ids: tf.Tensor) -> tf.Tensor:
        keys = self.get_vocabulary()
        if self.vocabulary_dtype == "string":
            keys = [
                k.encode(errors="surrogateescape") if isinstance(k, str) else k
                for k in keys
            ]
        # One more than the ids there are: what an unknown id reads.
        keys = tf.constant([*keys, self.oov_token], self.vocabulary_dtype)
        ids = tf.cast(ids, tf.int64)
        size = self.vocabulary_size()
        inside = tf.logical_and(ids >= 0, ids < size)
        return tf.gather(keys, tf.where(inside, ids, size))

    def compute_output_shape(self, input_shape):
        """Returns the input's shape, with the ids' axis if they are encoded."""
        if self.output_mode == "int":
            return tuple(input_shape)
        size = self.vocabulary_size()
        if self.output_mode == "one_hot":
            shape = tuple(input_shape)
            return (*(shape[:-1] if shape[-1:] == (1,) else shape), size)
        return (*tuple(input_shape)[:-1], size)

    def compute_output_spec(self, inputs):
        """Returns the symbolic output of a symbolic input."""
        dtype = "int64" if self.output_mode == "int" else self.compute_dtype
        if self.invert:
            dtype = self.vocabulary_dtype
        options = {}
        if getattr(inputs, "ragged", False) and self.output_mode == "int":
            options["ragged"] = True
        if getattr(inputs, "sparse", False) and self.output_mode == "int":
            options["sparse"] = True
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=dtype, **options
        )

    def save_own_variables(self, store):
        """Saves the vocabulary, as bytes and lengths where keys are strings."""
        if self._tokens is None:
            return
        if self.vocabulary_dtype == "int64":
            store["vocabulary"] = self._tokens
            return
        joined = b"".join(self._tokens.tolist())
        store["vocabulary"] = np.frombuffer(joined, np.uint8)
        store["lengths"] = np.array([len(t) for t in self._tokens], np.int64)

    def load_own_variables(self, store):
        """Loads what `save_own_variables` saved."""
        if "vocabulary" not in store:
            return
        saved = np.asarray(store["vocabulary"])
        if self.vocabulary_dtype == "string":
            joined = saved.tobytes()
            ends = np.cumsum(np.asarray(store["lengths"]))
            saved = [
                joined[begin:end]
                for begin, end in zip([0, *ends[:-1]], ends, strict=True)
            ] if len(ends) else []
        self.set_vocabulary(saved)

    def get_config(self):
        """Returns what `from_config` needs; the vocabulary is saved apart."""
        return {
            **super().get_config(),
            "num_oov_indices": self.num_oov_indices,
            "mask_token": self.mask_token,
            "oov_token": self.oov_token,
            "vocabulary_dtype": self.vocabulary_dtype,
            "invert": self.invert,
            "output_mode": self.output_mode,
        }
