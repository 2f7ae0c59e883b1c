"""The sides of PyTorch and FBGEMM in peers_benchmark.

Their tables are matrices that are indexed by position. FBGEMM pools bags of one
id, which is faster than its lookup without pooling.
"""

import importlib.metadata
import sys

import numpy as np
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
    EmbeddingLocation,
)
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    OptimType,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from benchmarks.peers import steps

_RATE, _ACCUMULATOR, _EPSILON = 0.01, 0.1, 1e-7


def _works(look_up, train):
    """Returns the works of a table, which `train(rows)` updates."""

    def lookup(places):
        with torch.no_grad():
            return look_up(places)

    def step(places):
        rows = look_up(places)
        train(rows)
        return rows.detach()

    return {"lookup": lookup, "step": step}


def _fbgemm(matrix: np.ndarray, upstream: torch.Tensor):
    table = SplitTableBatchedEmbeddingBagsCodegen(
        [(*matrix.shape, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=OptimType.EXACT_ADAGRAD,
        learning_rate=_RATE,
        eps=_EPSILON,
    )
    table.split_embedding_weights()[0].copy_(torch.from_numpy(matrix))
    for (accumulator,) in table.split_optimizer_states():
        accumulator.fill_(_ACCUMULATOR)
    offsets = torch.arange(len(upstream) + 1)
    # The update is a part of the backward function.
    return (
        lambda places: table(places, offsets),
        lambda rows: rows.backward(upstream),
    )


def _torch(matrix: np.ndarray, upstream: torch.Tensor):
    table = torch.nn.Embedding.from_pretrained(
        torch.from_numpy(matrix.copy()), freeze=False, sparse=True
    )
    adagrad = torch.optim.Adagrad(
        table.parameters(),
        _RATE,
        initial_accumulator_value=_ACCUMULATOR,
        eps=_EPSILON,
    )

    def train(rows):
        adagrad.zero_grad()
        rows.backward(upstream)
        adagrad.step()

    return table, train


def main() -> None:
    """Reports that it is ready, then times the works named on stdin."""
    data = np.load(sys.argv[1])
    upstream = torch.from_numpy(data["upstream"])
    fbgemm = importlib.metadata.version("fbgemm-gpu-cpu")
    release = torch.__version__.split("+")[0]
    libraries = {
        f"FBGEMM {fbgemm} (PyTorch {release})": _fbgemm,
        f"PyTorch {release} (sparse Embedding)": _torch,
    }
    feeds = [torch.from_numpy(places) for places in data["places"]]
    steps.answer(
        {
            name: {
                "lookup": _works(*make(data["matrix"], upstream))["lookup"],
                "step": _works(*make(data["matrix"], upstream))["step"],
            }
            for name, make in libraries.items()
        },
        feeds,
    )


if __name__ == "__main__":
    main()
