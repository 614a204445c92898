"""Rules on activation offload: each activation goes out once and comes back once, in order, with a pass in between."""

from collections import Counter
from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.program.checks.checked_program import CheckedProgram, Rule
from meshwright.schedules.action import PASS_KINDS, Action
from meshwright.schedules.activation_offload import COPIES


def every_copy_once(case: CheckedProgram) -> Iterator[Problem]:
    """Require each offloaded stage to come back, with one copy each way, on its own rank."""
    for rank, actions in enumerate(case.program.lists):
        found = Counter(action for action in actions if action.kind in COPIES)
        mine = {stage.index for stage in case.program.stages_of(rank)}
        for action, times in found.items():
            other = Action(
                "RELOAD" if action.kind == "OFFLOAD" else "OFFLOAD", action.stage, action.micro_batch
            )
            if action.stage not in mine or not case.program.offloaded_bytes[action.stage]:
                yield Problem(f"lists.{rank}", str(action), "nothing here goes to the host", "take it out")
            elif times != 1:
                yield Problem(f"lists.{rank}", str(action), f"is there {times} times", "once")
            elif not found[other]:
                yield Problem(f"lists.{rank}", str(action), f"there is no {other}", f"add {other}")


def copies_in_order(case: CheckedProgram) -> Iterator[Problem]:
    """Out behind F, back behind the end of the copy out, and the backward pass behind that."""
    for rank, actions in enumerate(case.program.lists):
        for action in actions:
            if action.kind != "OFFLOAD":
                continue
            which = action.stage, action.micro_batch
            back = Action("RELOAD", *which)
            yield from case.misordered(rank, Action("F", *which), action, "F makes what goes out")
            for backward in (Action("B", *which), Action("I", *which)):
                yield from case.misordered(rank, back, backward, "it needs what comes back")
            yield from case.misordered(rank, action, back, "only what is out comes back")
            yield from _a_pass_between(case, rank, action, back)


def _a_pass_between(case: CheckedProgram, rank: int, out: Action, back: Action) -> Iterator[Problem]:
    """Require a pass between a copy out, which ends with it, and the copy back."""
    places, actions = case.places[rank], case.program.lists[rank]
    if back in places and places[out] < places[back]:
        between = actions[places[out] : places[back]]
        if not any(action.kind in PASS_KINDS for action in between):
            rule = "no pass is between them, and a copy out ends with the pass behind it"
            yield Problem(f"lists.{rank}", f"{out} {back}", rule, "take both out")


OFFLOAD_RULES: tuple[Rule, ...] = (every_copy_once, copies_in_order)
