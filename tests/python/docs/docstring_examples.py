"""Finds and runs the examples of docstrings."""

import ast
import contextlib
import doctest
import functools
import importlib
import inspect
import pathlib
import pkgutil
import shutil
import tempfile

import keras
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import tensorflow as tf

import lodestar

_DAYS = ("20260130", "20260131", "20260201", "20260202")
_IDS = [[7, 8], [9], [], [2**62, 7]]


@functools.cache
def _files():
    """Returns a folder with the files that examples name."""
    folder = tempfile.TemporaryDirectory()
    with contextlib.chdir(folder.name):
        _write_files()
    return folder


def _write_files():
    spec = _spec()
    samples = [{"click": i % 2, "ids": [7 + i]} for i in range(8)]
    for day in _DAYS:
        for pattern in ("log/%s-%s-%s", "log/%s%s%s"):
            folder = pathlib.Path(pattern % (day[:4], day[4:6], day[6:]))
            folder.mkdir(parents=True)
            _write(folder / "0.txt", samples)
    pathlib.Path("day1").mkdir()
    pathlib.Path("train").mkdir()
    _write("train/1.parquet", samples)
    _write("clicks.parquet", samples)
    _write("clicks.raw", samples, layout="int")
    _write("clicks.norm", samples)
    _write("clicks.tfrecord", samples)
    lodestar.hugectr.file_list.write_file_list("file_list.txt", ["clicks.norm"])
    spec.save("schema.yaml")
    pathlib.Path("clicks.csv").write_text("click,ids\n1,a b\n0,c\n")
    table = pa.table({"click": [1, 0] * 50, "ids": ["a", "b"] * 50})
    pathlib.Path("clicks").mkdir()
    pa.csv.write_csv(table, "clicks/train.csv")
    pa.parquet.write_table(table, "clicks/test.parquet")
    pathlib.Path("data.prototxt").write_text(
        'name: "MultiSlotDataFeed" batch_size: 2 multi_slot_desc {'
        '  slots { name: "click" type: "float" is_dense: true is_used: true }'
        '  slots { name: "ids" type: "uint64" is_used: true } }'
    )
    pathlib.Path("saved").mkdir()
    np.arange(1000).tofile("saved/user-keys")
    np.zeros([1000, 8], np.float32).tofile("saved/user-values")
    model = _model()
    for path in ("model", "served"):
        lodestar.export.save(model, path)
    lodestar.snapshot.save(model, "snapshots")


def _write(path, samples, **options):
    with lodestar.data.open_writer(path, _spec(), **options) as file:
        for sample in samples:
            file.write(sample)


def _spec():
    return lodestar.data.Schema(
        [
            lodestar.data.Column.label("click"),
            lodestar.data.Column.sparse("ids"),
        ]
    )


def _model():
    ids = keras.Input((None,), dtype="int64", ragged=True, name="ids")
    rows = lodestar.layers.DynamicEmbedding(8, combiner="mean", name="user")
    click = keras.layers.Dense(1, activation="sigmoid")(rows(ids))
    model = keras.Model({"ids": ids}, click)
    model.compile(
        lodestar.optimizers.SGD(),
        "binary_crossentropy",
        metrics=[keras.metrics.AUC(name="auc")],
    )
    model({"ids": tf.ragged.constant(_IDS, tf.int64)}, training=True)
    return model


def _x():
    return {"ids": tf.ragged.constant(_IDS, tf.int64)}


def _y():
    return np.float32([[1], [0], [0], [1]])


def _dataset():
    return tf.data.Dataset.from_tensor_slices((_x(), _y())).batch(2)


@functools.cache
def _strategy():
    cluster = lodestar.testing.LocalCluster(ps=1, workers=1).__enter__()
    return tf.distribute.ParameterServerStrategy(cluster.resolver)


@functools.cache
def _coordinator():
    return tf.distribute.coordinator.ClusterCoordinator(_strategy())


def _iterator():
    return iter(_coordinator().create_per_worker_dataset(_dataset))


def _table():
    return lodestar.EmbeddingVariable(8, name="user")


def _memory():
    return lodestar.paddle.InMemoryDataset("schema.yaml", 2)


def _server():
    return lodestar.data.FileListServer("log/20260130/0.txt")


_CLUSTER = ("coordinator", "strategy")
# Names that examples use without defining them.
_NAMES = {
    "batches": _dataset,
    "coordinator": _coordinator,
    "dataset": _dataset,
    "features": _x,
    "files": lambda: ["log/20260130/0.txt"],
    "files_of_today": lambda: ["log/20260130/0.txt"],
    "files_of_tomorrow": lambda: ["log/20260131/0.txt"],
    "first": lambda: "20260130",
    "ids": lambda: _x()["ids"],
    "iterator": _iterator,
    "last": lambda: "20260131",
    "make_model": lambda: _model,
    "memory": _memory,
    "model": _model,
    "module": tf.Module,
    "old_ids": lambda: [1, 2],
    "path": lambda: "model",
    "schema": _spec,
    "server": _server,
    "slots": lambda: "schema.yaml",
    "spec": _spec,
    "step": lambda: tf.function(lambda iterator: None),
    "strategy": _strategy,
    "table": _table,
    "validation": lambda: (_x(), _y()),
    "x": _x,
    "y": _y,
}
_PUBLIC = {
    name: getattr(module, name)
    for module in (
        lodestar.hugectr,
        lodestar.paddle,
        lodestar.data,
        lodestar.layers,
        lodestar.train,
        lodestar,
    )
    for name in module.__all__
}
_PUBLIC |= {"keras": keras, "lodestar": lodestar, "np": np, "tf": tf}


class _Finder(doctest.DocTestFinder):
    def _from_module(self, module, object):
        # The line of a decorated function, not of its decorator.
        return super()._from_module(module, inspect.unwrap(object))


class _Checker(doctest.OutputChecker):
    def check_output(self, want, got, optionflags):
        # An example that shows no output may have any.
        return not want or super().check_output(want, got, optionflags)


def find():
    """Returns the docstrings with examples, as DocTests by name."""
    found = {}
    finder = _Finder()
    for info in pkgutil.walk_packages(lodestar.__path__, "lodestar."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for test in finder.find(module, info.name):
            if test.examples:
                found[test.name] = test
    return found


def needs_a_process(test):
    """Returns whether an example starts a cluster, which TensorFlow never forgets."""
    source = "".join(example.source for example in test.examples)
    return any(name in source for name in _CLUSTER)


def run(test):
    """Runs a DocTest in an empty folder; raises AssertionError if it fails."""
    source = "".join(example.source for example in test.examples)
    used = {
        node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name)
    }
    report = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copytree(_files().name, folder, dirs_exist_ok=True)
        # They would resume from existing snapshots.
        if "callbacks.Snapshot" in source or "snapshots=" in source:
            shutil.rmtree("snapshots")
        # The cluster first: TensorFlow loses objects that were created before
        # it.
        order = sorted(used & _NAMES.keys(), key=lambda n: n not in _CLUSTER)
        given = {name: _NAMES[name]() for name in order}
        test.globs = {**_PUBLIC, **test.globs, **given}
        doctest.DocTestRunner(
            _Checker(),
            verbose=False,
            optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
        ).run(test, out=report.append)
    assert not report, "".join(report)
