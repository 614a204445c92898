"""The metrics of a run as a file of JSON objects, one a line.

A start of the run is ``{"meshwright": VERSION, "plan": {…}, "model": {…}, …}``, a step is a ``StepMetrics``, an
evaluation is ``{"step": …, "held_out_loss": …, "origin": "measured"}`` behind the step that it follows. Every line is
given to the operating system as it is written. When a run is resumed at a step, the file is first cut off behind the
last line of a step before it, so that no step is there twice; one that was half written when its process died goes the
same way.
``import_/logs/runtime.py`` reads these files.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from meshwright.errors import InputError, Problem
from meshwright.runtime.progress.metrics import StepMetrics, finite

MAX_LINE_BYTES = 2**20
START = "meshwright"


class MetricsLog:
    """A file that lines are added to; ``open_log`` makes it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def step(self, metrics: StepMetrics) -> None:
        """Add a step."""
        self.add(metrics.to_json())

    def evaluation(self, step: int, held_out_loss: float, held_out_tokens: int) -> None:
        """Add the loss on so many held-out tokens after a step."""
        data = {"step": step, "held_out_loss": held_out_loss, "held_out_tokens": held_out_tokens}
        self.add(finite(data) | {"origin": "measured"})

    def add(self, data: Mapping[str, object]) -> None:
        """Add a line."""
        self._file.write(json.dumps(data, allow_nan=False).encode() + b"\n")
        self._file.flush()


@contextmanager
def open_log(path: Path, version: str, facts: Mapping[str, object], next_step: int) -> Iterator[MetricsLog]:
    """The log at ``path``, cut off at ``next_step``, with a line of this start added.

    ``facts`` of the start: the plan, origins. Raises InputError where the file cannot be written or is no log.
    """
    with _opened(path) as file:
        end = _kept_bytes(file, next_step)
        if end is None:
            raise InputError(Problem("output", str(path), "is no log of metrics", "name another folder"))
        file.truncate(end)
        log = MetricsLog(file)
        log.add({START: version, **facts})
        yield log


def _opened(path: Path) -> BinaryIO:
    """The file, made where it is not there; what is written goes to its end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise OSError("is no regular file")
        file = open(path, "a+b")  # noqa: SIM115 - the caller closes it
        file.seek(0)
    except OSError as error:
        reason = f"cannot be written: {error.strerror or error}"
        raise InputError(Problem("output", str(path), reason, "name another folder")) from None
    return file


def _kept_bytes(file: BinaryIO, next_step: int) -> int | None:
    """Where the last line of a step before ``next_step`` ends; None where the file is no log."""
    end = place = 0
    while line := file.readline(MAX_LINE_BYTES):
        data = _parsed(line)
        if place == 0 and START not in data:
            return 0 if _torn_start(line) else None
        step = data.get("step")
        if not data or (isinstance(step, int) and step >= next_step):
            break
        place += len(line)
        if isinstance(step, int):
            end = place
    return end


def _torn_start(line: bytes) -> bool:
    """Whether this is what a process left that died when it wrote its first line."""
    opening = json.dumps({START: ""}).encode()[:-2]
    return not line.endswith(b"\n") and (line.startswith(opening) or opening.startswith(line))


def _parsed(line: bytes) -> dict[str, object]:
    """The object of a whole line; nothing where there is none."""
    try:
        data = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        data = None
    return data if isinstance(data, dict) else {}
