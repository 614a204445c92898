"""One training step of the decoder in each layout: PyTorch's own wrappers, or collectives by hand.

``LAYOUTS`` is the table. All do the same: gradients of every micro-batch are added up, clipped by the global norm, and
stepped with fused AdamW (decay on matrices alone); loss and norm of the whole batch are read once a step.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from plain_torch.decoder import Decoder, cross_entropy
from plain_torch.sharded_optimizer import optimizer_sharded
from plain_torch.task import LIMIT, Step, Task, backward_all, clipped
from plain_torch.tensor_parallel import CrossEntropy, Cut


def one_process(task: Task) -> Step:
    """The usual loop."""
    model = Decoder(task.arch, task.seq_len, task.tensors)
    optimizer = task.optimizer(model.parameters())

    def step() -> tuple[float, float]:
        optimizer.zero_grad()
        total = backward_all(model, task.batches)
        norm = clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        return total.item(), norm.item()

    return step


def data_parallel(task: Task) -> Step:
    """DistributedDataParallel; gradients are exchanged beside the last micro-batch's backward pass."""
    model = DistributedDataParallel(
        Decoder(task.arch, task.seq_len, task.tensors), gradient_as_bucket_view=True
    )
    optimizer = task.optimizer(model.parameters())

    def step() -> tuple[float, float]:
        optimizer.zero_grad()
        with model.no_sync():
            total = backward_all(model, task.batches[:-1], task.ranks)
        total += backward_all(model, task.batches[-1:], task.ranks)
        dist.all_reduce(total)
        norm = clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        return total.item() / task.ranks, norm.item()

    return step


def fully_sharded(task: Task) -> Step:
    """FSDP2: embedding, each block, and norm with head are gathered in both passes, reduced in each backward pass."""
    model = Decoder(task.arch, task.seq_len, task.tensors)
    for unit in (model.embed, *model.blocks, [model.norm, model.head]):
        fully_shard(unit, reshard_after_forward=True)
    fully_shard(model)
    optimizer = task.optimizer(model.parameters())

    def step() -> tuple[float, float]:
        optimizer.zero_grad()
        total = backward_all(model, task.batches, task.ranks)
        dist.all_reduce(total)
        norm = clip_grad_norm_(model.parameters(), LIMIT).full_tensor()
        optimizer.step()
        return total.item() / task.ranks, norm.item()

    return step


def tensor_parallel(task: Task, *, sequence: bool = False) -> Step:
    """Column- and row-cut products; with ``sequence`` the gradients of norms are summed once a step."""
    cut = Cut(task.rank, task.ranks, sequence)
    model = Decoder(task.arch, task.seq_len, task.tensors, products=cut.products())
    norms = [p for p in model.parameters() if p.ndim < 2]
    counted = [p for p in model.parameters() if p.ndim > 1 or not task.rank]
    optimizer = task.optimizer(model.parameters())

    def step() -> tuple[float, float]:
        optimizer.zero_grad()
        total = torch.zeros(())
        for batch in task.batches:
            loss = CrossEntropy.apply(model(batch.tokens), batch.labels, cut) / batch.divisor
            loss.backward()
            total += loss.detach()
        if sequence:
            _add_up([p.grad for p in norms])
        loss, norm = clipped(list(model.parameters()), [p.grad for p in counted], total / task.ranks)
        optimizer.step()
        return loss, norm

    return step


def sequence_parallel(task: Task) -> Step:
    """The same with sequences cut outside of the products."""
    return tensor_parallel(task, sequence=True)


def pipelined(task: Task) -> Step:
    """PyTorch's own 1F1B, shapes given."""
    model = Decoder(task.arch, task.seq_len, task.tensors, task.layers)
    first, last = task.rank == 0, task.rank == task.ranks - 1
    divisor = task.batches[0].divisor
    rows, sequences = task.batches[0].tokens.shape
    values = torch.empty((rows, sequences, task.arch.hidden), requires_grad=True)
    logits = torch.empty((rows, sequences, task.arch.vocab))
    stage = PipelineStage(
        model,
        task.rank,
        task.ranks,
        torch.device("cpu"),
        input_args=task.batches[0].tokens if first else values,
        output_args=logits if last else values,
    )
    schedule = Schedule1F1B(
        stage,
        len(task.batches),
        loss_fn=lambda logits, labels: cross_entropy(logits, labels) / divisor,
        scale_grads=False,
    )
    optimizer = task.optimizer(model.parameters())
    tokens = torch.cat([batch.tokens for batch in task.batches])  # the schedule cuts dim 0
    labels = torch.cat([batch.labels for batch in task.batches])

    def step() -> tuple[float, float]:
        optimizer.zero_grad()
        losses: list[Tensor] = []
        schedule.step(*((tokens,) if first else ()), **({"target": labels, "losses": losses} if last else {}))
        total = torch.stack(losses).sum() if last else torch.zeros(())
        loss, norm = clipped(list(model.parameters()), [p.grad for p in model.parameters()], total)
        optimizer.step()
        return loss, norm

    return step


LAYOUTS: Mapping[str, Callable[[Task], Step]] = {
    "one process": one_process,
    "DDP": data_parallel,
    "ZeRO-1": optimizer_sharded,
    "FSDP2": fully_sharded,
    "TP": tensor_parallel,
    "TP and SP": sequence_parallel,
    "1F1B": pipelined,
}
"""The layouts, by what people call them."""


def _add_up(gradients: Sequence[Tensor]) -> None:
    """Sum small gradients up over ranks, at once."""
    together = torch.cat(list(gradients))
    dist.all_reduce(together)
    for gradient, part in zip(gradients, together.split([len(g) for g in gradients]), strict=True):
        gradient.copy_(part)
