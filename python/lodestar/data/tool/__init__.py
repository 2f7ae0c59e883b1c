"""The commands of `python -m lodestar.data`, and the table of formats."""
