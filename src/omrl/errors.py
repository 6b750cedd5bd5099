"""The one exception that means "what you gave me is wrong": the command line exits 2 on it."""


class InputError(ValueError):
    """Wrong usage or bad input, in one line: what was given, what is allowed, the nearest fix."""
