"""The modes of MultiSlotDataset, and the optional prefixes of lines."""

import pytest
import tensorflow as tf

from lodestar.data import Column, Schema, SkippedRecords
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema([Column.sparse("ids"), Column.dense("n", (), dtype="uint64")])
LINES = Schema([Column.sparse("ids")])


def text(begin, end):
    return "".join(f"2 {i} 0 1 {i}\n" for i in range(begin, end))


def numbers(dataset):
    return [n for x in dataset for n in x["n"].numpy().ravel().tolist()]


def numbers_until_error(dataset, match):
    got = []
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        for x in dataset:
            got += x["n"].numpy().ravel().tolist()
    return got


@pytest.fixture
def files(tmp_path):
    # The second has several pieces, so that its end is parsed later.
    bounds = [0, 10, 100_000, 100_003]
    paths = []
    for k in range(3):
        path = tmp_path / f"part-{k}"
        path.write_text(text(bounds[k], bounds[k + 1]))
        paths.append(path)
    return paths


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("mode", ["queue", "file_instant", "in_memory"])
def test_all_modes_read_all_samples_in_order(files, mode, threads):
    dataset = MultiSlotDataset(
        files, SPEC, 999, mode=mode, num_parallel_files=threads
    )
    assert numbers(dataset) == list(range(100_003))


def test_only_in_memory_drops_zeros(files):
    for mode in ("queue", "file_instant"):
        (features,) = MultiSlotDataset(files[0], SPEC, 99, mode=mode)
        assert features["ids"].to_list() == [[i, 0] for i in range(10)]
    (features,) = MultiSlotDataset(files[0], SPEC, 99, mode="in_memory")
    assert features["ids"].to_list() == [[i] for i in range(10)]


def test_a_bad_line_fails_its_complete_file_first(files):
    with open(files[1], "a") as file:
        file.write("1 x 1 0\n")
    match = f"{files[1]}:99991: slot 'ids'"
    got = numbers_until_error(MultiSlotDataset(files, SPEC, 1000), match)
    assert got == list(range(100_000))
    got = numbers_until_error(
        MultiSlotDataset(files, SPEC, 10, mode="file_instant"), match
    )
    assert got == list(range(10))
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        MultiSlotDataset(files, SPEC, 10, mode="in_memory")


@pytest.mark.parametrize("mode", ["file_instant", "in_memory"])
def test_a_bad_line_of_a_complete_file_may_be_skipped(files, mode):
    with open(files[1], "a") as file:
        file.write("1 x 1 0\n")
    skipped = SkippedRecords()
    dataset = MultiSlotDataset(
        files,
        SPEC,
        1000,
        mode=mode,
        on_error="skip",
        skipped=skipped,
    )
    assert numbers(dataset) == list(range(100_003))
    assert skipped.count == 1


def test_complete_files_in_a_free_order_stay_together(files):
    dataset = MultiSlotDataset(
        files, SPEC, 500, mode="file_instant", deterministic=False
    )
    got = numbers(dataset)
    assert sorted(got) == list(range(100_003))
    for begin, end in ((0, 10), (10, 100_000), (100_000, 100_003)):
        at = got.index(begin)
        assert got[at : at + end - begin] == list(range(begin, end))


@pytest.mark.parametrize("mode", ["file_instant", "in_memory"])
def test_a_saved_iterator_resumes(tmp_path, files, mode):
    dataset = MultiSlotDataset(files, SPEC, 7777, mode=mode)
    iterator = iter(dataset)
    for _ in range(4):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).restore(saved)
    assert numbers(again) == list(range(4 * 7777, 100_003))


def test_in_memory_shuffles_all_samples(files):
    def run(**options):
        return numbers(
            MultiSlotDataset(files, SPEC, 999, mode="in_memory", **options)
        )

    shuffled = run(shuffle=-1, seed=1)
    assert shuffled == run(shuffle=-1, seed=1)
    assert sorted(shuffled) == list(range(100_003))
    assert shuffled != sorted(shuffled)
    assert run(repeat=2) == list(range(100_003)) * 2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mode": "stream"}, "`mode`='stream' is not in"),
        ({"shuffle": -1}, "`shuffle` must be an integer"),
        (
            {"mode": "in_memory", "shuffle": 9},
            "or -1 .shuffle all samples",
        ),
        ({"mode": "in_memory", "shuffle_files": True}, "`shuffle_files` is no"),
    ],
    ids=str,
)
def test_bad_options(files, options, message):
    with pytest.raises(ValueError, match=message):
        MultiSlotDataset(files, SPEC, 10, **options)


def test_in_memory_is_not_made_inside_tf_function(files):
    @tf.function(autograph=False)
    def count():
        return MultiSlotDataset(files, SPEC, 9, mode="in_memory").reduce(
            0, lambda count, _: count + 1
        )

    with pytest.raises(RuntimeError, match="cannot be used inside a"):
        count()


@pytest.mark.parametrize("mode", ["queue", "file_instant", "in_memory"])
@pytest.mark.parametrize("shuffle", [0, 3])
def test_prefixes_of_lines(tmp_path, mode, shuffle):
    path = tmp_path / "file"
    path.write_text(
        f"1 a-1 1 {'é'} 1 {'x' * 11}0ab0C{2**64 - 1:x}-rest 2 5 6\n"
        f"1 b\t1 c 1 {'x' * 11}FFFff{1:016X} 1 7 \n"
    )
    options = {"mode": mode}
    if shuffle and mode != "in_memory":
        options["shuffle"] = shuffle
    (features,) = MultiSlotDataset(
        path,
        LINES,
        8,
        ins_id=True,
        parse_content=True,
        parse_logkey=True,
        seed=3,
        **options,
    )
    assert list(features) == [
        "ins_id",
        "content",
        "search_id",
        "cmatch",
        "rank",
        "ids",
    ]
    got = sorted(
        zip(
            *(features[name].numpy().tolist() for name in list(features)[:5]),
            features["ids"].to_list(),
            strict=True,
        )
    )
    assert got == [
        (b"a-1", "é".encode(), -1, 0xAB, 0xC, [5, 6]),
        (b"b", b"c", 1, 0xFFF, 0xFF, [7]),
    ]


def test_a_window_with_strings_is_saved(tmp_path):
    path = tmp_path / "file"
    path.write_text("".join(f"1 id{i} 1 {i}\n" for i in range(1, 30)))
    dataset = MultiSlotDataset(path, LINES, 4, ins_id=True, shuffle=10, seed=1)
    iterator = iter(dataset)
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).restore(saved)
    for features, wanted in zip(again, iterator, strict=True):
        assert features["ins_id"].numpy().tolist() == [
            b"id%d" % i for (i,) in features["ids"].to_list()
        ]
        assert features["ids"].to_list() == wanted["ids"].to_list()


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "field 'ins_id' at byte 1: count is '', expected 1"),
        ("1 ", "field 'ins_id' at byte 3: the line ends before"),
        (f"1 a 1 {'0' * 31} 1 7", "field 'logkey' at byte 7: .* of 31 char"),
        (
            f"1 a 1 {'0' * 20}g{'0' * 11} 1 7",
            ".* those from 11 to 31 hexadecimal",
        ),
        (f"1 a 1 {'0' * 32} x 7", "slot 'ids' at byte 40: count is 'x'"),
    ],
)
def test_bad_fields(tmp_path, line, message):
    path = tmp_path / "file"
    path.write_text(line + "\n")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"{path}:1: {message}"
    ):
        list(MultiSlotDataset(path, LINES, 8, ins_id=True, parse_logkey=True))
