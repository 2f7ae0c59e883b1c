"""The one error that the command line turns into a line and exit code 2."""


class InputError(Exception):
    """What the user gave cannot be used; the text names it, in one line."""
