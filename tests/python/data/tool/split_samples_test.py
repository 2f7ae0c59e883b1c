"""lodestar.data.tool.split_samples: every line once, nothing half-written."""

import gzip

import pytest
import tensorflow as tf

from lodestar.data import DataError, split_samples


def test_every_line_goes_to_one_side_in_order(tmp_path):
    lines = [f"{i}\n" for i in range(5000)]
    source = tmp_path / "all"
    source.write_text("".join(lines))
    counts = split_samples(source, tmp_path / "a", tmp_path / "b", seed=1)
    a = (tmp_path / "a").read_text().splitlines(keepends=True)
    b = (tmp_path / "b").read_text().splitlines(keepends=True)
    assert counts == (len(a), len(b))
    assert sorted(a + b, key=int) == lines
    assert a == sorted(a, key=int)
    assert b == sorted(b, key=int)
    assert 850 < len(b) < 1150
    split_samples(source, tmp_path / "c", tmp_path / "d", seed=1)
    assert (tmp_path / "d").read_text().splitlines(keepends=True) == b
    split_samples(source, tmp_path / "c", tmp_path / "d", seed=2)
    assert (tmp_path / "d").read_text().splitlines(keepends=True) != b


def test_compressed_files(tmp_path):
    lines = [b"%d\n" % i for i in range(1000)]
    source = tmp_path / "all.gz"
    source.write_bytes(gzip.compress(b"".join(lines)))
    split_samples(source, tmp_path / "a.gz", tmp_path / "b")
    a = gzip.decompress((tmp_path / "a.gz").read_bytes())
    b = (tmp_path / "b").read_bytes()
    both = a.splitlines(keepends=True) + b.splitlines(keepends=True)
    assert sorted(both, key=int) == lines


@pytest.mark.parametrize("cut", [1, 9, -100])
def test_a_compressed_file_that_is_not_whole(tmp_path, cut):
    source = tmp_path / "all.gz"
    text = b"".join(b"%d\n" % i for i in range(1000))
    source.write_bytes(gzip.compress(text)[:-cut])
    with pytest.raises(DataError, match="all.gz: "):
        split_samples(source, tmp_path / "a", tmp_path / "b")
    source.write_bytes(text)
    with pytest.raises(DataError, match="all.gz: Not a gzipped file"):
        split_samples(source, tmp_path / "a", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["all.gz"]


def test_too_few_lines_leave_nothing(tmp_path):
    source = tmp_path / "all"
    source.write_text("1\n")
    with pytest.raises(DataError, match="all: 1 samples are too few"):
        split_samples(source, tmp_path / "a", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["all"]


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="`fraction` must be between 0 and 1"):
        split_samples("x", "a", "b", fraction=1)
    with pytest.raises(ValueError, match="a: is both `train` and `test`"):
        split_samples("x", "a", "a")
    with pytest.raises(tf.errors.NotFoundError, match="missing"):
        split_samples(tmp_path / "missing", tmp_path / "a", tmp_path / "b")
    assert list(tmp_path.iterdir()) == []
