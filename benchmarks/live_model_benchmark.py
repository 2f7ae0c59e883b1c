"""Times calls of a LiveModel, alone and while it loads versions.

The rows and weights of a version equal its number, so a call that has seen two
versions is detected. Also times a batch of one id and tf.gather: both are
SavedModels with one lookup, called by their signature. There the difference
matters, because the call takes far longer than either lookup. Large batches
compare tables whose rows have fewer bits.
"""

import os
import tempfile
import threading
import time

import keras
import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import embedding_benchmark, measure

_DIM = 32
_BATCH = 512
_THREADS = 2
_CALLS = 1000  # of one id


class Versions:
    """An exported model, and snapshots of it to publish one by one."""

    def __init__(self, folder, rows, changed, count):
        self.rows = rows
        self.exported = os.path.join(folder, "model")
        self._all = os.path.join(folder, "all")
        table = lodestar.EmbeddingVariable(_DIM, name="t")
        ids = keras.Input((None,), dtype="int64", ragged=True, name="ids")
        found = lodestar.layers.DynamicEmbedding(table=table, combiner="mean")
        x = found(ids)
        weight = keras.layers.Dense(1, use_bias=False)
        model = keras.Model({"ids": ids}, {"rows": x, "score": weight(x)})
        model.compile(lodestar.optimizers.SGD())
        lodestar.export.save(model, self.exported)
        rng = np.random.default_rng(0)
        # Each version changes the rows that calls look up.
        self.ids = np.arange(min(changed, _BATCH))
        for number in range(1, count + 1):
            ids = np.arange(rows)
            if number > 1:
                ids = rng.choice(rows, changed, replace=False)
                ids = np.union1d(ids, self.ids)
            else:
                table.insert_or_assign(ids, tf.zeros([rows, _DIM]))
            table.insert_or_assign(ids, tf.fill([len(ids), _DIM], number * 1.0))
            weight.kernel.assign(tf.fill([_DIM, 1], number * 1.0))
            lodestar.snapshot.save(model, self._all, delta=number > 1)
        self.names = [f"{number:08d}" for number in range(1, count + 1)]

    def show(self, folder, name):
        """Puts a version into a folder atomically."""
        os.makedirs(folder, exist_ok=True)
        partial = os.path.join(folder, f"{name}.partial")
        os.makedirs(partial)
        for file in os.listdir(os.path.join(self._all, name)):
            os.link(
                os.path.join(self._all, name, file),
                os.path.join(partial, file),
            )
        os.rename(partial, os.path.join(folder, name))


def _resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _seen(outputs):
    """Returns the numbers of the versions that a call has seen."""
    rows = outputs["rows"].numpy()
    weights = outputs["score"].numpy()[:, 0] / (rows[:, 0] * _DIM)
    return {*np.unique(rows).tolist(), *np.unique(weights).tolist()}


def _measure(versions, folder, consistency, seconds):
    before = _resident_bytes()
    versions.show(folder, versions.names[0])
    with lodestar.serving.LiveModel(
        versions.exported, folder, 0.005, consistency=consistency
    ) as live:
        memory = _resident_bytes() - before
        ids = tf.RaggedTensor.from_row_lengths(
            versions.ids, [1] * len(versions.ids)
        )
        for updates in (False, True):
            times, mixed, done = [], [], threading.Event()

            def call(times=times, mixed=mixed, done=done):
                while not done.is_set():
                    begin = time.perf_counter()
                    outputs = live({"ids": ids})
                    times.append(time.perf_counter() - begin)
                    mixed.append(len(_seen(outputs)) > 1)

            call_threads = [
                threading.Thread(target=call) for _ in range(_THREADS)
            ]
            for thread in call_threads:
                thread.start()
            names = versions.names[1:]
            for name in names:
                time.sleep(seconds / len(names))
                if updates:
                    versions.show(folder, name)
            done.set()
            for thread in call_threads:
                thread.join()
            stats = live.stats()
            measure.print_line(
                work="calls, updates" if updates else "calls alone",
                consistency=consistency,
                calls=len(times),
                of_two_versions=sum(mixed),
                p50_ms=round(np.quantile(times, 0.5) * 1e3, 2),
                p99_ms=round(np.quantile(times, 0.99) * 1e3, 2),
                updates=stats["updates"] - 1,
                last_update_ms=round(stats["last_update_seconds"] * 1e3, 1),
                memory_MB=round(memory / 1e6),
                last_error=stats["last_error"],
            )


class Gather(tf.Module):
    """Gathers rows of a dense variable."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = tf.Variable(matrix)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
    def serve(self, ids):
        """Returns rows by name."""
        return {"rows": tf.gather(self.matrix, ids)}


def _rows_of(signature):
    return lambda ids: signature(ids=ids)["rows"]


def _model(variable):
    """Returns a model of one lookup."""
    ids = keras.Input((), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(table=variable)(ids)
    return keras.Model({"ids": ids}, {"rows": rows})


def _export_all(folder, keys):
    """Writes the models; returns their paths."""
    ours, following, stock, snapshots = (
        os.path.join(folder, name)
        for name in ("ours", "following", "stock", "snapshots")
    )
    variable, matrix = embedding_benchmark.filled(keys, _DIM)
    model = _model(variable)
    lodestar.export.save(model, ours)
    lodestar.export.save(model, following, follow=snapshots)
    lodestar.snapshot.save(model, snapshots)
    gather = Gather(matrix)
    tf.saved_model.save(gather, stock, signatures=gather.serve)
    return ours, following, stock


def _compare_one_id(options):
    rows, calls = (1000, 10) if options.small else (1_000_000, _CALLS)
    keys = embedding_benchmark.spread_keys(rows)
    places = np.random.default_rng(0).integers(0, rows, [calls, 1])
    with tempfile.TemporaryDirectory() as folder:
        paths = _export_all(folder, keys)
        # A signature does not keep its model alive.
        models = [tf.saved_model.load(path) for path in paths]
        lookup, following, gather = (
            _rows_of(model.signatures["serving_default"]) for model in models
        )
        with lodestar.serving.LiveModel(
            paths[0], os.path.join(folder, "snapshots"), None
        ) as live:
            feeds = [tf.constant(keys[place]) for place in places]
            measure.compare(
                "signature that follows snapshots, 1 id",
                following,
                lookup,
                feeds,
                against="the same without `follow`",
                items=1,
                wanted="within 5 us",
                runs=options.runs,
            )
            live_lookup = _rows_of(live.signatures["serving_default"])
            for work, side in (
                ("signature, 1 id", lookup),
                ("signature of a LiveModel, 1 id", live_lookup),
            ):
                measure.compare(
                    work,
                    side,
                    gather,
                    feeds,
                    against="tf.gather through a signature",
                    items=1,
                    wanted="within 5 us of tf.gather",
                    runs=options.runs,
                    baseline_feeds=[tf.constant(place) for place in places],
                )


def _compare_row_dtypes(options):
    rows, batch = (1000, 100) if options.small else (1_000_000, 65_536)
    keys = embedding_benchmark.spread_keys(rows)
    rng = np.random.default_rng(0)
    feeds = [tf.constant(rng.choice(keys, batch)) for _ in range(10)]
    model = _model(embedding_benchmark.filled(keys, _DIM)[0])
    with tempfile.TemporaryDirectory() as folder:
        loaded = {}
        for dtype in (None, "float16", "bfloat16", "int8"):
            path = os.path.join(folder, str(dtype))
            lodestar.export.save(model, path, dtype=dtype)
            loaded[dtype] = tf.saved_model.load(path)
        lookups = {
            dtype: _rows_of(served.signatures["serving_default"])
            for dtype, served in loaded.items()
        }
        for dtype in ("float16", "bfloat16", "int8"):
            measure.compare(
                f"signature, {batch} ids, rows of {dtype}",
                lookups[dtype],
                lookups[None],
                feeds,
                against="the same with rows of float32",
                items=batch,
                wanted="none: it saves memory",
                runs=options.runs,
                same_result=False,
            )


def main():
    options = measure.arguments(__doc__)
    small = options.small
    rows, changed, count = (2_000, 200, 6) if small else (1_000_000, 5_000, 100)
    with tempfile.TemporaryDirectory() as folder:
        versions = Versions(folder, rows, changed, count)
        for consistency in ("row", "call"):
            _measure(
                versions,
                os.path.join(folder, consistency),
                consistency,
                seconds=1 if small else 15,
            )
    _compare_one_id(options)
    _compare_row_dtypes(options)


if __name__ == "__main__":
    main()
