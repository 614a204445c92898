"""Rules on per-unit exchanges: parameters are gathered before use, no gradient is lost.

A list is walked with the stages that are whole and those whose gradients are not reduced yet. How often a stage is
gathered is no matter of these rules: a list that gathers less often and keeps them is as right
(``program/model_states/per_unit_gather_and_reduce.py`` makes those that a plan asks for).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from meshwright.errors import Problem
from meshwright.program.checks.checked_program import CheckedProgram
from meshwright.program.model_states.per_unit_gather_and_reduce import NEED_PARAMETERS
from meshwright.schedules.action import MAKE_GRADIENTS, Action, Kind

UNIT_KINDS: tuple[Kind, ...] = ("GATHER", "FREE", "REDUCE")
NEED_GRADIENTS: tuple[Kind, ...] = ("REDUCE_MIRRORED", "REDUCE_TIED", "NORM", "STEP")


def unit_exchanges_in_order(case: CheckedProgram) -> Iterator[Problem]:
    """With ``gather: per-unit`` every pass of a stage lies between its GATHER and its FREE, and REDUCE behind W."""
    program = case.program
    if not program.parts.by_unit:
        return
    for rank, actions in enumerate(program.lists):
        mine = [stage.index for stage in program.stages_of(rank)]
        gathered, reduced = (
            frozenset(stage for stage in mine if (stage, kind) in program.collectives)
            for kind in ("GATHER", "REDUCE")
        )
        walk = _Walk(gathered, reduced)
        for action in actions:
            for rule, hint in walk.faults(action):
                yield Problem(f"lists.{rank}", str(action), rule, hint)
        for stage in sorted(walk.used):
            yield Problem(
                f"lists.{rank}", f"{stage}GATHER", "is never freed", f"{stage}FREE behind its passes"
            )


@dataclass
class _Walk:
    """``used`` holds the whole stages with whether a pass has needed them, ``waiting`` those with new gradients."""

    gathered: frozenset[int]
    reduced: frozenset[int]
    used: dict[int, bool] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)

    def faults(self, action: Action) -> Iterator[tuple[str, str]]:
        """Yield the faults of the next action, each with a suggested change."""
        kind, stage = action.kind, action.stage
        if kind in NEED_GRADIENTS and self.waiting:
            first = min(self.waiting)
            yield f"gradients of stage {first} are not reduced", f"{first}REDUCE before {action}"
        if stage is None:
            return
        if kind == "GATHER":
            if stage not in self.gathered:
                yield "has nothing to do", "take it out"
            elif stage in self.used:
                yield "parameters of the stage are whole", f"{stage}FREE before it, or take it out"
            self.used[stage] = False
        elif kind == "FREE":
            if not self.used.pop(stage, False):
                yield "no pass has needed what it frees", "take it out, with its GATHER"
        elif kind == "REDUCE":
            if stage not in self.waiting:
                yield "there is nothing new to reduce", "take it out"
            self.waiting.discard(stage)
        if kind in NEED_PARAMETERS and stage in self.gathered:
            if stage not in self.used:
                yield "parameters are gathered before their use", f"{stage}GATHER before it"
            else:
                self.used[stage] = True
        if kind in MAKE_GRADIENTS and stage in self.reduced:
            self.waiting.add(stage)
