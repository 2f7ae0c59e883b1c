"""The sides of PyTorch and FBGEMM in results.py.

Ids become indices on the way in: by a vocabulary of the training file, where
index 0 is for other values, or by the remainder of the hash. The export is a
file of the weights and the vocabulary, and a request is a call of Python.
"""

import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
    EmbeddingLocation,
)
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    OptimType,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from benchmarks.peers import training


class Indices:
    """Turns the ids of each column into indices."""

    def __init__(self, task: training.Task):
        self._task = task
        self._vocabularies: dict[str, pa.Array] = {}
        self._places: dict[str, dict[Any, int]] = {}
        if not task.buckets:
            for name in task.ids:
                column = pq.read_table(task.train, columns=[name])[name]
                self._vocabularies[name] = pc.unique(column)
        self.sizes = [
            task.buckets or len(self._vocabularies[name]) + 1
            for name in task.ids
        ]

    def __call__(self, batch: pa.RecordBatch) -> np.ndarray:
        """Returns int64 `[columns, B]`."""
        return np.stack(
            [self._column(name, batch[name]) for name in self.names]
        )

    @property
    def names(self) -> list[str]:
        """The id columns."""
        return self._task.ids

    def _column(self, name: str, ids: pa.Array) -> np.ndarray:
        if self._task.buckets:
            return ids.to_numpy() % self._task.buckets
        found = pc.index_in(ids, value_set=self._vocabularies[name])
        return pc.fill_null(found, -1).to_numpy().astype("int64") + 1

    def of_row(self, row) -> list[list[int]]:
        """Returns the indices `[columns, 1]` of a request."""
        if self._task.buckets:
            return [[row[name] % self._task.buckets] for name in self.names]
        if not self._places:
            self._places = self.vocabulary()
        return [[self._places[name].get(row[name], 0)] for name in self.names]

    def vocabulary(self) -> dict[str, dict[Any, int]]:
        """Returns {column: {id: index}}."""
        return {
            name: dict(zip(values.to_pylist(), range(1, len(values) + 1)))
            for name, values in self._vocabularies.items()
        }


class Fbgemm(torch.nn.Module):
    """One op for the tables of all columns; its gradient updates them."""

    version = f"FBGEMM {importlib.metadata.version('fbgemm-gpu-cpu')}"

    def __init__(self, task: training.Task, sizes: list[int]):
        super().__init__()
        place = EmbeddingLocation.HOST, ComputeDevice.CPU
        self.table = SplitTableBatchedEmbeddingBagsCodegen(
            [(size, task.dim, *place) for size in sizes],
            optimizer=OptimType.EXACT_ADAGRAD,
            learning_rate=task.learning_rate,
            eps=training.EPSILON,
        )
        self.table.init_embedding_weights_uniform(
            -training.ROW_SCALE, training.ROW_SCALE
        )
        for (accumulator,) in self.table.split_optimizer_states():
            accumulator.fill_(training.INITIAL_ACCUMULATOR)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Returns the concatenated rows `[B, columns * dim]`."""
        indices = indices.ravel()
        return self.table(indices, torch.arange(len(indices) + 1))

    def weights(self) -> list[torch.Tensor]:
        """Returns the tables."""
        return self.table.split_embedding_weights()


class Bags(torch.nn.Module):
    """One `EmbeddingBag` with the rows of all columns, each at an offset."""

    version = "torch.nn.EmbeddingBag"

    def __init__(self, task: training.Task, sizes: list[int]):
        super().__init__()
        self._width = len(sizes) * task.dim
        begins = np.cumsum([0, *sizes[:-1]])
        self._begins = torch.from_numpy(begins)[:, None]
        self.table = torch.nn.EmbeddingBag(
            sum(sizes), task.dim, sparse=True, mode="sum"
        )
        torch.nn.init.uniform_(
            self.table.weight, -training.ROW_SCALE, training.ROW_SCALE
        )

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Returns the concatenated rows `[B, columns * dim]`."""
        flat = (indices + self._begins).T.reshape(-1)
        return self.table(flat, torch.arange(len(flat))).view(-1, self._width)

    def weights(self) -> list[torch.Tensor]:
        """Returns the table."""
        return [self.table.weight]


def _dense_layers(task: training.Task) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for kernel, bias in task.first_weights():
        layer = torch.nn.Linear(*kernel.shape)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(kernel.T))
            layer.bias.copy_(torch.from_numpy(bias))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


class Model(torch.nn.Module):
    """Tables and dense layers."""

    def __init__(self, tables: torch.nn.Module, task: training.Task):
        super().__init__()
        self.tables = tables
        self.dense = _dense_layers(task)

    def forward(self, indices, numbers):
        """Returns logits `[B]`."""
        rows = self.tables(indices)
        return self.dense(torch.cat([rows, numbers], 1))[:, 0]


def _train(
    task: training.Task, clock: training.Clock, folder: Path, library: str
) -> training.Trained:
    torch.manual_seed(1)
    clock.open()
    indices = Indices(task)
    tables = (Fbgemm if library == "FBGEMM" else Bags)(task, indices.sizes)
    model = Model(tables, task)
    parts = [model.dense] if library == "FBGEMM" else [model.dense, tables]
    adagrads = [
        torch.optim.Adagrad(
            part.parameters(),
            task.learning_rate,
            initial_accumulator_value=training.INITIAL_ACCUMULATOR,
            eps=training.EPSILON,
        )
        for part in parts
    ]
    loss = torch.nn.BCEWithLogitsLoss()

    def features(batch: pa.RecordBatch):
        return (
            torch.from_numpy(indices(batch)),
            torch.from_numpy(task.numbers_of(batch)),
        )

    for _ in range(task.epochs):
        for batch in task.record_batches(task.train):
            for adagrad in adagrads:
                adagrad.zero_grad()
            labels = torch.from_numpy(task.labels_of(batch))
            loss(model(*features(batch)), labels).backward()
            for adagrad in adagrads:
                adagrad.step()
            clock.step()
    clock.trained()

    def scores(*inputs):
        with torch.no_grad():
            return torch.sigmoid(model(*inputs)).numpy()

    found = [scores(*features(x)) for x in task.record_batches(task.test)]
    folder.mkdir()
    exported = {
        "tables": [weight.detach() for weight in tables.weights()],
        "dense": model.dense.state_dict(),
        "vocabulary": indices.vocabulary(),
    }
    torch.save(exported, folder / "model.pt")

    def request(row):
        numbers = [row[name] for name in task.numbers]
        places = torch.tensor(indices.of_row(row))
        return float(scores(places, torch.tensor([numbers]))[0])

    return training.Trained(
        version=f"{tables.version} (PyTorch {torch.__version__})",
        scores=np.concatenate(found),
        table_rows=sum(indices.sizes),
        bytes_per_row=2 * 4 * task.dim,  # and its accumulator
        export=folder,
        request=request,
    )


if __name__ == "__main__":
    training.main(_train)
