"""Runs of passes between the gather and the release of a stage's parameters, under ``gather: per-unit``.

A unit of micro-batches goes through a stage twice, all F and later all I (or B); each time is a run. What the passes of
a run need is gathered before the first of them and freed behind the last, so that with n units and V stages on each of
P ranks there are at most 2·n·V·P gathers in a step, where ``per-micro-batch`` has as many for each micro-batch. Where
the backward run of a unit follows its forward run with nothing in between that needs other parameters, as on the last
stage of each rank under ``zeropp`` and ``looped-bfs``, the two are one: n·P·(2V − 1) gathers, units times stages for
V = 1 (Tang et al., arXiv 2402.03791). Runs of one stage that overlap are one too, whatever their units.

Gathers that overlap compute begin one run ahead: when the run before the last one is left. So two stages are
whole at a time instead of one, where a rank's runs follow each other.

Gradients of a stage are reduced once for each unit, behind the last W (or B) of the unit: n reductions of each stage.
What that pass sends goes first: a reduction waits for the one before it, and the next stage should not.
Reduced once a step they would stay whole from the first unit to the last, in fp32 twice the bytes of the parameters
that come and go. W needs no parameters, so it may run when they are freed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count

from meshwright.schedules.action import MAKE_GRADIENTS, RECEIVES, SENDS, Action, Kind
from meshwright.schedules.micro_batch_units import unit_of

NEED_PARAMETERS: tuple[Kind, ...] = ("F", "B", "I")


@dataclass(frozen=True, slots=True)
class GatherRun:
    """Passes of one stage, from the first to the last place in a list; ``unit`` is that of the last one.

    ``turn`` and ``end`` count only passes that need parameters: where it begins and ends among those.
    """

    stage: int
    unit: int
    first: int
    last: int
    turn: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRule:
    """The exchange rule for the states of units of ``size`` micro-batches.

    ``gathered`` and ``reduced`` are the stages that have something to exchange, ``overlapped`` the kinds of actions
    that overlap compute.
    """

    size: int
    gathered: Collection[int]
    reduced: Collection[int]
    overlapped: Collection[Kind] = ()


def runs_of(actions: Sequence[Action], size: int) -> list[GatherRun]:
    """Return the runs of a rank's list in the order in which they begin."""
    found: dict[tuple[int, int, bool], GatherRun] = {}
    turns = count()
    for at, action in enumerate(actions):
        if action.kind not in NEED_PARAMETERS:
            continue
        stage, unit = _place(action, size)
        key, turn = (stage, unit, action.kind == "F"), next(turns)
        begun = found.get(key, GatherRun(stage, unit, at, at, turn, turn))
        found[key] = replace(begun, last=at, end=turn)
    latest: dict[int, list[GatherRun]] = {}
    for run in sorted(found.values(), key=lambda run: run.first):
        mine = latest.setdefault(run.stage, [])
        if mine and _are_one(mine[-1], run):
            before = mine.pop()
            last, end = max(before.last, run.last), max(before.end, run.end)
            run = replace(run, first=before.first, turn=before.turn, last=last, end=end)
        mine.append(run)
    return sorted((run for mine in latest.values() for run in mine), key=lambda run: run.first)


def exchange_units(actions: Sequence[Action], rule: UnitRule) -> list[Action]:
    """Return a rank's list with GATHER, FREE and REDUCE of every unit inserted."""
    slots: list[list[Action]] = [[] for _ in range(2 * len(actions))]
    runs = [run for run in runs_of(actions, rule.size) if run.stage in rule.gathered]
    for run in runs:
        slots[_behind(run.last)].append(Action("FREE", run.stage))
    for number, run in enumerate(runs):
        begins = _before(_with_receive(actions, run.first))
        slot = _one_run_ahead(actions, runs[: number + 1]) if "GATHER" in rule.overlapped else begins
        slots[slot].append(Action("GATHER", run.stage))
    for at, stage in _complete(actions, rule.size):
        if stage in rule.reduced:
            slots[_behind(_with_send(actions, at))].append(Action("REDUCE", stage))
    return [
        step
        for at, action in enumerate(actions)
        for step in (*slots[_before(at)], action, *slots[_behind(at)])
    ]


def _before(at: int) -> int:
    """Return the slot before an action."""
    return 2 * at


def _behind(at: int) -> int:
    """Return the slot after an action."""
    return 2 * at + 1


def _are_one(before: GatherRun, run: GatherRun) -> bool:
    """Return true if parameters stay whole from one run of a stage to the next."""
    return run.first <= before.last or (run.unit == before.unit and run.turn == before.end + 1)


def _one_run_ahead(actions: Sequence[Action], runs: Sequence[GatherRun]) -> int:
    """Return the slot where the gather of the last of ``runs`` begins.

    Behind the run before the last one, or before the last one where these overlap, but not before it was freed.
    """
    *earlier, run = runs
    last = earlier[-1] if earlier else run
    slot = _before(_with_receive(actions, last.first))
    if len(earlier) > 1:
        slot = min(slot, _behind(earlier[-2].last))
    return max([slot, *(_behind(other.last) for other in earlier if other.stage == run.stage)])


def _complete(actions: Sequence[Action], size: int) -> list[tuple[int, int]]:
    """Return the places after which the gradients of a unit are complete, with the stage."""
    last: dict[tuple[int, int], int] = {}
    for at, action in enumerate(actions):
        if action.kind in MAKE_GRADIENTS:
            last[_place(action, size)] = at
    return [(at, stage) for (stage, _), at in last.items()]


def _place(action: Action, size: int) -> tuple[int, int]:
    """Stage and unit of a pass."""
    assert action.stage is not None
    assert action.micro_batch is not None
    return action.stage, unit_of(action.micro_batch, size)


def _with_receive(actions: Sequence[Action], at: int) -> int:
    """Where a pass begins, with the receives of what it needs."""
    while at > 0 and actions[at - 1].kind in RECEIVES and _same_pass(actions[at - 1], actions[at]):
        at -= 1
    return at


def _with_send(actions: Sequence[Action], at: int) -> int:
    """Where a pass ends, with the sends of what it makes."""
    while (
        at + 1 < len(actions) and actions[at + 1].kind in SENDS and _same_pass(actions[at + 1], actions[at])
    ):
        at += 1
    return at


def _same_pass(one: Action, other: Action) -> bool:
    return (one.stage, one.micro_batch) == (other.stage, other.micro_batch)
