"""Resources of the op library, owned by Python objects."""

import contextlib
import copy
import inspect
import uuid
import weakref
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, SupportsIndex

import tensorflow as tf

from lodestar import _private, _servers
from lodestar._library import gen_ops

# Errors for a resource whose process has ended or is ending.
_GONE = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnavailableError,
)


def gpu_in_scope() -> str | None:
    """Returns the GPU of the surrounding `tf.device`, or None."""
    name = _private.device_in_scope()
    if not name or tf.distribute.has_strategy():
        return None
    if tf.DeviceSpec.from_string(name).device_type != "GPU":
        return None
    # Devices of this process are listed without the job.
    return name.removeprefix("/job:localhost/replica:0/task:0")


class SharedResource(_private.Resource):
    """A TensorFlow resource of this object and its shallow copies.

    It is destroyed with the last of them and of the functions that captured its
    handle. On a server, it is destroyed with the last of them. A deep copy has its
    own resource with the same content.

    Subclasses define `_make_resource`. Those with content to save derive from
    `SavedResource`.

    Args:
        name: Prefix of the resource's name.
        device: Device of the resource. Defaults to the CPU of this process.
    """

    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        # For `help` and completion, which would show the arguments of
        # TensorFlow's metaclass, (*args, **kwargs).
        of_init = inspect.signature(cls.__init__)
        _, *arguments = of_init.parameters.values()
        cls.__signature__ = of_init.replace(parameters=arguments)

    def __init__(self, name: str, device: str | None = None):
        super().__init__(device=device or "CPU")
        self._lies_on = device
        self._resource_name = name
        # Not id(self), which Python reuses: a new table must never open the
        # resource of a dead one. TensorFlow refuses names that begin with an
        # underscore.
        self._unique_name = f"lodestar_{name}_{uuid.uuid4().hex}"
        # The original of a shallow copy. A strong reference, because the original
        # owns the resource.
        self._copied_from: SharedResource | None = None

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        """Returns the handle of the resource, creating it if needed.

        `shared_name` and `container`, empty unless on a server, are attributes
        of the op.
        """
        raise NotImplementedError

    @property
    def device(self) -> str | None:
        """Device of the resource, or None for the CPU of this process."""
        return self._lies_on

    def on_device(self) -> contextlib.AbstractContextManager[None]:
        """Runs ops on the device of the resource, if it has one."""
        if self._lies_on is None:
            return contextlib.nullcontext()
        return tf.device(self._lies_on)

    # TensorFlow calls these and traces them into a SavedModel, so that it loads
    # without our classes.

    def _make(self) -> tf.Tensor:
        """Makes the resource, which this object owns."""
        server = None
        if tf.executing_eagerly():
            server = _servers.claim(self._lies_on or _private.device_in_scope())
        handle = self._make_resource(
            self._unique_name, "" if server is None else server.program
        )
        if not tf.is_symbolic_tensor(handle):
            # At exit the process frees its memory, and servers remove the
            # container of this program.
            owner = self._copied_from or self
            weakref.finalize(owner, _destroy, handle).atexit = False
        return handle

    def _drop(self) -> None:
        """Destroys the resource, once no function has its handle."""
        gen_ops.lodestar_release_resource(self.resource_handle)

    def __del__(self) -> None:
        # TensorFlow copies this object to export it, and its own version would
        # destroy the shared resource.
        pass

    def __copy__(self) -> "SharedResource":
        copied = type(self).__new__(type(self))
        # Assigning an attribute would track it in Keras.
        copied.__dict__.update(
            self.__dict__, _copied_from=self._copied_from or self
        )
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> "SharedResource":
        if self._copied_from is not None:
            return copy.copy(copy.deepcopy(self._copied_from, memo))
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        SharedResource.__init__(copied, self._resource_name, self._lies_on)
        made = copied.__dict__
        for name, value in _private.copied_attributes(self).items():
            if name not in made:
                made[name] = copy.deepcopy(value, memo)
        with tf.init_scope():
            copied._take_content(self)
        return copied

    def keep_for_graph(self) -> None:
        """Keeps this alive as long as the functions being traced, if any.

        They read it whenever they run.
        """
        graph = tf.compat.v1.get_default_graph()
        while hasattr(graph, "outer_graph"):
            kept = getattr(graph, "_lodestar_resources", ())
            graph._lodestar_resources = (*kept, self)
            graph = graph.outer_graph

    def _take_content(self, other: Any) -> None:
        """Copies the content of `other`, which has the same arguments."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled: its content is outside of Python. Save "
            "it with tf.train.Checkpoint or lodestar.snapshot, or pickle the Keras "
            "model that holds it."
        )


def scalar_if_empty(tensor: tf.Tensor) -> tf.Tensor:
    """Replaces a tensor without elements by a scalar, for a checkpoint.

    TensorFlow cannot restore an empty tensor that was saved with
    `MaxShardSizePolicy`: it omits numbers from the file and fails for strings.
    """
    if not tf.executing_eagerly():
        # A SavedModel restores tensors of the traced shape, and its own file is
        # written eagerly.
        return tf.raw_ops.PlaceholderWithDefault(
            input=tensor, shape=tf.TensorShape(None)
        )
    if tensor.shape.num_elements():
        return tensor
    with tf.device(tensor.device):
        return tf.zeros([], tensor.dtype)


def unless_scalar(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor, or an empty vector if it is a scalar.

    If the rank is unknown before the graph runs, the result is a vector.
    """
    if tensor.shape.rank is not None:
        return tensor if tensor.shape.rank else tf.zeros([0], tensor.dtype)
    flat = tf.reshape(tensor, [-1])
    size = tf.size(flat, tf.int64)
    # In a TensorFlow 1 graph, where SavedModels are written, == is `is`.
    empty = tf.equal(tf.rank(tensor), 0)
    return flat[: tf.where(empty, tf.zeros_like(size), size)]


class SavedState(_private.Saved):
    """Content of checkpoints, which an asynchronous checkpoint captures when it begins.

    Subclasses define `_saved_tensors` and `_restore_tensors`.
    """

    def _saved_tensors(self) -> dict[str, tf.Tensor]:
        """Returns the content by checkpoint name."""
        raise NotImplementedError

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        """Returns `_saved_tensors()`, for a checkpoint."""
        if _private.writes_async_checkpoint():
            raise RuntimeError(
                f"{self!r} is not in this asynchronous checkpoint: it was "
                "created after the first asynchronous save of this "
                "tf.train.Checkpoint, and its content would be newer than the "
                "rest. Make a new tf.train.Checkpoint, or save without "
                "`experimental_enable_async_checkpoint`."
            )
        return self._saved_tensors()

    def _capture_for_checkpoint(
        self, captures: MutableMapping[Any, Any]
    ) -> None:
        """Captures the content."""
        if self not in captures:
            captures[self] = _Capture(self)
        take = captures[self].take
        if tf.executing_eagerly():
            take()
        else:
            tf.py_function(take, [], [])


class SavedResource(SavedState, SharedResource):
    """A SharedResource with content in checkpoints.

    Subclasses define `_saved_tensors` and `_restore_tensors`.
    """

    def _take_content(self, other: "SavedResource") -> None:
        self._restore_tensors(other._saved_tensors())


class _Capture(_private.Saved, tf.Module):
    """The content of an object when an asynchronous checkpoint began.

    TensorFlow saves it instead of the object, in another thread. It keeps the
    capture for later saves, so the content is dropped once it is written.
    """

    def __init__(self, saved: SavedState):
        super().__init__()
        # As attributes of a module they would be tracked.
        object.__setattr__(self, "_saved", saved)
        object.__setattr__(self, "_content", None)

    def take(self) -> None:
        """Captures the content."""
        object.__setattr__(self, "_content", self._saved._saved_tensors())

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        """Returns the content, once."""
        content = self._content
        if content is None:
            raise RuntimeError(f"{self._saved!r} was not captured.")
        object.__setattr__(self, "_content", None)
        return content


def _destroy(handle: tf.Tensor) -> None:
    # Garbage collection may run in the middle of a trace.
    with _private.eager_mode(), contextlib.suppress(*_GONE):
        gen_ops.lodestar_release_resource(handle)


def _forget(forget: Callable[[str], None], name: str) -> None:
    # As in `_destroy`, the op must not become part of a trace.
    with _private.eager_mode():
        forget(name)


@contextlib.contextmanager
def naming_devices(what: str, done: Sequence[str | None]) -> Iterator[None]:
    """Adds to errors the devices on which `what` was already done."""
    try:
        yield
    except tf.errors.OpError as error:
        if not done:
            raise
        names = ", ".join(name or "this process" for name in done)
        raise type(error)(
            error.node_def,
            error.op,
            f"{error.message} ({what} was done on {names} before.)",
        ) from error


class OwnedName:
    """A name in the op library until this object is freed; then calls `forget` with it.

    Shallow copies of its owner, of `kind`, share it.
    """

    def __init__(self, kind: str, forget: Callable[[str], None]):
        self.text = uuid.uuid4().hex
        self._kind = kind
        weakref.finalize(self, _forget, forget, self.text)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{self._kind} cannot be deep-copied or pickled: its content is "
            "outside of Python."
        )


class NotCopied:
    """Refuses to be copied or pickled; subclasses define the alternative."""

    _instead_of_copy: str

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled: "
            f"{self._instead_of_copy}"
        )
