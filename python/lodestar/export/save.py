"""SavedModels whose signatures keep ragged features ragged."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import check_choice
from lodestar._typing import StrPath
from lodestar.data.schema import model_schema
from lodestar.embedding.saved_state import without_optimizer_slots
from lodestar.export import features_json, requests, signatures, traces
from lodestar.export.contents import ModelContents, model_contents
from lodestar.export.folder import whole_folder


def save(
    model: keras.Model,
    path: StrPath,
    signature: str = "ragged",
    *,
    inputs: Mapping[str, tf.TypeSpec] | None = None,
    padding_id: Any = None,
    from_rows: bool = False,
    strings: bool = True,
) -> None:
    """Writes `model` for inference, with the tables it reads.

    `model.export` gives a ragged model a dense signature and warns that its
    padding becomes ids. Here `keras.Input(..., ragged=True)` keeps its type. Tables are
    written without optimizer slots. The folder appears, or is replaced, when
    all of it is written.

    Loading needs the op library, `import lodestar`, and none of the code that
    made the model:

    >>> import lodestar
    >>> loaded = tf.saved_model.load(path)
    >>> loaded.serve({"ids": tf.ragged.constant([[1, 2], [3]], tf.int64)})
    >>> loaded.signatures["serving_default"](
    ...     ids_values=tf.constant([1, 2, 3], tf.int64),
    ...     ids_row_splits=tf.constant([0, 2, 3], tf.int64))

    `features.json` in the folder lists what each signature takes and gives,
    the inputs, the tables and the weights. `loaded.tables[name]`,
    `loaded.id_tables[name]` and `loaded.model_variables` are these: the rows
    of a table are those of `loaded.tables[name].resource_handle`.
    docs/serving.md has the details.

    A model with a schema (`Schema.of`) takes requests of what its training files
    held. For a column of ids with the encoding `"hash"` or `"hex"`, `serve` and
    `serving_default` take strings, which the graph makes the ids of, as the
    readers do; strings of `na_values` are left out. `serve_ids` takes the ids
    instead, as datasets give them. The schema is the file
    assets.extra/schema.yaml of the folder: `open_dataset(data, schema=path)`
    reads data with it, and `Schema.of(loaded)` returns it.

    Args:
        model: A built Keras model.
        path: Folder to write.
        signature: How `serving_default`, whose inputs must be plain tensors,
            takes a ragged input `x`: `"ragged"`: as `x_values`, all values in
            order, and `x_row_splits`; `"values_and_lengths"`: as `x_values`
            and `x_lengths`. With several ragged axes `x_row_splits_0`, ...,
            outermost first. `"padded"`: as `x`, dense, its short rows filled
            with `padding_id`. A dense input is `x` itself, a sparse one
            `x_indices`, `x_values` and `x_dense_shape`. `"examples"`: takes
            `examples` alone, a vector of serialized tf.Examples with a feature
            for each input. `serve` takes RaggedTensors in all of them. Where
            a name is no identifier, its characters that are not become `_`
            here, but not for `serve` and in tf.Examples.
        inputs: Name -> tf.TypeSpec, for a subclassed model, which is then
            called with a dict (with the one value if `inputs` has one entry);
            default: the inputs of a functional or sequential model.
        padding_id: With `"padded"`: an integer, number or text, or a dict of
            them by name of the input. Equal values before another value stay.
        from_rows: Adds the signature `from_rows`, which takes in place of ids
            the rows that embedding layers look up, named as the layers and
            features, for rows that are kept elsewhere.
        strings: Whether requests hold strings for columns of ids with the
            encoding `"hash"` or `"hex"`, in a model with a schema
            (`Schema.of`). False: they hold ids, which the client has made with
            `lodestar.hash_ids(strings, column=hash_as or name)`.

    Outputs keep their names where the model returns a dict; otherwise they
    are `output_0`, `output_1`, ...

    Raises:
        ValueError: Another `signature`; the inputs are not known, or one has
            no such form; `padding_id` is missing, or not of an input's type;
            `from_rows` of a model whose lookups do not all give dense rows;
            the model trains a table even where `training` is False.
    """
    check_choice("signature", signature, signatures.SIGNATURES)
    own_inputs = signatures.model_inputs(model, inputs)
    model_inputs = requests.as_requested(own_inputs) if strings else own_inputs
    plain = requests.plain_tensors(model_inputs, signature, padding_id)
    contents = model_contents(model)
    serve, lookups = traces.trace_serve(model, model_inputs)
    rows = None
    if from_rows:
        # Examples would have to hold the ids as well.
        without_rows = (
            requests.plain_tensors(model_inputs, "ragged")
            if signature == "examples"
            else plain
        )
        rows = traces.trace_from_rows(
            model, model_inputs, without_rows, contents.tables
        )
    module = _module(contents)
    module.serve = serve
    if model_inputs is not own_inputs:
        module.serve_ids, _ = traces.trace_serve(model, own_inputs)
    if own_inputs.schema is not None:
        module.schema_yaml = model_schema.as_function(own_inputs.schema)

    @tf.function(autograph=False)
    def serving_default(**tensors: Any) -> dict[str, Any]:
        return serve(plain.unflatten(tensors))

    served = {
        "serving_default": serving_default.get_concrete_function(**plain.specs)
    }
    if rows is not None:
        served["from_rows"] = rows.function.get_concrete_function(**rows.specs)
    document = features_json.describe(
        signature,
        model_inputs.specs,
        plain,
        served["serving_default"].structured_outputs,
        contents,
        lookups,
        rows,
        inputs_given=inputs is not None,
    )
    with whole_folder(path) as partial, without_optimizer_slots():
        tf.saved_model.save(module, partial, signatures=served)
        features_json.write(partial, document)
        if own_inputs.schema is not None:
            model_schema.write(own_inputs.schema, partial)


def _module(contents: ModelContents) -> tf.Module:
    """What owns the tables and variables that the functions read."""
    module = tf.Module()
    # Servers ask these for their resources.
    module.tables = {
        name: table.parts[0] if len(table.parts) == 1 else table
        for name, table in contents.tables.items()
    }
    module.table_variables = list(contents.tables.values())
    module.id_tables = contents.id_tables
    module.model_variables = [v.value for v in contents.weights]
    module.model_state = [v.value for v in contents.state]
    module.model_resources = contents.resources
    return module
