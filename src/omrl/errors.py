"""The one exception that means "what you gave me is wrong": the command line prints it and exits 2."""


class InputError(ValueError):
    """Wrong usage or bad input. The message is one line: what was given, what is allowed, the nearest fix."""
