"""Keras optimizers for models with tables.

Each class has the name and the constructor of the Keras class that it derives from,
and trains dense weights and rows of tables with the same formula. RowWiseAdagrad,
which Keras lacks, has the constructor of Adagrad.
"""

from lodestar.embedding.table_variable import TableVariable
from lodestar.optimizers.gradients import clip_by_global_norm
from lodestar.optimizers.keras_optimizers import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Ftrl,
    Lion,
    Nadam,
    RMSprop,
    RowWiseAdagrad,
)
from lodestar.optimizers.loss_scale_optimizer import LossScaleOptimizer
from lodestar.optimizers.wrap import wrap

# A table's own optimizer trains it under a plain Keras optimizer.
TableVariable._wrap_optimizer = staticmethod(wrap)

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lion",
    "LossScaleOptimizer",
    "Nadam",
    "RMSprop",
    "RowWiseAdagrad",
    "clip_by_global_norm",
    "wrap",
]
__dir__ = __all__.copy
