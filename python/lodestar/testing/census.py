"""A small real data set."""

import pathlib


def census_file() -> str:
    """Returns the path of the census rows that are part of the package.

    They are the first 12,000 rows of the data set Adult (Barry Becker and Ronny
    Kohavi, 1996, UCI Machine Learning Repository,
    https://doi.org/10.24432/C5XW20), under CC BY 4.0,
    https://creativecommons.org/licenses/by/4.0/. Changes: the column `fnlwgt` and
    the spaces after commas are removed, and column names are lowercase.

    >>> import pandas
    >>> people = pandas.read_csv(lodestar.testing.census_file())

    Returns:
        Path of a gzipped CSV with a header of 14 columns: the numbers age,
        education-num, capital-gain, capital-loss and hours-per-week; the strings
        workclass, education, marital-status, occupation, relationship, race, sex
        and native-country, with `?` for unknown; and salary, `<=50K` or `>50K`
        dollars per year.
    """
    return str(pathlib.Path(__file__).with_name("census.csv.gz"))
