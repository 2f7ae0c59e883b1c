"""cluster_task: TF_CONFIG, flags that replace its parts, and errors."""

import json

import pytest

from lodestar.train.cluster_task import read_task

CLUSTER = {"ps": ["a:1", "b:2"], "worker": ["c:3"], "chief": ["d:4"]}


def config(**parts):
    return {"TF_CONFIG": json.dumps(parts)}


@pytest.mark.parametrize("index", [1, "1"])
def test_tf_config_defines_everything(index):
    task = read_task(
        config(cluster=CLUSTER, task={"type": "ps", "index": index})
    )
    assert (task.job, task.index, task.name) == ("ps", 1, "ps 1")
    assert task.cluster == CLUSTER
    assert (task.address, task.port) == ("b:2", 2)


def test_flags_replace_its_parts():
    here = config(cluster=CLUSTER, task={"type": "ps", "index": 1})
    assert read_task(here, job="worker", index=0).address == "c:3"
    cluster = json.dumps({"ps": ["x:7", "[::1]:9"]})
    assert read_task(here, cluster).address == "[::1]:9"
    assert read_task({}, cluster, "ps", 0).port == 7


PLACE = {"type": "ps", "index": 0}


@pytest.mark.parametrize(
    "environment, message",
    [
        ({}, "cluster is unknown. Set TF_CONFIG, or pass --cluster"),
        ({"TF_CONFIG": ""}, "cluster is unknown"),
        ({"TF_CONFIG": "{"}, "TF_CONFIG is not JSON: .*column"),
        ({"TF_CONFIG": "[]"}, r"TF_CONFIG must be a JSON object, got \[\]"),
        (config(task=PLACE), "TF_CONFIG: the cluster must be .*, got null"),
        (config(cluster={}, task=PLACE), "the cluster must be .*, got {}"),
        (config(cluster={"ps": "a:1"}, task=PLACE),
         'ps must be a list of HOST:PORT, got "a:1"'),
        (config(cluster={"ps": ["a"]}, task=PLACE),
         'addresses of ps must be HOST:PORT, got "a"'),
        (config(cluster={"ps": ["a:0"]}, task=PLACE), 'HOST:PORT, got "a:0"'),
        (config(cluster={"ps": [7]}, task=PLACE), "HOST:PORT, got 7"),
        (config(cluster=CLUSTER), "The task is unknown.* Pass --job and --task"),
        (config(cluster=CLUSTER, task={"type": "ps"}), "The task is unknown"),
        (config(cluster=CLUSTER, task=3), "`task` must be an object .*, got 3"),
        (config(cluster=CLUSTER, task={"type": "chief", "index": 0}),
         "The job must be one of .*, got 'chief'"),
        (config(cluster={"worker": ["a:1"]}, task=PLACE),
         "the cluster has no job 'ps', only worker"),
        (config(cluster=CLUSTER, task={"type": "ps", "index": 2}),
         "index of a ps must be less than 2, .* got 2"),
        (config(cluster=CLUSTER, task={"type": "ps", "index": -1}), "of a ps .*got -1"),
        (config(cluster=CLUSTER, task={"type": "ps", "index": 0.5}),
         "of a ps .*got 0.5"),
    ],
)  # fmt: skip
def test_errors_name_the_cause(environment, message):
    with pytest.raises(ValueError, match=message):
        read_task(environment)


def test_errors_of_flags_are_named():
    with pytest.raises(ValueError, match="--cluster is not JSON"):
        read_task({}, "ps=a:1", "ps", 0)
    with pytest.raises(ValueError, match="--cluster: the cluster has no job"):
        read_task({}, '{"worker": ["a:1"]}', "ps", 0)
