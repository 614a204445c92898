"""ZeRO-1 by hand: a rank steps its part of one flat buffer of parameters."""

import torch
import torch.distributed as dist
from torch import nn

from plain_torch.decoder import Decoder
from plain_torch.task import Step, Task, backward_all, clipped

ROW = 2**18
"""Elements whose squares are summed up at once; more in single precision lose digits."""


def optimizer_sharded(task: Task) -> Step:
    """ZeRO-1 by hand: parameters and gradients are views of two flat buffers; a rank steps its half and gathers."""
    model = Decoder(task.arch, task.seq_len, task.tensors)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    parameters = matrices + [p for p in model.parameters() if p.ndim < 2]
    size = sum(p.numel() for p in parameters)
    part = -(-size // task.ranks)
    flat, gradients = torch.zeros(part * task.ranks), torch.zeros(part * task.ranks)
    at = 0
    for p in parameters:
        view = flat[at : at + p.numel()].view_as(p)
        p.data, p.grad = view.copy_(p.detach()), gradients[at : at + p.numel()].view_as(p)
        at += p.numel()
    border = min(max(sum(p.numel() for p in matrices) - task.rank * part, 0), part)
    own = flat[task.rank * part :][:part]
    shard, reduced = own.clone(), torch.empty(part)
    pieces = [nn.Parameter(shard[:border]), nn.Parameter(shard[border:])]
    pieces[0].grad, pieces[1].grad = reduced[:border], reduced[border:]
    optimizer = task.optimizer_of(*([piece] if piece.numel() else [] for piece in pieces))

    def step() -> tuple[float, float]:
        gradients.zero_()
        total = backward_all(model, task.batches)
        dist.reduce_scatter_single(reduced, gradients)
        loss, norm = clipped(pieces, reduced.split(ROW), total)
        optimizer.step()
        dist.all_gather_single(flat, shard)
        return loss, norm

    return step
