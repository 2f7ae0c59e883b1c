"""The ops that read records, called with arguments that no dataset uses."""

import inspect
import random
import re

import pytest
import tensorflow as tf

from lodestar._library import gen_ops

# For each op: the file that it reads, and its own arguments.
OPS = {
    "multi_slot": (b"1 1 2 .5 2 2 7 8\n1 0 2 1 2 0\n", {"pipe_command": []}),
    "instant": (
        2
        * (
            b"\2"
            + bytes(9)
            + b"\1"
            + bytes(7)
            + b"\3"
            + bytes(17)
            + b"\2\0\7"
            + bytes(15)
        ),
        {"batch_sizes": [True, True, False]},
    ),
    "norm": (
        b"".join(n.to_bytes(8, "little") for n in (0, 2, 1, 2, 1, 0, 0, 0))
        + 2 * (bytes(12) + b"\1\0\0\0\7\0\0\0"),
        {"key_type": "uint32", "check": "auto"},
    ),
    "raw": (
        2 * (bytes(12) + b"\7\0\0\0\1\0\0\0"),
        {
            "key_type": "uint32",
            "label_type": "float",
            "dense_type": "float",
            "nnz_per_slot": [2],
            "key_offsets": [],
            "num_samples": 0,
        },
    ),
}
OP_OF = {
    "multi_slot": gen_ops.lodestar_multi_slot_dataset,
    "instant": gen_ops.lodestar_instant_dataset,
    "norm": gen_ops.lodestar_norm_dataset,
    "raw": gen_ops.lodestar_raw_dataset,
}
SPECS = (
    tf.TensorSpec([None, 1], tf.int64),
    tf.TensorSpec([None, 2], tf.float32),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.int64),
)
SCALARS = {
    "batch_size": 2,
    "num_parallel_files": 1,
    "shuffle_rows": 0,
    "seed": 0,
    "num_shards": 1,
    "shard_index": 0,
}
# Hostile values, by the kind of argument.
INTS = [-(2**63), -(2**62), -2, -1, 0, 1, 2, 3, 2**31 - 1, 2**31, 2**62]
INTS.append(2**63 - 1)
SHAPES = [None, [], [0], [1], [2], [None], [None, 2], [None, None], [2, 0]]
SHAPES += [[2**31 - 1], [2**31], [2**40, 2**40], [None, 2**31 - 1], [2**62, 4]]
SHAPES += [[-2], [1, -1, 2], [1] * 20, [1] * 255]
TYPES = [tf.int64, tf.float32, tf.int32, tf.string, tf.variant]
NAMES = ["", "a", "a\n", "\N{GREEK SMALL LETTER ALPHA}", "x" * 3000]
COMMANDS = [[""], ["", ""], ["cat"], ["false"], ["no-such-command"]]
COMMANDS += [["sh", "-c", "cat; kill -9 $$"], ["sh", "-c", "yes | head -99"]]


def good_arguments(op: str, path: str) -> dict:
    arguments = {
        "filenames": tf.constant([path]),
        **{name: tf.constant(n, tf.int64) for name, n in SCALARS.items()},
        "slot_names": ["click", "I", "C1"],
        "slot_types": [tf.int64, tf.float32, tf.int64],
        "slot_shapes": [[1], [2], tf.TensorShape(None)],
        "slot_limits": [2, 0, 0],
        "slot_weighs": [-1, -1, -1],
        "slot_used": [True, True, True],
        "drop_remainder": False,
        "deterministic": True,
        "open_command": [],
        "skip_errors": False,
        "skip_log": "",
        "output_types": [spec.dtype for spec in SPECS],
        "output_shapes": [spec.shape for spec in SPECS],
        **OPS[op][1],
    }
    if op in ("norm", "raw"):
        arguments["slot_kinds"] = ["label", "dense", "keys"]
    return arguments


def change(rng: random.Random, arguments: dict, paths: list[str]) -> None:
    """Replaces one argument by a hostile value."""

    def changed(values: list, pool: list) -> list:
        values = list(values)
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(values) + 1)
            how = rng.randrange(4)
            if how == 0 and values:
                del values[min(at, len(values) - 1)]
            elif how == 1:
                values.insert(at, rng.choice(pool))
            elif values:
                values[min(at, len(values) - 1)] = rng.choice(pool)
        return values

    name = rng.choice(list(arguments))
    value = arguments[name]
    if name == "filenames":
        some = [rng.choice(paths) for _ in range(rng.randrange(5))]
        value = tf.constant(some, tf.string)
        if rng.randrange(4) == 0:
            value = tf.reshape(value, rng.choice([[1, -1], [-1, 1]]))
        if rng.randrange(6) == 0:
            value = tf.constant(rng.choice(paths))
    elif name in SCALARS or name in ("num_queues", "queue", "min_size"):
        # 1024 threads take long to start.
        n = rng.choice(INTS + [5] if rng.randrange(50) else [1024])
        value = tf.constant(n, tf.int64)
        if rng.randrange(6) == 0:
            value = rng.choice(
                [
                    tf.zeros([0], tf.int64),
                    tf.fill([1], value),
                    tf.fill([2, 2], value),
                    tf.constant(1.5),
                    tf.constant("x"),
                ]
            )
    elif name in ("slot_limits", "slot_weighs", "nnz_per_slot", "key_offsets"):
        value = changed(value, INTS)
    elif name in ("slot_shapes", "output_shapes"):
        value = changed(value, SHAPES)
    elif name in ("slot_types", "output_types"):
        value = changed(value, TYPES)
    elif name in ("slot_used", "batch_sizes"):
        value = changed(value, [True, False])
    elif name == "slot_names":
        value = changed(value, NAMES)
    elif name == "line_fields":
        value = changed(value, ["ins_id", "content", "logkey", "other"])
    elif name in ("samples", "order"):
        value = tf.constant(changed([1, 0], INTS), tf.int64)
    elif name == "slots":
        value = changed(value, ["C1", "I", "click", "other", ""])
    elif name == "memory":
        value = rng.choice(["", "x", [], [MEMORY]])
    elif name == "slot_kinds":
        value = changed(value, ["label", "dense", "keys", "other", ""])
    elif name in ("open_command", "pipe_command"):
        value = rng.choice(COMMANDS)
    elif name == "num_samples":
        value = rng.choice(INTS)
    elif isinstance(value, bool):
        value = not value
    else:
        words = ["uint32", "int32", "int64", "uint64", "auto", "none", "sum"]
        value = rng.choice([*words, "float", "int", "", *NAMES])
    arguments[name] = value


def read(op: str, arguments: dict) -> int:
    """Reads a few batches of a dataset with these arguments; returns their number."""
    variant = OP_OF[op](**arguments)
    spec = tuple(
        tf.TensorSpec(shape, dtype)
        for shape, dtype in zip(
            arguments["output_shapes"], arguments["output_types"], strict=True
        )
    )
    return check_batches(tf.data.experimental.from_variant(variant, spec), spec)


def check_batches(dataset: tf.data.Dataset, spec) -> int:
    count = 0
    for batch in dataset.take(5):
        for tensor, wanted in zip(batch, spec, strict=True):
            assert tensor.dtype == wanted.dtype
            assert wanted.shape.is_compatible_with(tensor.shape)
            tensor.numpy()
        count += 1
    return count


def kind_of(error: Exception) -> str:
    """Returns an error's message without TensorFlow's prefix and numbers."""
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*|[0-9]+", "", str(error))
    return text[:80]


@pytest.mark.parametrize("op", OPS)
def test_the_arguments_to_change_are_good(tmp_path, op):
    path = tmp_path / "file"
    path.write_bytes(OPS[op][0])
    assert read(op, good_arguments(op, str(path))) == 1


@pytest.mark.parametrize("op", OPS)
def test_no_arguments_end_the_process(tmp_path, op):
    rng = random.Random(op)
    file = tmp_path / "file"
    file.write_bytes(OPS[op][0])
    half = tmp_path / "half"
    half.write_bytes(OPS[op][0][:-5])
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    packed = tmp_path / "not.gz"
    packed.write_bytes(OPS[op][0])
    paths = [str(p) for p in (file, file, half, empty, packed, tmp_path)]
    paths += ["", "a\0b", b"\xff\xfe", "ram://missing", "no-such-scheme://x"]
    errors, good = set(), 0
    for _ in range(250):
        arguments = good_arguments(op, str(file))
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            change(rng, arguments, paths)
        try:
            good += read(op, arguments) > 0
        except (tf.errors.OpError, ValueError, TypeError) as error:
            assert not isinstance(error, tf.errors.InternalError), error
            errors.add(kind_of(error))
    # Many arguments have no effect, and the others fail with the right error.
    assert good > 20
    assert len(errors) > 20


MEMORY = "record_ops_test"


def memory_arguments(path: str) -> dict:
    arguments = good_arguments("multi_slot", path)
    for name in ("drop_remainder", "deterministic", "skip_errors", "skip_log"):
        del arguments[name]
    return {
        "memory": MEMORY,
        **arguments,
        "line_fields": [],
        "drop_zeros": True,
        "drop_remainder": False,
        "shuffle": False,
        "slots": ["C1"],
        "num_queues": tf.constant(1, tf.int64),
        "queue": tf.constant(0, tf.int64),
        "min_size": tf.constant(2, tf.int64),
        "keep_unmerged": True,
        "erase_duplicates": True,
        "samples": tf.constant([3, 0], tf.int64),
        "order": tf.constant([1, 0], tf.int64),
    }


def use_memory(arguments: dict) -> int:
    """Calls every op on samples in memory; returns the number of batches."""

    def call(name, **changed):
        op = getattr(gen_ops, f"lodestar_record_memory_{name}")
        names = inspect.signature(op).parameters
        given = {n: v for n, v in arguments.items() if n in names}
        return op(**{**given, **changed})

    call("create")
    try:
        call("load")
        call("load", preload=True)
        call("wait_preload")
        call("size")
        call("slots_shuffle")
        call("global_shuffle")
        call("receive", pieces=[call("encode")])
        call("arrange")
        call("commit")
        if "ins_id" in arguments["line_fields"]:
            call("merge_by_ins_id")
        spec = tuple(
            tf.TensorSpec(shape, dtype)
            for shape, dtype in zip(
                arguments["output_shapes"],
                arguments["output_types"],
                strict=True,
            )
        )
        dataset = tf.data.experimental.from_variant(call("dataset"), spec)
        count = check_batches(dataset, spec)
        call("release")
        return count
    finally:
        call("forget")


def test_no_arguments_of_memory_end_the_process(tmp_path):
    rng = random.Random(7)
    plain = tmp_path / "file"
    plain.write_bytes(OPS["multi_slot"][0])
    named = tmp_path / "named"
    lines = OPS["multi_slot"][0].splitlines()
    named.write_bytes(b"".join(b"1 x " + line + b"\n" for line in lines))
    paths = [str(plain), str(named), str(tmp_path), "", "a\0b"]
    errors, good = set(), 0
    for i in range(200):
        arguments = memory_arguments(str(plain))
        if i % 2:
            arguments["filenames"] = tf.constant([str(named)])
            arguments["line_fields"] = ["ins_id"]
            arguments["output_types"].insert(0, tf.string)
            arguments["output_shapes"].insert(0, [None])
        if i >= 4:
            change(rng, arguments, paths)
        try:
            good += use_memory(arguments) > 0
        except (tf.errors.OpError, ValueError, TypeError) as error:
            assert i >= 4 and not isinstance(error, tf.errors.InternalError)
            errors.add(kind_of(error))
    assert good > 30
    assert len(errors) > 20


@pytest.mark.parametrize("count, end", [(2**62, 3), (5, 5), (0, 0), (1, 1)])
def test_any_range_of_shuffled_numbers(count, end):
    def numbers(begin, end):
        return gen_ops.lodestar_shuffled_numbers(
            count=count, seed=-1, begin=begin, end=end
        ).numpy()

    found = numbers(0, end).tolist()
    assert len(set(found)) == end
    assert all(0 <= n < count for n in found)
    assert [n for i in range(end) for n in numbers(i, i + 1)] == found
    for begin, wrong in ((0, count + 1), (end + 1, end), (-1, 0)):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="`(begin|end)`"
        ):
            numbers(begin, wrong)


@pytest.mark.parametrize(
    "weighs",
    [[0, -1, -1], [1, 0, -1], [1, 2, -1], [2, 2, -1], [-1, 0, 3], [-1, -1, 9]],
)
def test_slots_that_weigh_each_other_are_refused(tmp_path, weighs):
    path = tmp_path / "file"
    path.write_bytes(b"1 x 1 1 1 1 1 1\n" * 3)
    arguments = memory_arguments(str(path))
    arguments |= {
        "slot_types": 3 * [tf.int64],
        "slot_shapes": 3 * [tf.TensorShape(None)],
        "slot_limits": 3 * [0],
        "slot_weighs": weighs,
        "line_fields": ["ins_id"],
        "output_types": [tf.string] + 6 * [tf.int64],
        "output_shapes": 7 * [[None]],
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match="`slot_weighs`"):
        use_memory(arguments)
    arguments["slot_weighs"] = [-1, 0, -1]
    assert use_memory(arguments) == 1


@pytest.mark.parametrize(
    "tensor, shape, found",
    [
        (0, [None, 2], r"\[\?,2\], expected \[\?,1\]"),
        (2, [3], r"\[3\], expected \[\?\]"),
        (3, [None, None], r"\[\?,\?\], expected \[\?\]"),
    ],
)
def test_wrong_output_shapes_are_errors(tmp_path, tensor, shape, found):
    path = tmp_path / "file"
    path.write_bytes(OPS["multi_slot"][0])
    arguments = good_arguments("multi_slot", str(path))
    arguments["output_shapes"][tensor] = shape
    message = f"`output_shapes` of tensor {tensor} is {found}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        read("multi_slot", arguments)
    arguments["output_shapes"][tensor] = tf.TensorShape(None)
    assert read("multi_slot", arguments) == 1


def test_a_count_of_skipped_records_cannot_wrap():
    def add(count):
        gen_ops.lodestar_skip_log_add(
            log=MEMORY, message="", count=tf.constant(count, tf.int64)
        )

    try:
        add(2**63 - 1)
        add(5)
        with pytest.raises(tf.errors.InvalidArgumentError, match="found -1"):
            add(-1)
        count, messages = gen_ops.lodestar_skip_log_read(log=MEMORY)
        assert count.numpy() == 2**63 - 1
        assert messages.shape == [2]
    finally:
        gen_ops.lodestar_skip_log_forget(log=MEMORY)
