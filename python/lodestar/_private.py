"""The only module that uses private names of TensorFlow and Keras, and why.

It reads each with `_module` and `getattr`, so that a release without the name gives a
safe result, or overrides it in a class below with our own names.
"""

import contextlib
import functools
import importlib
import types
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import keras
import tensorflow as tf

from lodestar import _bases

# Of a decorator.
Class = TypeVar("Class")


@functools.cache
def _module(name: str) -> types.ModuleType | None:
    """Returns a module, or None if this release does not have it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# The base class of objects that Keras's files find in attributes, such as layers,
# metrics and optimizers.
if TYPE_CHECKING:
    KerasSaveable = object
else:
    KerasSaveable = getattr(
        _module("keras.src.saving.keras_saveable"),
        "KerasSaveable",
        type("KerasSaveable", (), {}),
    )


# Methods that classes below override, by the class that must call them.
_OVERRIDDEN = {
    tf.saved_model.experimental.TrackableResource: (
        "_create_resource",
        "_destroy_resource",
        "_initialize",
        "_restore_from_tensors",
        "_serialize_to_tensors",
    ),
    keras.Variable: (
        "_copy_trackable_to_cpu",
        "_export_to_saved_model_graph",
        "_initialize",
        "_restore_from_tensors",
        "_serialize_to_tensors",
        "_should_act_as_resource_variable",
        "_trackable_children",
    ),
}


def check_overridden() -> None:
    """Raises ImportError unless TensorFlow and Keras call the methods below."""
    for cls, names in _OVERRIDDEN.items():
        missing = [name for name in names if not hasattr(cls, name)]
        if missing:
            raise ImportError(
                f"lodestar: {cls.__name__} has no {', '.join(missing)} in "
                f"TensorFlow {tf.__version__} with Keras {keras.__version__}, "
                "so tables would not be saved. Install tested releases; see "
                "docs/internals/releases.md."
            )


check_overridden()


class Resource(_bases.TrackableResource):
    """A resource that TensorFlow creates, fills and destroys.

    TensorFlow documents these methods as overridable, under private names, and traces
    them into a SavedModel. Subclasses define `_make` and `_drop`.
    """

    def _make(self) -> tf.Tensor:
        """Returns the handle of the resource, creating it if needed."""
        raise NotImplementedError

    def _fill(self) -> Any:
        """Fills the resource after loading a SavedModel."""

    def _drop(self) -> None:
        """Destroys the resource."""
        raise NotImplementedError

    def _create_resource(self) -> tf.Tensor:
        return self._make()

    def _initialize(self) -> Any:
        return self._fill()

    def _destroy_resource(self) -> None:
        self._drop()


class Saved:
    """An object that TensorFlow saves and restores.

    TensorFlow documents the first two methods as overridable, under private names.
    Subclasses define the first three.
    """

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        """Returns the content by checkpoint name."""
        raise NotImplementedError

    def _restore_tensors(self, saved: Mapping[str, tf.Tensor]) -> Any:
        """Loads the result of `_tensors_to_save`."""
        raise NotImplementedError

    def _capture_for_checkpoint(
        self, captures: MutableMapping[Any, Any]
    ) -> None:
        """Sets `captures[self]` to the object that an asynchronous checkpoint saves.

        TensorFlow calls it eagerly for the first save of a checkpoint, traces
        it once for later saves, and then runs the trace.
        """
        raise NotImplementedError

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return self._tensors_to_save()

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        return self._restore_tensors(restored_tensors)

    @tf.autograph.experimental.do_not_convert
    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        self._capture_for_checkpoint(object_map)


def saved_class(cls: type[Class]) -> type[Class]:
    """Makes objects of `cls` in a SavedModel load as such, without arguments.

    No public name registers a class. Without the private name, TensorFlow loads an
    object of another class with the same functions.
    """
    module = _module("tensorflow.python.saved_model.registration")
    register = getattr(module, "register_serializable", None)
    if register is not None:
        # After a reload of the package, the name is taken.
        with contextlib.suppress(ValueError):
            register(package="lodestar")(cls)
    return cls


def _in_save_context() -> bool | None:
    """Whether the graph of a SavedModel is being made; None if unknown."""
    module = _module("tensorflow.python.saved_model.save_context")
    inside = getattr(module, "in_save_context", None)
    return None if inside is None else bool(inside())


class Variable(Saved, _bases.Variable, KerasSaveable):
    """A `keras.Variable` with its own content in the files of TensorFlow and Keras.

    Keras's files find it in an attribute and call its `save_own_variables` and
    `load_own_variables`.
    """

    def _value_made(self, value: tf.Variable) -> None:
        """Called with the TensorFlow variable that holds the value.

        In a stateless scope of Keras, this is after `__init__`.
        """

    def _saved_children(self, save_type: str) -> dict[str, Any]:
        """Returns the children in a "checkpoint" or "savedmodel"."""
        raise NotImplementedError

    def _initialize(self, value: Any) -> None:
        # As in Keras, except for the private `_name`: subclasses override `name`,
        # which a SavedModel may not accept.
        self._value = tf.Variable(
            value,
            dtype=self._dtype,
            trainable=self._trainable,
            name=self._name,
        )
        self._value_made(self._value)

    def _exported(self, exported: Mapping[Any, Any]) -> Saved:
        """Returns the object that saves this in the graph of a SavedModel.

        Args:
            exported: Maps children to their counterparts in that graph; filled later.
        """
        raise NotImplementedError

    def _trackable_children(
        self, save_type: str = "checkpoint", **kwargs: Any
    ) -> dict[str, Any]:
        if save_type == "savedmodel" and _in_save_context() is None:
            raise RuntimeError(
                f"{self!r} cannot be in a SavedModel of TensorFlow "
                f"{tf.__version__}, which Lodestar does not support. Use "
                "lodestar.export.save_plain, or another release of "
                "TensorFlow."
            )
        children: dict[str, Any] = super()._trackable_children(
            save_type, **kwargs
        )
        return {**children, **self._saved_children(save_type)}

    @property
    def _should_act_as_resource_variable(self) -> bool:
        # In a SavedModel it is an object with content and children. A function
        # traced at the same time may still request its gradient.
        if _in_save_context() and not tf.inside_function():
            raise AttributeError
        return True

    def _export_to_saved_model_graph(
        self, object_map: Any, *_: Any, **__: Any
    ) -> list[Any]:
        object_map[self] = self._exported(object_map)
        return []

    def _obj_type(self) -> str:
        return "Layer"

    __reduce__ = object.__reduce__  # Keras's version copies through a file


def copied_attributes(value: Any) -> dict[str, Any]:
    """Returns the attributes of `value` that a copy inherits.

    Attributes of TensorFlow describe tracking and are made with the copy.
    """
    return {k: v for k, v in vars(value).items() if not k.startswith("_self_")}


def source_of_ops(path: str) -> str | None:
    """Loads a library of ops and returns the source of their functions.

    `tf.load_op_library` compiles all of it at once. Without the private names, returns
    None and loads nothing.

    Raises:
        tf.errors.OpError: TensorFlow cannot load the library.
    """
    session = _module("tensorflow.python.client.pywrap_tf_session")
    writer = _module("tensorflow.python.framework._pywrap_python_op_gen")
    load = getattr(session, "TF_LoadLibrary", None)
    list_ops = getattr(session, "TF_GetOpList", None)
    write = getattr(writer, "GetPythonWrappers", None)
    if load is None or list_ops is None or write is None:
        return None
    source: bytes = write(list_ops(load(path)))
    return source.decode()


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """Runs ops eagerly, whatever graph is being built.

    `tf.init_scope` stops at a `tf.Graph` and would add the op to it, and garbage
    collection can run at any time. Without the internal name, uses `tf.init_scope`.
    """
    return getattr(_eager_context(), "eager_mode", tf.init_scope)()


def _eager_context() -> Any:
    internal = getattr(tf, "__internal__", None)
    return getattr(internal, "eager_context", None)


def device_in_scope() -> str:
    """Returns the device of the innermost `tf.device`, as eager ops see it.

    Public API only shows where an op runs, which with a GPU is the GPU even if nobody
    requested it. Returns "" without such a scope or without the internal name.
    """
    return getattr(_eager_context(), "get_device_name", str)() or ""


def addresses_of_cluster() -> dict[tuple[str, int], str]:
    """Returns a dict from job and task to `host:port` of the cluster's other tasks.

    Public API does not show the cluster of `experimental_connect_to_cluster`. Without
    the private name the result is empty.
    """
    context = _module("tensorflow.python.eager.context")
    get_server_def = getattr(context, "get_server_def", None)
    server_def = get_server_def() if get_server_def is not None else None
    if server_def is None:
        return {}
    own = (server_def.job_name, server_def.task_index)
    return {
        (job.name, task): address
        for job in server_def.cluster.job
        for task, address in job.tasks.items()
        if (job.name, task) != own
    }


def default_graphs() -> list[tf.Graph]:
    """Returns the graphs that this thread builds, the outermost first.

    TensorFlow makes the gradient of a traced function in the graph of that function,
    whose `outer_graph` is where it was traced, perhaps in another step. Without the
    private name the result has the innermost graph only.
    """
    ops = _module("tensorflow.python.framework.ops")
    graphs = getattr(getattr(ops, "_default_graph_stack", None), "stack", None)
    return [*(graphs or [tf.compat.v1.get_default_graph()])]


def tape_is_recording() -> bool:
    """Whether a gradient tape or forward accumulator is recording.

    Keras leaves `training=None` inside a subclassed `Model.call` without a `training`
    argument. Then only the state of the tape distinguishes a training step from
    `predict` and `export`, and it has no public name. Without the private name the
    result is False, so that reading adds no rows. See `tape_may_record`.
    """
    recording = _could_possibly_record()
    return recording is not None and recording()


def _could_possibly_record() -> Any:
    record = _module("tensorflow.python.eager.record")
    return getattr(record, "could_possibly_record", None)


def tape_may_record() -> bool:
    """Whether a tape is recording or may be; lookups must then be differentiable."""
    recording = _could_possibly_record()
    return recording is None or recording()


def tape_is_stopped() -> bool:
    """Whether a tape pauses, as in tf.recompute_grad, or may."""
    module = _module("tensorflow.python.pywrap_tfe")
    return bool(getattr(module, "TFE_Py_TapeSetIsStopped", lambda: True)())


def writes_async_checkpoint() -> bool:
    """Whether this thread writes an asynchronous checkpoint.

    TensorFlow chooses the objects to copy at the first save of such a checkpoint, and
    later reads all others while the thread writes. Public API cannot distinguish that
    thread. Without the private name the result is False, because ordinary checkpoints
    must work.
    """
    context = _module("tensorflow.python.checkpoint.checkpoint_context")
    inside = getattr(context, "in_async_metrics_context", None)
    return False if inside is None else inside()


def uses_weight_decay(
    optimizer: keras.optimizers.Optimizer, variable: keras.Variable
) -> bool:
    """Whether `optimizer` decays `variable`.

    `Optimizer.exclude_from_weight_decay` is public, but its result is not.

    Raises:
        RuntimeError: This release lacks the private name.
    """
    if not optimizer.weight_decay:
        return False
    asks = getattr(optimizer, "_use_weight_decay", None)
    if asks is None:
        raise RuntimeError(
            f"Keras {keras.__version__} does not tell which variables "
            f"'{optimizer.name}' excludes from weight decay. Do not use "
            "`weight_decay`, or install a tested release of Keras."
        )
    return bool(asks(variable))


def loss_tracker(model: keras.Model) -> keras.metrics.Metric | None:
    """Returns the metric with the mean loss of Keras's own steps.

    It is the first of `model.metrics` unless the model overrides them. Without the
    private name the result is None.
    """
    return getattr(model, "_loss_tracker", None)


def restored_epoch(model: keras.Model) -> int | None:
    """Returns the epoch from which BackupAndRestore resumes `model`.

    Only the model knows it. Without the private name the result is None.
    """
    return getattr(model, "_initial_epoch", None)


def share_counters(
    copy: keras.optimizers.Optimizer, original: keras.optimizers.Optimizer
) -> None:
    """Makes `copy` share the iterations and learning rate of `original`.

    An `update_step` may read the private names, as Keras's own do. Without
    them, only the public properties are shared.
    """
    for name in ("_iterations", "_learning_rate"):
        if hasattr(original, name):
            setattr(copy, name, getattr(original, name))


def raw_iterations(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Returns the variable that counts the calls of `optimizer.apply`.

    With gradient accumulation, the public `iterations` counts updates and is not a
    variable. Without the private name, it is the first of the optimizer's variables.
    """
    counter = getattr(optimizer, "_iterations", None)
    return optimizer.variables[0] if counter is None else counter


def file_may_lack_tables() -> bool:
    """Whether Keras may be writing or reading a file that cannot hold tables.

    Its legacy .h5 files cannot. Without the private names, which file it is remains
    unknown and the result is True. Keras's other files look for a class.
    """
    if not issubclass(keras.layers.Layer, KerasSaveable):
        return True
    return bool(_global("use_legacy_config")) or not _tells_of_legacy_files()


@functools.cache
def _tells_of_legacy_files() -> bool:
    module = _module("keras.src.legacy.saving.saving_options")
    scope = getattr(module, "keras_option_scope", None)
    if scope is None:
        return False
    with scope(use_legacy_config=True):
        return bool(_global("use_legacy_config"))


def _global(name: str) -> Any:
    """Returns a global attribute of Keras, or None."""
    module = _module("keras.src.backend.common.global_state")
    get = getattr(module, "get_global_attribute", None)
    return None if get is None else get(name)


def set_keras_mask(tensor: Any, mask: Any) -> None:
    """Sets the mask of `tensor` that Keras layers read.

    Keras's guide to masking shows the attribute, but only layers can set it by public
    API, and a layer per call is slow.

    Raises:
        RuntimeError: Keras uses another attribute.
    """
    if not _keras_masks_have_this_name():
        raise RuntimeError(
            f"Keras {keras.__version__} uses an unknown attribute for masks. "
            "Use keras.layers.Masking, or install a tested release of Keras."
        )
    tensor._keras_mask = mask


@functools.cache
def _keras_masks_have_this_name() -> bool:
    with tf.init_scope():
        masked = keras.layers.Masking(name="of_lodestar")(tf.zeros([1, 1, 1]))
    return hasattr(masked, "_keras_mask")


def is_symbolic_build() -> bool:
    """Whether Keras runs `call` only to build layers.

    It does so in a graph that never runs, before it loads a file or first calls
    a model. The scope is public, but its origin has no documented name. Without
    that name the result is False, and a layer that cannot run yet raises during
    the build.
    """
    with keras.SymbolicScope() as scope:
        return getattr(scope, "original_scope", None) is not None


def model_that_is_called() -> keras.Model | None:
    """Returns the outermost Keras model whose call is running.

    Only Keras knows the model of a lookup, and so its optimizer. Without the private
    name the result is None, and errors are less specific.
    """
    layer = getattr(_global("current_call_ctx"), "entry_layer", None)
    return layer if isinstance(layer, keras.Model) else None


def applying_optimizer() -> keras.optimizers.Optimizer | None:
    """Returns the Keras optimizer whose `apply` is running.

    It assigns a gradient to a table without telling which optimizer it is. Without
    the private names the result is None, and errors are less specific.
    """
    for scope in reversed(_global("name_scope_stack") or ()):
        caller = getattr(scope, "caller", None)
        if isinstance(caller, keras.optimizers.Optimizer):
            return caller
    return None


def layer_of(tensor: Any) -> Any:
    """Returns the layer that made a KerasTensor, or None.

    No public name leads from a model's input to its layer. Without the private name the
    result is None.
    """
    history = getattr(tensor, "_keras_history", None)
    return getattr(history, "operation", None)


def copy_history(source: keras.KerasTensor, target: tf.Tensor) -> None:
    """Makes a placeholder lead to the layers that made a KerasTensor.

    No public name leads there. Without the private name errors are less specific.
    """
    target._keras_history = getattr(source, "_keras_history", None)


def _inputs_of(tensor: Any) -> Sequence[Any]:
    """Returns the inputs of the layer or operation that made a KerasTensor."""
    history = getattr(tensor, "_keras_history", None)
    nodes = getattr(getattr(history, "operation", None), "_inbound_nodes", ())
    place = getattr(history, "node_index", len(nodes))
    return getattr(nodes[place], "input_tensors", ()) if nodes[place:] else ()


def maker_from_ragged(tensor: Any) -> keras.Operation | None:
    """Returns the last layer or operation that made a dense tensor of a ragged one.

    Follows a dense KerasTensor back to its inputs, which no public name leads to.
    Without the private names the result is None, and errors are less specific.
    """
    todo = [tensor]
    # Each tensor once: the paths of a graph grow exponentially.
    seen: set[int] = set()
    while todo:
        made = todo.pop(0)
        given = _inputs_of(made)
        if any(x.ragged for x in given):
            return layer_of(made)
        todo += [x for x in given if id(x) not in seen]
        seen.update(map(id, given))
    return None


class _Consumers(list[Any]):
    """The nodes that take results of an operation, which it checks."""

    def __init__(self, nodes: Sequence[Any], check: Callable[..., None]):
        super().__init__(nodes)
        self._check = check

    def append(self, node: Any) -> None:
        self._check(
            getattr(node, "operation", None), getattr(node, "input_tensors", ())
        )
        super().append(node)


def watch_consumers(
    operation: keras.Operation,
    check: Callable[[keras.Operation, Sequence[keras.KerasTensor]], None],
) -> None:
    """Calls `check` with each operation that takes a result of `operation`.

    `check` also gets the operation's inputs, and may raise. Nothing public tells an
    operation who uses its results. Without the private name nothing is checked, and
    errors come later.
    """
    nodes = getattr(operation, "_outbound_nodes", None)
    if isinstance(nodes, list) and not isinstance(nodes, _Consumers):
        # Not by setattr, by which Keras would replace the list.
        vars(operation)["_outbound_nodes"] = _Consumers(nodes, check)


def keeps_inputs(tensor: Any, *attributes: str) -> bool:
    """Returns whether a KerasTensor has the attributes of the model inputs it uses.

    If no operation of the model has changed the dtype, then Keras made the cast that a
    graph shows, to convert an input. No public name leads from a tensor to the inputs
    of its layer. Without the private names the result is False for all but inputs.
    """
    if isinstance(layer_of(tensor), keras.layers.InputLayer):
        return True
    given = _inputs_of(tensor)
    return bool(given) and all(
        all(
            getattr(x, name, None) == getattr(tensor, name, None)
            for name in attributes
        )
        and keeps_inputs(x, *attributes)
        for x in given
    )


# Counters of Keras callbacks over the batches of a training.
_BATCH_COUNTERS = (
    "_global_train_batch",
    "_global_test_batch",
    "_batches_seen_since_last_saving",
    "_last_batch_seen",
)


def batch_counters(callback: keras.callbacks.Callback) -> dict[str, int | None]:
    """Returns the counters of a Keras callback over all batches.

    They are the steps of TensorBoard's batch scalars and the `save_freq`
    progress, which Keras does not expose. Without the private names the result
    is empty, and they restart.
    """
    if not isinstance(
        callback,
        (
            keras.callbacks.BackupAndRestore,
            keras.callbacks.ModelCheckpoint,
            keras.callbacks.TensorBoard,
        ),
    ):
        return {}
    return {
        name: getattr(callback, name)
        for name in _BATCH_COUNTERS
        if hasattr(callback, name)
    }


def set_batch_counters(
    callback: keras.callbacks.Callback, counters: Mapping[str, Any]
) -> None:
    """Sets the result of `batch_counters`; ignores other names."""
    for name in batch_counters(callback):
        if name in counters:
            setattr(callback, name, counters[name])


def forget_initial_epoch(model: keras.Model) -> None:
    """Makes `fit` start at its `initial_epoch` argument.

    A BackupAndRestore leaves its restored epoch in the model, and later calls of `fit`
    start there. Without the private name there is no such epoch.
    """
    if hasattr(model, "_initial_epoch"):
        model._initial_epoch = None


def anew(function: tf.types.experimental.PolymorphicFunction) -> Any:
    """Returns a tf.function of the same Python function without traces.

    It keeps the AutoGraph setting, which has a private name; without it,
    AutoGraph is on.
    """
    return tf.function(
        function.python_function,
        autograph=getattr(function, "_autograph", True),
    )


class DatasetOver(_bases.Dataset):
    """A dataset that wraps another one."""

    def __init__(self, dataset: tf.data.Dataset):
        self.dataset = dataset
        super().__init__(tf.data.experimental.to_variant(dataset))

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self.dataset]


class VariableStandIn:
    """An object that an optimizer takes as a variable, by its unique id."""

    def __init__(self, unique_id: str):
        self._unique_id = unique_id
