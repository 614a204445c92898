"""Passes of a step without backward passes, which computes the loss twice, at θ + εz and at θ − εz.

Micro-batch m goes through all stages in order, and a rank begins the next one as soon as it has ended one, whatever the
schedule's name: GPipe and 1F1B differ in their backward passes only. PERTURB moves the parameters of a rank to the next
of the two points, and STEP back with the update, each of them a pass over all parameters. Where every replica computes
both losses, the second half of the micro-batches are the first one's sequences again. Where two halves of the replicas
share the losses, a replica has one PERTURB before its passes and one behind them; that of the second half of the
replicas, which needs θ − εz, takes the second one before its passes too.
"""

from meshwright.schedules.action import Action

SCHEDULES = ("gpipe", "1f1b")
"""Schedules with one stage a rank, whose forward passes alone are a schedule."""
PERTURB = Action("PERTURB")


def forward_only_lists(ranks: int, micro_batches: int, *, split: bool) -> list[list[Action]]:
    """Return each rank's list; ``split``: two halves of the replicas compute one loss each."""
    turn = micro_batches if split else micro_batches // 2
    passes = [[Action("F", rank, m) for m in range(micro_batches)] for rank in range(ranks)]
    return [[PERTURB, *own[:turn], PERTURB, *own[turn:]] for own in passes]


def is_second_half(replica: int, replicas: int) -> bool:
    """Return true for one of the ``replicas`` of dp_replicate that compute the loss at θ − εz, if they share them."""
    return replica >= replicas // 2
