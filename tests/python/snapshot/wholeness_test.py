"""A delta checks its base, and a file that was modified is read again."""

import os
import time
import warnings

import pytest
import snapshot_tables as st

from lodestar import snapshot


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("00000002/MANIFEST", "flip"),
        ("00000001/MANIFEST", "unlink"),
        ("00000001/table-00000", "unlink"),
        ("00000001/table-00000", "cut"),
        ("00000001/table-00000", "flip"),
        ("00000002/table-00000", "flip"),
        ("00000002/table-00000", "unlink"),
    ],
)
def test_a_delta_does_not_build_on_a_broken_version(path, file, damage):
    t = st.table()
    st.fill(t, range(10))
    snapshot.save(t, path)
    snapshot.save(t, path, delta=True)
    broken = os.path.join(path, file)
    if damage == "unlink":
        os.unlink(broken)
    else:
        with open(broken, "r+b") as opened:
            if damage == "cut":
                opened.truncate(30)
            opened.seek(-20, os.SEEK_END)
            opened.write(b"?")
    with pytest.warns(
        RuntimeWarning,
        match=f"build on version 2 of .* a full snapshot is written: .*{file}",
    ):
        info = snapshot.save(t, path, delta=True)
    assert (info.kind, info.version) == ("full", 3)
    new = st.table()
    snapshot.restore(new, path)
    assert st.content(new) == st.content(t)
    assert snapshot.save(t, path, delta=True).kind == "delta"
    # A full snapshot checks none of them.
    os.unlink(os.path.join(path, "00000003", "table-00000"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert snapshot.save(t, path).kind == "full"


def test_a_file_that_is_broken_within_a_step_of_the_clock_is_noticed(path):
    t = st.table()
    st.fill(t, range(10))
    snapshot.save(t, path)
    file = os.path.join(path, "00000001", "table-00000")
    # As if it had been modified after its manifest was written, just now.
    now = time.time_ns() + 3600 * 10**9
    os.utime(file, ns=(now, now))
    assert snapshot.save(t, path, delta=True).kind == "delta"
    with open(file, "r+b") as opened:
        opened.seek(-20, os.SEEK_END)
        opened.write(b"?")
    os.utime(file, ns=(now, now))
    with pytest.warns(
        RuntimeWarning, match="a full snapshot is written: .*00000001/table"
    ):
        assert snapshot.save(t, path, delta=True).kind == "full"
