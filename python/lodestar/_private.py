"""The only module that names private parts of TensorFlow or Keras; says why.

Each is wrapped so that its absence in another release gives a safe answer.
"""

import contextlib
import sys
import traceback
import types
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

try:
    from tensorflow.python.eager import record as _record
except ImportError:
    _record = None
try:
    from tensorflow.python.checkpoint import (
        checkpoint_context as _checkpoint_context,
    )
except ImportError:
    _checkpoint_context = None
try:
    from tensorflow.python.eager import context as _context
except ImportError:
    _context = None
try:
    # The class of all that Keras looks for in attributes when it writes files;
    # public ones that have it as a base are layers, metrics and optimizers.
    from keras.src.saving.keras_saveable import KerasSaveable as KerasSaveable
except ImportError:

    class KerasSaveable:  # type: ignore[no-redef]
        """Stands for Keras's own."""


try:
    from keras.src.saving import saving_lib as _saving_lib
except ImportError:
    _saving_lib = None
try:
    from keras.src.utils import summary_utils as _summary_utils
except ImportError:
    _summary_utils = None
try:
    from keras.src.backend.common import global_state as _global_state
except ImportError:
    _global_state = None


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """Runs ops now, whatever graph is being built around.

    `tf.init_scope` ends at a `tf.Graph`, and would put the op into it; the
    collector may come anywhere. Without the internal name that is how it is.
    """
    internal = getattr(tf, "__internal__", None)
    context = getattr(internal, "eager_context", None)
    return getattr(context, "eager_mode", tf.init_scope)()


def device_in_scope() -> str:
    """The device of the innermost `tf.device` around, as eager ops see it.

    Public API tells only where an op ends up, which on a machine with a GPU is
    the GPU though nobody has asked for it. "" where no device was named, and
    without the internal name.
    """
    internal = getattr(tf, "__internal__", None)
    module = getattr(internal, "eager_context", None)
    context = getattr(module, "get_device_name", None)
    return (context() if context is not None else "") or ""


def addresses_of_cluster() -> dict[tuple[str, int], str]:
    """Returns job and task -> `host:port` of the other tasks of the cluster.

    TensorFlow does not say publicly what `experimental_connect_to_cluster` has
    connected this program to. Without the private name there are none.
    """
    get_server_def = getattr(_context, "get_server_def", None)
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
    """Returns whether a gradient tape or forward accumulator may be recording.

    Keras leaves `training=None` inside a subclassed `Model.call` that takes no
    `training`; then only the state of the tape separates a training step from
    `predict` and `export`, and TensorFlow has no public name for that state.
    Without the private name the answer is True: a lookup then stays
    differentiable, which is what must never be lost silently.
    """
    if _record is None:
        return True
    return _record.could_possibly_record()


def writes_async_checkpoint() -> bool:
    """Returns whether this thread writes an asynchronous checkpoint.

    TensorFlow chooses what such a checkpoint copies when it is first saved, and
    later reads everything else as it is while the thread writes. No public API
    tells that thread from one that saves in the ordinary way. Without the
    private name the answer is False: ordinary checkpoints must always work.
    """
    inside = getattr(_checkpoint_context, "in_async_metrics_context", None)
    return False if inside is None else inside()


def uses_weight_decay(
    optimizer: keras.optimizers.Optimizer, variable: keras.Variable
) -> bool:
    """Returns whether `optimizer` decays `variable`.

    `Optimizer.exclude_from_weight_decay` is public, but what it excluded can be
    asked only here. Without the private name nothing counts as excluded.
    """
    asks = getattr(optimizer, "_use_weight_decay", None)
    return True if asks is None else asks(variable)


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


def walks_hooks() -> bool:
    """Whether Keras's files find a table by its hook."""
    return issubclass(keras.layers.Layer, KerasSaveable)


def writes_legacy_file() -> bool:
    """Whether Keras writes or reads a legacy .h5 file, which holds no rows.

    It asks for the values of variables as for other files. Without the private
    name the answer is True: rows must not be lost silently.
    """
    if _global_state is None:
        return True
    return bool(_global_state.get_global_attribute("use_legacy_config"))


def writes_file() -> bool:
    """Returns whether Keras is writing a `.keras` or `.weights.h5` file.

    Its stores convert variables with `np.array`, as any reader does, so only
    the calling frames tell. Without the private name the answer is True: files
    must stay loadable.
    """
    if _saving_lib is None:
        return True
    return any(
        frame.f_globals is vars(_saving_lib)
        for frame, _ in traceback.walk_stack(None)
    )


def counts_parameters() -> bool:
    """Returns whether Keras counts the parameters of variables.

    `summary` and `count_params` multiply the numbers in `Variable.shape`, and
    only the frame that reads it tells them from an optimizer, which allocates
    slots of that shape. Call this from the property. Without the private name
    the answer is False: summaries then leave out the rows of tables.
    """
    if _summary_utils is None:
        return False
    return sys._getframe(2).f_globals is vars(_summary_utils)


def own_variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Returns the variables that are attributes of `layer` itself.

    What Keras's own `save_own_variables` writes; `Layer.variables` has those of
    layers inside it too, which are written by themselves. Without the private
    names there are none.
    """
    return [
        *getattr(layer, "_trainable_variables", ()),
        *getattr(layer, "_non_trainable_variables", ()),
    ]


def set_keras_mask(tensor: Any, mask: Any) -> None:
    """Gives `tensor` the mask that the Keras layers that take it read.

    Keras's guide to masking shows the attribute, but only layers can set it by
    public API, and a layer per call is slow. Without it padding is not skipped.
    """
    tensor._keras_mask = mask


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

    What a look-up is a part of, and so its optimizer, is known to Keras alone.
    Without the private name there is none, and errors say less.
    """
    if _global_state is None:
        return None
    call = _global_state.get_global_attribute("current_call_ctx")
    layer = getattr(call, "entry_layer", None)
    return layer if isinstance(layer, keras.Model) else None


def model_that_makes_config() -> keras.Model | None:
    """Returns the innermost Keras model whose `get_config` is running.

    Keras does not tell a layer on whose behalf it is asked for its config, so
    only the calling frames tell.
    """
    for frame, _ in traceback.walk_stack(None):
        if frame.f_code.co_name == "get_config":
            model = frame.f_locals.get("self")
            if isinstance(model, keras.Model):
                return model
    return None


def running_optimizers() -> Iterator[keras.optimizers.Optimizer]:
    """Yields the Keras optimizers whose methods are running, innermost first.

    Keras assigns a gradient to a variable without saying on whose behalf, so
    only the calling frames tell.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, keras.optimizers.Optimizer):
            yield found
        frame = frame.f_back


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


def callbacks_of_fit() -> list[Any]:
    """Returns the callbacks of the innermost `fit` that calls this, if any.

    A layer is told nothing of callbacks, and they are in no attribute of the
    model. So this looks for a local variable of `fit`, Keras's or our own.
    Without that name it finds none.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "fit":
            callbacks = frame.f_locals.get("callbacks")
            if isinstance(callbacks, keras.callbacks.CallbackList):
                return list(callbacks.callbacks)
        frame = frame.f_back
    return []


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


class CheckpointedOptimizer:
    """Lets checkpoints of earlier layouts restore an optimizer.

    They hold it as the child `inner_optimizer` of a wrapper. The name of the
    method is TensorFlow's own; without it those checkpoints do not restore.
    """

    def _lookup_dependency(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "inner_optimizer":
            return self
        return super()._lookup_dependency(name, *args, **kwargs)
