"""Tests of the census rows in the package."""

import gzip
import os

import pandas as pd

import lodestar


def test_the_file_has_the_rows_that_it_is_said_to_have():
    people = pd.read_csv(lodestar.testing.census_file())
    assert list(people.columns) == [
        *("age", "workclass", "education", "education-num"),
        *("marital-status", "occupation", "relationship", "race", "sex"),
        *("capital-gain", "capital-loss", "hours-per-week"),
        *("native-country", "salary"),
    ]
    assert len(people) == 12_000
    assert people["salary"].value_counts().to_dict() == {
        "<=50K": 9133,
        ">50K": 2867,
    }
    assert people["age"].between(17, 90).all()
    assert people["occupation"].nunique() == 15
    assert "?" in set(people["native-country"])
    assert not people.isna().any().any()


def test_the_file_is_small_and_has_no_spaces():
    path = lodestar.testing.census_file()
    assert os.path.getsize(path) < 150_000
    with gzip.open(path) as file:
        assert b" " not in file.read()
