"""One rank's session in a measurement: its device, the process group of all ranks, and the report of a failure.

The first rank that fails writes its error into the shared store before it closes a connection; the others, who then see
broken connections or time-outs, report that error. So every rank ends with the same MeasurementError, which names the
rank where it began.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter, sleep

import torch
import torch.distributed as dist

from meshwright.errors import MeasurementError
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.launch.rendezvous import FAILURE
from meshwright.runtime.launch.rendezvous import first_failure as first_written

OPERATION_S = 120.0
"""Seconds after which a collective is given up; the first one of a large job sets up its connections."""
GRACE_S = 60.0
"""Extra seconds before torch itself ends the process, where it does so at all."""
POLL_S = 0.0002
CHECK_FAILURE_S = 1.0


@dataclass(frozen=True)
class Session:
    """A rank's access to the others. ``host`` is the name of its machine."""

    place: Place
    host: str
    device: torch.device
    store: dist.Store
    operation_s: float = OPERATION_S

    def agree(self, value: float) -> float:
        """Return the largest of all ranks' values; also a barrier."""
        number = torch.tensor([value], dtype=torch.float64, device=self.device)
        with self.naming("agreement among all ranks"):
            dist.all_reduce(number, dist.ReduceOp.MAX)
            self.finish("agreement among all ranks")
        return float(number.item())

    def gathered(self, value: object) -> list[object]:
        """Return every rank's value, on every rank."""
        values: list[object] = [None] * self.place.ranks
        with self.naming("gathering of results from all ranks"):
            dist.all_gather_object(values, value)
        return values

    def gathered_numbers(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return every rank's numbers, equally many on each, on every rank."""
        own = torch.tensor(list(numbers), dtype=torch.float64, device=self.device)
        rows = [torch.empty_like(own) for _ in range(self.place.ranks)]
        if numbers:
            with self.naming("gathering of results from all ranks"):
                dist.all_gather(rows, own)
                self.finish("gathering of results from all ranks")
        return [row.tolist() for row in rows]

    def finish(self, what: str) -> None:
        """Wait until the device has finished its work, at most ``operation_s``. Raises MeasurementError.

        On a CPU collectives end before they return, or raise by themselves.
        """
        if self.device.type != "cuda":
            return
        done = torch.cuda.Event()
        done.record()
        began = checked_at = perf_counter()
        while not done.query():
            sleep(POLL_S)
            now = perf_counter()
            if now - began > self.operation_s:
                raise MeasurementError(f"{what} did not end within {self.operation_s:.0f} s")
            if now - checked_at > CHECK_FAILURE_S:
                checked_at = now
                if self.store.check([FAILURE]):
                    raise MeasurementError(f"{what} was given up")

    @contextmanager
    def naming(self, what: str) -> Iterator[None]:
        """Add the operation's name to torch errors raised inside the block."""
        try:
            yield
        except RuntimeError as error:
            raise MeasurementError(f"{what}: {_first_line(error)}") from error


@contextmanager
def join_job(
    place: Place, host: str, store: dist.Store, operation_s: float = OPERATION_S
) -> Iterator[Session]:
    """Join the job as this rank, and leave it at the end. Raises MeasurementError naming the rank that failed first."""
    try:
        device = _device(place)
        session = Session(place, host, device, store, operation_s)
        limit = operation_s + (GRACE_S if device.type == "cuda" else 0.0)
        with session.naming("meeting of all ranks"):
            dist.init_process_group(
                backend="nccl" if device.type == "cuda" else "gloo",
                store=dist.PrefixStore("ranks", store),
                rank=place.rank,
                world_size=place.ranks,
                timeout=timedelta(seconds=limit),
            )
        session.agree(0.0)
        yield session
    except Exception as error:
        raise MeasurementError(first_failure(store, place, host, error)) from error
    else:
        dist.destroy_process_group()  # not after a failure: it could wait for stuck ranks


def first_failure(store: dist.Store, place: Place, host: str, error: Exception) -> str:
    """Return the first failing rank's error; this rank's own if it is the first, or the store is gone."""
    return first_written(store, f"rank {place.rank} on {host}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """Return the first line of an error's text, with its type if that is not ours."""
    text = next(iter(str(error).splitlines()), "")
    return text if isinstance(error, MeasurementError) else f"{type(error).__name__}: {text}"


def _device(place: Place) -> torch.device:
    """Return the accelerator of this local rank, or the CPU if there is none."""
    count = torch.cuda.device_count()
    if not count:
        return torch.device("cpu")
    if place.local_rank >= count:
        raise MeasurementError(f"local rank {place.local_rank} has no device: this host has {count}")
    torch.cuda.set_device(place.local_rank)
    return torch.device("cuda", place.local_rank)
