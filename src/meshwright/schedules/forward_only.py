"""Passes of a step without backward passes, which computes the loss twice, at θ + εz and at θ − εz.

Micro-batch m goes through all stages in order, and a rank begins the next one as soon as it has ended one, whatever the
schedule's name: GPipe and 1F1B differ in their backward passes only. PERTURB moves the parameters of a rank to the next
of the two points, and STEP back with the update, each of them a pass over all parameters. Where every replica computes
both losses, the second half of the micro-batches are the first one's sequences again. Where two halves of the replicas
share the losses, a replica has one PERTURB before its passes and one behind them; that of the second half of the
replicas, which needs θ − εz, takes the second one before its passes too.
"""

from collections.abc import Sequence

from meshwright.schedules.action import Action

SCHEDULES = ("gpipe", "1f1b")
"""Schedules with one stage a rank, whose forward passes alone are a schedule."""
PERTURB = Action("PERTURB")


def forward_only_lists(ranks: int, micro_batches: int, *, split: bool) -> list[list[Action]]:
    """Return each rank's list; ``split``: two halves of the replicas compute one loss each."""
    turn = micro_batches if split else micro_batches // 2
    passes = [[Action("F", rank, m) for m in range(micro_batches)] for rank in range(ranks)]
    return [[PERTURB, *own[:turn], PERTURB, *own[turn:]] for own in passes]


def data_of(micro_batch: int, micro_batches: int, *, split: bool) -> int:
    """Return which micro-batch of a replica's sequences a pass takes."""
    return micro_batch if split else micro_batch % (micro_batches // 2)


def side_of(micro_batch: int, micro_batches: int, replica: int, replicas: int, *, split: bool) -> int:
    """Return 0 for a pass at θ + εz, 1 for one at θ − εz, on one of ``replicas`` of ``dp_replicate``."""
    if split:
        return int(replica >= replicas // 2)
    return int(micro_batch >= micro_batches // 2)


def is_usual(name: str, knobs: Sequence[object]) -> bool:
    """Return true for a schedule that has a forward-only form, without knobs."""
    return name in SCHEDULES and not any(knobs)
