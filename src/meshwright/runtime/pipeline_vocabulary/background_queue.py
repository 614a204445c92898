"""Run exchanges of several operations in the background, in order, concurrently with a rank's own work.

A thread waits for each operation and starts the next one, so that other ranks do not wait until this rank reaches it.
On an accelerator the thread has a stream of its own, which starts after the work queued before; whoever takes the
result makes its own stream wait for it, and does not block itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple

import torch

Made = Mapping[str, Any]
"""Results of background work, by name: tensors, or objects whose attributes are tensors."""


@dataclass
class Pending:
    """Background work in progress; its result or error. ``ended`` marks its end on an accelerator's stream."""

    done: Event = field(default_factory=Event)
    made: Made = field(default_factory=dict)
    error: Exception | None = None
    ended: torch.cuda.Event | None = None

    def result(self) -> Made:
        """Wait for the work and return its result. Raises what the work raised."""
        self.done.wait()
        if self.error is not None:
            raise self.error
        if self.ended is not None:
            current = torch.cuda.current_stream()
            current.wait_event(self.ended)
            for value in self.made.values():
                _keep_for(current, value)
        return self.made


class _Piece(NamedTuple):
    """A queued piece of work. ``begun`` is the event that its stream waits for."""

    pending: Pending
    work: Callable[[], Made]
    part: object
    begun: torch.cuda.Event | None


class BackgroundQueue:
    """A thread that runs pieces of work in the order in which they arrive."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._queue: SimpleQueue[_Piece] = SimpleQueue()
        self._thread: Thread | None = None

    def begin(self, work: Callable[[], Made], part: object) -> Pending:
        """Queue a piece of work, and the part it works on."""
        begun = torch.cuda.current_stream().record_event() if self._device.type == "cuda" else None
        pending = Pending()
        if self._thread is None:
            self._thread = Thread(target=self._run, daemon=True)
            self._thread.start()
        self._queue.put(_Piece(pending, work, part, begun))
        return pending

    def _run(self) -> None:
        stream = None
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            stream = torch.cuda.Stream()
        while True:
            _do(self._queue.get(), stream)


def _do(piece: _Piece, stream: torch.cuda.Stream | None) -> None:
    """Run a piece of work; store its error for whoever takes the result."""
    pending = piece.pending
    try:
        if stream is None:
            pending.made = piece.work()
        else:
            with torch.cuda.stream(stream):
                assert piece.begun is not None
                stream.wait_event(piece.begun)
                _keep_for(stream, piece.part)
                pending.made = piece.work()
                pending.ended = stream.record_event()
    except Exception as error:  # raised again when the result is taken
        pending.error = error
    pending.done.set()


def _keep_for(stream: torch.cuda.Stream, value: object) -> None:
    """Keep the memory of a tensor, or of an object's tensors, until a stream has passed this point."""
    if isinstance(value, torch.Tensor):
        value.record_stream(stream)
    elif isinstance(value, dict) or hasattr(value, "__dict__"):
        for each in (value if isinstance(value, dict) else vars(value)).values():
            _keep_for(stream, each)
