"""Write the metrics of a run as a file of JSON objects, one per line.

The start of a run is ``{"meshwright": VERSION, "plan": {…}, "model": {…}, …}``, a step is a ``StepMetrics``, an
evaluation is ``{"step": …, "held_out_loss": …, "origin": "measured"}`` after its step, a fault that was only reported
``{"fault": {"kind": "slow", "rank": 1, "step": …, …}}``. Every line is flushed when it is written. When a run is
resumed at a step, the file is first truncated after the last line of an earlier step, so that no step occurs twice;
this also removes a half-written line of a process that died.

``ingestion/logs/readers/meshwright_runtime.py`` reads these files.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from meshwright.errors import InputError, Problem
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.progress.step_metrics import StepMetrics, finite

MAX_LINE_BYTES = 2**20
START = "meshwright"


class MetricsLog:
    """A file that lines are appended to; ``open_log`` opens it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def step(self, metrics: StepMetrics) -> None:
        """Append a step."""
        self.add(metrics.to_json())

    def evaluation(self, step: int, held_out_loss: float, held_out_tokens: int) -> None:
        """Append the loss on held-out tokens after a step."""
        data = {"step": step, "held_out_loss": held_out_loss, "held_out_tokens": held_out_tokens}
        self.add(finite(data) | {"origin": "measured"})

    def fault(self, fault: Fault) -> None:
        """Append a fault that was only reported."""
        self.add({"fault": fault.to_json()})

    def add(self, data: Mapping[str, object]) -> None:
        """Append a line."""
        self._file.write(json.dumps(data, allow_nan=False).encode() + b"\n")
        self._file.flush()


@contextmanager
def open_log(path: Path, version: str, facts: Mapping[str, object], next_step: int) -> Iterator[MetricsLog]:
    """Open the log at ``path``, truncate it at ``next_step``, and append a line for this start.

    ``facts`` of the start: the plan, origins. Raises InputError if the file cannot be written or is not a metrics log.
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
    """Open a file for appending; create it if needed."""
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
    """Return the end of the last line of a step before ``next_step``; None if the file is not a metrics log."""
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
    """Return whether a line is an incomplete first line, from a process that died while writing it."""
    opening = json.dumps({START: ""}).encode()[:-2]
    return not line.endswith(b"\n") and (line.startswith(opening) or opening.startswith(line))


def _parsed(line: bytes) -> dict[str, object]:
    """Return the object of a complete line; an empty one if there is none."""
    try:
        data = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        data = None
    return data if isinstance(data, dict) else {}
