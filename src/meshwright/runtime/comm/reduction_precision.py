"""Sum tensors over ranks with a narrow dtype on the wire and a wide one for the sum.

A library's sum rounds after every rank. Here each rank gets its piece of all others' tensors (an all-to-all), adds
them up in the wide dtype and rounds the result; an all-reduce then gathers the pieces. It sends the bytes of a
reduce-scatter, or of a ring all-reduce, and the result does not depend on the order of ranks.
"""

from collections.abc import Generator

import torch

from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator, Work
from meshwright.runtime.precision import Precision


def sum_over_ranks(
    communicator: Communicator,
    item: Collective,
    tensor: torch.Tensor,
    precision: Precision,
    width: int,
    out: torch.Tensor | None = None,
    elements: int | None = None,
) -> Generator[Work, None, None]:
    """Sum gradients as the item says: in place (all-reduce), or this rank's rows into ``out`` (reduce-scatter).

    ``width`` is the Program's bytes per element, ``elements`` their logical number if ``tensor`` is padded. Each
    operation is yielded after it has started.
    """
    if precision.reduce == tensor.dtype == precision.statistic:
        yield communicator.start(item, tensor, width, out=out, elements=elements)
        return
    ranks, count = len(communicator.ranks_of(item.axes)), tensor.numel() if elements is None else elements
    rows = -(-tensor.numel() // ranks)
    sent = torch.zeros(ranks * rows, dtype=precision.reduce, device=tensor.device)
    sent[: tensor.numel()] = tensor.flatten()
    received = torch.empty_like(sent)
    yield communicator.start(item, sent, width, out=received, elements=count, by="all-to-all")
    total = received.view(ranks, rows).to(precision.statistic).sum(0)
    if out is not None:
        out.copy_(total)
        return
    part = total.to(precision.reduce)
    yield communicator.start(item, part, width, out=sent, by="all-gather", continues=True)
    tensor.copy_(sent[: tensor.numel()].view(tensor.shape))
