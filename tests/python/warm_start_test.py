"""Tests of rows from dense embeddings, arrays and TFRA's files."""

import os
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import warm_start

IDS = np.array([5, -(2**63), 2**63 - 1, 0, 7])
ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)
TFRA = pathlib.Path(__file__).parents[1] / "data" / "golden" / "tfra"


def table(**options):
    return lodestar.EmbeddingVariable(3, name="t", **options)


def rows_of(table, ids=IDS):
    rows, found = table.find(ids)
    assert np.all(found)
    return rows.numpy()


@pytest.fixture(params=[1, 2, 5, 1 << 20], autouse=True)
def rows_a_piece(request, monkeypatch):
    monkeypatch.setattr(warm_start, "_CHUNK_BYTES", request.param * 3 * 4)


# Arrays.


@pytest.mark.parametrize(
    "ids",
    [IDS, IDS.tolist(), tf.constant(IDS), IDS.view(np.uint64)],
    ids=["array", "list", "tensor", "uint64"],
)
@pytest.mark.parametrize(
    "rows",
    [ROWS, ROWS.tolist(), tf.constant(ROWS), ROWS.astype(np.float64)],
    ids=["array", "list", "tensor", "float64"],
)
def test_from_embedding_of_rows(ids, rows):
    t = table()
    assert warm_start.from_embedding(t, rows, ids) == 5
    np.testing.assert_array_equal(rows_of(t), ROWS)
    assert int(t.size()) == 5 and not np.any(t.frequency(IDS))


def test_from_a_memmap(tmp_path):
    ROWS.tofile(tmp_path / "rows")
    rows = np.memmap(tmp_path / "rows", np.float32, "r", shape=(5, 3))
    t = table()
    warm_start.from_embedding(t, rows, IDS)
    np.testing.assert_array_equal(rows_of(t), ROWS)


def test_casts_to_the_dtype_of_the_table():
    t = table(dtype=tf.bfloat16)
    warm_start.from_embedding(t, ROWS / 3, IDS)
    want = tf.cast(ROWS / 3, tf.bfloat16).numpy()
    np.testing.assert_array_equal(rows_of(t), want)


def test_nothing_from_nothing():
    t = table()
    assert warm_start.from_embedding(t, np.zeros((0, 3)), np.zeros(0, int)) == 0
    assert int(t.size()) == 0


def trained():
    t = table()
    optimizer = lodestar.optimizers.Adagrad()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(t.lookup([0, 99], training=True))
    optimizer.apply([tape.gradient(loss, t)], [t])
    return t


def test_overwrites_values_and_keeps_the_rest():
    t = trained()
    before = t.export()
    assert warm_start.from_embedding(t, ROWS, IDS) == 5
    after = t.export()
    np.testing.assert_array_equal(rows_of(t), ROWS)
    place = list(after.ids.numpy()).index(0)
    np.testing.assert_array_equal(
        after.optimizer_slots["accumulator"][place],
        before.optimizer_slots["accumulator"][0],
    )
    assert int(t.frequency([0])[0]) == 1
    fresh = list(after.ids.numpy()).index(7)
    np.testing.assert_allclose(
        after.optimizer_slots["accumulator"][fresh], 0.1, 1e-6
    )
    assert int(t.size()) == 6


def test_keeps_rows_that_are_there():
    t = trained()
    before = rows_of(t, [0, 99])
    assert warm_start.from_embedding(t, ROWS, IDS, existing="keep") == 4
    np.testing.assert_array_equal(rows_of(t, [0, 99]), before)
    others = IDS != 0
    np.testing.assert_array_equal(rows_of(t, IDS[others]), ROWS[others])


@pytest.mark.parametrize("existing, place", [("overwrite", 4), ("keep", 1)])
def test_equal_ids(existing, place):
    t = table()
    warm_start.from_embedding(t, ROWS, [3, 8, 3, 3, 8], existing=existing)
    np.testing.assert_array_equal(rows_of(t, [8])[0], ROWS[place])
    np.testing.assert_array_equal(
        rows_of(t, [3])[0], ROWS[0 if existing == "keep" else 3]
    )


@pytest.mark.parametrize("of", ["feature", "layer"])
def test_ids_are_salted_for_a_feature_or_layer(of):
    t = table()
    if of == "feature":
        target = lodestar.Feature(t, combiner="mean", salt="s")
        ids = target.table_ids(IDS)
    else:
        target = lodestar.layers.DynamicEmbedding(table=t, salt="s")
        ids = target._feature.table_ids(IDS)
        warm_start.from_embedding(target, ROWS, IDS)
        np.testing.assert_array_equal(target(IDS), ROWS)
    warm_start.from_embedding(target, ROWS, IDS)
    np.testing.assert_array_equal(rows_of(t, ids), ROWS)
    warm_start.from_embedding(target, ROWS[:2], ["a", "b"])
    np.testing.assert_array_equal(
        rows_of(
            t,
            lodestar.Feature(t, combiner="mean", salt="s").table_ids(
                ["a", "b"]
            ),
        ),
        ROWS[:2],
    )


@pytest.mark.parametrize(
    "ids, rows, options, message",
    [
        (IDS, ROWS[:, :2], {}, r"the shape \[5, 3\].*dim=3.*\[5, 2\]"),
        (IDS, ROWS[0], {}, r"got \[3\]"),
        (IDS, ROWS[:4], {}, "has 4 rows, but there are 5 ids"),
        (IDS[None], ROWS, {}, r"`ids` must have the shape \[N\].*got \(1, 5\)"),
        (IDS.astype(float), ROWS, {}, "dtype float64, but must be integers"),
        (IDS, ROWS, {"existing": "merge"}, "`existing`='merge' is not in"),
    ],
)
def test_bad_arrays(ids, rows, options, message):
    t = table()
    with pytest.raises(ValueError, match=message):
        warm_start.from_embedding(t, rows, ids, **options)
    assert int(t.size()) == 0


def test_bad_target():
    with pytest.raises(ValueError, match="`table` must be a lodestar.*got str"):
        warm_start.from_embedding("t", ROWS, IDS)


def test_more_rows_than_the_cap():
    t = table(eviction=lodestar.MaxRows(4))
    message = "5 rows, but <EmbeddingVariable .* allows at most 4 "
    with pytest.raises(ValueError, match=message):
        warm_start.from_embedding(t, ROWS, IDS)
    assert int(t.size()) == 0


# Dense embeddings.


def test_from_a_keras_embedding():
    dense = keras.layers.Embedding(5, 3, embeddings_initializer="normal")
    t = table()
    with pytest.raises(ValueError, match="has no matrix yet"):
        warm_start.from_embedding(t, dense)
    dense.build()
    assert warm_start.from_embedding(t, dense) == 5
    matrix = dense.get_weights()[0]
    np.testing.assert_array_equal(rows_of(t, np.arange(5)), matrix)
    layer = lodestar.layers.DynamicEmbedding(table=t)
    batch = np.array([[4, 0], [1, 1]])
    np.testing.assert_array_equal(layer(batch), dense(batch))


@pytest.mark.parametrize(
    "matrix",
    [ROWS, ROWS.tolist(), tf.Variable(ROWS), keras.Variable(ROWS)],
    ids=["array", "list", "tf.Variable", "keras.Variable"],
)
def test_from_a_matrix(matrix):
    t = table()
    assert warm_start.from_embedding(t, matrix, id_offset=-2) == 5
    np.testing.assert_array_equal(rows_of(t, np.arange(-2, 3)), ROWS)
    warm_start.from_embedding(t, matrix, ids=IDS)
    np.testing.assert_array_equal(rows_of(t), ROWS)


def test_bad_embeddings():
    t = table()
    for matrix, options, message in (
        (ROWS[:, :2], {}, r"dim=3.*\[5, 2\]"),
        (np.float32(1.0), {}, r"got \[\]"),
        (ROWS, {"ids": IDS[:4]}, "has 5 rows, but there are 4 ids"),
        (ROWS, {"ids": IDS, "id_offset": 1}, "got `id_offset`=1 with"),
    ):
        with pytest.raises(ValueError, match=message):
            warm_start.from_embedding(t, matrix, **options)
    assert int(t.size()) == 0


# TFRA's files.


def write(folder, name, ids, rows):
    ids.tofile(folder / f"{name}-keys")
    rows.tofile(folder / f"{name}-values")


def part(name, i, n, rank=0, size=1):
    return f"{name}_mht_{i}of{n}_rank{rank}_size{size}"


@pytest.mark.parametrize("existing", ["overwrite", "keep"])
@pytest.mark.parametrize(
    "files",
    [
        TFRA / "user",
        [
            (
                f"{TFRA}/{part('user', i, 2)}-keys",
                f"{TFRA}/{part('user', i, 2)}-values",
            )
            for i in (1, 2)
        ],
    ],
    ids=["prefix", "pairs"],
)
def test_files_that_tfra_wrote(files, existing):
    with np.load(TFRA / "user.npz") as expected:
        ids, rows = expected["ids"], expected["rows"]
    t = table()
    count = warm_start.from_tfra(t, files, output_dim=3, existing=existing)
    assert count == len(ids) == int(t.size())
    np.testing.assert_array_equal(rows_of(t, ids), rows)


def test_one_part_of_a_table(tmp_path):
    write(tmp_path, "t", IDS, ROWS)
    t = table()
    assert warm_start.from_tfra(t, tmp_path / "t", output_dim=3) == 5
    np.testing.assert_array_equal(rows_of(t), ROWS)


def test_parts_of_several_processes(tmp_path):
    names = [part("t", i, 2, rank, 2) for rank in (0, 1) for i in (1, 2)]
    for place, name in enumerate(names):
        write(tmp_path, name, IDS[place : place + 1], ROWS[place : place + 1])
    # Another variable, and unrelated files in the folder.
    write(tmp_path, part("t_2", 1, 1), IDS, ROWS)
    (tmp_path / "t.txt").write_text("")
    t = table()
    assert warm_start.from_tfra(t, tmp_path / "t", output_dim=3) == 4
    np.testing.assert_array_equal(rows_of(t, IDS[:4]), ROWS[:4])


@pytest.mark.parametrize("key", ["int64", "int32"])
@pytest.mark.parametrize("value", ["float32", "float64", "float16", "bfloat16"])
def test_dtypes(key, value, tmp_path):
    ids = np.array([-3, 2**31 - 1], key)
    rows = ROWS[:2].astype(tf.as_dtype(value).as_numpy_dtype)
    write(tmp_path, "t", ids, rows)
    t = table()
    warm_start.from_tfra(
        t, str(tmp_path / "t"), output_dim=3, key_dtype=key, value_dtype=value
    )
    np.testing.assert_array_equal(rows_of(t, ids), ROWS[:2])


def test_existing_rows_and_several_files(tmp_path):
    for i in (1, 2):
        write(tmp_path, part("t", i, 2), IDS[:2], ROWS[:2] + 100 * i)
    for existing, want, count in (("overwrite", 2, 4), ("keep", 1, 2)):
        t = table()
        found = warm_start.from_tfra(
            t, tmp_path / "t", output_dim=3, existing=existing
        )
        assert found == count
        np.testing.assert_array_equal(
            rows_of(t, IDS[:2]), ROWS[:2] + 100 * want
        )


def test_empty_files(tmp_path):
    write(tmp_path, "t", IDS[:0], ROWS[:0])
    assert warm_start.from_tfra(table(), tmp_path / "t", output_dim=3) == 0


def refused(message, files, **options):
    t = table()
    with pytest.raises(ValueError, match=message):
        warm_start.from_tfra(t, files, **{"output_dim": 3, **options})
    assert int(t.size()) == 0


def test_sizes_are_checked_before_the_first_row(tmp_path):
    write(tmp_path, part("t", 1, 2), IDS, ROWS)
    last = part("t", 2, 2)
    write(tmp_path, last, IDS, ROWS)
    files = tmp_path / "t"
    with open(tmp_path / f"{last}-values", "r+b") as file:
        file.truncate(57)
    refused(
        f"{last}-values' must have 60 bytes, got 57: 5 rows .the keys in "
        f"'.*{last}-keys'. of 3 float32 values",
        files,
    )
    refused(
        "must have 120 bytes, got 60.*float64", files, value_dtype="float64"
    )
    refused("must have 30 bytes, got 60.*float16", files, value_dtype="float16")
    with open(tmp_path / f"{last}-keys", "ab") as file:
        file.write(b"1")
    refused(
        f"{last}-keys' has 41 bytes, which is not a multiple of the 8 bytes",
        files,
    )
    os.remove(tmp_path / f"{last}-keys")
    refused(rf"missing in .*\['{last}-keys'\]", files)
    os.remove(tmp_path / f"{last}-values")
    refused(rf"missing in .*'{last}-keys', '{last}-values'", files)


def test_bad_arguments(tmp_path):
    write(tmp_path, "t", IDS, ROWS)
    files = tmp_path / "t"
    refused(
        "`output_dim` must be that of <EmbeddingVariable 't' output_dim=3",
        files,
        output_dim=4,
    )
    refused(
        "`key_dtype` must be one of .*, got string", files, key_dtype=tf.string
    )
    refused(
        "`value_dtype` must be one of .*, got int8", files, value_dtype="int8"
    )
    refused("Found no files of '.*u'", tmp_path / "u")
    refused("Found no files of 'no_such/u'", "no_such/u")
    refused(
        "The file '.*x' does not exist", [(f"{files}-keys", f"{tmp_path}/x")]
    )
    other = tmp_path / os.fsdecode(b"caf\xe9")
    other.touch()
    refused(r"holds b'caf\\xe9', whose name is not UTF-8", tmp_path / "u")
    other.unlink()
    os.remove(f"{files}-values")
    refused("The file '.*t-values' does not exist", files)


def test_parts_of_several_saves(tmp_path):
    write(tmp_path, part("t", 1, 1), IDS, ROWS)
    write(tmp_path, part("t", 1, 2), IDS, ROWS)
    refused(
        "from several saves: 1 parts in 1 processes, 2 parts in 1 processes",
        tmp_path / "t",
    )


def test_a_file_that_becomes_shorter(tmp_path, monkeypatch):
    shutil.copytree(TFRA, tmp_path / "tfra")
    path = tmp_path / "tfra" / f"{part('user', 2, 2)}-values"
    count = warm_start._count

    def cut(*arguments):
        found = count(*arguments)
        if arguments[1] == str(path):
            os.truncate(path, 100)
        return found

    monkeypatch.setattr(warm_start, "_count", cut)
    with pytest.raises(
        tf.errors.DataLossError, match="ends at byte 100, expected"
    ):
        warm_start.from_tfra(table(), tmp_path / "tfra" / "user", output_dim=3)


def test_ids_beyond_int64():
    t = table()
    for offset, end in ((2**63 - 4, 2**63), (2**63, 2**63 + 4), (2**70, "")):
        with pytest.raises(ValueError, match=f"{end}, which do not fit int64"):
            warm_start.from_embedding(t, ROWS, id_offset=offset)
    with pytest.raises(ValueError, match="do not fit int64"):
        warm_start.from_embedding(t, ROWS, id_offset=-(2**63) - 1)
    for offset in (1.5, True, "x"):
        with pytest.raises(
            ValueError, match=f"must be an integer, got {offset!r}"
        ):
            warm_start.from_embedding(t, ROWS, id_offset=offset)
    assert t.size() == 0
    warm_start.from_embedding(t, ROWS, id_offset=2**63 - 5)
    np.testing.assert_array_equal(rows_of(t, np.arange(5) + (2**63 - 5)), ROWS)


def test_files_that_are_not_parts(tmp_path):
    for part in (1, 2):
        IDS.tofile(tmp_path / f"t_mht_{part}of1_rank0_size1-keys")
        ROWS.tofile(tmp_path / f"t_mht_{part}of1_rank0_size1-values")
    t = table()
    with pytest.raises(
        ValueError, match=r"not among 1 parts in 1 .*t_mht_2of1"
    ):
        warm_start.from_tfra(t, tmp_path / "t", output_dim=3)
    assert t.size() == 0


@pytest.mark.parametrize("files", [("a-keys", "a-values"), [("a",)]])
def test_no_pairs_of_files(files):
    with pytest.raises(ValueError, match="must be pairs"):
        warm_start.from_tfra(table(), files, output_dim=3)
