"""Training by threads that share a model, and on several machines."""

from lodestar.train.fit import evaluate, fit
from lodestar.train.train_from_dataset import train_from_dataset

__all__ = ["evaluate", "fit", "train_from_dataset"]
