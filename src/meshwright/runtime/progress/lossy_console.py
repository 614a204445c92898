"""A console on standard error whose output is dropped, without an error, after its reader has gone.

A pipe's reader may end, a terminal may be closed. After the first failed write the descriptor points to /dev/null, so
that nothing else in the process fails on it.
"""

import os
import sys
from contextlib import suppress
from typing import IO, TextIO, cast

from rich.console import Console


def lossy_console() -> Console:
    """Return a console on standard error that survives the loss of its reader."""
    return Console(file=cast(IO[str], LossyStream(sys.stderr)))


class LossyStream:
    """A text stream that ignores writes after the first error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        """Write text; ignore it after an error."""
        if not self._lost:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self._lose()
        return len(text)

    def flush(self) -> None:
        """Flush; do nothing after an error."""
        if not self._lost:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._lose()

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._stream.fileno()

    def _lose(self) -> None:
        self._lost = True
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
