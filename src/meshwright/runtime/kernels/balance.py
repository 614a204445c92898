"""A loss for each routed layer that keeps experts in balance.

The loss is linear in the probabilities, for shares of choices have no gradient (``model/routing.py``). So a rank adds
up its own tokens' part of it, and needs to know of the others of a scope no more than what they chose. Losses are found
once for each micro-batch, with the input's gradient, and belong to the step.
"""

from dataclasses import dataclass

import torch

from meshwright.model.routing import LoadBalance, Routing
from meshwright.program.program import Program
from meshwright.runtime.kernels.routes import Routes


@dataclass(frozen=True)
class Balance:
    """A layer's loss. ``statistic`` is the dtype of probabilities, ``routing`` says what they are."""

    rule: LoadBalance
    routing: Routing
    program: Program
    statistic: torch.dtype

    def choices(self, experts: torch.Tensor, count: int, batch: int) -> torch.Tensor:
        """Choices of this rank's tokens by scope: (sequence · batch, chosen) → (scopes, experts)."""
        chosen = torch.nn.functional.one_hot(experts.unflatten(0, (-1, batch)), count).sum((0, 2))
        return chosen if self.rule.scope == "sequence" else chosen.sum(0, keepdim=True)

    def of_tokens(self, routes: Routes, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """This rank's part of the loss, and the gradient of its logits."""
        assert routes.choices is not None
        count = routes.logits.shape[-1]
        chosen = routes.choices.to(self.statistic)
        share = chosen / chosen.sum(-1, keepdim=True)
        with torch.enable_grad():
            free = routes.logits.detach().requires_grad_()
            each = self._probabilities(free.to(self.statistic)).unflatten(0, (-1, batch)).sum(0)
            together = each if self.rule.scope == "sequence" else each.sum(0, keepdim=True)
            loss = (share * together).sum() * (self.rule.coefficient * count / self._tokens)
            (gradient,) = torch.autograd.grad(loss, free)
        return loss.detach(), gradient

    @property
    def _tokens(self) -> int:
        """Tokens of a scope times scopes of a step, which is tokens of a step."""
        program = self.program
        sequences = program.grid.size(("dp_replicate", "dp_shard")) * program.micro_batches
        return sequences * int(program.shape.micro_batch) * int(program.shape.seq_len)

    def _probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        if self.routing.scores != "sigmoid":
            return logits.softmax(-1)
        scores = logits.sigmoid()
        return scores / (scores.sum(-1, keepdim=True) + self.routing.epsilon)
