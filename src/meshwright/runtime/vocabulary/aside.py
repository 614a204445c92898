"""Work that goes on beside a rank's own, one piece after the other: exchanges of several operations each.

A thread waits for an operation and begins the next one, so that no other rank waits for this one to come by. On an
accelerator the thread has a stream of its own, which begins behind what was queued before the work was handed over; who
takes the result lets its stream wait for it, not itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple

import torch

Made = Mapping[str, Any]
"""What a piece of work has made, by names: tensors, or objects whose attributes are tensors."""


@dataclass
class Pending:
    """A piece of work under way; what it has made, or why it has not. ``ended`` is when, on an accelerator's stream."""

    done: Event = field(default_factory=Event)
    made: Made = field(default_factory=dict)
    error: Exception | None = None
    ended: torch.cuda.Event | None = None

    def result(self) -> Made:
        """What it has made, when it has ended. Raises what it raised."""
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
    """A piece of work as it is handed over. ``begun`` is what its stream waits for."""

    pending: Pending
    work: Callable[[], Made]
    part: object
    begun: torch.cuda.Event | None


class Aside:
    """A thread that does pieces of work in the order in which they come."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._queue: SimpleQueue[_Piece] = SimpleQueue()
        self._thread: Thread | None = None

    def begin(self, work: Callable[[], Made], part: object) -> Pending:
        """Hand over a piece of work, and what it works on."""
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
    """Do a piece of work; an error is kept for who takes the result."""
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
    except Exception as error:  # it is raised where the result is taken
        pending.error = error
    pending.done.set()


def _keep_for(stream: torch.cuda.Stream, value: object) -> None:
    """The memory of a tensor, or of an object's, is not used again before a stream has passed this point."""
    if isinstance(value, torch.Tensor):
        value.record_stream(stream)
    elif isinstance(value, dict) or hasattr(value, "__dict__"):
        for each in (value if isinstance(value, dict) else vars(value)).values():
            _keep_for(stream, each)
