"""A stage is made by one process at a time, over all machines that share its folder.

Commands may share a cache. And of Ray's stages a second attempt may be under way: a node that was
lost takes its processes along, mostly, but a process may live on a while after its node was given
up, and one whose node only lost its connection lives on for good. So whoever makes a stage holds a
lock of the file system. It is let go however the process ends; on a network file system by the
server, when that has lost the machine. A second one waits for it and then goes on, or finds all
done.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

LOCKS = ".locks"
"""Folder beside runs/ and data/ with a file for each stage."""
PAUSE = 1.0
"""Seconds between attempts to take a lock."""
WATCH = 5.0
"""Seconds between looks whether it is still ours."""


@contextmanager
def holding(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Holds the lock of the file `path`, which stays there; waits for it and says so.

    The process ends at once when the lock is another's: a file system that lost this machine gave
    it away, or somebody removed the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    waited = False
    while (file := _take(path)) is None:
        if not waited:
            say(f"waiting for {_holder(path)}, which is at it; {path}")
        waited = True
        time.sleep(PAUSE)
    ended = threading.Event()
    with file:
        mark = f"process {os.getpid()} on {socket.gethostname()}, {uuid.uuid4()}"
        file.truncate(0)
        file.write(mark)
        file.flush()
        threading.Thread(target=_watch, args=(path, mark, ended), daemon=True).start()
        try:
            yield
        finally:
            ended.set()


def _take(path: Path) -> TextIO | None:
    """The open file with its lock; None while another process has it."""
    file = path.open("a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
    except (BlockingIOError, FileNotFoundError):  # The latter: it was removed meanwhile.
        pass
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _holder(path: Path) -> str:
    return _read(path).partition(",")[0] or "another process"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _watch(path: Path, mark: str, ended: threading.Event) -> None:
    while not ended.wait(WATCH):
        if _read(path) != mark and not ended.is_set():
            print(f"omrl: error: lost {path} to {_holder(path)}", file=sys.stderr, flush=True)
            os._exit(1)
