"""Find the changes of layout of a plan: inside stages, and between one stage and the next."""

from meshwright.program.lowering.step_collectives import StepPlan
from meshwright.program.reshard import Reshard, reshard_between


def stage_reshards(step: StepPlan, hidden: int, domain: int) -> dict[tuple[int, int | None], Reshard]:
    """Return the changes of layout by stage and place among its blocks; None: with the messages into the stage.

    A change to the stage before is the messages' where another pipeline rank has it, else the first block's.
    """
    found: dict[tuple[int, int | None], Reshard] = {}
    known: dict[tuple[tuple[int, int], tuple[int, int]], Reshard] = {}
    of_blocks = step.parts.of_blocks
    for stage in step.stages:
        before = None if step.ways.is_first(stage.index) else step.stages[stage.index - 1]
        last = (of_blocks[before.blocks[-1]], before.rank) if before else None
        for place, block in enumerate(stage.blocks):
            here = of_blocks[block], stage.rank
            if last is not None and last[0] != here[0]:
                if (last, here) not in known:
                    known[last, here] = reshard_between(step.parts, (last, here), hidden, domain)
                found[stage.index, place if last[1] == here[1] else None] = known[last, here]
            last = here
    return found
