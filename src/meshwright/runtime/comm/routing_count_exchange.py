"""Exchange router counts between ranks: a few integers that the Program's bytes do not include."""

import torch
import torch.distributed as dist

from meshwright.runtime.comm.communicator import Communicator, Splits
from meshwright.runtime.comm.process_groups import Axes


def sum_router_counts(communicator: Communicator, numbers: torch.Tensor, axes: Axes) -> torch.Tensor:
    """Sum counts over a group, in place, and return them."""
    ranks = communicator.ranks_of(axes)
    if len(ranks) > 1:
        with communicator.naming("sum of routers' choices", ranks):
            dist.all_reduce(numbers, group=communicator.group(axes).handle)
    return numbers


def exchange_router_counts(
    communicator: Communicator, numbers: torch.Tensor, axes: Axes, splits: Splits | None = None
) -> torch.Tensor:
    """Exchange counts between the members of a group (all-to-all).

    ``splits`` are the rows sent and received, where these are unequal.
    """
    sent, received = splits or (None, None)
    rows = len(numbers) if received is None else sum(received)
    out, ranks = numbers.new_empty((rows, *numbers.shape[1:])), communicator.ranks_of(axes)
    with communicator.naming("exchange of routers' choices", ranks):
        group = communicator.group(axes).handle
        dist.all_to_all_single(out, numbers.contiguous(), received, sent, group=group)
    return out
