"""Rules on the actions around the schedule: gathers, reductions, gradient norm, optimizer, and their groups.

All ranks of a class run one list, so the members of a group inside a class agree by construction. Groups across
classes are those of REDUCE_MIRRORED (pipeline ranks that hold the same layers), REDUCE_TIED (two pipeline ranks) and
NORM (all of them, or those of a rank where steps are validated afterwards): each of their ranks must have the action
once, and in the same order. What is
exchanged unit by unit is there more often: ``per_unit_exchanges.py``.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from meshwright.errors import Problem
from meshwright.plans.synchronisation.synchronisation import exchanged_between_steps
from meshwright.program.checks.checked_program import CheckedProgram, Rule
from meshwright.program.checks.per_unit_exchanges import UNIT_KINDS, unit_exchanges_in_order
from meshwright.program.lowering.optimizer_post_validation import (
    REPEATED,
    before_validation,
    sums_on,
    validation_on,
)
from meshwright.program.program import Program, Stage
from meshwright.schedules.action import EXCHANGES, MESSAGES, PASS_KINDS, Action
from meshwright.schedules.activation_offload import COPIES
from meshwright.schedules.forward_only_lists import PERTURB

PASSES_AND_MESSAGES = (*PASS_KINDS, *MESSAGES, *EXCHANGES, *COPIES)
NORM, STEP, TIED = Action("NORM"), Action("STEP"), Action("REDUCE_TIED")


def step_actions_once(case: CheckedProgram) -> Iterator[Problem]:
    """Every rank has the actions that the collectives call for, and each of them once."""
    elsewhere = PASSES_AND_MESSAGES + (UNIT_KINDS if case.program.parts.by_unit else ())
    for rank, actions in enumerate(case.program.lists):
        found = Counter(action for action in actions if action.kind not in elsewhere)
        expected = Counter(_expected(case, rank))
        for action in (expected - found).elements():
            yield Problem(f"lists.{rank}", str(action), "is missing", "add it")
        for action in (found - expected).elements():
            yield Problem(f"lists.{rank}", str(action), "has nothing to do, or is there twice", "take it out")


def _expected(case: CheckedProgram, rank: int) -> Iterator[Action]:
    program = case.program
    elsewhere = UNIT_KINDS if program.parts.by_unit else ()
    for stage in program.sections_of(rank):
        for kind in ("GATHER", "REDUCE", "REDUCE_MIRRORED"):
            if kind not in elsewhere and (stage.index, kind) in program.collectives:
                yield Action(kind, stage.index)
        if _freed(program, stage):
            yield Action("FREE", stage.index)
    if rank in case.tied_ranks:
        yield TIED
    if program.stack.optimizer.forward_only:
        yield from (PERTURB, PERTURB)
    if program.steps_overlap:
        ranks = program.pipeline_ranks
        yield from (*sums_on(rank, ranks), *validation_on(rank, ranks))
    elif (None, "NORM") in program.collectives:
        yield NORM
    yield STEP
    for entry in exchanged_between_steps(program.synchronise, program.loose):
        yield from (Action("SYNC_BEGIN", entry), Action("SYNC_END", entry))


def _freed(program: Program, section: Stage) -> bool:
    """Return true if some of a section's parameters are whole only during a step."""
    return any(program.parts.of(block).mode.gather == "per-step" for block in section.blocks)


def step_actions_in_order(case: CheckedProgram) -> Iterator[Problem]:
    """Require the order passes, REDUCE, REDUCE_MIRRORED, REDUCE_TIED, NORM, STEP, with gathers around them."""
    program = case.program
    for rank, actions in enumerate(program.lists):
        for stage in program.sections_of(rank) if not program.parts.by_unit else ():
            gather, reduce, free = (Action(kind, stage.index) for kind in ("GATHER", "REDUCE", "FREE"))
            passes = [a for a in actions if a.stage == stage.index and a.kind in PASS_KINDS]
            early = _freed(program, stage) or "GATHER" in program.overlapped
            if passes and early:
                yield from case.misordered(
                    rank, gather, passes[0], "parameters are gathered before their use"
                )
            elif passes:
                yield from case.misordered(rank, STEP, gather, "the optimizer makes what is gathered")
            for after in (reduce, free) if passes else ():
                yield from case.misordered(rank, passes[-1], after, "the stage's last pass comes first")
            for entry in range(len(program.synchronise)) if not early else ():
                end = Action("SYNC_END", entry)
                yield from case.misordered(rank, end, gather, "what an exchange changes is gathered")
            mirrored = Action("REDUCE_MIRRORED", stage.index)
            for later in (mirrored, TIED, NORM, STEP):
                yield from case.misordered(
                    rank, reduce, later, "gradients are complete when they are reduced"
                )
            for later in (TIED, NORM, STEP):
                yield from case.misordered(rank, mirrored, later, "gradients are those of all copies")
        yield from case.misordered(rank, TIED, NORM, "the norm is that of complete gradients")
        yield from case.misordered(rank, NORM, STEP, "the optimizer clips by the norm")
        for entry in range(len(program.synchronise)):
            begin, end = Action("SYNC_BEGIN", entry), Action("SYNC_END", entry)
            yield from case.misordered(rank, STEP, begin, "what the step has made is exchanged")
            yield from case.misordered(rank, begin, end, "an exchange begins before it ends")
        for action in actions if STEP in case.places[rank] else ():
            if action.kind in PASSES_AND_MESSAGES:
                yield from case.misordered(rank, action, STEP, "the optimizer comes after all passes")


def validation_in_order(case: CheckedProgram) -> Iterator[Problem]:
    """Require complete sums before they are sent, and only repeatable actions before VALIDATE."""
    program = case.program
    if not program.steps_overlap:
        return
    ranks = program.pipeline_ranks
    repeated = [before_validation(actions) for actions in program.lists]
    sent = {action for actions in repeated for action in actions if action.kind == "SEND_F"}
    for rank, actions in enumerate(repeated):
        for first, then in pairwise([*sums_on(rank, ranks), STEP]):
            yield from case.misordered(
                rank, first, then, "the sums are passed on, and known, before the step"
            )
        for first, then in pairwise(validation_on(rank, ranks)):
            yield from case.misordered(rank, first, then, "the sums are passed on before what may take long")
        for action in actions:
            if action.kind not in REPEATED:
                rule = "stands before VALIDATE, and can not be run again"
                yield Problem(f"lists.{rank}", str(action), rule, f"VALIDATE before {action}")
            elif action.kind == "RECV_F" and _sender_of(action) not in sent:
                rule = "stands before VALIDATE, and its sender's pass does not"
                yield Problem(f"lists.{rank}", str(action), rule, f"VALIDATE before {action}")


def _sender_of(receive: Action) -> Action:
    assert receive.stage is not None
    return Action("SEND_F", receive.stage - 1, receive.micro_batch)


def groups_exist(case: CheckedProgram) -> Iterator[Problem]:
    """Require every collective of the step to have several ranks and bytes to exchange."""
    program = case.program
    for (stage, kind), collectives in program.collectives.items():
        for collective in collectives:
            field = f"collectives.{'' if stage is None else stage}{kind}"
            if program.group_size(collective.axes, collective.part) < 2:
                yield Problem(field, collective.axes, "a group of one rank exchanges nothing", "take it out")
            if not (np.isfinite(collective.logical_bytes) and collective.logical_bytes > 0):
                yield Problem(field, float(collective.logical_bytes), "no bytes to exchange", "take it out")
    if case.tied_ranks and (None, "REDUCE_TIED") not in program.collectives:
        rule = "two ranks hold the embedding table and do not add up its gradients"
        yield Problem("collectives.REDUCE_TIED", None, rule, "add it")


STEP_RULES: tuple[Rule, ...] = (
    step_actions_once,
    step_actions_in_order,
    validation_in_order,
    unit_exchanges_in_order,
    groups_exist,
)
