"""Rules on the action lists: every pass once, data before its use, one message per boundary, memory as declared."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from meshwright.errors import Problem
from meshwright.play.in_flight import most_in_flight
from meshwright.program.checks.checked_program import CheckedProgram, Rule
from meshwright.program.pipeline_messages.nccl_deadlock_check import check_messages
from meshwright.schedules.action import (
    COMPUTE_KINDS,
    EXCHANGES,
    MESSAGES,
    PASS_KINDS,
    VOCABULARY_KINDS,
    Action,
    Kind,
    format_actions,
)
from meshwright.schedules.forward_only_lists import PERTURB, forward_only_lists

FORWARD_ONLY, WHOLE, SPLIT = (1, 0, 0, 0), (1, 1, 0, 0), (1, 0, 1, 1)
"""Counts of F, B, I and W of a stage and a micro-batch."""
MESSAGES_AND_EXCHANGES = frozenset((*MESSAGES, *EXCHANGES))


def every_pass_once(case: CheckedProgram) -> Iterator[Problem]:
    """Each stage runs, for each micro-batch of its chain, F once, and B once or I and W once each, on its own rank.

    Without backward passes F once.

    Each share of a vocabulary that is spread runs E, S, T and D once.
    """
    ways, total = case.program.ways, case.program.micro_batches
    legal = (FORWARD_ONLY,) if case.program.stack.optimizer.forward_only else (WHOLE, SPLIT)
    for rank, actions in enumerate(case.program.lists):
        found = Counter(action for action in actions if action.kind in PASS_KINDS)
        for stage in case.program.stages_of(rank):
            for m in ways.micro_batches_of(stage.index, total):
                counts = [found.pop(Action(kind, stage.index, m), 0) for kind in COMPUTE_KINDS]
                if tuple(counts) not in legal:
                    yield from _pass_problems(rank, stage.index, m, counts[0], tuple(counts[1:]), legal)
        for share in case.shares_of(rank):
            for m in range(case.program.micro_batches):
                for kind in VOCABULARY_KINDS:
                    times = found.pop(Action(kind, share.index, m), 0)
                    if times != 1:
                        action = Action(kind, share.index, m)
                        yield Problem(f"lists.{rank}", str(action), f"is there {times} times", "once")
        for action in found:
            rule = "no stage of this rank has this micro-batch"
            yield Problem(f"lists.{rank}", str(action), rule, "take it out")


def _pass_problems(
    rank: int,
    stage: int,
    micro_batch: int,
    forward: int,
    backward: tuple[int, ...],
    legal: Collection[tuple[int, ...]],
) -> Iterator[Problem]:
    if forward != 1:
        action = Action("F", stage, micro_batch)
        yield Problem(f"lists.{rank}", str(action), f"is there {forward} times", "once")
    if (1, *backward) not in legal:
        text = " ".join(f"{n}×{kind}" for n, kind in zip(backward, COMPUTE_KINDS[1:], strict=True))
        rule = f"the backward pass of stage {stage}, micro-batch {micro_batch} is there as {text}"
        hint = "none of them" if FORWARD_ONLY in legal else "B once, or I and W once each"
        yield Problem(f"lists.{rank}", text, rule, hint)


def perturbed_before_passes(case: CheckedProgram) -> Iterator[Problem]:
    """Require parameters to be where the loss of each pass is computed, if there are no backward passes."""
    program = case.program
    if not program.stack.optimizer.forward_only:
        return
    split = program.stack.optimizer.splits_perturbations
    expected = forward_only_lists(program.pipeline_ranks, program.micro_batches, split=split)
    for rank, actions in enumerate(program.lists):
        found = [action for action in actions if action == PERTURB or action.kind in PASS_KINDS]
        if found != expected[rank]:
            rule = "parameters are perturbed before the passes of each loss"
            yield Problem(f"lists.{rank}", format_actions(found), rule, format_actions(expected[rank]))


def data_before_use(case: CheckedProgram) -> Iterator[Problem]:
    """F, then B or I, then W; a receive before its consumer, a send after its producer, stages in order."""
    for rank, actions in enumerate(case.program.lists):
        for action in actions:
            if action.kind in COMPUTE_KINDS:
                yield from _around_pass(case, rank, action)
            elif action.kind in VOCABULARY_KINDS:
                yield from _around_share(case, rank, action)


def _around_pass(case: CheckedProgram, rank: int, action: Action) -> Iterator[Problem]:
    stage, m = action.stage, action.micro_batch
    assert stage is not None
    if action.kind == "W":
        yield from case.misordered(rank, Action("I", stage, m), action, "W needs what I leaves")
        return
    way, neighbour = ("F", stage - 1) if action.kind == "F" else ("B", stage + 1)
    for source in (Action("F", neighbour, m),) if way == "F" else _backward(neighbour, m):
        yield from case.misordered(rank, source, action, "its input is the other's output")
    receive, send = Action("RECV_" + way, stage, m), Action("SEND_" + way, stage, m)  # type: ignore[arg-type]
    yield from case.misordered(rank, receive, action, "it needs what is received")
    yield from case.misordered(rank, action, send, "it makes what is sent")
    if way == "B":
        yield from case.misordered(rank, Action("F", stage, m), action, "no backward pass before its forward")


def _around_share(case: CheckedProgram, rank: int, action: Action) -> Iterator[Problem]:
    """Yield vocabulary passes before their broadcast or after their sum, and T before S on its rank."""
    share, m = action.stage, action.micro_batch
    comes, makes = _BROADCAST.get(action.kind), _SUM.get(action.kind)
    first, last = case.program.stages[0], case.program.stages[-1]
    if comes:
        source = Action("F", last.index, m) if comes == "BROADCAST_F" else Action("B", first.index, m)
        sources = (source, replace(source, kind="I")) if source.kind == "B" else (source,)
        for made in (*sources, Action(comes, share, m)):
            yield from case.misordered(rank, made, action, "it needs what is broadcast")
        for made in sources:
            yield from case.misordered(rank, made, Action(comes, share, m), "it is what is broadcast")
    if makes:
        yield from case.misordered(rank, action, Action(makes, share, m), "it makes a part of the sum")
    if action.kind == "T":
        yield from case.misordered(rank, Action("REDUCE_S", share, m), action, "it needs the softmax's sum")


_BROADCAST: dict[Kind, Kind] = {"S": "BROADCAST_F", "D": "BROADCAST_B"}
_SUM: dict[Kind, Kind] = {"E": "REDUCE_E", "S": "REDUCE_S", "T": "REDUCE_T"}


def _backward(stage: int, micro_batch: int | None) -> tuple[Action, Action]:
    return Action("B", stage, micro_batch), Action("I", stage, micro_batch)


def every_message_once(case: CheckedProgram) -> Iterator[Problem]:
    """Each boundary between ranks is crossed once each way by each micro-batch, and no rank waits for ever.

    Where the vocabulary is spread, each rank takes part once in each exchange of each micro-batch.
    """
    expected = _expected_messages(case)
    complete = True
    for rank, actions in enumerate(case.program.lists):
        found = Counter(action for action in actions if action.kind in MESSAGES_AND_EXCHANGES)
        if found == expected[rank]:
            continue
        for action in (expected[rank] - found).elements():
            complete = False
            yield Problem(f"lists.{rank}", str(action), "a message that is missing", "add it")
        for action in (found - expected[rank]).elements():
            complete = False
            yield Problem(f"lists.{rank}", str(action), "a message that nobody needs", "take it out")
    if complete:
        yield from check_messages(case.program.lists, case.placement, ways=case.program.ways)


def _expected_messages(case: CheckedProgram) -> list[Counter[Action]]:
    expected: list[Counter[Action]] = [Counter() for _ in case.program.lists]
    placement, ways, total = case.placement, case.program.ways, case.program.micro_batches
    for stage in range(ways.stages):
        if ways.is_last(stage) or placement[stage] == placement[stage + 1]:
            continue
        low, high = placement[stage], placement[stage + 1]
        for m in ways.micro_batches_of(stage, total):
            expected[low].update((Action("SEND_F", stage, m),))
            expected[high].update((Action("RECV_F", stage + 1, m),))
            if not case.program.stack.optimizer.forward_only:
                expected[low].update((Action("RECV_B", stage, m),))
                expected[high].update((Action("SEND_B", stage + 1, m),))
    for share in case.program.shares:
        for kind in EXCHANGES:
            if (share.index, kind) in case.program.collectives:
                numbers = range(case.program.micro_batches)
                expected[share.rank].update(Action(kind, share.index, m) for m in numbers)
    return expected


def memory_as_declared(case: CheckedProgram) -> Iterator[Problem]:
    """No rank holds more forward passes at once than ``Program.in_flight`` says."""
    for rank, declared in enumerate(case.program.in_flight):
        peak = most_in_flight(case.program.lists[rank])
        if peak > declared:
            rule = f"{peak} forward passes are in flight at once, {declared} are declared"
            yield Problem(f"in_flight.{rank}", declared, rule, str(peak))


LIST_RULES: tuple[Rule, ...] = (
    every_pass_once,
    perturbed_before_passes,
    data_before_use,
    every_message_once,
    memory_as_declared,
)
