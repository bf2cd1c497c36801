"""Opening input files without waiting: a named pipe that nobody writes to would keep a command for ever."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from refusal import Refused

KINDS = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


def kind_of(mode: int) -> str:
    return next((word for test, word in KINDS if test(mode)), "a device")


def open_regular(path: Path, expected: str) -> BinaryIO:
    """The file for reading; `expected` says in a refusal what should have been there."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            stream = open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
            mode = os.fstat(stream.fileno()).st_mode  # a pipe may have taken its place
            if stat.S_ISREG(mode):
                return stream
            stream.close()
    except OSError as error:
        raise Refused(f"{path}: cannot be read ({error.strerror}). Expected {expected}.") from error
    raise Refused(f"{path}: is {kind_of(mode)}, expected a regular file: {expected}.")
