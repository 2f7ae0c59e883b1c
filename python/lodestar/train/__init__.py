"""Training with snapshots, by threads, and on several machines."""

from lodestar.train.fit import evaluate, fit
from lodestar.train.predict import predict
from lodestar.train.schedule import join, schedule

__all__ = ["evaluate", "fit", "join", "predict", "schedule"]
