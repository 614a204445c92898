"""What routers chose, summed over ranks: a few numbers that are none of the Program's bytes."""

import torch
import torch.distributed as dist

from meshwright.runtime.communicator import Axes, Communicator


def summed(communicator: Communicator, numbers: torch.Tensor, axes: Axes) -> torch.Tensor:
    """Numbers summed over a group at once, in their place."""
    ranks = communicator.ranks_of(axes)
    if len(ranks) > 1:
        with communicator.naming("sum of routers' choices", ranks):
            dist.all_reduce(numbers, group=communicator.group(axes).handle)
    return numbers
