"""Reduce numbers over all ranks, outside the Program, for the training loop."""

from collections.abc import Sequence

import torch

from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator

WIDTH = 8


def sum_over_ranks(communicator: Communicator, values: Sequence[float], what: str) -> tuple[float, ...]:
    """Return the sum of each number over all ranks."""
    return _together(communicator, values, what, largest=False)


def max_over_ranks(communicator: Communicator, value: float, what: str) -> float:
    """Return the maximum of a number over all ranks."""
    (largest,) = _together(communicator, [value], what, largest=True)
    return largest


def _together(
    communicator: Communicator, values: Sequence[float], what: str, *, largest: bool
) -> tuple[float, ...]:
    if communicator.program.parts.ranks == 1:
        return tuple(values)
    numbers = torch.tensor(values, dtype=torch.float64, device=communicator.device)
    item = Collective("all-reduce", ("world",), WIDTH * len(values), what)
    communicator.start(item, numbers, WIDTH, largest=largest).wait()
    return tuple(numbers.tolist())
