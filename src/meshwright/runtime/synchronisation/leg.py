"""Collectives of an exchange as values: an exchange yields legs and is sent their results.

Written so, an exchange does not know its transport: a communicator starts a leg and waits for it some steps later,
and ``run_in_process`` runs the exchanges of all ranks of a group in one process.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

from meshwright.program.pass_items import CollectiveKind

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Leg:
    """One collective of a rank.

    ``tensor``: what an all-to-all deals in parts of ``sent`` elements to each rank, this rank's part of an all-gather,
    or the summand of an all-reduce, which may change in place. ``received``: elements from each rank, of the first two;
    parts may be empty or unequal. ``logical_bytes`` are those of the Program.
    """

    kind: CollectiveKind
    tensor: torch.Tensor
    logical_bytes: int
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()


Legs = Generator[Leg, torch.Tensor, Result]


class Transport(Protocol):
    """One rank's way to the others."""

    def start(self, leg: Leg) -> Callable[[], torch.Tensor]:
        """Start a leg; the function that is returned waits for its result.

        The result are the parts from each rank in order, or the sum, with the same bits on all ranks.
        """


class RunningExchange(Generic[Result]):
    """An exchange whose first leg has been started."""

    def __init__(self, legs: Legs[Result], transport: Transport) -> None:
        self.legs = legs
        self.transport = transport
        self.result: list[Result] = []
        self.wait: Callable[[], torch.Tensor] | None = None
        self._go_on(None)

    def finish(self) -> Result:
        """Wait for the leg that runs, run all others, and return the result."""
        while self.wait is not None:
            self._go_on(self.wait())
        return self.result[0]

    def _go_on(self, received: torch.Tensor | None) -> None:
        try:
            leg = next(self.legs) if received is None else self.legs.send(received)
        except StopIteration as stopped:
            self.wait = None
            self.result.append(stopped.value)
        else:
            self.wait = self.transport.start(leg)


def run_in_process(exchanges: Sequence[Legs[Result]]) -> list[Result]:
    """Run the exchanges of all ranks of a group side by side, and return their results."""
    results: list[Result] = []
    received: list[torch.Tensor | None] = [None] * len(exchanges)
    while not results:
        legs: list[Leg] = []
        for exchange, tensor in zip(exchanges, received, strict=True):
            try:
                legs.append(next(exchange) if tensor is None else exchange.send(tensor))
            except StopIteration as stopped:
                results.append(stopped.value)
        assert not (legs and results), "exchanges of one group have equally many legs"
        if legs:
            received = list(COLLECTIVES[legs[0].kind](legs))
    return results


def _all_to_all(legs: Sequence[Leg]) -> list[torch.Tensor]:
    parts = [leg.tensor.split(list(leg.sent)) for leg in legs]
    return [torch.cat([part[rank] for part in parts]) for rank in range(len(legs))]


def _all_gather(legs: Sequence[Leg]) -> list[torch.Tensor]:
    return [torch.cat([leg.tensor for leg in legs]) for _ in legs]


def _all_reduce(legs: Sequence[Leg]) -> list[torch.Tensor]:
    total = legs[0].tensor.clone()
    for leg in legs[1:]:
        total += leg.tensor
    return [total.clone() for _ in legs]


COLLECTIVES: dict[str, Callable[[Sequence[Leg]], list[torch.Tensor]]] = {
    "all-to-all": _all_to_all,
    "all-gather": _all_gather,
    "all-reduce": _all_reduce,
}
"""The collectives among ranks of one process."""
