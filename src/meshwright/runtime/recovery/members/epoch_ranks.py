"""Assign the members of an epoch their ranks, and the states that they begin with."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshwright.runtime.checkpoint import latest_checkpoint
from meshwright.runtime.recovery.members.member_table import MemberTable
from meshwright.runtime.recovery.members.membership import Candidate, Place, Source, ranks_of
from meshwright.runtime.training.job_and_outcome import Training

Replicas = Sequence[tuple[Candidate, ...]]
"""The members of each replica, by position."""
Order = Mapping[str, Any]


def orders_of(
    members: MemberTable,
    replicas: Replicas,
    source: Source | None,
    training: Training,
    own: Collection[int],
    *,
    begun: bool,
) -> dict[int, tuple[Place, Order]]:
    """Return place and order of every member of ``replicas``, by its number; ``own`` keep their own states.

    An order has the member's ``rank``; the rank that is the ``source`` of its states, None for a checkpoint or the
    begin of the run; and what is the same for all. The run has ``begun`` if it has had an epoch.
    """
    common, ranks = _common(members, replicas, source, training, begun=begun), ranks_of(training.job.program)
    found: dict[int, tuple[Place, Order]] = {}
    for replica, row in enumerate(replicas):
        for position, one in enumerate(row):
            place = Place(replica, position)
            of = None if source is None else ranks[Place(source.replicas[position], position)]
            order = {"rank": ranks[place], "source": of, "own": one.member in own}
            found[one.member] = place, {**common, **order}
    return found


def _common(
    members: MemberTable, replicas: Replicas, source: Source | None, training: Training, *, begun: bool
) -> Order:
    """Return the entries of every member's order. ``former`` is each replica's number in the epoch before."""
    checkpoint: Path | None = None
    if source is None:  # of a run that begins, or whose states nobody has whole
        checkpoint = latest_checkpoint(training.checkpoints) or training.resume
        checkpoint = (
            checkpoint if any(one.report and one.report.error for one in members) else training.resume
        )
    results = {one.report.result for one in members if one.report and one.report.result}
    first = [members[row[0].member] for row in replicas]
    return {
        "ranks": training.job.program.parts.ranks,
        "replicas": len(replicas),
        "step": None if source is None else source.step,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "results": sorted(results),
        "former": [None if one.rank is None else one.place.replica for one in first],
    }
