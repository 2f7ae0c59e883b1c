"""A worker of global_shuffle_test.py in its own process."""

from lodestar.paddle import InMemoryDataset


def exchange(schema, part, folder, workers):
    """Prints whether all samples are intact, and then their numbers."""
    memory = InMemoryDataset(schema, 500, drop_zeros=False)
    memory.load(part)
    before = _numbers(memory)
    memory.global_shuffle(5, folder=folder, workers=workers, timeout=300)
    after = _numbers(memory)
    print(before == after, *after, flush=True)


def _numbers(memory):
    return [int(n) for _, y in memory.dataset() for n in y[:, 0].numpy()]
