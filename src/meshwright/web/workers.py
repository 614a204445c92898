"""Worker processes that answer questions one by one, so that a search can be followed, cancelled and ended.

A worker keeps what it has loaded: its second answer is as quick as the command line's without the start. A cancelled or
overdue question ends its worker, and another one starts in its place.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from meshwright.web.answers import FAILED, Response, answer
from meshwright.web.questions import Question
from meshwright.web.sandbox import restrict

MOST_QUESTIONS = 500
"""Questions after which a worker is replaced, so that what it has kept does not grow without end."""
Progress = Callable[[str, float], None]


class QueueFullError(Exception):
    """So many questions wait already that another one is refused; it may come again in ``retry_s``."""

    def __init__(self, retry_s: int) -> None:
        super().__init__(f"too many questions wait; ask again in {retry_s} s")
        self.retry_s = retry_s


def _work(connection: Connection) -> None:
    """Answer questions until the other side is gone."""
    restrict()
    while True:
        try:
            verb, question = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return

        def progress(what: str, part: float) -> None:
            connection.send((what, part))

        try:
            response = answer(verb, question, progress)
        except Exception as error:
            text = f"the question could not be answered: {type(error).__name__}"
            response = Response(FAILED, 1, {"error": text})
        connection.send(response)


class Worker:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(["meshwright.web.answers"])
        self.answered = 0
        self._start()

    def _start(self) -> None:
        self._connection, other = self._context.Pipe()
        self._process = self._context.Process(target=_work, args=(other,), daemon=True)
        self._process.start()
        other.close()
        self.answered = 0

    def restart(self) -> None:
        """End the process, whatever it does, and start another one."""
        self.end()
        self._start()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    async def answer(self, verb: str, question: Question, on_progress: Progress) -> Response:
        """Return the answer; ``on_progress`` is called with the progress."""
        self._connection.send((verb, question))
        while True:
            message: Any = await self._received()
            if isinstance(message, Response):
                self.answered += 1
                return message
            on_progress(*message)

    async def _received(self) -> Any:
        """Wait for a message without holding up the server."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        number = self._connection.fileno()
        loop.add_reader(number, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(number)
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self.restart()
            return Response(FAILED, 1, {"error": "the process that answers has ended; ask again"})


@dataclass
class Waiting:
    """Questions that wait for a worker."""

    count: int = 0


class WorkerPool:
    """``size`` workers; ``queue`` questions may wait, and none is answered for longer than ``limit_s`` seconds."""

    def __init__(self, size: int, queue: int, limit_s: float) -> None:
        self.size, self.queue, self.limit_s = size, queue, limit_s
        self._workers = [Worker() for _ in range(size)]
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        for worker in self._workers:
            self._idle.put_nowait(worker)
        self._waiting = Waiting()

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()

    async def answer(self, verb: str, question: Question, on_progress: Progress) -> Response:
        """Answer when a worker is free. Raises QueueFullError, and TimeoutError beyond the limit.

        A caller that is cancelled ends the worker's process.
        """
        if self._idle.empty() and self._waiting.count >= self.queue:
            raise QueueFullError(max(1, round(self.limit_s / 10)))
        async with self._worker(on_progress) as worker:
            try:
                async with asyncio.timeout(self.limit_s):
                    return await worker.answer(verb, question, on_progress)
            except (TimeoutError, asyncio.CancelledError):
                worker.restart()
                raise

    @asynccontextmanager
    async def _worker(self, on_progress: Progress) -> AsyncIterator[Worker]:
        """Give a free worker, and take it back."""
        if self._idle.empty():
            on_progress(f"waiting behind {self._waiting.count + self.size} other questions", 0.0)
        self._waiting.count += 1
        try:
            worker = await self._idle.get()
        finally:
            self._waiting.count -= 1
        try:
            yield worker
        finally:
            if worker.answered >= MOST_QUESTIONS:
                worker.restart()
            self._idle.put_nowait(worker)
