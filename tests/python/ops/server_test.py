"""Claims of programs on the process that runs the ops."""

import pytest
import tensorflow as tf

from lodestar._library import gen_ops

ALWAYS = 1e9  # a lease that never expires
LAPSED = 0.0


@pytest.fixture(autouse=True)
def released():
    """Checks that no program has a claim before or after a test."""
    yield
    for program in ("a", "b"):
        gen_ops.lodestar_release_server(program)


def claim(program, lease=ALWAYS):
    owner, silence = gen_ops.lodestar_claim_server(program, lease)
    assert silence >= 0.0
    return owner.numpy().decode()


def table(container):
    return gen_ops.lodestar_embedding_variable(
        dim=1, container=container, shared_name="of_server_test"
    )


def size(container):
    return int(gen_ops.lodestar_embedding_size(table(container)))


def fill(container):
    ids = tf.constant([1, 2], tf.int64)
    gen_ops.lodestar_embedding_insert_or_assign(
        table(container), ids, tf.ones([2, 1])
    )
    assert size(container) == 2


def test_a_running_program_keeps_its_claim_and_its_container():
    assert claim("a") == ""
    fill("a")
    assert claim("a", LAPSED) == "a"  # its own claim does not expire
    assert claim("b") == "a"
    assert claim("a") == "a"
    assert size("a") == 2


def test_a_lapsed_claim_goes_with_the_container():
    claim("a")
    for container in ("a", "b", ""):
        fill(container)
    assert claim("b", LAPSED) == "a"
    assert [size(container) for container in ("a", "b", "")] == [0, 2, 2]
    assert claim("b") == "b"


def test_a_program_releases_only_its_claims():
    claim("a")
    fill("a")
    fill("b")
    gen_ops.lodestar_release_server("b")
    assert (size("a"), size("b")) == (2, 0)
    assert claim("a") == "a"
    gen_ops.lodestar_release_server("a")
    assert size("a") == 0
    assert claim("b") == ""


def test_a_program_has_a_name():
    with pytest.raises(tf.errors.InvalidArgumentError, match="is empty"):
        claim("")
    with pytest.raises(tf.errors.InvalidArgumentError, match="is empty"):
        gen_ops.lodestar_release_server("")
