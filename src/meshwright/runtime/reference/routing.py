"""Choose each token's experts and weights, and compute the load-balancing loss.

The formulas are those of ``model/router.py``, in its order. Gradients flow through weights and probabilities.

Sizes: T tokens, S scopes of B sequences of L positions each, E experts, K of which are chosen, G groups.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from meshwright.model.router import Groups, LoadBalance, Routing


@dataclass(frozen=True)
class Choice:
    """Expert numbers (…, K) and the ``weights`` (…, K) of their results.

    ``probabilities`` (…, E) are those of the balancing loss. ``sent`` (…, K): a row is sent for the choice, which is
    within its expert's capacity, or the first of its bucket; None: for all.
    """

    experts: Tensor
    weights: Tensor
    probabilities: Tensor
    sent: Tensor | None = None


def chosen(routing: Routing, per_token: int, logits_TE: Tensor, correction_E: Tensor | None) -> Choice:
    """Return the choice of every token; ``correction_E`` is None if the router has none."""
    if routing.scores == "sigmoid":
        scores_TE = torch.sigmoid(logits_TE)
        probabilities_TE = scores_TE / (scores_TE.sum(dim=-1, keepdim=True) + routing.epsilon)
    else:
        probabilities_TE = logits_TE.softmax(dim=-1)
        scores_TE = probabilities_TE if routing.scores == "softmax" else logits_TE
    by_TE = scores_TE if correction_E is None else scores_TE + correction_E
    if routing.groups is not None:
        by_TE = by_TE.masked_fill(~_in_best_groups(routing.groups, by_TE), -torch.inf)
    experts_TK = by_TE.topk(per_token, dim=-1).indices
    weights_TK = scores_TE.gather(-1, experts_TK)
    if routing.scores == "softmax-of-chosen":
        weights_TK = weights_TK.softmax(dim=-1)
    elif routing.normalised:
        weights_TK = weights_TK / (weights_TK.sum(dim=-1, keepdim=True) + routing.epsilon)
    return Choice(experts_TK, weights_TK * routing.scaling, probabilities_TE)


def _in_best_groups(groups: Groups, by_TE: Tensor) -> Tensor:
    """Return whether each expert's group is one of its token's best."""
    by_TGE = by_TE.unflatten(-1, (groups.count, -1))
    worth_TG = by_TGE.topk(groups.best, dim=-1).values.sum(dim=-1)
    best_TG = (
        functional.one_hot(worth_TG.topk(groups.chosen, dim=-1).indices, groups.count).sum(dim=-2).bool()
    )
    return best_TG[..., None].expand_as(by_TGE).flatten(-2)


def moved(routing: Routing, correction_E: Tensor, choice: Choice) -> Tensor:
    """Return the correction after a step: up for experts below the mean load, down for those above."""
    load_E = functional.one_hot(choice.experts, len(correction_E)).flatten(0, -2).sum(dim=0).double()
    return correction_E + routing.correction_speed * torch.sign(load_E.mean() - load_E).to(correction_E.dtype)


def imbalance(balance: LoadBalance, choice: Choice, micro_batch: int) -> Tensor:
    """Return a layer's load-balancing loss; a micro-batch is ``micro_batch`` consecutive sequences."""
    together = 1 if balance.scope == "sequence" else micro_batch
    probabilities_SBLE, experts_SBLK = (
        x.unflatten(0, (-1, together)) for x in (choice.probabilities, choice.experts)
    )
    count = probabilities_SBLE.shape[-1]
    share_SE = functional.one_hot(experts_SBLK, count).to(probabilities_SBLE.dtype).mean(dim=(1, 2, 3))
    losses_S = (share_SE * probabilities_SBLE.mean(dim=(1, 2))).sum(dim=-1)
    return balance.coefficient * count * losses_S.mean()
