"""A small CSV file with the irregularities of census data."""

CENSUS = """\
age, job, hours, country, Salary
39, State-gov, 40, United-States, <=50K
50, ?, , United-States, >50K
38, Private, 45.5, , >50K.

28,"Self, inc", 1e1, ?, <=50K.
"""
