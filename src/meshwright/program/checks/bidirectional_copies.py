"""Rules on layers of bidirectional schedules, held by two pipeline ranks: the copies stay equal.

A copy steps by itself, so that it must have the gradient that the others have: the same exchange, on ranks of their
own, in one order.
"""

from collections import Counter
from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.program.checks.checked_program import CheckedProgram, Rule


def copies_on_ranks_of_their_own(case: CheckedProgram) -> Iterator[Problem]:
    """Stages with the same layers lie on different ranks, which hold no others."""
    program, ways = case.program, case.program.ways
    for position in range(ways.length) if ways.chains > 1 else ():
        ranks = [program.stages[stage].rank for stage in ways.same_layers(position)]
        if len(set(ranks)) < len(ranks):
            rule = f"the stages {ways.same_layers(position)} have the same layers"
            yield Problem("stages", ranks, rule, "a rank of its own for each")
    held = Counter(rank for ranks in program.mirrors for rank in ranks)
    for rank, count in held.items():
        if count > 1:
            rule = f"rank {rank} shares layers with different ranks"
            yield Problem("stages", list(program.mirrors), rule, "all of its layers on the same ranks")


def copies_exchange_gradients(case: CheckedProgram) -> Iterator[Problem]:
    """Stages with the same layers sum up the same gradients, their ranks in one order."""
    program, ways = case.program, case.program.ways
    if ways.chains == 1:
        return
    for position in range(ways.length):
        same = ways.same_layers(position)
        exchanged = {_exchanged(case, stage) for stage in same}
        if len(exchanged) > 1 or not exchanged.pop():
            rule = f"the stages {same} have the same layers and do not sum up the same gradients"
            yield Problem("collectives.REDUCE_MIRRORED", same, rule, "the same all-reduces for all of them")
    for ranks in program.mirrors:
        orders = {_order(case, rank) for rank in ranks}
        if len(orders) > 1:
            rule = f"ranks {ranks} sum up the gradients of their layers in different orders"
            yield Problem("lists", sorted(orders), rule, "by the places of the stages in a chain")


def _exchanged(case: CheckedProgram, stage: int) -> tuple[tuple[str, float], ...]:
    found = case.program.collectives.get((stage, "REDUCE_MIRRORED"), ())
    return tuple((c.kind, float(c.logical_bytes)) for c in found)


def _order(case: CheckedProgram, rank: int) -> tuple[int, ...]:
    """Places in a chain of the stages whose gradients a rank sums up with others, one after the other."""
    actions, position = case.program.lists[rank], case.program.ways.position
    return tuple(position(a.stage or 0) for a in actions if a.kind == "REDUCE_MIRRORED")


COPY_RULES: tuple[Rule, ...] = (copies_on_ranks_of_their_own, copies_exchange_gradients)
