"""The peak of unsharded stages along a list: parameters from GATHER to FREE, gradients until REDUCE has ended.

Gradients of a stage are whole from the first W (or B) behind the last REDUCE. A reduction that overlaps compute
keeps them until it has ended: at the latest when the next one begins, for gradients of one stage at a time are on their
way, or the norm needs them. A stage that the list never gathers, or never reduces, because no ranks share it, is whole
all the time. Which moment holds most depends on the sizes of the stages; these are the candidates.
"""

from collections.abc import Collection, Sequence

from meshwright.schedules.action import MAKE_GRADIENTS, Action, Kind

UnshardedStages = tuple[tuple[int, ...], tuple[int, ...]]
"""How often the parameters, and the gradients, of each stage of a rank are whole."""


def peak_unsharded_stages(
    actions: Sequence[Action], stages: Sequence[int], overlapped: Collection[Kind]
) -> list[UnshardedStages]:
    """Everything that is whole at one time or another in a list, without repetition; ``stages`` are the rank's."""
    alone = {kind: {a.stage for a in actions if a.kind == kind} for kind in ("GATHER", "REDUCE")}
    parameters = {stage for stage in stages if stage not in alone["GATHER"]}
    gradients = {stage for stage in stages if stage not in alone["REDUCE"]}
    on_its_way: int | None = None
    found: dict[UnshardedStages, None] = {}
    for action in actions:
        stage = action.stage
        if action.kind == "GATHER" and stage is not None:
            parameters.add(stage)
        elif action.kind in MAKE_GRADIENTS and stage is not None:
            gradients.add(stage)
        elif action.kind == "REDUCE" and "REDUCE" in overlapped:
            on_its_way = stage
        elif action.kind == "NORM":
            on_its_way = None
        if action.kind == "REDUCE" and stage is not None:
            gradients.discard(stage)
        elif action.kind == "FREE" and stage is not None:
            parameters.discard(stage)
        found[
            tuple(int(s in parameters) for s in stages),
            tuple((s in gradients) + (s == on_its_way) for s in stages),
        ] = None
    return list(found)
