"""Save a checkpoint while the run goes on (DataStates-LLM, arXiv 2406.10707, section 5).

A thread of every rank copies its stretches to host memory during the forward and backward passes of the next step,
which change no parameter and no moment; the optimizer waits until all are copied. A second thread writes what has been
copied. Copies that are not written yet take at most ``buffer_bytes``, so a small buffer makes the copying wait for the
disk. States that passes do change are copied at once.

It is committed in two phases, over the ranks' store: every rank tells that its file is on disk; when all have, the
first rank writes the manifest, gives the folder its name and tells so. A rank that fails tells that, and the checkpoint
is given up on all. Files may go to a local disk first, from which they are moved to the common folder.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from queue import Queue
from threading import Condition, Event, Thread
from time import monotonic, sleep
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint.exchange_states import ENTRY, GRADIENT
from meshwright.runtime.checkpoint.manifest import StoredFile
from meshwright.runtime.checkpoint.run_folder import NoSpaceError, abandon, begin, unfinished, write_errors
from meshwright.runtime.checkpoint.save import finish, manifest_of
from meshwright.runtime.checkpoint.shard_files import BUFFER, rank_file, stretches
from meshwright.runtime.checkpoint.shard_output import ShardWriter, bytes_of, in_file_order, pieces_of
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.fsync import fsync_path

T = TypeVar("T")
PIECE_BYTES = 2**24
"""Most bytes that are copied at once."""
GLANCE_S = 0.02
"""Seconds between two looks at the store."""


class HostBuffer:
    """Pieces that are copied and not written yet: at most ``limit`` bytes of them, or one piece."""

    def __init__(self, limit: float) -> None:
        self.limit, self.held = limit, 0
        self._changed = Condition()
        self._pieces: Queue[memoryview | None] = Queue()

    def put(self, copy: Callable[[], memoryview], size: int) -> None:
        """Copy a piece as soon as there is room for it."""
        with self._changed:
            self._changed.wait_for(lambda: not self.held or self.held + size <= self.limit)
            self.held += size
        self._pieces.put(copy())

    def end(self) -> None:
        """Say that no piece follows."""
        self._pieces.put(None)

    def __iter__(self) -> Iterator[memoryview]:
        """Yield pieces in order; the room of one is given back when the next is asked for."""
        while (piece := self._pieces.get()) is not None:
            yield piece
            with self._changed:
                self.held -= len(piece)
                self._changed.notify_all()

    def drop(self) -> None:
        """Keep no piece any longer, and let no copy wait for room: nothing will be written."""
        with self._changed:
            self.limit = inf
            self._changed.notify_all()


@dataclass(frozen=True)
class SaveOptions:
    """Limits and places of a checkpoint that is saved in the background.

    ``buffer_bytes``: most bytes of a rank's copies on the host; None: its shard. ``local``: a folder on a disk of the
    host that files are written to first.
    """

    buffer_bytes: int | None = None
    local: Path | None = None


class BackgroundSave:
    """The saving of one checkpoint. ``number`` is its number among those of the run, on all ranks alike."""

    def __init__(
        self,
        folder: Path,
        rank: Rank,
        facts: Mapping[str, object],
        store: dist.Store,
        options: SaveOptions,
        number: int,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to save; every rank calls it between steps. ``facts`` must be JSON; rank 0's are stored.

        It waits for no other rank and no disk. The first rank calls ``committed`` when the checkpoint is complete.
        """
        assert rank.interpreter.states.settled, "a step is still to be validated"
        rank.interpreter.states.synchroniser.settle()
        self.folder, self.rank, self.store, self.options = folder, rank, store, options
        self.step, self.first = rank.interpreter.states.optimizer.step, rank.place.rank == 0
        self.manifest, self.key = manifest_of(rank, facts, {}), f"checkpoint {number}"
        self.begun_s, self.lasted_s, self._committed = monotonic(), 0.0, committed
        self._full = False
        own = [of for of in stretches(rank) if of.owner == rank.place.rank]
        self.stretches = in_file_order([_at_once(of) for of in own])
        shard = sum(of.length * of.memory[0].dtype.itemsize for of in own)
        self.buffer = HostBuffer(shard if options.buffer_bytes is None else options.buffer_bytes)
        self._piece_bytes = min(PIECE_BYTES, int(self.buffer.limit))
        self.copied, self._stream = Event(), _side_stream(rank)
        self._threads = [Thread(target=work, daemon=True) for work in (self._copy, self._write)]
        for thread in self._threads:
            thread.start()
        if rank.job.program.stack.optimizer.forward_only:  # its passes move the parameters
            self.wait_until_copied()

    def wait_until_copied(self) -> None:
        """Wait until the optimizer may change parameters and moments."""
        self.copied.wait()

    def finish(self) -> Path:
        """Wait for the commitment and return the checkpoint's path; every rank calls it.

        Raises InputError on all ranks with everyone's problems; earlier checkpoints are as they were.
        """
        for thread in self._threads:
            thread.join()
        answer = self._heard(f"{self.key} committed", self.rank.job.timeout_s)
        self.lasted_s = monotonic() - self.begun_s if not self.lasted_s else self.lasted_s
        if problems := _problems(answer):
            raise NoSpaceError(problems, answer["full"]) if answer.get("full") else InputError(problems)
        return Path(answer["path"])

    def _copy(self) -> None:
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            for stretch in self.stretches:
                for piece in pieces_of(stretch, self._piece_bytes):
                    self.buffer.put(partial(_copy_of, piece), piece.nbytes)
        self.copied.set()
        self.buffer.end()

    def _write(self) -> None:
        """Write what is copied, and tell the others; the first rank commits when it has heard from all."""
        problems: list[Problem] = []
        if self.first:
            self._attempted(lambda: begin(self.folder, self.step), problems)
            self._tell(f"{self.key} begun", problems=problems)
        else:
            problems += _problems(self._heard(f"{self.key} begun", self.rank.job.timeout_s))
        files = {} if problems else self._attempted(self._written, problems) or {}
        if problems:
            self.buffer.drop()
        told = {"files": _data(files), "full": self._full}
        self._tell(f"{self.key} {self.rank.place.rank}", **told, problems=problems)
        if self.first:
            self._commit()

    def _written(self) -> dict[str, StoredFile]:
        if not self.stretches:
            return {}
        place, name = unfinished(self.folder, self.step), rank_file(self.rank.place.rank)
        local = self.options.local
        path = place / name if local is None else local / f"{self.step}-{name}"
        with write_errors(path):
            self.rank.before_write(self.step)
            if local is not None:
                local.mkdir(parents=True, exist_ok=True)
            with ShardWriter(path, self.stretches) as file:
                for piece in self.buffer:
                    file.write(piece)
                stored = file.finish()
        if local is not None:
            with write_errors(place / name):
                shutil.copyfile(path, place / name)
                fsync_path(place / name)
                path.unlink()
        return {name: stored}

    def _commit(self) -> None:
        everyone = [
            self._heard(f"{self.key} {rank}", self.rank.job.timeout_s)
            for rank in range(self.rank.place.ranks)
        ]
        found = {str(problem): problem for of_rank in everyone for problem in _problems(of_rank)}
        problems = list(found.values())
        path = None
        if not problems:
            files = {
                name: StoredFile(**{**of, "chunks": tuple(of["chunks"])})
                for of_rank in everyone
                for name, of in of_rank["files"].items()
            }
            path = self._attempted(lambda: finish(self.folder, replace(self.manifest, files=files)), problems)
            self._attempted(self._committed, problems)
        if problems:
            abandon(self.folder, self.step)
        self.lasted_s = monotonic() - self.begun_s
        full = [
            rank for rank, answer in enumerate(everyone) if answer.get("full") or (self._full and not rank)
        ]
        self._tell(f"{self.key} committed", path=str(path), full=full, problems=problems)

    def _attempted(self, make: Callable[[], T], problems: list[Problem]) -> T | None:
        """Call ``make`` and return its result; on wrong input add its problems, and note whether a disk is full."""
        try:
            return make()
        except InputError as error:
            problems += error.problems
            self._full = self._full or isinstance(error, NoSpaceError)
            return None

    def _tell(self, key: str, *, problems: Sequence[Problem], **data: object) -> None:
        self.store.set(key, json.dumps({**data, "problems": [problem.to_json() for problem in problems]}))

    def _heard(self, key: str, limit_s: float) -> dict[str, Any]:
        """Return what a rank tells. Waits without holding the store, which others use meanwhile."""
        until = monotonic() + limit_s
        while not self.store.check([key]):
            if monotonic() > until:
                problem = Problem(
                    "checkpoint", key, f"was not told within {limit_s:.0f} s", "a longer time-out"
                )
                return {"problems": [problem.to_json()], "files": {}, "path": None}
            sleep(GLANCE_S)
        return json.loads(self.store.get(key))


def _problems(answer: Mapping[str, Any]) -> list[Problem]:
    return [Problem(**problem) for problem in answer["problems"]]


def _at_once(stretch: Stretch) -> Stretch:
    """Return a stretch that passes do not change: a copy, where they do."""
    if not stretch.state.startswith((f"{ENTRY}.", f"{GRADIENT}.", BUFFER)):
        return stretch
    return replace(stretch, memory=tuple(part.clone() for part in stretch.memory))


def _copy_of(piece: torch.Tensor) -> memoryview:
    return bytes_of(torch.empty_like(piece, device="cpu").copy_(piece))


def _side_stream(rank: Rank) -> "torch.cuda.Stream | None":
    """Return a stream that copies behind what has been computed so far; None on CPUs."""
    device = rank.communicator.device
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


def _data(files: Mapping[str, StoredFile]) -> dict[str, dict[str, object]]:
    return {name: stored.to_data() for name, stored in files.items()}
