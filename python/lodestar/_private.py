"""The only module that names private parts of TensorFlow or Keras; says why.

Each is read with `_module` and `getattr`, so that its absence in another release
gives a safe answer, and overridden in a class below, whose names are our own.
"""

import contextlib
import functools
import importlib
import sys
import traceback
import types
import weakref
from collections.abc import Mapping, MutableMapping
from typing import Any

import keras
import tensorflow as tf


@functools.cache
def _module(name: str) -> types.ModuleType | None:
    """Returns a module, or None if this release has none of that name."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# The class of all that Keras looks for in attributes when it writes files;
# public ones that have it as a base are layers, metrics and optimizers.
KerasSaveable: Any = getattr(
    _module("keras.src.saving.keras_saveable"),
    "KerasSaveable",
    type("KerasSaveable", (), {}),
)


# What classes below override, by the class that must call it.
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
    """Checks that TensorFlow and Keras call what classes here override.

    Raises:
        ImportError: They do not, so that tables would not be saved.
    """
    for cls, names in _OVERRIDDEN.items():
        missing = [name for name in names if not hasattr(cls, name)]
        if missing:
            raise ImportError(
                f"lodestar: {cls.__name__} has no {', '.join(missing)} in "
                f"TensorFlow {tf.__version__} with Keras {keras.__version__}, "
                "without which tables would not be saved. Install releases "
                "that Lodestar was tried with; see "
                "docs/internals/releases.md."
            )


check_overridden()


class Resource(tf.saved_model.experimental.TrackableResource):
    """What TensorFlow calls to make, fill and drop a resource.

    TensorFlow documents these methods to be overridden, under private names.
    It traces them into a SavedModel. Subclasses define `_make` and `_drop`.
    """

    def _make(self) -> tf.Tensor:
        """Returns the handle of the resource, which this may create."""
        raise NotImplementedError

    def _fill(self) -> Any:
        """Fills the resource after it was loaded from a SavedModel."""

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
    """What TensorFlow calls to save and restore an object.

    TensorFlow documents the first two to be overridden, under private names.
    Subclasses define the first three methods.
    """

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        """Returns the content by the names that a checkpoint gives it."""
        raise NotImplementedError

    def _restore_tensors(self, saved: Mapping[str, tf.Tensor]) -> Any:
        """Takes what `_tensors_to_save` returned."""
        raise NotImplementedError

    def _capture_for_checkpoint(
        self, captures: MutableMapping[Any, Any]
    ) -> None:
        """Sets `captures[self]` to what an asynchronous checkpoint saves.

        TensorFlow calls it eagerly for the first save of a checkpoint. For
        later saves it traces the call once and then runs the trace.
        """
        raise NotImplementedError

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return self._tensors_to_save()

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        return self._restore_tensors(restored_tensors)

    @tf.autograph.experimental.do_not_convert
    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        self._capture_for_checkpoint(object_map)


def _in_save_context() -> bool | None:
    """Returns whether the graph of a SavedModel is being made, if known."""
    module = _module("tensorflow.python.saved_model.save_context")
    inside = getattr(module, "in_save_context", None)
    return None if inside is None else bool(inside())


class Variable(Saved, keras.Variable, KerasSaveable):
    """A `keras.Variable` whose subclasses say what TensorFlow and Keras save.

    Keras's files come to it where it is an attribute, and call its
    `save_own_variables` and `load_own_variables`.
    """

    def _value_made(self, value: tf.Variable) -> None:
        """Called with the variable of TensorFlow that holds the value.

        That is later than `__init__` in a stateless scope of Keras.
        """

    def _saved_children(self, save_type: str) -> dict[str, Any]:
        """Returns what a "checkpoint" or "savedmodel" holds below this."""
        raise NotImplementedError

    def _initialize(self, value: Any) -> None:
        # As Keras does, but for `name`, which subclasses override: a SavedModel
        # does not take every name.
        self._value = tf.Variable(
            value,
            dtype=self._dtype,
            trainable=self._trainable,
            name=self._name,
        )
        self._value_made(self._value)

    def _exported(self, exported: Mapping[Any, Any]) -> Saved:
        """Returns what saves this in the graph of a SavedModel.

        Args:
            exported: What stands in that graph for the children; filled later.
        """
        raise NotImplementedError

    def _trackable_children(
        self, save_type: str = "checkpoint", **kwargs: Any
    ) -> dict[str, Any]:
        if save_type == "savedmodel" and _in_save_context() is None:
            raise RuntimeError(
                f"{self!r} cannot be in a SavedModel of TensorFlow "
                f"{tf.__version__}, which Lodestar was not made for. Use "
                "lodestar.export.save_plain, or another release of "
                "TensorFlow."
            )
        children: dict[str, Any] = super()._trackable_children(
            save_type, **kwargs
        )
        return {**children, **self._saved_children(save_type)}

    @property
    def _should_act_as_resource_variable(self) -> bool:
        # In a SavedModel it is an object with content and children; a function
        # that is traced meanwhile may ask for its gradient.
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

    __reduce__ = object.__reduce__  # Keras's own copies through a file


def copied_attributes(value: Any) -> dict[str, Any]:
    """Returns the attributes of `value` that a copy of it takes over.

    Those of TensorFlow say what is tracked, and are made with the copy.
    """
    return {k: v for k, v in vars(value).items() if not k.startswith("_self_")}


def source_of_ops(path: str) -> str | None:
    """Loads a library of ops, and returns the source of their functions.

    `tf.load_op_library` compiles all of it at once. Without the private names
    None, and nothing was loaded.

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
    """Runs ops now, whatever graph is being built around.

    `tf.init_scope` ends at a `tf.Graph`, and would put the op into it; the
    collector may come anywhere. Without the internal name that is how it is.
    """
    return getattr(_eager_context(), "eager_mode", tf.init_scope)()


def _eager_context() -> Any:
    internal = getattr(tf, "__internal__", None)
    return getattr(internal, "eager_context", None)


def device_in_scope() -> str:
    """The device of the innermost `tf.device` around, as eager ops see it.

    Public API tells only where an op ends up, which on a machine with a GPU is
    the GPU though nobody has asked for it. "" where no device was named, and
    without the internal name.
    """
    name = getattr(_eager_context(), "get_device_name", None)
    return (name() if name is not None else "") or ""


def addresses_of_cluster() -> dict[tuple[str, int], str]:
    """Returns job and task -> `host:port` of the other tasks of the cluster.

    TensorFlow does not say publicly what `experimental_connect_to_cluster` has
    connected this program to. Without the private name there are none.
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


def tape_is_recording() -> bool:
    """Returns whether a gradient tape or forward accumulator is recording.

    Keras leaves `training=None` inside a subclassed `Model.call` that takes no
    `training`; then only the state of the tape separates a training step from
    `predict` and `export`, and TensorFlow has no public name for that state.
    Without the private name the answer is False: what only reads must add no
    rows. See `tape_may_record`.
    """
    recording = _could_possibly_record()
    return recording is not None and recording()


def _could_possibly_record() -> Any:
    record = _module("tensorflow.python.eager.record")
    return getattr(record, "could_possibly_record", None)


def tape_may_record() -> bool:
    """Returns whether a tape is recording, or that is not known.

    A lookup must then be differentiable.
    """
    recording = _could_possibly_record()
    return recording is None or recording()


def writes_async_checkpoint() -> bool:
    """Returns whether this thread writes an asynchronous checkpoint.

    TensorFlow chooses what such a checkpoint copies when it is first saved, and
    later reads everything else as it is while the thread writes. No public API
    tells that thread from one that saves in the ordinary way. Without the
    private name the answer is False: ordinary checkpoints must always work.
    """
    context = _module("tensorflow.python.checkpoint.checkpoint_context")
    inside = getattr(context, "in_async_metrics_context", None)
    return False if inside is None else inside()


def uses_weight_decay(
    optimizer: keras.optimizers.Optimizer, variable: keras.Variable
) -> bool:
    """Returns whether `optimizer` decays `variable`.

    `Optimizer.exclude_from_weight_decay` is public, but what it excluded can be
    asked only here.

    Raises:
        RuntimeError: There is no such private name.
    """
    if not optimizer.weight_decay:
        return False
    asks = getattr(optimizer, "_use_weight_decay", None)
    if asks is None:
        raise RuntimeError(
            f"Keras {keras.__version__} does not say which variables "
            f"'{optimizer.name}' excludes from weight decay. Leave out "
            "`weight_decay`, or install a release of Keras that Lodestar was "
            "tried with."
        )
    return bool(asks(variable))


def loss_tracker(model: keras.Model) -> keras.metrics.Metric | None:
    """The metric in which Keras's own steps take the mean of the loss.

    It is the first of `model.metrics`, unless the model overrides them. Without
    the private name there is none.
    """
    return getattr(model, "_loss_tracker", None)


def restored_epoch(model: keras.Model) -> int | None:
    """The epoch from which Keras's BackupAndRestore lets `model` go on.

    It tells nobody but the model. Without the private name there is none.
    """
    return getattr(model, "_initial_epoch", None)


def share_counters(
    copy: keras.optimizers.Optimizer, original: keras.optimizers.Optimizer
) -> None:
    """Makes `copy` count and learn as `original` does, by private names too.

    An `update_step` may read these names in place of the public properties,
    as many that are written after Keras's own do. Without them it cannot.
    """
    for name in ("_iterations", "_learning_rate"):
        if hasattr(original, name):
            setattr(copy, name, getattr(original, name))


def raw_iterations(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Returns the variable that counts the calls of `optimizer.apply`.

    With gradient accumulation the public `iterations` is another number, those
    of the updates, and no variable. Without the private name it is the first
    of the optimizer's variables.
    """
    counter = getattr(optimizer, "_iterations", None)
    return optimizer.variables[0] if counter is None else counter


def files_hold_variables() -> bool:
    """Whether Keras's files find a variable that saves itself."""
    return issubclass(keras.layers.Layer, KerasSaveable)


def writes_legacy_file() -> bool:
    """Whether Keras writes or reads a legacy .h5 file, which holds no rows.

    It asks for the values of variables as for other files. A private option
    and the name of the module that asks both tell; one is enough.
    """
    return bool(_global("use_legacy_config")) or any(
        "legacy" in (name := frame.f_globals.get("__name__", ""))
        and name.startswith("keras.")
        for frame, _ in traceback.walk_stack(None)
    )


def _global(name: str) -> Any:
    """Returns a global attribute of Keras; None: it has none of that name."""
    module = _module("keras.src.backend.common.global_state")
    get = getattr(module, "get_global_attribute", None)
    return None if get is None else get(name)


def set_keras_mask(tensor: Any, mask: Any) -> None:
    """Gives `tensor` the mask that the Keras layers that take it read.

    Keras's guide to masking shows the attribute, but only layers can set it by
    public API, and a layer per call is slow.

    Raises:
        RuntimeError: Keras's own layers set another one.
    """
    if not _keras_masks_have_this_name():
        raise RuntimeError(
            f"Keras {keras.__version__} does not say under which name layers "
            "look for a mask. Use keras.layers.Masking, or install a release "
            "of Keras that Lodestar was tried with."
        )
    tensor._keras_mask = mask


@functools.cache
def _keras_masks_have_this_name() -> bool:
    with tf.init_scope():
        masked = keras.layers.Masking(name="of_lodestar")(tf.zeros([1, 1, 1]))
    return hasattr(masked, "_keras_mask")


def is_symbolic_build() -> bool:
    """Returns whether Keras runs a `call` only to build what it calls.

    It does so in a graph that never runs, before a file is loaded or a model is
    first called. The scope around it is public, but what it was entered in has
    no documented name. Without that name the answer is False, and a layer that
    cannot run yet raises during the build as it does otherwise.
    """
    with keras.SymbolicScope() as scope:
        return getattr(scope, "original_scope", None) is not None


def is_onnx_export() -> bool:
    """Returns whether Keras is tracing a model to export it to ONNX.

    It traces the model as for a SavedModel and converts the graph afterwards,
    so only its module on the call stack shows the format. If that has another
    name the answer is False, and the conversion of our ops fails.
    """
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "keras.src.export.onnx":
            return True
        frame = frame.f_back
    return False


def model_that_is_called() -> keras.Model | None:
    """The outermost Keras model whose call is running.

    What a lookup is a part of, and so its optimizer, is known to Keras alone.
    Without the private name there is none, and errors say less.
    """
    layer = getattr(_global("current_call_ctx"), "entry_layer", None)
    return layer if isinstance(layer, keras.Model) else None


def layers_made_together() -> list[keras.layers.Layer]:
    """Returns the layers that a running clone or `from_config` has made so far.

    Keras makes each layer of a model from its config alone and tells it nothing
    of the others, so only local variables of the calling frames have them.
    Without those names there are none, and layers that share a table would get
    one each.
    """
    layers: list[keras.layers.Layer] = []
    for frame, _ in traceback.walk_stack(None):
        name = {
            "wrapped_clone_function": "cache",
            "functional_from_config": "created_layers",
        }.get(frame.f_code.co_name)
        made = frame.f_locals.get(name) if name else None
        if isinstance(made, dict):
            layers += made.values()
    return layers


def is_cloning() -> bool:
    """Returns whether `keras.models.clone_model` is copying a layer.

    It makes the copy from the layer's config, which is that of a file too.
    Without the private name the answer is False.
    """
    return any(
        frame.f_code.co_name == "wrapped_clone_function"
        for frame, _ in traceback.walk_stack(None)
    )


def layer_of(tensor: Any) -> Any:
    """Returns the layer that made a KerasTensor, or None.

    No public name leads from the input of a model to its layer. Without the
    private name there is none.
    """
    history = getattr(tensor, "_keras_history", None)
    return getattr(history, "operation", None)


# What callbacks of Keras count over the batches of a training.
_BATCH_COUNTERS = (
    "_global_train_batch",
    "_global_test_batch",
    "_batches_seen_since_last_saving",
    "_last_batch_seen",
)


def batch_counters(callback: keras.callbacks.Callback) -> dict[str, int | None]:
    """Returns what a callback of Keras counts over all batches.

    The step that TensorBoard writes beside a scalar of a batch, and when
    `save_freq` is due, is nothing that Keras gives out or takes in. Without the
    private names there is nothing: these begin anew.
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
    """Sets what `batch_counters` gave; other names are passed over."""
    for name in batch_counters(callback):
        if name in counters:
            setattr(callback, name, counters[name])


def forget_initial_epoch(model: keras.Model) -> None:
    """Lets `fit` begin with the epoch that it is given.

    A BackupAndRestore that has restored leaves its epoch in the model, and
    each `fit` after that begins there. Without the private name none does.
    """
    if hasattr(model, "_initial_epoch"):
        model._initial_epoch = None


def anew(function: tf.types.experimental.PolymorphicFunction) -> Any:
    """Returns a tf.function of the same Python function, with no trace yet.

    AutoGraph is what it was; TensorFlow gives that out under a private name
    only, without which it is on.
    """
    return tf.function(
        function.python_function,
        autograph=getattr(function, "_autograph", True),
    )


class DatasetOver(tf.data.Dataset):
    """A dataset over another one, as which TensorFlow sees it.

    Attributes:
        dataset: The other one.
    """

    def __init__(self, dataset: tf.data.Dataset):
        self.dataset = dataset
        super().__init__(tf.data.experimental.to_variant(dataset))

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self.dataset]


class VariableStandIn:
    """What an optimizer takes for a variable.

    Keras tells variables apart by a private attribute.

    Args:
        unique_id: String that no other variable has.
    """

    def __init__(self, unique_id: str):
        self._unique_id = unique_id


class _Former(tf.Module):
    """Stands for an object of former checkpoints that is bound a second time.

    TensorFlow restores each object once, from what it meets first. Checkpoints
    of former layouts hold a wrapper and, below it, the optimizer proper, both
    of which are now one object: the second has to be restored through another.

    Args:
        target: The object.
    """

    def __init__(self, target: Any):
        self._children: dict[str, Any]
        # Not tracked, which would look for children before there are any.
        object.__setattr__(self, "_children", {})
        object.__setattr__(self, "_target", weakref.ref(target))
        super().__init__(name="former")

    def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
        found = self._target()._lookup_dependency(name, *args, **kwargs)
        if name in self._children or found is None:
            return self._children.get(name)
        # The wrapper had these two variables as well.
        if name in ("_iterations", "_learning_rate"):
            self._children[name] = _FormerVariable(found)
        elif name == "_variables":
            self._children[name] = _Former(found)
        else:
            return found
        return self._children[name]


class _FormerVariable(Saved, tf.Module):
    """Restores a variable that has been restored before."""

    def __init__(self, variable: Any):
        super().__init__(name="former_variable")
        self._variable = weakref.ref(variable)

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        value = tf.convert_to_tensor(self._variable())
        return {"VARIABLE_VALUE": value}

    def _restore_tensors(self, saved: Mapping[str, tf.Tensor]) -> Any:
        variable: Any = self._variable()
        return variable.assign(saved["VARIABLE_VALUE"])


class CheckpointedOptimizer:
    """Lets checkpoints of earlier layouts restore an optimizer.

    They hold it as the child `inner_optimizer` of a wrapper. The name of the
    method is TensorFlow's own; without it those checkpoints do not restore.
    """

    def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name != "inner_optimizer":
            parent: Any = super()
            return parent._lookup_dependency(name, *args, **kwargs)
        if "former_inner" not in vars(self):
            # Not tracked: new checkpoints do not hold it.
            object.__setattr__(self, "former_inner", _Former(self))
        return vars(self)["former_inner"]
