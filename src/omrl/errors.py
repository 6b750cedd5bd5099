"""How a run ends other than well; the command line turns each into one line and an exit code."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable


class InputError(ValueError):
    """Wrong usage or bad input, in one line: what was given, what is allowed, the nearest fix.

    Exit code 2.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(line.strip() for line in message.splitlines()))


class NonFiniteError(ArithmeticError):
    """Training met a NaN or an infinity: which update, seed, task and tensor. Exit code 1."""


class WorkerLost(RuntimeError):  # noqa: N818 - it was ended from outside
    """A process that steps a simulator is gone, as where memory ends. Exit code 1."""


class PartlyFailed(Exception):  # noqa: N818 - the errors were told one by one
    """Some of several things failed, each told when it did, and the others are done. Exit code
    1."""


class Stopped(Exception):  # noqa: N818 - being told to stop is not an error
    """A signal ended the run after a checkpoint. `code` is the exit code, 128 + signal number."""

    def __init__(self, code: int, message: str):
        super().__init__(code, message)  # Both, so that it can be sent to another process.
        self.code = code

    def __str__(self) -> str:
        return self.args[1]


_REMEDIES = {
    errno.EACCES: "change its permissions or use another place",
    errno.EPERM: "change its permissions or use another place",
    errno.EROFS: "use another place",
    errno.ENOSPC: "make room on this disk or use another one",
    errno.EDQUOT: "make room on this disk or use another one",
    errno.ENOENT: "check the path",
    errno.EEXIST: "give another path",
    errno.ENOTDIR: "a part of the path is a file; give another path",
    errno.EISDIR: "give the path of a file",
    errno.ENAMETOOLONG: "give a shorter path",
}


def reason(error: BaseException) -> str:
    """What an error of another library says, short enough for a part of a line."""
    try:
        text = str(error)
    except Exception:  # Of a class of somebody else's.
        text = ""
    # PIL names the object that it read, TensorStore a function with more.
    text = re.sub(r" ?<[\w.]+ object at 0x[0-9a-f]+>| See full TensorStore .*", "", text)
    lines = text.strip().splitlines() or [type(error).__name__]
    return lines[0][:160]


def system_error(error: OSError) -> str:
    """`FILE: what the operating system says; what to do`."""
    file = error.filename2 or error.filename
    remedy = _REMEDIES.get(error.errno or 0, "check the path and its disk")
    return f"{'' if file is None else f'{file}: '}{error.strerror or reason(error)}; {remedy}"


def out_of_memory(error: Exception) -> str | None:
    """What to do where `error` says that host or device memory has run out; None for another."""
    # JAX is slow to import and need not have been.
    from_device = type(error).__name__ == "JaxRuntimeError" and any(
        words in str(error) for words in ("RESOURCE_EXHAUSTED", "Out of memory")
    )
    if not (from_device or isinstance(error, MemoryError)):
        return None
    return (
        f"out of memory ({reason(error)}): use fewer seeds, smaller batches, a slice of the data "
        "or a device with more memory"
    )


FEW = 12
"""Names that are all told where none is near."""


def nearest(name: str, known: Iterable[str]) -> str:
    """What was probably meant instead of an unknown `name`, for an error message."""
    known = sorted(known)
    begin = [each for each in known if each.lower().startswith(name.lower())] if name else []
    if 0 < len(begin) <= FEW:
        return f"did you mean {' or '.join(begin)}?"
    lower = {each.lower(): each for each in known}
    close = [lower[key] for key in difflib.get_close_matches(name.lower(), lower, cutoff=0.4)]
    if close or len(known) <= FEW:
        return f"did you mean {' or '.join(close or known)}?"
    return f"there are {len(known)}, such as {', '.join(known[:: len(known) // 3][:3])}"


def at(path: str, problem: str) -> str:
    """`problem` of what is at `path`. One that begins with a field, `field: …`, gets one path."""
    joint = "." if re.match(r"\w[\w.\[\]]*: ", problem) else ": "
    return f"{path}{joint}{problem}"
