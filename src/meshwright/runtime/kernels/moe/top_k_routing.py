"""Choose each token's experts and their weights from a router's logits, and compute the weights' gradient.

The rules are those of ``model/router.py``, in its order. The choice has no gradient; that of the weights depends on the
logits elementwise along the experts, and is the only gradient here that autograd computes.
"""

from dataclasses import dataclass

import torch

from meshwright.model.router import Groups, Routing


@dataclass(frozen=True)
class TopKRouting:
    """A router's rule for choosing ``chosen`` experts; ``statistic`` is the dtype of scores."""

    routing: Routing
    chosen: int
    statistic: torch.dtype

    def experts(self, logits: torch.Tensor, correction: torch.Tensor | None) -> torch.Tensor:
        """Return the experts of each token: (tokens, experts) → (tokens, chosen)."""
        value = self._scores(logits.to(self.statistic))
        if correction is not None:
            value = value + correction.to(value)
        if self.routing.groups is not None:
            value = _of_best_groups(value, self.routing.groups)
        return value.topk(self.chosen, dim=-1).indices

    def weights(self, logits: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        """Return the weight of each chosen expert: (tokens, chosen)."""
        logits, routing = logits.to(self.statistic), self.routing
        if routing.scores == "softmax-of-chosen":
            return logits.gather(-1, experts).softmax(-1) * routing.scaling
        weights = self._scores(logits).gather(-1, experts)
        if routing.normalised:
            weights = weights / (weights.sum(-1, keepdim=True) + routing.epsilon)
        return weights * routing.scaling

    def gradient(self, logits: torch.Tensor, experts: torch.Tensor, of_weights: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the logits."""
        with torch.enable_grad():
            free = logits.detach().requires_grad_()
            weights = self.weights(free, experts)
            (found,) = torch.autograd.grad(weights, free, of_weights.to(weights))
        return found

    def _scores(self, logits: torch.Tensor) -> torch.Tensor:
        if self.routing.scores == "sigmoid":
            return logits.sigmoid()
        return logits if self.routing.scores == "softmax-of-chosen" else logits.softmax(-1)


def _of_best_groups(value: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Set the scores of experts outside the best groups to −∞."""
    grouped = value.unflatten(-1, (groups.count, -1))
    worth = grouped.topk(groups.best, dim=-1).values.sum(-1)
    best = worth.topk(groups.chosen, dim=-1).indices
    left_out = torch.ones_like(worth, dtype=torch.bool).scatter(-1, best, False)
    return grouped.masked_fill(left_out[..., None], float("-inf")).flatten(-2)
