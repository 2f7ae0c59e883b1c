"""Training with snapshots, by threads that share a model, and on many machines."""

from lodestar.train.fit import evaluate, fit
from lodestar.train.predict import predict
from lodestar.train.schedule import join, schedule

__all__ = ["evaluate", "fit", "join", "predict", "schedule"]
