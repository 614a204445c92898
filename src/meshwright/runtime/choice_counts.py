"""What routers chose, told to other ranks: a few numbers that are none of the Program's bytes."""

import torch
import torch.distributed as dist

from meshwright.runtime.communicator import Axes, Communicator, Splits


def summed(communicator: Communicator, numbers: torch.Tensor, axes: Axes) -> torch.Tensor:
    """Numbers summed over a group at once, in their place."""
    ranks = communicator.ranks_of(axes)
    if len(ranks) > 1:
        with communicator.naming("sum of routers' choices", ranks):
            dist.all_reduce(numbers, group=communicator.group(axes).handle)
    return numbers


def exchanged(
    communicator: Communicator, numbers: torch.Tensor, axes: Axes, splits: Splits | None = None
) -> torch.Tensor:
    """What the members of a group have for each other, in turn; of unequal numbers ``splits`` are sent and received."""
    sent, received = splits or (None, None)
    rows = len(numbers) if received is None else sum(received)
    out, ranks = numbers.new_empty((rows, *numbers.shape[1:])), communicator.ranks_of(axes)
    with communicator.naming("exchange of routers' choices", ranks):
        group = communicator.group(axes).handle
        dist.all_to_all_single(out, numbers.contiguous(), received, sent, group=group)
    return out
