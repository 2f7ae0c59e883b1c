"""Rows of a census, to try a model on."""

import pathlib


def census_file() -> str:
    """Where the census rows are that come with the package: real, and small.

    They are the first 12,000 rows of the data set Adult (Barry Becker and Ronny
    Kohavi, 1996, UCI Machine Learning Repository,
    https://doi.org/10.24432/C5XW20), under CC BY 4.0,
    https://creativecommons.org/licenses/by/4.0/. Changed: the column `fnlwgt`
    is left out, spaces after commas are, and columns are named in small
    letters.

    >>> import pandas
    >>> people = pandas.read_csv(lodestar.testing.census_file())

    Returns:
        Path of a gzipped CSV with a header of 14 columns: the numbers age,
        education-num, capital-gain, capital-loss and hours-per-week; the texts
        workclass, education, marital-status, occupation, relationship, race,
        sex and native-country, `?` where it is not known; and salary, `<=50K`
        or `>50K` dollars a year.
    """
    return str(pathlib.Path(__file__).with_name("census.csv.gz"))
