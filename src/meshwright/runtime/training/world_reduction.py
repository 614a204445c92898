"""Reduce numbers over all ranks, outside the Program, for the training loop."""

import torch

from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator

WIDTH = 8


def sum_over_ranks(communicator: Communicator, value: float, what: str) -> float:
    """Return the sum of a number over all ranks."""
    return _together(communicator, value, what, largest=False)


def max_over_ranks(communicator: Communicator, value: float, what: str) -> float:
    """Return the maximum of a number over all ranks."""
    return _together(communicator, value, what, largest=True)


def _together(communicator: Communicator, value: float, what: str, *, largest: bool) -> float:
    if communicator.program.parts.ranks == 1:
        return value
    number = torch.tensor([value], dtype=torch.float64, device=communicator.device)
    item = Collective("all-reduce", ("world",), WIDTH, what)
    communicator.start(item, number, WIDTH, largest=largest).wait()
    return float(number.item())
