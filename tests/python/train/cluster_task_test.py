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
        ({}, "which cluster. Set TF_CONFIG, or give --cluster"),
        ({"TF_CONFIG": ""}, "which cluster"),
        ({"TF_CONFIG": "{"}, "TF_CONFIG is no JSON: .*column"),
        ({"TF_CONFIG": "[]"}, r"TF_CONFIG is \[\], wanted a JSON object"),
        (config(task=PLACE), "TF_CONFIG: the cluster is null, wanted"),
        (config(cluster={}, task=PLACE), "the cluster is {}, wanted"),
        (config(cluster={"ps": "a:1"}, task=PLACE), 'ps is "a:1", wanted a list'),
        (config(cluster={"ps": ["a"]}, task=PLACE), 'ps has the address "a"'),
        (config(cluster={"ps": ["a:0"]}, task=PLACE), 'the address "a:0"'),
        (config(cluster={"ps": [7]}, task=PLACE), "the address 7, wanted"),
        (config(cluster=CLUSTER), "which task. .* give --job and --task"),
        (config(cluster=CLUSTER, task={"type": "ps"}), "which task"),
        (config(cluster=CLUSTER, task=3), "`task` is 3, wanted an object"),
        (config(cluster=CLUSTER, task={"type": "chief", "index": 0}),
         "the job 'chief' has no server: those of ps and worker have"),
        (config(cluster={"worker": ["a:1"]}, task=PLACE),
         "the cluster has no job 'ps', it has worker"),
        (config(cluster=CLUSTER, task={"type": "ps", "index": 2}),
         "there is no ps 2: the cluster has 2 of them, from 0"),
        (config(cluster=CLUSTER, task={"type": "ps", "index": -1}), "no ps -1"),
        (config(cluster=CLUSTER, task={"type": "ps", "index": 0.5}), "no ps 0.5"),
    ],
)  # fmt: skip
def test_errors_name_the_cause(environment, message):
    with pytest.raises(ValueError, match=message):
        read_task(environment)


def test_errors_of_flags_are_named():
    with pytest.raises(ValueError, match="--cluster is no JSON"):
        read_task({}, "ps=a:1", "ps", 0)
    with pytest.raises(ValueError, match="--cluster: the cluster has no job"):
        read_task({}, '{"worker": ["a:1"]}', "ps", 0)
