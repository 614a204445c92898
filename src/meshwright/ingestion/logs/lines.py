"""Split a log of many processes into lines, clean them, and find the rank that wrote each.

Known marks at the beginning of a line: ``[rank3]:`` and ``[default3]:`` of torchrun, ``3:`` of srun with labels,
``[1,3]<stdout>:`` of Open MPI, ``worker-3:`` of pdsh and the DeepSpeed launcher, ``job/3`` of nemo-run; time stamps of
container platforms may precede them. A mark is compared as text and never as a number.
"""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

LONGEST = 2**20
"""Characters of a line that are read; the rest is dropped."""
CHUNK = 2**20
COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|\x1b")
STAMP = r"(?:\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d)?\s{1,3})?"
MARKS = (
    r"\[(?:rank|default)\d{1,7}\]:",
    r"\d{1,7}:(?=\s)",
    r"\[\d{1,7},\d{1,7}\]<std(?:out|err)>:",
    r"[A-Za-z][\w.-]{0,60}-\d{1,6}:(?=\s)",
    r"[A-Za-z][\w.-]{0,60}/\d{1,6}(?=\s)",
)
RANK = re.compile(rf"{STAMP}((?:(?:{'|'.join(MARKS)}) ?){{0,3}})")
NO_MEMORY = re.compile(r"out of memory\. Tried to allocate|CUDA error: out of memory|OutOfMemoryError: ")


def log_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file ending in ``\\n``; cut over-long ones and replace bytes that are not UTF-8 by �."""
    held = b""
    while chunk := file.read(CHUNK):
        *ended, rest = chunk.replace(b"\r", b"\n").split(b"\n")
        for piece in ended:
            yield (held + piece)[:LONGEST].decode("utf-8", errors="replace") + "\n"
            held = b""
        held = (held + rest)[:LONGEST]
    if held:
        yield held.decode("utf-8", errors="replace")


def pieces(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the text between line ends and carriage returns, and whether its end was seen."""
    for line in lines:
        *ended, rest = line.replace("\r", "\n").split("\n")
        yield from ((piece[:LONGEST], True) for piece in ended if piece)
        if rest:
            yield rest[:LONGEST], False


def plain(line: str) -> str:
    """Remove colours and other control sequences of a terminal from a line."""
    return COLOUR.sub("", line) if "\x1b" in line else line


def rank_mark(line: str) -> str | None:
    """Return the mark of the rank that wrote the line; None without a mark."""
    match = RANK.match(line)
    return match[1] if match and match[1] else None


def without_rank_marks(line: str) -> str:
    """Remove rank marks, and time stamps before them, from a line."""
    match = RANK.match(line)
    return line[match.end() :] if match else line


def ran_out_of_memory(line: str) -> bool:
    """Return whether the line is PyTorch's out-of-memory message, for CUDA, ROCm or XPU."""
    return "ut of memory" in line and NO_MEMORY.search(line) is not None
