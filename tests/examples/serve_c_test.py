"""Tests of examples/serve_c: a model served through TensorFlow's C API."""

import contextlib
import os
import pathlib
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf
from served_models import (
    assert_same_outputs,
    batch,
    op_library,
    plain,
    trained_model,
)

import lodestar

ROOT = pathlib.Path(os.path.abspath(__file__)).parents[2]
FOLDER = "examples/serve_c"


def program(name):
    for folder in (ROOT / FOLDER, ROOT / "bazel-bin" / FOLDER):
        if (folder / name).is_file():
            return folder / name
    pytest.fail(f"{name} is not built: .venv/bin/bazel build //{FOLDER}:all")


def run(*arguments, name="serve_c"):
    """Returns the exit code, stdout, and stderr without TensorFlow's log lines."""
    done = subprocess.run(
        [program(name), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        timeout=300,
    )
    lines = [
        line
        for line in done.stderr.splitlines()
        if "port.cc" not in line and "absl::InitializeLog" not in line
    ]
    return done.returncode, done.stdout, lines


@contextlib.contextmanager
def refreshing(*arguments):
    """Yields a function that refreshes a running program and returns its lines."""
    with subprocess.Popen(
        [program("serve_c"), *map(str, arguments), "--refresh", "refresh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ) as process:

        def refresh():
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline(), process.stdout.readline()

        first = process.stdout.readline()
        try:
            yield first, refresh
        finally:
            process.stdin.close()
        assert process.wait(60) == 0


def text(array):
    """Formats an array as VALUES of --input."""
    if array.dtype.kind != "S":
        return ",".join(map(repr, array.reshape(-1).tolist()))
    return ",".join(
        value.decode().replace("\\", "\\\\").replace(",", "\\,")
        for value in array
    )


def inputs(features):
    return [
        argument
        for name, array in plain(features).items()
        for argument in ("--input", f"{name}={text(array)}")
    ]


def outputs(printed):
    result = {}
    for line in printed.splitlines():
        name, shape, *values = line.split(" ")
        shape = [int(size) for size in shape.strip("[]").split(",")]
        dtype = np.int64 if name == "color_id" else np.float32
        result[name] = np.array(values, dtype).reshape(shape)
    return result


@pytest.fixture(scope="module")
def model():
    return trained_model()


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model"
    lodestar.export.save(model, path)
    return path


@pytest.fixture(scope="module")
def start(path):
    return ["--model", path, "--library", op_library()]


@pytest.mark.parametrize("size", [0, 1, 100])
def test_scores_are_the_models(model, start, size):
    features = batch(size, size)
    code, printed, errors = run(*start, *inputs(features))
    assert (code, errors) == (0, [])
    assert_same_outputs(outputs(printed), model(features, training=False))


def test_a_program_with_the_ops_linked_in_needs_no_library(model, path):
    features = batch(4, 20)
    code, printed, errors = run(
        "--model", path, *inputs(features), name="serve_c_linked"
    )
    assert (code, errors) == (0, [])
    assert_same_outputs(outputs(printed), model(features, training=False))


@pytest.mark.parametrize("index", ["hash", "sorted"])
def test_a_plain_model_needs_no_op_library(model, index, tmp_path):
    plain = tmp_path / "plain"
    lodestar.export.save_plain(model, plain, index=index)
    features = batch(4, 20)
    code, printed, errors = run("--model", plain, *inputs(features))
    assert (code, errors) == (0, [])
    assert_same_outputs(outputs(printed), model(features, training=False))


def test_without_the_ops_the_error_names_one(path):
    code, printed, errors = run("--model", path)
    assert (code, printed) == (1, "")
    assert "serve_c: Op type not registered 'Lodestar>" in errors[0]


@pytest.mark.parametrize("name", ["serve_c", "serve_c_sanitized"])
def test_strings_of_any_length_and_commas(model, start, name):
    words = [["", "a,b"], [], ["back\\slash", "längere Wörter, " * 9]]
    features = {**batch(3, 3), "words": tf.ragged.constant(words)}
    code, printed, errors = run(*start, *inputs(features), name=name)
    assert (code, errors) == (0, [])
    assert_same_outputs(outputs(printed), model(features, training=False))


def test_without_inputs_it_prints_the_signature(start):
    code, printed, errors = run(*start)
    assert (code, errors) == (0, [])
    lines = printed.splitlines()
    assert lines[:3] == [
        "input clicks_row_splits TF_DataType=9 [-1]",
        "input clicks_values TF_DataType=9 [-1]",
        "input color TF_DataType=7 [-1]",
    ]
    assert lines[-1] == "output score TF_DataType=1 [-1,1]"


def changed(arguments, name, values):
    """Replaces the `values` of one --input argument."""
    return [
        f"{name}={values}" if argument.startswith(f"{name}=") else argument
        for argument in arguments
    ]


@pytest.mark.parametrize("name", ["serve_c", "serve_c_sanitized"])
@pytest.mark.parametrize(
    "input, values, message",
    [
        (
            "clicks_row_splits",
            "0,4",
            "Dimension 0 in both shapes must be equal",
        ),
        ("clicks_row_splits", "0,9,9", "do not form a valid RaggedTensor"),
        (
            "clicks_values",
            "1,x",
            "value 1 of `clicks_values` must be an",
        ),
    ],
    ids=["splits_of_one_example", "splits_beyond_the_values", "no_number"],
)
def test_wrong_values(start, name, input, values, message):
    arguments = changed(inputs(batch(1, 2)), input, values)
    code, printed, errors = run(*start, *arguments, name=name)
    assert (code, printed) == (1, "")
    assert errors[0].startswith("serve_c: ") and message in errors[0], errors


@pytest.mark.parametrize(
    "input, values, message",
    [
        ("clicks_row_splits", "", "slice index 0 of dimension 0 out of bounds"),
        ("clicks_row_splits", "2,1,0", "do not form a valid RaggedTensor"),
        (
            "clicks_values",
            "9223372036854775808",
            "must be an int64, got '9223372036854775808'",
        ),
        ("number", "1,2,3,4", "`number` has 4 values, which do not fill"),
        ("number", "[2,2]1,2,3,4", "shape that the signature does not allow"),
        ("number", "[6]1,2,3,4,5,6", "shape that the signature does not allow"),
        ("number", "[2,3]1", "`number` has 1 values, which do not fill"),
        ("number", "[2,", "the shape of `number` must look like [2,3]"),
        ("number", "[-1,3]1", "the shape of `number` must look like [2,3]"),
        (
            "number",
            "[9223372036854775807,3]1,2,3",
            "`number` has 3 values, which do not fill",
        ),
        ("number", "1,2,,4,5,6", "value 2 of `number` must be a float"),
    ],
)
def test_more_wrong_values(start, input, values, message):
    test_wrong_values(start, "serve_c", input, values, message)


def test_the_shape_may_be_given(model, start):
    features = batch(1, 2)
    arguments = inputs(features)
    number = text(features["number"].numpy())
    code, printed, _ = run(
        *start, *changed(arguments, "number", f"[2,3]{number}")
    )
    assert code == 0
    assert_same_outputs(outputs(printed), model(features, training=False))


@pytest.mark.parametrize(
    "more, message",
    [
        (["--signature", "other"], "no signature `other`; it has: "),
        (["--input", "clicks=1"], "the signature has no input `clicks`"),
        (["--input", "color=red"], "--input clicks_row_splits=... is missing"),
        (
            ["--input", "color=red", "--input", "color=blue"],
            "`color` is given twice or without values",
        ),
        (["--input", "color"], "`color` is given twice or without values"),
    ],
)
def test_wrong_names(start, more, message):
    code, printed, errors = run(*start, *more)
    assert (code, printed) == (1, "")
    assert errors[0].startswith("serve_c: ") and message in errors[0], errors


def test_wrong_files(path, tmp_path):
    text_file = tmp_path / "library.so"
    text_file.write_text("no library")
    cut = tmp_path / "cut.so"
    whole = pathlib.Path(op_library()).read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    for model, library, message in [
        ("/no/model", op_library(), "Could not find SavedModel"),
        (path, "/no/library.so", "/no/library.so: cannot open shared object"),
        (path, text_file, "library.so: file too short"),
        (path, cut, "cut.so is truncated"),
        (path, "libm.so.6", "libm.so.6 contains no TensorFlow ops"),
    ]:
        code, printed, errors = run("--model", model, "--library", library)
        assert (code, printed) == (1, "")
        assert errors[0].startswith("serve_c: ") and message in errors[0]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "--model is missing"),
        (["--model"], "--model has no value"),
        (["--modle", "m"], "unknown option --modle"),
    ],
)
def test_wrong_options(arguments, message):
    code, printed, errors = run(*arguments)
    assert (code, printed) == (2, "")
    assert errors[0] == f"serve_c: {message}"
    assert errors[1].startswith("usage: serve_c")


def test_help():
    code, printed, errors = run("--help")
    assert (code, errors) == (0, [])
    assert printed.startswith("usage: serve_c --model DIR [--library SO]")


class Following:
    """A model whose training continues while a program serves it."""

    def __init__(self, folder):
        ids = keras.Input((None,), dtype="int64", ragged=True, name="ids")
        self.table = lodestar.EmbeddingVariable(4, name="t")
        rows = lodestar.layers.DynamicEmbedding(
            table=self.table, combiner="mean"
        )
        score = keras.layers.Dense(1, name="score")(rows(ids))
        self.model = keras.Model({"ids": ids}, {"score": score})
        self.model.compile(lodestar.optimizers.Adagrad(0.5), {"score": "mse"})
        self.ids = tf.ragged.constant([[1, 2], [3], [-4, 5]], tf.int64)
        self.snapshots = folder / "snapshots"
        self.path = folder / "model"
        self.train()
        lodestar.export.save(
            self.model, self.path, follow=self.snapshots, poll_seconds=None
        )

    def train(self):
        self.model.train_on_batch(
            {"ids": self.ids}, {"score": np.ones([3, 1], np.float32)}
        )

    def save(self):
        delta = self.snapshots.exists()
        return lodestar.snapshot.save(self.model, self.snapshots, delta=delta)

    def is_printed(self, line):
        wanted = self.model({"ids": self.ids}, training=False)["score"]
        return np.allclose(outputs(line)["score"], wanted, rtol=1e-6)


@pytest.fixture
def following(tmp_path):
    return Following(tmp_path)


def test_a_running_program_serves_new_rows_weights_and_deletions(following):
    arguments = [
        *("--model", following.path, "--library", op_library()),
        *inputs({"ids": following.ids}),
    ]
    with refreshing(*arguments) as (first, refresh):
        assert following.is_printed(first)
        for version in (1, 2, 3, 4):
            following.train()
            if version > 2:
                following.table.remove([version - 2])
            following.save()
            number, scores = refresh()
            assert number == f"version [] {version}\n"
            assert following.is_printed(scores)
        assert refresh() == (number, scores)


def test_a_new_program_serves_the_newest_version(following, monkeypatch):
    start = ["--model", following.path, "--library", op_library()]
    following.save()
    following.train()
    following.save()
    more = inputs({"ids": following.ids})
    code, printed, errors = run(*start, *more, name="serve_c_sanitized")
    assert (code, errors) == (0, [])
    assert following.is_printed(printed)
    # A signature without inputs runs without --input.
    code, printed, _ = run(*start, "--signature", "follower_stats")
    assert code == 0
    assert "updates [] 1\n" in printed
    assert "version [] 2\n" in printed
    monkeypatch.setenv("LODESTAR_SNAPSHOTS", str(following.path / "none"))
    code, printed, _ = run(*start, "--signature", "refresh")
    assert (code, printed) == (0, "version [] 0\n")
