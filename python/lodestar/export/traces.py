"""Traces models: their lookups, and the part that depends on looked-up rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lodestar.export.input_parts import argument_names, unused
from lodestar.export.read_only import check_read_only
from lodestar.export.requests import Request
from lodestar.export.signatures import ModelInputs, named_outputs
from lodestar.layers.feature import Feature
from lodestar.layers.lookup_observer import Lookup, observe_lookups


class LookupCall(NamedTuple):
    """Identifies a lookup of a model.

    Attributes:
        layer: Name of the layer.
        feature: Name of the feature; None for a layer of a single feature.
        call: Number of earlier lookups of that layer and feature.
    """

    layer: str
    feature: str | None
    call: int


class SeenLookup(NamedTuple):
    """A lookup in a graph.

    Attributes:
        at: Identifies the lookup.
        feature: How the table is read.
        inputs: Names of the inputs that its ids depend on; None if unknown.
    """

    at: LookupCall
    feature: Feature
    inputs: list[str] | None


class RowsSignature(NamedTuple):
    """A model as a function of looked-up rows.

    Attributes:
        function: Takes rows, and the inputs that the outputs depend on.
        rows: Argument -> the lookup whose rows it takes.
        specs: Argument -> type, of rows and inputs.
    """

    function: Any
    rows: dict[str, LookupCall]
    specs: dict[str, tf.TensorSpec]


class CallCounter:
    """Numbers the lookups of one call of a model."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str | None]] = Counter()

    def next(self, lookup: Lookup) -> LookupCall:
        """Returns the identity of the next lookup."""
        key = lookup.layer.name, lookup.name
        self._calls[key] += 1
        return LookupCall(*key, self._calls[key] - 1)


def served(model: keras.Model, inputs: ModelInputs) -> Callable[..., Any]:
    """Returns a function from the model's inputs to its outputs, by name."""

    def serve(features: Mapping[str, Any]) -> dict[str, Any]:
        return named_outputs(model(inputs.pack(features), training=False))

    return serve


def trace_serve(
    model: keras.Model, inputs: ModelInputs
) -> tuple[tf.types.experimental.PolymorphicFunction, list[SeenLookup]]:
    """Returns the model as a traced function, and its lookups in order."""
    serve = tf.function(served(model, inputs), input_signature=[inputs.specs])
    calls = CallCounter()
    seen = []

    def see(lookup: Any) -> tf.Tensor:
        seen.append((calls.next(lookup), lookup))
        return lookup.rows

    with observe_lookups(see):
        concrete = serve.get_concrete_function()
    check_read_only(concrete.graph)
    names = [
        name
        # TensorFlow flattens a dict in sorted order.
        for name in sorted(inputs.specs)
        for _ in tf.nest.flatten(inputs.specs[name], expand_composites=True)
    ]
    sources = {
        placeholder.op.name: name
        for placeholder, name in zip(concrete.inputs, names, strict=False)
    }
    return serve, [
        SeenLookup(at, lookup.feature, _sources(lookup.ids, concrete, sources))
        for at, lookup in seen
    ]


def _sources(
    ids: Any, concrete: Any, sources: Mapping[str, str]
) -> list[str] | None:
    """Returns the names of the inputs that `ids` depend on."""
    # The others are constants, such as the ids of a catalogue.
    tensors = [
        tensor
        for tensor in tf.nest.flatten(ids, expand_composites=True)
        if tf.is_symbolic_tensor(tensor)
    ]
    if any(tensor.graph is not concrete.graph for tensor in tensors):
        return None
    behind = _ops_behind(tensors)
    return sorted({name for op, name in sources.items() if op in behind})


def trace_from_rows(
    model: keras.Model, request: Request, tables: Mapping[str, Any]
) -> RowsSignature:
    """Returns the model as a function of the rows that it looks up."""
    plain = request.plain_beside_rows
    calls = CallCounter()
    rows: list[tuple[LookupCall, tf.Tensor]] = []
    given: dict[str, tf.Tensor] = {}
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    serve = served(model, request.inputs)

    def put_rows_in(lookup: Any) -> tf.Tensor:
        at = calls.next(lookup)
        why = _why_no_rows(lookup.rows, given)
        if why is not None:
            refused.append(f"{_text(at)} {why}")
            return lookup.rows
        place = tf.compat.v1.placeholder(lookup.rows.dtype, lookup.rows.shape)
        rows.append((at, place))
        return place

    def whole(**tensors: Any) -> dict[str, tf.Tensor]:
        given.update(tensors)
        with observe_lookups(put_rows_in):
            # The outputs that tf.function returns would depend on all stateful
            # ops, including checks of lookups.
            outputs.update(serve(plain.unflatten(tensors)))
        return outputs

    concrete = tf.function(whole).get_concrete_function(**plain.specs)
    for name, output in outputs.items():
        if not isinstance(output, tf.Tensor):
            refused.append(f"the output {name!r} is not a dense tensor")
    if not refused:
        part = _Part(concrete, outputs)
        for key, table in tables.items():
            if any(
                part.needs_capture(rows.resource_handle)
                for rows in table._parts
            ):
                refused.append(
                    f"the table {key!r} is read without a layer, or by a layer "
                    "in a tf.function of its own"
                )
    if not rows and not refused:
        refused.append("the model has no lookup of an embedding layer")
    if refused:
        raise ValueError(
            f"`from_rows` is not possible for this model: {'; '.join(refused)}."
        )
    arguments = {n: t for n, t in given.items() if part.needs(t)}
    lookups = {}
    names = argument_names(_row_name(at) for at, _ in rows)
    for at, place in rows:
        if not part.needs(place):
            continue
        name = unused(names[_row_name(at)], arguments)
        arguments[name] = place
        lookups[name] = at
    specs = {
        name: tf.TensorSpec(t.shape, t.dtype, name=name)
        for name, t in arguments.items()
    }
    return RowsSignature(part.function(arguments), lookups, specs)


def _why_no_rows(rows: Any, given: Mapping[str, tf.Tensor]) -> str | None:
    if not isinstance(rows, tf.Tensor):
        return (
            f"returns a {type(rows).__name__} instead of a dense tensor; set a "
            "combiner"
        )
    if rows.shape.rank is None:
        return "returns rows of unknown rank"
    if any(rows.graph is not tensor.graph for tensor in given.values()):
        return "is in a tf.function or control flow of its own"
    return None


def _text(at: LookupCall) -> str:
    if at.feature is None:
        return f"the layer {at.layer!r}"
    return f"the feature {at.feature!r} of the layer {at.layer!r}"


def _row_name(at: LookupCall) -> str:
    name = at.layer if at.feature is None else at.feature
    return name if at.call == 0 else f"{name}_{at.call}"


class _Part:
    """The part of a traced function that its outputs depend on."""

    def __init__(self, concrete: Any, outputs: Mapping[str, tf.Tensor]):
        self._outputs = {name: t.name for name, t in outputs.items()}
        captured = concrete.captured_inputs
        own = concrete.inputs[len(concrete.inputs) - len(captured) :]
        self._captures = list(zip(own, captured, strict=True))
        self._nodes = _ops_behind(outputs.values())
        graph_def = concrete.graph.as_graph_def()
        nodes = [n for n in graph_def.node if n.name in self._nodes]
        del graph_def.node[:]
        graph_def.node.extend(nodes)
        self._graph_def = graph_def

    def needs(self, tensor: tf.Tensor) -> bool:
        """Returns whether the outputs depend on `tensor`."""
        return tensor.op.name in self._nodes

    def needs_capture(self, outer: tf.Tensor) -> bool:
        """Returns whether the outputs depend on a captured tensor."""
        return any(o is outer and self.needs(i) for i, o in self._captures)

    def function(self, arguments: Mapping[str, tf.Tensor]) -> Any:
        """Returns the part as a function of some of its tensors."""
        places = {name: t.name for name, t in arguments.items()}
        captures = [
            (inner.name, outer)
            for inner, outer in self._captures
            if self.needs(inner)
        ]
        graph_def, outputs = self._graph_def, self._outputs

        def from_rows(**tensors: Any) -> dict[str, tf.Tensor]:
            graph = tf.compat.v1.get_default_graph()
            placed = {place: tensors[n] for n, place in places.items()}
            for inner, outer in captures:
                placed[inner] = graph.capture(outer)
            results = tf.graph_util.import_graph_def(
                graph_def, placed, list(outputs.values()), name=""
            )
            return dict(zip(outputs, results, strict=True))

        return tf.function(from_rows, autograph=False)


def _ops_behind(tensors: Iterable[tf.Tensor]) -> set[str]:
    """Returns the names of the ops that `tensors` depend on."""
    waiting = [tensor.op for tensor in tensors]
    seen = {op.name for op in waiting}
    for op in waiting:
        for before in (*(t.op for t in op.inputs), *op.control_inputs):
            if before.name not in seen:
                seen.add(before.name)
                waiting.append(before)
    return seen
