"""Training by threads that share a model, and on several machines."""

from lodestar.train.train_from_dataset import train_from_dataset

__all__ = ["train_from_dataset"]
