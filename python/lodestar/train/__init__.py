"""Training by threads that share a model, and on several machines."""

from lodestar.train.fit import evaluate, fit
from lodestar.train.predict import predict
from lodestar.train.schedule import join, schedule
from lodestar.train.train_from_dataset import train_from_dataset

__all__ = [
    "evaluate",
    "fit",
    "join",
    "predict",
    "schedule",
    "train_from_dataset",
]
