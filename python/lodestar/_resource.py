"""What outlives a call, and goes with the last object that can reach it."""

import contextlib
import copy
import uuid
import weakref
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, SupportsIndex

import tensorflow as tf

from lodestar import _private, _servers

# What is said of a resource whose process has ended, or goes with it.
_GONE = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnavailableError,
)


def gpu_in_scope() -> str | None:
    """The GPU that a `tf.device` around this names; None: there is none."""
    name = _private.device_in_scope()
    if not name or tf.distribute.has_strategy():
        return None
    if tf.DeviceSpec.from_string(name).device_type != "GPU":
        return None
    # As devices of this process are listed: without the job.
    return name.removeprefix("/job:localhost/replica:0/task:0")


class SharedResource(_private.Resource):
    """A resource of TensorFlow, of this object and its shallow copies.

    It goes with the last of them. A deep copy has a resource of its own that
    holds the same.

    Subclasses define `_make_resource`. Those with something to save are built
    on `SavedResource`.

    Args:
        name: What the resource's own name begins with.
        device: Where it lies; default: on the CPU of this process.
    """

    def __init__(self, name: str, device: str | None = None):
        super().__init__(device=device or "CPU")
        self._lies_on = device
        self._resource_name = name
        # Not from id(self), which Python uses again: a new table must never
        # open what a dead one has left. TensorFlow refuses names that begin
        # with an underscore.
        self._unique_name = f"lodestar_{name}_{uuid.uuid4().hex}"
        # What this is a shallow copy of. Strongly: the resource goes with it,
        # and others may know it weakly.
        self._copied_from: SharedResource | None = None

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        """Returns the handle of the resource, creating it if necessary.

        Args:
            shared_name: As the attribute of the op.
            container: As the attribute of the op; empty unless the resource is
                on a server.
        """
        raise NotImplementedError

    @property
    def device(self) -> str | None:
        """Where the resource lies; None: on the CPU of this process."""
        return self._lies_on

    def on_device(self) -> contextlib.AbstractContextManager[None]:
        """Within, ops run where the resource lies, if it has a device."""
        if self._lies_on is None:
            return contextlib.nullcontext()
        return tf.device(self._lies_on)

    # What TensorFlow calls to make, fill and drop the resource; all are traced
    # into a SavedModel, so that it loads without our classes.

    def _make(self) -> tf.Tensor:
        """Makes the resource, which goes with this object."""
        server = None
        if tf.executing_eagerly():
            server = _servers.claim(self._lies_on or _private.device_in_scope())
        handle = self._make_resource(
            self._unique_name, "" if server is None else server.program
        )
        if not tf.is_symbolic_tensor(handle):
            # At exit the memory of this process is freed anyway, and servers
            # remove the container of this program.
            owner = self._copied_from or self
            weakref.finalize(owner, _destroy, handle).atexit = False
        return handle

    def _drop(self) -> None:
        """Destroys the resource."""
        tf.raw_ops.DestroyResourceOp(
            resource=self.resource_handle, ignore_lookup_error=True
        )

    def __del__(self) -> None:
        # TensorFlow's own would destroy what others still use: it copies this
        # object to export it.
        pass

    def __copy__(self) -> "SharedResource":
        copied = type(self).__new__(type(self))
        # No assignment: an attribute is a part where Keras tracks them.
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
        """Stays as long as the functions that are being traced, if any.

        They read it whenever they run, though who traces may be done with it.
        """
        graph = tf.compat.v1.get_default_graph()
        while hasattr(graph, "outer_graph"):
            kept = getattr(graph, "_lodestar_resources", ())
            graph._lodestar_resources = (*kept, self)
            graph = graph.outer_graph

    def _take_content(self, other: Any) -> None:
        """Makes the content of `other`, of the same arguments, this one's."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled: its content is not Python's. Save it "
            "with tf.train.Checkpoint or lodestar.snapshot, or pickle the Keras "
            "model that holds it."
        )


def scalar_if_empty(tensor: tf.Tensor) -> tf.Tensor:
    """Returns a scalar in place of a tensor without elements, for a checkpoint.

    TensorFlow cannot restore a tensor without elements that was saved with
    `MaxShardSizePolicy`: it leaves numbers out of the file and fails on strings.
    """
    if not tf.executing_eagerly():
        # A SavedModel restores what has the shape that is traced here, and its
        # own file is written eagerly.
        return tf.raw_ops.PlaceholderWithDefault(
            input=tensor, shape=tf.TensorShape(None)
        )
    if tensor.shape.num_elements():
        return tensor
    with tf.device(tensor.device):
        return tf.zeros([], tensor.dtype)


def unless_scalar(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor, or a vector without elements if it is a scalar.

    Where the rank is not known before the graph runs, the result is a vector.
    """
    if tensor.shape.rank is not None:
        return tensor if tensor.shape.rank else tf.zeros([0], tensor.dtype)
    flat = tf.reshape(tensor, [-1])
    size = tf.size(flat, tf.int64)
    # In a graph of TensorFlow 1, where SavedModels are written, == is `is`.
    empty = tf.equal(tf.rank(tensor), 0)
    return flat[: tf.where(empty, tf.zeros_like(size), size)]


class SavedState(_private.Saved):
    """What a checkpoint holds, and an asynchronous one captures at its begin.

    Subclasses define `_saved_tensors` and `_restore_tensors`.
    """

    def _saved_tensors(self) -> dict[str, tf.Tensor]:
        """Returns the content by the names that a checkpoint gives it."""
        raise NotImplementedError

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        """Returns `_saved_tensors()`, for a checkpoint.

        Raises:
            RuntimeError: An asynchronous checkpoint has not captured them.
        """
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
    """A SharedResource whose content is part of checkpoints.

    Subclasses define `_saved_tensors` and `_restore_tensors`.
    """

    def _take_content(self, other: "SavedResource") -> None:
        self._restore_tensors(other._saved_tensors())


class _Capture(_private.Saved, tf.Module):
    """The content of an object when an asynchronous checkpoint began.

    TensorFlow saves it in place of the object, in another thread. It keeps
    the capture for later saves, so the content is dropped once it is written.
    """

    def __init__(self, saved: SavedState):
        super().__init__()
        # Not as attributes of a module, which would track them.
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
    # Maybe in the middle of a trace, where the collector runs.
    with _private.eager_mode(), contextlib.suppress(*_GONE):
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def _forget(forget: Callable[[str], None], name: str) -> None:
    # As in `_destroy`: the op must not become part of what is traced.
    with _private.eager_mode():
        forget(name)


@contextlib.contextmanager
def naming_devices(what: str, done: Sequence[str | None]) -> Iterator[None]:
    """Within, an error says on which devices `what` has been `done` before."""
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
    """A name by which the op library knows something, until this is gone.

    Shallow copies of what holds it hold the same.

    Args:
        kind: Of what holds it, for messages.
        forget: Called with the name in the end.
    """

    def __init__(self, kind: str, forget: Callable[[str], None]):
        self.text = uuid.uuid4().hex
        self._kind = kind
        weakref.finalize(self, _forget, forget, self.text)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{self._kind} cannot be deep-copied or pickled: its content is "
            "not Python's."
        )


class NotCopied:
    """Refuses to be copied or pickled; subclasses say what to do instead."""

    _instead_of_copy: str

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled: "
            f"{self._instead_of_copy}"
        )
