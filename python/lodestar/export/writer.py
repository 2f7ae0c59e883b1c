"""Writes an exported folder with the signatures of all exports."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar._typing import StrPath
from lodestar.export import evaluate, features_json
from lodestar.export.contents import ModelContents
from lodestar.export.folder import whole_folder
from lodestar.export.requests import Request
from lodestar.export.served_function import ServedFunction
from lodestar.export.traces import RowsSignature, SeenLookup
from lodestar.schema import model_schema


def write(
    path: StrPath,
    module: tf.Module,
    request: Request,
    serve: Any,
    serve_ids: Any,
    contents: ModelContents,
    lookups: Sequence[SeenLookup],
    metrics: evaluate.Metrics | None,
    labels: evaluate.Labels | None,
    *,
    rows: RowsSignature | None = None,
    signatures: Mapping[str, Any] | None = None,
    described: Mapping[str, Any] | None = None,
    check: Callable[[Any], None] = lambda trace: None,
) -> None:
    """Writes a SavedModel, its features.json and its schema atomically.

    Args:
        path: Path to the folder.
        module: The tables and variables that the functions read. Gets the
            functions.
        request: How clients call the model.
        serve: Converts the inputs of requests, by name, to outputs.
        serve_ids: Converts the inputs of the model; only written if requests
            hold strings.
        contents: The contents of the model, for features.json.
        lookups: The lookups of `serve` in order.
        metrics: Metrics of the signature `evaluate`, if any.
        labels: The types of its labels.
        rows: The signature `from_rows`, if any.
        signatures: Other signatures.
        described: Other entries of features.json.
        check: Called with the traces of `serving_default` and `evaluate`.
    """
    module.serve = ServedFunction(serve)
    if request.inputs is not request.own:
        module.serve_ids = ServedFunction(serve_ids)
    schema = request.own.schema
    if schema is not None:
        module.schema_yaml = model_schema.as_function(schema)

    @tf.function(autograph=False)
    def serving_default(**tensors: Any) -> dict[str, Any]:
        return serve(request.plain.unflatten(tensors))

    trace = serving_default.get_concrete_function(**request.plain.specs)
    check(trace)
    served = {"serving_default": trace}
    if rows is not None:
        served["from_rows"] = rows.function.get_concrete_function(**rows.specs)
    served |= signatures or {}
    outputs = trace.structured_outputs
    evaluation = evaluate.trace_evaluate(
        serve, request.plain, outputs, metrics, labels
    )
    if evaluation is not None:
        check(evaluation.function)
        served["evaluate"] = evaluation.function
    document = features_json.describe(
        request, outputs, contents, lookups, rows, evaluation
    )
    with whole_folder(path) as partial:
        tf.saved_model.save(module, partial, signatures=served)
        features_json.write(partial, {**document, **(described or {})})
        if schema is not None:
            model_schema.write(schema, partial)
