"""Requests that TensorFlow Serving runs when it loads a model."""

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lodestar._checks import check_text
from lodestar._errors import describe_error
from lodestar._files import Temporary
from lodestar._typing import StrPath
from lodestar.export import features_json

# Where TensorFlow Serving looks for them, and how many it takes.
_FILE = ("assets.extra", "tf_serving_warmup_requests")
_MAX_REQUESTS = 1000


def write_warm_up(
    path: StrPath,
    examples: Iterable[Mapping[str, Any]],
    *,
    signature: str = "serving_default",
    model_name: str | None = None,
) -> str:
    """Adds warm-up requests to an exported folder.

    TensorFlow Serving runs them before a model gets its first call, which else
    waits for what TensorFlow makes at a first call. They are written for the
    folder as it is: after another export to it, write them again.

    >>> lodestar.serving.write_warm_up("served", [{"ids_values": [1, 2, 3],
    ...                                            "ids_row_splits": [0, 2, 3]}])

    Args:
        path: What `lodestar.export.save` or `export.save_plain` wrote.
        examples: 1 to 1000 requests: argument of the signature -> a dense tensor,
            array or list, as `loaded.signatures[signature]` takes them. Tensors
            and arrays have the argument's dtype.
        signature: Its name.
        model_name: Of the model in the server, where that asks for it.

    Returns:
        The path of the file: TFRecords of PredictionLog.

    Raises:
        ValueError: The folder has no such signature, or a request has other
            arguments than it, or one that is ragged, sparse, or of another
            dtype or shape (names it); or they are none, or above 1000; or
            `model_name` is no text.
        tf.errors.NotFoundError: There is no such folder.
        TypeError: `examples` is one mapping, or one of them none.
    """
    path = os.fspath(path)
    check_text("model_name", model_name)
    if isinstance(examples, Mapping):
        raise TypeError(
            "`examples` is one mapping; wanted a list of them, one a request."
        )
    known = features_json.read(path)["signatures"]
    # What `serve` takes is not for a server: ragged tensors.
    served = [s for s in known if s != "serve"]
    if signature not in served:
        raise ValueError(
            f"`signature` is {signature!r}, but {path!r} has {served}."
        )
    arguments = {a["name"]: a for a in known[signature]["arguments"]}
    records = []
    # One more than are taken: a data set that repeats has no end.
    for number, example in enumerate(
        itertools.islice(examples, _MAX_REQUESTS + 1)
    ):
        what = f"`examples[{number}]`"
        if not isinstance(example, Mapping):
            raise TypeError(
                f"{what} is a {type(example).__name__}; wanted argument -> "
                "tensor."
            )
        if set(example) != set(arguments):
            raise ValueError(
                f"{what} has the arguments {sorted(example)}, wanted those of "
                f"{signature!r}: {sorted(arguments)}."
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
        found = f"more than {_MAX_REQUESTS}" if records else "no"
        raise ValueError(
            f"`examples` has {found} requests, wanted 1 to {_MAX_REQUESTS}: "
            "TensorFlow Serving takes no more."
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
    """A TensorProto of what a request has for an argument."""
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        raise ValueError(
            f"{what} is a {type(value).__name__}; signatures take dense "
            "tensors, as its values and its row splits."
        )
    dtype = tf.as_dtype(argument["dtype"])
    try:
        # Arrays would be converted to anything, whatever they lose by it.
        if tf.as_dtype(getattr(value, "dtype", dtype)) != dtype:
            raise TypeError(f"it has the dtype {value.dtype}")
        tensor = tf.constant(value, dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{what} is no {dtype.name} tensor: {describe_error(error)}"
        ) from None
    shape = tf.TensorShape(argument["shape"])
    if not shape.is_compatible_with(tensor.shape):
        raise ValueError(
            f"{what} has the shape {tensor.shape}, wanted {shape}."
        )
    return tf.make_tensor_proto(tensor).SerializeToString()


def _prediction_log(
    model_name: str, signature: str, inputs: Mapping[str, bytes]
) -> bytes:
    """A tensorflow.serving.PredictionLog of a request.

    Its classes are in a package that nothing else here needs:

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
    """A field of a protocol buffer with a length: text, bytes or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    result = bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    result.append(number)
    return bytes(result)
