"""Keras layer that maps keys to ids."""

import os
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar._arguments import explained
from lodestar._checks import (
    after,
    assert_true,
    check_choice,
    check_count,
    check_unmasked,
)
from lodestar._typing import DTypePolicy, Shape, StrPath, TensorLike
from lodestar.embedding import ids as ids_lib
from lodestar.layers import id_encoding
from lodestar.layers.cloning import in_clone_scope
from lodestar.layers.table_layer import KeyLayer
from lodestar.lookup import IdTable, string_arrays
from lodestar.ops import id_table_ops
from lodestar.ops.flat_values import flat_values, map_flat
from lodestar.ops.input_casts import check_casts

# Where the ids of missing keys are.
OovIds: TypeAlias = Literal["first", "last"]
OutputMode: TypeAlias = Literal["int", "one_hot", "multi_hot", "count"]
VocabularyDtype: TypeAlias = Literal["string", "int64"]

# Arguments in the config.
_OPTIONS = (
    *("num_oov_indices", "mask_token", "oov_token", "oov_ids"),
    *("vocabulary_dtype", "invert", "output_mode", "max_tokens"),
    *("pad_to_max_tokens", "sparse"),
)


def _dtype_of(vocabulary: Any) -> VocabularyDtype:
    """Returns "int64" if the keys are integers, else "string"."""
    if vocabulary is None or isinstance(vocabulary, str | os.PathLike):
        return "string"
    if isinstance(vocabulary, (tf.Tensor, np.ndarray)):
        return "int64" if tf.as_dtype(vocabulary.dtype).is_integer else "string"
    first = next(iter(vocabulary), None)
    return "int64" if isinstance(first, (int, np.integer)) else "string"


def _as_bytes(token: str | bytes) -> bytes:
    # get_vocabulary() escapes bytes that are not UTF-8.
    if isinstance(token, str):
        return token.encode(errors="surrogateescape")
    return bytes(token)


def _as_keys(tokens: TensorLike, dtype: str) -> tf.Tensor:
    """Converts tokens of any kind to keys `[N]`."""
    if isinstance(tokens, tf.Tensor):
        tokens = tf.reshape(tokens, [-1])
        return tf.cast(tokens, tf.int64) if dtype == "int64" else tokens
    if dtype == "int64":
        return tf.constant(np.asarray(tokens, np.int64).reshape(-1))
    tokens = np.asarray(tokens, object).reshape(-1).tolist()
    return tf.constant([_as_bytes(t) for t in tokens], tf.string, [len(tokens)])


def _without_mask(ids: tf.Tensor) -> tf.Tensor:
    """Numbers ids from 0 without the mask token, which gets an id that is ignored."""
    return tf.where(ids > 0, ids - 1, tf.int64.max)


@keras.saving.register_keras_serializable(package="lodestar")
class IdLookup(KeyLayer):
    """Maps strings or integers to ids by a vocabulary, or back.

    Ids are numbered as in `keras.layers.StringLookup` and `IntegerLookup`: the
    mask token (if any) is 0, followed by the out-of-vocabulary (OOV) ids and the
    vocabulary. With `oov_ids="last"` OOV ids follow the vocabulary, as in
    `lodestar.lookup.IdTableWithHashBuckets` and TensorFlow.

    >>> IdLookup(["a", "b"])(tf.constant(["a", "b", "nobody"])).numpy().tolist()
    [1, 2, 0]
    >>> layer = IdLookup(["a", "b"], oov_ids="last")
    >>> layer(tf.constant(["a", "b", "nobody"])).numpy().tolist()
    [0, 1, 2]

    Input: strings or integers, dense, ragged or sparse. Output: int64 of the
    same shape and kind. With an `output_mode` other than "int": `[..., size]` in
    the layer's compute dtype, ignoring the mask token.

    The vocabulary is saved with the weights, in checkpoints, SavedModels and
    `.keras` files; it is not part of `get_config`.

    Args:
        vocabulary: Unique keys, optionally with the special tokens as in
            `get_vocabulary()`, as a list, array or tensor; or the path of a file
            with one key per line; or None, to call `adapt` or `set_vocabulary`
            later.
        num_oov_indices: Number of OOV ids. If it is more than 1, strings are
            assigned by `tf.strings.to_hash_bucket_fast` and integers by their
            remainder. If it is 0, an unknown key is an error.
        mask_token: The key with id 0, or None.
        oov_token: The key that `invert=True` returns for OOV ids; defaults to
            "[UNK]" or -1.
        oov_ids: "first" or "last": whether OOV ids precede or follow the
            vocabulary.
        vocabulary_dtype: "string" or "int64"; defaults to the dtype of
            `vocabulary`, or "string".
        invert: Whether to map ids to keys instead.
        output_mode: "int"; "one_hot", a 0/1 row per key; "multi_hot" or
            "count", a row per innermost axis that tells which keys it has, or
            how often.
        max_tokens: Maximum number of ids, special tokens included; `adapt`
            keeps the most frequent keys.
        pad_to_max_tokens: Whether encoded rows have `max_tokens` entries.
        sparse: Whether encoded rows are a SparseTensor.
        trainable: Unused; every Keras layer has it.
        dtype: Keras dtype policy of encoded rows.
        name: Name of the layer.

    Raises:
        ValueError: If an option is out of range, or the vocabulary is empty, too
            large, has duplicates or has a special token among its keys. In
            graphs, also if Keras converted the inputs; see DynamicEmbedding.
        tf.errors.OpError: If the vocabulary file cannot be read; see
            `IdTable.load_file`.
    """

    @explained()
    def __init__(
        self,
        vocabulary: TensorLike | StrPath | None = None,
        num_oov_indices: int = 1,
        mask_token: str | bytes | int | None = None,
        oov_token: str | bytes | int | None = None,
        *,
        oov_ids: OovIds = "first",
        vocabulary_dtype: VocabularyDtype | None = None,
        invert: bool = False,
        output_mode: OutputMode = "int",
        max_tokens: int | None = None,
        pad_to_max_tokens: bool = False,
        sparse: bool = False,
        trainable: bool = True,
        dtype: DTypePolicy | None = None,
        name: str | None = None,
    ):
        super().__init__(trainable=trainable, dtype=dtype, name=name)
        check_count("num_oov_indices", num_oov_indices, 0)
        check_choice("oov_ids", oov_ids, get_args(OovIds))
        check_choice("output_mode", output_mode, get_args(OutputMode))
        if invert and output_mode != "int":
            raise ValueError("`invert` needs `output_mode='int'`.")
        if sparse and output_mode == "int":
            raise ValueError(
                "`sparse` needs an `output_mode` other than 'int'."
            )
        if max_tokens is not None:
            check_count("max_tokens", max_tokens, 2)
        if pad_to_max_tokens and max_tokens is None:
            raise ValueError("`pad_to_max_tokens` needs `max_tokens`.")
        key_dtype = vocabulary_dtype or _dtype_of(vocabulary)
        check_choice("vocabulary_dtype", key_dtype, get_args(VocabularyDtype))
        self.num_oov_indices = int(num_oov_indices)
        self.oov_ids = oov_ids
        self.mask_token = mask_token
        default_oov = "[UNK]" if key_dtype == "string" else -1
        self.oov_token = default_oov if oov_token is None else oov_token
        self.vocabulary_dtype = key_dtype
        self.invert = bool(invert)
        self.output_mode = output_mode
        self.max_tokens = max_tokens
        self.pad_to_max_tokens = bool(pad_to_max_tokens)
        self.sparse = bool(sparse)
        # Length of encoded rows, once it has been used; None before that.
        self._row_size: int | None = None
        # Maps keys, including the mask token, to the ids that call() returns.
        self._table = IdTable([], key_dtype=key_dtype, name=self.name)
        self._keys: tf.Variable = None  # unless `invert`
        if self.invert:
            self._keys = tf.Variable(
                tf.zeros([0], key_dtype), shape=[None], trainable=False
            )
        self.built = True
        if vocabulary is not None:
            self.set_vocabulary(vocabulary)

    # The table numbers the mask token (if any), OOV ids and keys as in the output
    # mode "int". In the others the mask token has no id.

    @property
    def _first_key(self) -> int:
        has_mask = self.mask_token is not None
        return has_mask + (self.oov_ids == "first") * self.num_oov_indices

    @property
    def _special_tokens(self) -> tuple[list[Any], list[Any]]:
        """The tokens before and after the keys in `get_vocabulary()`."""
        has_mask = self.mask_token is not None and self.output_mode == "int"
        mask, oov = [self.mask_token] * has_mask, [self.oov_token]
        if self.oov_ids == "last":
            return mask, oov * self.num_oov_indices
        return mask + oov * self.num_oov_indices, []

    def _one_key(self, token: Any) -> tf.Tensor:
        return _as_keys([token], self.vocabulary_dtype)

    def set_vocabulary(self, vocabulary: TensorLike | StrPath) -> None:
        """Replaces the vocabulary.

        Args:
            vocabulary: As the argument of the layer.

        Raises:
            ValueError: If the vocabulary is empty or too large, repeats a key, or has
                a special token among its keys, or if its size changes the length
                of encoded rows.
            tf.errors.OpError: If the file cannot be read.
        """
        with tf.init_scope():
            if isinstance(vocabulary, str | os.PathLike):
                file_table = IdTable([], key_dtype=self.vocabulary_dtype)
                file_table.load_file(vocabulary)
                vocabulary = file_table.export()[0]
            self._set_keys(_as_keys(vocabulary, self.vocabulary_dtype))

    def _set_keys(self, keys: tf.Tensor) -> None:
        if len(keys) == 0:
            raise ValueError("`vocabulary` must not be empty.")
        head, tail = self._special_tokens
        special = _as_keys(head + tail, self.vocabulary_dtype)
        end = len(keys) - len(tail)
        if end >= len(head):
            ends = tf.concat([keys[: len(head)], keys[end:]], 0)
            if bool(tf.reduce_all(ends == special)):
                keys = keys[len(head) : end]
        self._refuse(keys, "mask_token", self.mask_token)
        if self.invert:
            self._refuse(keys, "oov_token", self.oov_token)
        size = len(special) + len(keys)
        if self.max_tokens is not None and size > self.max_tokens:
            raise ValueError(
                f"`vocabulary` has {size} ids with its special tokens, more than "
                f"`max_tokens`={self.max_tokens}."
            )
        if self.output_mode != "int" and not self.pad_to_max_tokens:
            if self._row_size not in (None, size):
                raise ValueError(
                    f"`vocabulary` must keep the {self._row_size} ids that the "
                    f"layer was first given, got {size}, because encoded rows "
                    "have one entry per id."
                )
            self._row_size = size
        ids = tf.range(len(keys), dtype=tf.int64) + self._first_key
        known = keys
        if self.mask_token is not None:
            known = tf.concat([keys, self._one_key(self.mask_token)], 0)
            ids = tf.concat([ids, [0]], 0)
        try:
            self._table.load(known, ids)
        except tf.errors.InvalidArgumentError:
            unique, _, number = tf.unique_with_counts(keys)
            repeated = tf.boolean_mask(unique, number > 1).numpy().tolist()
            raise ValueError(
                f"`vocabulary` has duplicates of {repeated[0]!r}."
            ) from None
        if self._keys is not None:
            self._keys.assign(keys)

    def _refuse(self, keys: tf.Tensor, option: str, token: Any) -> None:
        if token is None or not bool(
            tf.reduce_any(keys == self._one_key(token))
        ):
            return
        raise ValueError(
            f"`vocabulary` must not have the `{option}` {token!r} among its keys."
        )

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Learns the vocabulary: keys by descending count, then descending key.

        Special tokens are ignored. Replaces the previous vocabulary.

        Args:
            data: An array or tensor (dense, ragged or sparse), a list, or a
                `tf.data.Dataset` or other iterable of such batches.
            steps: Number of batches to read; defaults to all.
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
            raise ValueError("`data` has no keys.")
        order = np.lexsort((keys, number))[::-1]
        if self.max_tokens is not None:
            special = sum(map(len, self._special_tokens))
            order = order[: self.max_tokens - special]
        self.set_vocabulary(tf.constant(keys[order]))

    def _exported_keys(self) -> tf.Tensor:
        """Returns the keys in the order of their ids, without special tokens."""
        with tf.init_scope():
            keys, ids = self._table.export()
            if self.mask_token is None:
                return keys
            return tf.boolean_mask(keys, ids >= self._first_key)

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Returns the keys in the order of their ids.

        Bytes that are not UTF-8 are escaped with `surrogateescape`.
        """
        keys = self._exported_keys().numpy().tolist()
        if self.vocabulary_dtype == "string":
            keys = [key.decode(errors="surrogateescape") for key in keys]
        if not include_special_tokens:
            return keys
        head, tail = self._special_tokens
        return head + keys + tail

    def vocabulary_size(self) -> int:
        """Returns the number of ids."""
        with tf.init_scope():
            size = int(self._table.size())
        if size > 0 and self.mask_token is not None:
            size -= 1
        return size + sum(map(len, self._special_tokens))

    def call(self, inputs: Any) -> Any:
        if not isinstance(
            inputs, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)
        ):
            inputs = tf.convert_to_tensor(inputs)
        self._see(inputs)
        if _private.is_symbolic_build():
            # The vocabulary may not be loaded yet, and only the shape and dtype
            # of the result matter.
            dtype = self.vocabulary_dtype if self.invert else tf.int64
            ids = map_flat(lambda x: tf.zeros_like(x, dtype), inputs)
        else:
            self._check_vocabulary()
            if inputs.dtype.is_integer:
                inputs = check_casts(inputs, "inputs")
            if self.invert:
                return map_flat(self._keys_of, inputs)
            if self.vocabulary_dtype == "int64" and inputs.dtype.is_integer:
                inputs = tf.cast(inputs, tf.int64)
            keys = self._table.convert_keys(inputs)
            ids = map_flat(self._ids_of, keys)
        if self.output_mode == "int":
            return ids
        if self.mask_token is not None:
            ids = map_flat(_without_mask, ids)
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
            option="mask_token",
            padding=self.mask_token,
        )

    def _check_vocabulary(self) -> None:
        with tf.init_scope():
            if int(self._table.size()) > 0:
                return
        raise ValueError(
            f"{self.name} has no vocabulary. Pass `vocabulary`, or call "
            "adapt(). clone_model copies a vocabulary inside "
            "lodestar.layers.clone_scope(). To load a vocabulary with the "
            "weights of a model, build the model without data first: "
            "model(keras.Input(shape, dtype=...))"
        )

    def _row_length(self) -> int:
        size = self.max_tokens if self.pad_to_max_tokens else self._row_size
        if size is None:
            raise ValueError(
                f"{self.name} has no vocabulary, so the length of its rows is "
                "unknown. Pass `vocabulary`, call adapt() before the layer is "
                "used, or set `max_tokens` and `pad_to_max_tokens`."
            )
        return size

    def _ids_of(self, keys: tf.Tensor) -> tf.Tensor:
        handle, count = self._table.resource_handle, self.num_oov_indices
        first_oov = int(self.mask_token is not None)
        is_last = self.oov_ids == "last"
        is_hashed = count > 1 and self.vocabulary_dtype == "string"
        if is_hashed or (is_last and count == 1):
            return id_table_ops.find_or_hash(
                handle,
                keys,
                num_oov_buckets=count,
                hasher="fast",
                hasher_key=[],
                first_bucket=-1 if is_last else first_oov,
            )
        if count == 1:
            return id_table_ops.find(handle, keys, first_oov)
        ids = id_table_ops.find(handle, keys, -1)
        unknown = ids < 0
        if count > 1:
            first = id_table_ops.size(handle) if is_last else first_oov
            return tf.where(unknown, tf.math.floormod(keys, count) + first, ids)
        check = assert_true(
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

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Shape:
        """Returns the input's shape, plus the axis of encoded rows."""
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
                ids_lib.float_input_message(
                    inputs,
                    f"inputs of {self.name}",
                    "int64" if self.invert else self.vocabulary_dtype,
                )
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

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Saves the vocabulary; strings as their bytes and lengths."""
        keys = self._exported_keys().numpy()
        if self.vocabulary_dtype == "int64":
            store["vocabulary"] = keys
            return
        store["vocabulary"], store["lengths"] = string_arrays.to_arrays(keys)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Loads the output of `save_own_variables`.

        Raises:
            ValueError: If the vocabulary is absent or of another dtype, or is
                empty although the layer has one.
        """
        names = sorted(store.keys())
        if "vocabulary" not in names:
            raise ValueError(
                f"The file has no vocabulary for {self.name}: no `vocabulary` "
                f"among {names}."
            )
        saved_dtype = "string" if "lengths" in names else "int64"
        if saved_dtype != self.vocabulary_dtype:
            raise ValueError(
                f"The saved vocabulary has {saved_dtype} keys, but the "
                f"`vocabulary_dtype` of {self.name} is {self.vocabulary_dtype}."
            )
        keys = np.asarray(store["vocabulary"])
        if self.vocabulary_dtype == "string":
            keys = string_arrays.from_arrays(keys, np.asarray(store["lengths"]))
        if len(keys) > 0:
            self.set_vocabulary(keys)
        elif int(self._table.size()) > 0:
            raise ValueError(
                f"The saved vocabulary is empty, but {self.name} already has "
                f"{int(self._table.size())} keys."
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the config; the vocabulary is in it only in a `clone_scope`."""
        keys = self.get_vocabulary(False) if in_clone_scope() else []
        return {
            **({"vocabulary": keys} if keys else {}),
            **super().get_config(),
            **{name: getattr(self, name) for name in _OPTIONS},
            "vocabulary_size": self._row_size,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "IdLookup":
        """Creates a layer from the result of `get_config`."""
        config = dict(config)
        row_size = config.pop("vocabulary_size", None)
        layer = cls(**config)
        layer._row_size = row_size
        return layer
