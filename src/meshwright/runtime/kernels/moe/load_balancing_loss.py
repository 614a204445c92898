"""The load-balancing loss of a routed layer.

The loss is linear in the probabilities, because the shares of choices have no gradient (``model/router.py``). So a rank
sums its own tokens' part of it, and needs only the choices of the other ranks of a scope. Losses are computed once for
each micro-batch, with the input's gradient, and belong to the step.
"""

from dataclasses import dataclass

import torch

from meshwright.model.router import LoadBalance, Routing
from meshwright.program.program import Program, sequences_of_step
from meshwright.runtime.kernels.moe.token_permutation import TokenPermutation


@dataclass(frozen=True)
class Balance:
    """A layer's loss. ``statistic`` is the dtype of probabilities, ``routing`` their definition."""

    rule: LoadBalance
    routing: Routing
    program: Program
    statistic: torch.dtype

    def choices(self, experts: torch.Tensor, count: int, batch: int) -> torch.Tensor:
        """Return the choices of this rank's tokens by scope: (sequence · batch, chosen) → (scopes, experts)."""
        chosen = torch.nn.functional.one_hot(experts.unflatten(0, (-1, batch)), count).sum((0, 2))
        return chosen if self.rule.scope == "sequence" else chosen.sum(0, keepdim=True)

    def of_tokens(self, routes: TokenPermutation, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's part of the loss, and the gradient of its logits."""
        with torch.enable_grad():
            free = routes.logits.detach().requires_grad_()
            loss = self.loss(routes, free, batch)
            (gradient,) = torch.autograd.grad(loss, free)
        return loss.detach(), gradient

    def loss(self, routes: TokenPermutation, logits: torch.Tensor, batch: int) -> torch.Tensor:
        """Return this rank's part of the loss, for choices and the logits that they came from."""
        assert routes.choices is not None
        count = logits.shape[-1]
        chosen = routes.choices.to(self.statistic)
        share = chosen / chosen.sum(-1, keepdim=True)
        each = self._probabilities(logits.to(self.statistic)).unflatten(0, (-1, batch)).sum(0)
        together = each if self.rule.scope == "sequence" else each.sum(0, keepdim=True)
        return (share * together).sum() * (self.rule.coefficient * count / self._tokens)

    @property
    def _tokens(self) -> int:
        """Tokens of an island's step, which is tokens of a scope times scopes of a step."""
        program = self.program
        sequences = sequences_of_step(program) // program.parts[0].grid.size(program.loose)
        return sequences * int(program.parts[0].shape.seq_len)

    def _probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        if self.routing.scores != "sigmoid":
            return logits.softmax(-1)
        scores = logits.sigmoid()
        return scores / (scores.sum(-1, keepdim=True) + self.routing.epsilon)
