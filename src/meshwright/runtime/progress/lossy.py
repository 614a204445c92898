"""Standard error for people who may go away: what can no longer be shown is lost, and the run is not.

The reader of a pipe ends, a terminal is closed: the first write that fails is the last one, and the descriptor leads
nowhere from then on, so that nothing else of the process fails at it.
"""

import os
import sys
from contextlib import suppress
from typing import IO, TextIO, cast

from rich.console import Console


def lossy_console() -> Console:
    """A console on standard error that outlives its reader."""
    return Console(file=cast(IO[str], LossyStream(sys.stderr)))


class LossyStream:
    """A text stream that is silent after the first error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        """Write, if anybody reads."""
        if not self._lost:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self._lose()
        return len(text)

    def flush(self) -> None:
        """Flush, if anybody reads."""
        if not self._lost:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._lose()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor."""
        return self._stream.fileno()

    def _lose(self) -> None:
        self._lost = True
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
