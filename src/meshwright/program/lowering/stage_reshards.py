"""Find the changes of layout of a plan: inside stages, and between one stage and the next."""

from collections.abc import Sequence

from meshwright.program.program import Stage
from meshwright.program.program_parts import ProgramParts
from meshwright.program.reshard import Reshard, reshard_between
from meshwright.schedules.dependencies import StageChains


def stage_reshards(
    stages: Sequence[Stage], ways: StageChains, parts: ProgramParts, hidden: int, domain: int
) -> dict[tuple[int, int | None], Reshard]:
    """Return the changes of layout by stage and place among its blocks; None: with the messages into the stage.

    A change to the stage before is the messages' where another pipeline rank has it, else the first block's.
    """
    found: dict[tuple[int, int | None], Reshard] = {}
    known: dict[tuple[tuple[int, int], tuple[int, int]], Reshard] = {}
    of_blocks = parts.of_blocks
    for stage in stages:
        before = None if ways.is_first(stage.index) else stages[stage.index - 1]
        last = (of_blocks[before.blocks[-1]], before.rank) if before else None
        for place, block in enumerate(stage.blocks):
            here = of_blocks[block], stage.rank
            if last is not None and last[0] != here[0]:
                if (last, here) not in known:
                    known[last, here] = reshard_between(parts, (last, here), hidden, domain)
                found[stage.index, place if last[1] == here[1] else None] = known[last, here]
            last = here
    return found
