"""Tracks which optimizer object owns a table's optimizer slots.

In Keras, the slots of a dense weight belong to one optimizer object, and a model
compiled with another optimizer starts with fresh slots. A table has one set of
slots, owned by the optimizer that last started to train it. A new owner keeps the
slots if it resumes from the same saved state as the table; otherwise it starts
with fresh slots.
"""

import itertools
import threading
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._library import gen_ops

_DROPPED = (
    "Optimizer '{optimizer}' starts with fresh slots for {tables}, as for "
    "dense weights. The slots of the optimizer that trained the rows before "
    "({formers}) were dropped. To keep them, train with the same optimizer "
    "object and set its `learning_rate`. To resume saved training, restore "
    "into a model that is compiled already, or restore its optimizer with it."
)

# Orders the creation of optimizers and the restoring of tables.
_moments = itertools.count(1)
# Several threads may make the first step of a new optimizer.
_lock = threading.Lock()


def now() -> int:
    """Returns a higher number on every call."""
    return next(_moments)


class SlotOwner:
    """The optimizer that owns the slots of one table."""

    def __init__(self) -> None:
        self._owned = False  # whether it ever had an owner
        self._owners: weakref.WeakSet[Any] = weakref.WeakSet()
        self._restored = 0  # when, after the owner took the slots; else 0

    def restored(self) -> None:
        """Records that a checkpoint, file or snapshot was loaded."""
        self._restored = now()

    def __deepcopy__(self, memo: dict[int, Any]) -> "SlotOwner":
        # The slots of a copied table belong to the same optimizers.
        copied = SlotOwner()
        copied._owned = self._owned
        copied._owners = self._owners.copy()
        copied._restored = self._restored
        return copied

    def is_known_to(self, optimizer: keras.optimizers.Optimizer) -> bool:
        """Whether `optimizer` is or was the owner.

        A former owner never takes the slots back. It shares the slots of an
        optimizer of its kind, and the op refuses its updates of other slots.
        """
        return optimizer in self._owners

    def own(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Makes `optimizer` the owner."""
        self._owned = True
        self._owners.add(optimizer)
        self._restored = 0

    def kept_by(self, claim: "Claim") -> str:
        """Returns which slots a new owner keeps: "none", "equal" or "all".

        "equal" keeps slots of the same kind of optimizer. "all" also keeps other slots,
        which the update op then refuses with the names of both optimizers.
        """
        # A step that is being traced may replace values by its tensors.
        with keras.StatelessScope():
            steps = int(
                tf.convert_to_tensor(_private.raw_iterations(claim.optimizer))
            )
        if self._restored > claim.made or steps > 0:
            return "all"
        # Without dense weights, no other slots could disagree with these.
        if not self._owned and not claim.trains_dense:
            return "equal"
        return "none"


class Claim(NamedTuple):
    """An optimizer that is about to train a table.

    Attributes:
        table: The table.
        optimizer: The Keras optimizer whose rule updates the rows.
        made: When the optimizer was made; 0 if it belongs to the table.
        trains_dense: Whether it also trains dense weights.
        kind: Name of the optimizer in the op library.
        slot_names: Names of an unfused optimizer's slots, else empty.
        slot_inits: Initial value of each slot.
    """

    table: Any
    optimizer: keras.optimizers.Optimizer
    made: int
    trains_dense: bool
    kind: str
    slot_names: Sequence[str]
    slot_inits: Sequence[float]


def take_over(claims: Sequence[Claim]) -> None:
    """Makes optimizers own the slots of the tables they are about to train; eager only.

    Drops slots of other owners with one warning. If an optimizer resumes, slots of
    another kind stay for the update op to refuse. Fails if steps of other threads leave
    no pause for a minute.
    """
    dropped = []
    with _lock:
        for claim in claims:
            slots = claim.table._slots
            if slots.is_known_to(claim.optimizer):
                continue
            former, fits = _restart(claim, slots.kept_by(claim))
            if former:
                dropped.append((claim, former))
            if fits:
                slots.own(claim.optimizer)
    if dropped:
        names = dict.fromkeys(claim.optimizer.name for claim, _ in dropped)
        warnings.warn(
            _DROPPED.format(
                optimizer="', '".join(names),
                tables=", ".join(repr(c.table) for c, _ in dropped),
                formers=", ".join(dict.fromkeys(f for _, f in dropped)),
            ),
            stacklevel=2,
        )


def _restart(claim: Claim, keep: str) -> tuple[str, bool]:
    """Returns whose slots were dropped, and whether the remaining slots fit."""
    former, all_fit = "", True
    for part in claim.table._parts:
        dropped, fits = part.call(
            gen_ops.lodestar_embedding_restart_slots,
            optimizer=claim.kind,
            slot_names=list(claim.slot_names),
            slot_inits=list(claim.slot_inits),
            keep=keep,
        )
        former = former or dropped.numpy().decode()
        all_fit = all_fit and bool(fits)
    return former, all_fit
