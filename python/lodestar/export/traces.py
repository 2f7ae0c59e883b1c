"""Models as graphs: what they look up, and the part of them behind that."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lodestar.export.input_parts import argument_names, unused
from lodestar.export.read_only import check_read_only
from lodestar.export.signatures import (
    ModelInputs,
    PlainTensors,
    named_outputs,
)
from lodestar.layers.feature import Feature
from lodestar.layers.lookup_observer import Lookup, observe_lookups


class LookupCall(NamedTuple):
    """Which lookup of a model it is.

    Attributes:
        layer: Name of the layer.
        feature: Name of the feature; None for a layer that has but one.
        call: How many lookups of that layer and feature came before it.
    """

    layer: str
    feature: str | None
    call: int


class SeenLookup(NamedTuple):
    """A lookup in a graph.

    Attributes:
        at: Which it is.
        feature: How the table is read.
        inputs: Names of the model's inputs that its ids come from; None where
            that cannot be told.
    """

    at: LookupCall
    feature: Feature
    inputs: list[str] | None


class RowsSignature(NamedTuple):
    """A model behind its lookups.

    Attributes:
        function: Takes rows, and such inputs as the outputs depend on.
        rows: Argument -> the lookup whose rows it takes.
        specs: Argument -> type, of rows and inputs.
        plain: What the inputs are as plain tensors.
    """

    function: Any
    rows: dict[str, LookupCall]
    specs: dict[str, tf.TensorSpec]
    plain: PlainTensors


class CallCounter:
    """Numbers the lookups of one call of a model, in their order."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str | None]] = Counter()

    def next(self, lookup: Lookup) -> LookupCall:
        """Which lookup the next one is."""
        key = lookup.layer.name, lookup.name
        self._calls[key] += 1
        return LookupCall(*key, self._calls[key] - 1)


def served(model: keras.Model, inputs: ModelInputs) -> Callable[..., Any]:
    """The model as a function of its inputs by name, of outputs by name."""

    def serve(features: Mapping[str, Any]) -> dict[str, Any]:
        return named_outputs(model(inputs.pack(features), training=False))

    return serve


def trace_serve(
    model: keras.Model, inputs: ModelInputs
) -> tuple[tf.types.experimental.PolymorphicFunction, list[SeenLookup]]:
    """The model as a traced function, and what it looks up, in order.

    Raises:
        ValueError: It would change a table.
    """
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
        # In the order in which TensorFlow flattens a dict.
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
    """Names of the inputs that `ids` come from."""
    tensors = tf.nest.flatten(ids, expand_composites=True)
    if any(tensor.graph is not concrete.graph for tensor in tensors):
        return None
    behind = _ops_behind(tensors)
    return sorted({name for op, name in sources.items() if op in behind})


def trace_from_rows(
    model: keras.Model,
    inputs: ModelInputs,
    plain: PlainTensors,
    tables: Mapping[str, Any],
) -> RowsSignature:
    """The model as a function of what it looks up.

    Raises:
        ValueError: The model looks nothing up, rows that are no dense tensor
            or not through a layer, or has an output that is no dense tensor.
    """
    calls = CallCounter()
    rows: list[tuple[LookupCall, tf.Tensor]] = []
    given: dict[str, tf.Tensor] = {}
    outputs: dict[str, Any] = {}
    refused: list[str] = []
    serve = served(model, inputs)

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
            # Not those that the function returns, which depend on all that
            # has an effect, and so on checks of what is looked up.
            outputs.update(serve(plain.unflatten(tensors)))
        return outputs

    concrete = tf.function(whole).get_concrete_function(**plain.specs)
    for name, output in outputs.items():
        if not isinstance(output, tf.Tensor):
            refused.append(f"the output {name!r} is no dense tensor")
    if not refused:
        part = _Part(concrete, outputs)
        for key, table in tables.items():
            if part.needs_capture(table.resource_handle):
                refused.append(
                    f"the table {key!r} is read by other means than a layer, "
                    "or by one in a tf.function of its own"
                )
    if not rows and not refused:
        refused.append("the model looks nothing up in an embedding layer")
    if refused:
        raise ValueError(
            "`from_rows`: no signature takes the rows that this model looks "
            f"up: {'; '.join(refused)}."
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
    return RowsSignature(
        part.function(arguments),
        lookups,
        {
            name: tf.TensorSpec(t.shape, t.dtype, name=name)
            for name, t in arguments.items()
        },
        plain,
    )


def _why_no_rows(rows: Any, given: Mapping[str, tf.Tensor]) -> str | None:
    if not isinstance(rows, tf.Tensor):
        return (
            f"gives rows that are a {type(rows).__name__}, wanted a combiner "
            "that makes them a dense tensor"
        )
    if rows.shape.rank is None:
        return "gives rows of unknown rank"
    if any(rows.graph is not tensor.graph for tensor in given.values()):
        return "is in a tf.function, or in control flow, of its own"
    return None


def _text(at: LookupCall) -> str:
    if at.feature is None:
        return f"the layer {at.layer!r}"
    return f"the feature {at.feature!r} of the layer {at.layer!r}"


def _row_name(at: LookupCall) -> str:
    name = at.layer if at.feature is None else at.feature
    return name if at.call == 0 else f"{name}_{at.call}"


class _Part:
    """The part of a traced function that some of its tensors depend on."""

    def __init__(self, concrete: Any, outputs: Mapping[str, tf.Tensor]):
        self._outputs = {name: t.name for name, t in outputs.items()}
        self._captures = []
        if count := len(concrete.captured_inputs):
            self._captures = list(
                zip(
                    concrete.inputs[-count:],
                    concrete.captured_inputs,
                    strict=True,
                )
            )
        self._nodes = _ops_behind(outputs.values())
        graph_def = concrete.graph.as_graph_def()
        nodes = [n for n in graph_def.node if n.name in self._nodes]
        del graph_def.node[:]
        graph_def.node.extend(nodes)
        self._graph_def = graph_def

    def needs(self, tensor: tf.Tensor) -> bool:
        """Whether the outputs depend on it."""
        return tensor.op.name in self._nodes

    def needs_capture(self, outer: tf.Tensor) -> bool:
        """Whether they depend on a tensor of outside of the function."""
        return any(o is outer and self.needs(i) for i, o in self._captures)

    def function(self, arguments: Mapping[str, tf.Tensor]) -> Any:
        """The part as a function of tensors that were in it."""
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
    """Names of the ops that `tensors` depend on."""
    waiting = [tensor.op for tensor in tensors]
    seen = {op.name for op in waiting}
    for op in waiting:
        for before in (*(t.op for t in op.inputs), *op.control_inputs):
            if before.name not in seen:
                seen.add(before.name)
                waiting.append(before)
    return seen
