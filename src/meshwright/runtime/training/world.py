"""Numbers of all ranks brought together beside a step: exchanges that are training's own, not the Program's."""

import torch

from meshwright.program.items import Collective
from meshwright.runtime.communicator import Communicator

WIDTH = 8


def summed(communicator: Communicator, value: float, what: str) -> float:
    """The sum of a number over all ranks."""
    return _together(communicator, value, what, largest=False)


def most(communicator: Communicator, value: float, what: str) -> float:
    """The largest of a number over all ranks."""
    return _together(communicator, value, what, largest=True)


def _together(communicator: Communicator, value: float, what: str, *, largest: bool) -> float:
    if communicator.program.grid.ranks == 1:
        return value
    number = torch.tensor([value], dtype=torch.float64, device=communicator.device)
    item = Collective("all-reduce", ("world",), WIDTH, what)
    communicator.start(item, number, WIDTH, largest=largest).wait()
    return float(number.item())
