"""Writes requests that TensorFlow Serving runs when it loads a model."""

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_text
from lodestar._errors import describe_error
from lodestar._files import Temporary
from lodestar._typing import StrPath
from lodestar.export import features_json

# Path and limit of TensorFlow Serving.
_FILE = ("assets.extra", "tf_serving_warmup_requests")
_MAX_REQUESTS = 1000


@explained()
def write_warm_up(
    path: StrPath,
    examples: Iterable[Mapping[str, Any]],
    *,
    signature: str = "serving_default",
    model_name: str | None = None,
) -> str:
    """Adds warm-up requests to an exported folder.

    TensorFlow Serving runs them when it loads the model, so that the first call
    does not wait for TensorFlow's initialization. Write them again after every
    export to the folder.

    >>> lodestar.serving.write_warm_up("served", [{"ids_values": [1, 2, 3],
    ...                                            "ids_row_splits": [0, 2, 3]}])

    Args:
        path: Path to a folder of `export.save` or `export.save_plain`.
        examples: 1 to 1000 requests. Each maps the arguments of
            `loaded.signatures[signature]` to dense tensors, arrays or lists.
            Tensors and arrays must have the argument's dtype.
        signature: Name of the signature to call.
        model_name: Name of the model in the server, if the server requires it.

    Returns:
        Path to the file, TFRecords of PredictionLog.

    Raises:
        ValueError: The folder has no such signature; a request has other
            arguments, or one that is ragged, sparse, or of another dtype or
            shape (names it); there are not 1 to 1000 requests; or `model_name`
            is not a string.
        FileNotFoundError: The folder does not exist, or has no export.
        TypeError: `examples` is a mapping, or a request is not a mapping.
    """
    path = os.fspath(path)
    check_text("model_name", model_name)
    if isinstance(examples, Mapping):
        raise TypeError(
            "`examples` must be a list of mappings, one per request, got a "
            "mapping."
        )
    known = features_json.read(path)["signatures"]
    # Servers cannot call `serve`, which takes ragged tensors.
    served = [s for s in known if s != "serve"]
    if signature not in served:
        raise ValueError(
            f"`signature` must be one of {served} in {path!r}, got "
            f"{signature!r}."
        )
    arguments = {a["name"]: a for a in known[signature]["arguments"]}
    records = []
    # Stop one above the limit, since a repeated dataset has no end.
    for number, example in enumerate(
        itertools.islice(examples, _MAX_REQUESTS + 1)
    ):
        what = f"`examples[{number}]`"
        if not isinstance(example, Mapping):
            raise TypeError(
                f"{what} must map arguments to tensors, got a "
                f"{type(example).__name__}."
            )
        if set(example) != set(arguments):
            raise ValueError(
                f"{what} must have the arguments {sorted(arguments)} of "
                f"{signature!r}, got {sorted(example)}."
            )
        records.append(
            _prediction_log(
                model_name or "",
                signature,
                {
                    name: _tensor(f"{what}[{name!r}]", argument, example[name])
                    for name, argument in arguments.items()
                },
            )
        )
    if not 1 <= len(records) <= _MAX_REQUESTS:
        found = "more" if records else "none"
        raise ValueError(
            f"`examples` must have 1 to {_MAX_REQUESTS} requests, the limit of "
            f"TensorFlow Serving, got {found}."
        )
    file = os.path.join(path, *_FILE)
    tf.io.gfile.makedirs(os.path.dirname(file))
    temporary = Temporary(file)
    try:
        with tf.io.TFRecordWriter(temporary.path) as writer:
            for record in records:
                writer.write(record)
        tf.io.gfile.rename(temporary.path, file, overwrite=True)
    except BaseException:
        temporary.remove()
        raise
    temporary.release()
    return file


def _tensor(what: str, argument: Mapping[str, Any], value: Any) -> bytes:
    """Returns the TensorProto of an argument of a request."""
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        raise ValueError(
            f"{what} must be a dense tensor, such as values or row splits, got "
            f"a {type(value).__name__}."
        )
    dtype = tf.as_dtype(argument["dtype"])
    try:
        # tf.constant would convert arrays even if that loses information.
        if tf.as_dtype(getattr(value, "dtype", dtype)) != dtype:
            raise TypeError(f"it has the dtype {value.dtype}")
        tensor = tf.constant(value, dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{what} must be a tensor of {dtype.name}: {describe_error(error)}"
        ) from None
    shape = tf.TensorShape(argument["shape"])
    if not shape.is_compatible_with(tensor.shape):
        raise ValueError(
            f"{what} must have the shape {shape}, got {tensor.shape}."
        )
    return tf.make_tensor_proto(tensor).SerializeToString()


def _prediction_log(
    model_name: str, signature: str, inputs: Mapping[str, bytes]
) -> bytes:
    """Encodes a request as a tensorflow.serving.PredictionLog.

    Encodes it here to avoid a dependency on TensorFlow Serving's package:

        PredictionLog.predict_log = 6     PredictRequest.model_spec = 1
        PredictLog.request = 1            PredictRequest.inputs = 2 (a map)
        ModelSpec.name = 1, .signature_name = 3
    """
    request = _field(
        1, _field(1, model_name.encode()) + _field(3, signature.encode())
    )
    for name, tensor in inputs.items():
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))


def _field(number: int, content: bytes) -> bytes:
    """Encodes a length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    result = bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    result.append(number)
    return bytes(result)
