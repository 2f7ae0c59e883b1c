"""Training with snapshots, in threads that share a model, and on clusters."""

from lodestar.train.fit import evaluate, fit
from lodestar.train.predict import predict
from lodestar.train.scheduler import Scheduler

__all__ = ["Scheduler", "evaluate", "fit", "predict"]
__dir__ = __all__.copy
