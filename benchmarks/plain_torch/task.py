"""What one rank trains, and what the steps of all layouts share: gradients of micro-batches, clipping by the norm."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from meshwright.model.architecture import Architecture
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.state.step_options import StepOptions
from meshwright.workload.optimizer_choice import ADAMW
from plain_torch.decoder import cross_entropy

LIMIT = 1.0
"""The largest global norm of gradients."""


@dataclass(frozen=True)
class Task:
    """What one rank trains: ``batches`` are its micro-batches, ``layers`` those of its pipeline stage."""

    arch: Architecture
    tensors: Mapping[str, Tensor]
    batches: Sequence[MicroBatch]
    layers: Sequence[int]
    options: StepOptions
    rank: int
    ranks: int

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence."""
        return len(self.batches[0].tokens)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
        """Fused AdamW that spares vectors from decay."""
        parameters = list(parameters)
        return self.optimizer_of([p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2])

    def optimizer_of(self, decayed: list[nn.Parameter], others: list[nn.Parameter]) -> torch.optim.AdamW:
        """Fused AdamW with decay on some."""
        options = self.options.for_optimizer(ADAMW, "")
        return torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": options["weight_decay"]},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=self.options.lr,
            betas=options["betas"],
            eps=options["epsilon"],
            fused=True,
        )


Step = Callable[[], tuple[float, float]]
"""A training step: the loss of the whole batch and the norm of its gradients."""


def backward_all(model: nn.Module, batches: Sequence[MicroBatch], times: int = 1) -> Tensor:
    """Add the gradients of some micro-batches; their loss, both ``times`` so much where wrappers take a mean."""
    total = torch.zeros(())
    for batch in batches:
        loss = cross_entropy(model(batch.tokens), batch.labels) * (times / batch.divisor)
        loss.backward()
        total += loss.detach()
    return total


def clipped(parameters: list[nn.Parameter], counted: Iterable[Tensor], loss: Tensor) -> tuple[float, float]:
    """Clip by the norm over all ranks, of which this one counts some gradients; the loss and norm of all."""
    sums = torch.stack((get_total_norm(counted).square(), loss))
    dist.all_reduce(sums)
    norm = sums[0].sqrt()
    clip_grads_with_norm_(parameters, LIMIT, norm)
    return sums[1].item(), norm.item()
