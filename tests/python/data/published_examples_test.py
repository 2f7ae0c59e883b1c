"""Reads and writes the examples in the documentation of HugeCTR and Paddle."""

import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hugectr_files import make_norm, make_raw
from text_ids import hash_ids

import lodestar
from lodestar.data import Column, Schema, open_dataset
from lodestar.hugectr.norm_dataset import NormDataset
from lodestar.hugectr.norm_writer import NormWriter
from lodestar.hugectr.raw_dataset import RawDataset
from lodestar.paddle import MultiSlotGenerator
from lodestar.paddle.multislot_dataset import MultiSlotDataset

# As in Paddle's ctr example: 13 scaled numbers and 26 hashed ids of Criteo.
LEAST = [0, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
SPAN = [20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50]


class CtrDenseReader(MultiSlotGenerator):
    def generate_sample(self, line):
        def reader():
            fields = line.rstrip("\n").split("\t")
            dense = [
                0.0 if text == "" else (float(text) - least) / span
                for text, least, span in zip(fields[1:14], LEAST, SPAN)
            ]
            columns = [f"C{i}" for i in range(1, 27)]
            ids = [
                lodestar.hash_ids([text], column=column).numpy()
                for column, text in zip(columns, fields[14:])
            ]
            names = ["dense_feature", *columns, "label"]
            yield list(zip(names, [dense, *ids, [int(fields[0])]]))

        return reader


def test_ctr_dense_reader(tmp_path):
    numbers = [
        "1",
        "-3",
        "",
        "5",
        "1382",
        "4",
        "15",
        "2",
        "181",
        "1",
        "2",
        "",
        "2",
    ]
    texts = [f"{i:08x}" for i in range(25)] + [""]
    lines = ["\t".join([label, *numbers, *texts]) + "\n" for label in "10"]
    (tmp_path / "in").write_text("".join(lines))
    CtrDenseReader().write(tmp_path / "in", tmp_path / "out")
    schema = [
        Column.dense("dense_feature", [13]),
        *(Column.sparse(f"C{i}") for i in range(1, 27)),
        Column.label("label"),
    ]
    ((features, label),) = MultiSlotDataset(tmp_path / "out", schema, 2)
    assert label.numpy().tolist() == [[1], [0]]
    np.testing.assert_allclose(
        features["dense_feature"][0],
        [
            0.05,
            0,
            0,
            0.1,
            1382 / 64000,
            0.008,
            0.15,
            0.04,
            0.362,
            0.1,
            0.2,
            0,
            0.04,
        ],
        rtol=1e-6,
    )
    for i, text in enumerate(texts, 1):
        ids = hash_ids(f"C{i}", [text]).tolist()
        assert features[f"C{i}"].to_list() == [ids, ids]


def test_the_bytes_of_ncf(tmp_path):
    """HugeCTR's NCF sample: a dummy number, a user and an item per record."""
    samples = [(1, 5, 138493 + 7), (0, 138492, 138493)]
    data = struct.pack("<8q", 0, len(samples), 1, 1, 2, 0, 0, 0)
    for label, user, item in samples:
        data += struct.pack("<2f", label, 0) + struct.pack(
            "<iIiI", 1, user, 1, item
        )
    ids = map(Column.sparse, ("user", "item"))
    spec = Schema([Column.label("label"), Column.dense("dummy"), *ids])
    path = tmp_path / "train_huge_0.data"
    with NormWriter(path, spec, check="none") as writer:
        for label, user, item in samples:
            writer.write(
                {"label": label, "dummy": 0, "user": [user], "item": [item]}
            )
    assert path.read_bytes() == data
    ((features, label),) = NormDataset(path, spec, 2)
    assert label.numpy().tolist() == [[1], [0]]
    assert features["user"].to_list() == [[5], [138492]]
    assert features["item"].to_list() == [[138500], [138493]]


def test_ten_paths_and_three_reader_parameters(tmp_path, monkeypatch):
    """Slots are numbered over all sparse inputs, in their order."""
    monkeypatch.chdir(tmp_path)
    parameters = {"data1": 2, "data2": 1, "data3": 3}  # name: slots
    names = [
        f"{name}_{i}"
        for name, count in parameters.items()
        for i in range(count)
    ]
    paths = [f"./norm/train{i}.data" for i in range(10)]
    (tmp_path / "norm").mkdir()
    for i, path in enumerate(paths):
        schema = [[100 * i + s] * (s % 3) for s in range(6)]
        sample = ([i % 2], [i, 0.5], schema)
        (tmp_path / path).write_bytes(make_norm([sample], check="sum"))
    (tmp_path / "file_list.txt").write_text("\n".join(["10", *paths, ""]))
    spec = [
        Column.label("y"),
        Column.dense("dense", [2]),
        *map(Column.sparse, names),
    ]
    ((features, label),) = NormDataset("file_list.txt", spec, 16)
    assert label.numpy()[:, 0].tolist() == [0, 1] * 5
    assert features["dense"].numpy().tolist() == [[i, 0.5] for i in range(10)]
    for s, name in enumerate(names):
        assert features[name].to_list() == [
            [100 * i + s] * (s % 3) for i in range(10)
        ]


def test_metadata_of_a_subset_of_criteo(tmp_path):
    names = ["label", *(f"I{i}" for i in range(1, 14))]
    names += [f"C{i}" for i in range(1, 27)]
    for file in ("data1", "data2"):
        columns = [pa.array([1.0, 0.0], pa.float32())]
        columns += [pa.array([i, -i], pa.float32()) for i in range(1, 14)]
        columns += [pa.array([i, 100 + i], pa.int64()) for i in range(1, 27)]
        pq.write_table(pa.table(columns, names), tmp_path / f"{file}.parquet")
    files = ["./data1.parquet", "./data2.parquet"]
    groups = {
        "labels": {"label": 0},
        "conts": {"I5": 5, "I13": 13, "I2": 2, "I10": 10},
        "cats": {"C11": 24, "C24": 37, "C17": 30, "C7": 20, "C6": 19},
    }
    content = {
        group: [{"col_name": name, "index": i} for name, i in columns.items()]
        for group, columns in groups.items()
    }
    content["file_stats"] = [{"file_name": f, "num_rows": 2} for f in files]
    (tmp_path / "_metadata.json").write_text(json.dumps(content))
    ((features, label),) = open_dataset(tmp_path, batch_size=8)
    assert list(features) == "I2 I5 I10 I13 C6 C7 C11 C17 C24".split()
    assert label.numpy()[:, 0].tolist() == [1, 0, 1, 0]
    for name, column in features.items():
        n = int(name[1:])
        if name[0] == "I":
            assert column.numpy()[:, 0].tolist() == [n, -n, n, -n]
        else:
            assert column.to_list() == [[n], [100 + n]] * 2


# Sizes of HugeCTR's wide-and-deep sample: two wide slots, and Criteo's 26.
SLOT_SIZES = [
    278899, 355877, 203750, 18573, 14082, 7020, 18966, 4, 6382, 1246, 49, 185920,
    71354, 67346, 11, 2166, 7340, 60, 4, 934, 15, 204208, 141572, 199066, 60940,
    9115, 72, 34,
]  # fmt: skip


@pytest.mark.parametrize("key", ["first", "last"])
def test_28_slot_sizes(tmp_path, key):
    """Each slot's keys follow the keys of the previous slots."""
    assert len(SLOT_SIZES) == 28
    keys = [0 if key == "first" else size - 1 for size in SLOT_SIZES]
    names = [f"S{i}" for i in range(28)]
    path = tmp_path / "train.raw"
    path.write_bytes(make_raw([([1], [0.5], [[k] for k in keys])], "float"))
    spec = [Column.label("y"), Column.dense("I"), *map(Column.sparse, names)]
    raw = RawDataset(path, spec, 1, slot_size_array=SLOT_SIZES)
    table = {"y": [1.0], "I": [0.5], **{n: [k] for n, k in zip(names, keys)}}
    types = [pa.float32()] * 2 + [pa.int64()] * 28
    columns = [pa.array(v, t) for v, t in zip(table.values(), types)]
    path = tmp_path / "0.parquet"
    pq.write_table(pa.table(columns, list(table)), path)
    parquet = open_dataset(path, spec, 1, slot_size_array=SLOT_SIZES)
    begin = 0
    ((found, _),), ((other, _),) = raw, parquet
    for name, k, size in zip(names, keys, SLOT_SIZES):
        assert found[name].to_list() == other[name].to_list() == [[begin + k]]
        begin += size


def test_sparse_slots_of_every_format_are_lod_tensors_if_wanted(tmp_path):
    spec = Schema([Column.label("y"), Column.sparse("C")])
    samples = [([1], [], [[7]]), ([0], [], [[9]])]
    (tmp_path / "a.txt").write_text("1 1 1 7\n1 0 1 9\n")
    (tmp_path / "a.norm").write_bytes(make_norm(samples))
    (tmp_path / "a.raw").write_bytes(make_raw(samples, "float"))
    with lodestar.data.open_writer(tmp_path / "a.parquet", spec) as writer:
        writer.write_batch({"y": [1, 0], "C": ([7, 9], [0, 1, 2])})

    class Generated(MultiSlotGenerator):
        def generate_sample(self, line):
            yield [("y", [int(line[2])]), ("C", [int(line[-2])])]

    datasets = [
        lodestar.data.open_dataset(
            tmp_path / f"a.{form}", spec, 2, sparse="lod"
        )
        for form in ("txt", "norm", "raw", "parquet")
    ]
    text = tmp_path / "a.txt"
    datasets += [
        MultiSlotDataset(text, spec, 2, mode="in_memory", sparse="lod"),
        Generated(schema=spec).dataset(text, 2, sparse="lod"),
    ]
    for dataset in datasets:
        ((features, _),) = dataset
        assert isinstance(features["C"], lodestar.ragged.LoDTensor)
        assert features["C"].to_list() == [[7], [9]]
        assert (
            dataset.element_spec[0]["C"].value_type is lodestar.ragged.LoDTensor
        )
