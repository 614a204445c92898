"""Check that lists of passes form a pipeline schedule. Reports every problem, with the actions at fault.

Rules, each a function below: a pass stands on its stage's rank; every micro-batch has F and then B, or I and W, of all
stages of its way, once each; on a rank nothing stands before what it needs; the ranks do not wait for each other in a
circle; no rank holds more than the limit, where there is one. Memory is looked at once all passes are there, circles
once their order on each rank is right. Messages between ranks are not in such lists;
``program/pipeline_messages/nccl_deadlock_check.py`` judges those.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from meshwright.errors import InputError, Problem
from meshwright.play.execution_order import DeadlockError, execution_order
from meshwright.schedules.action import COMPUTE_KINDS, Action, ActionLists, Kind
from meshwright.schedules.activation_memory import levels
from meshwright.schedules.custom.inferred_shape import Shape, shape_of
from meshwright.schedules.dependencies import Key, dependency_key, sources

MOST = 20
"""So many faults of one kind are named."""
TINY = 1e-9


@dataclass(frozen=True)
class CheckedLists:
    """Lists to check, and the shape that they should have."""

    lists: ActionLists
    shape: Shape

    @cached_property
    def places(self) -> dict[Key, tuple[int, int]]:
        """Rank and position of every pass, the first one of a doubled one; I stands under B, as others see it."""
        found: dict[Key, tuple[int, int]] = {}
        for rank, actions in enumerate(self.lists):
            for position, action in enumerate(actions):
                found.setdefault(dependency_key(action), (rank, position))
        return found

    @cached_property
    def counts(self) -> Counter[Key]:
        """Count each pass; I and B are different passes."""
        return Counter((a.kind, a.stage or 0, a.micro_batch or 0) for actions in self.lists for a in actions)

    @cached_property
    def split(self) -> bool:
        """Return true if backward passes are I and W."""
        return any(action.kind in ("I", "W") for actions in self.lists for action in actions)

    def at(self, key: Key) -> Action:
        """Return the pass of a dependency key."""
        rank, position = self.places[key]
        return self.lists[rank][position]


def check_lists(lists: ActionLists, *, memory_limit: float | None = None, kept: float = 0.5) -> list[Problem]:
    """Everything that is wrong with lists; empty for good ones.

    ``memory_limit`` is in the unit of ``schedules/activation_memory.py``, ``kept`` the part of F's memory that I
    leaves for W.
    """
    try:
        shape = shape_of(lists)
    except InputError as error:
        return list(error.problems)
    if memory_limit is None:
        return check_passes(lists, shape)
    return check_passes(lists, shape, lambda: within_limit(lists, shape, memory_limit, kept))


def check_passes(lists: ActionLists, shape: Shape, held: Callable[[], list[Problem]] = list) -> list[Problem]:
    """Everything that is wrong with lists of passes for a shape that is known.

    ``held`` says which ranks hold too much, once all passes are there.
    """
    case = CheckedLists(lists, shape)
    wrong = first_of(on_its_rank(case)) + first_of(every_pass_once(case))
    out_of_order = first_of(in_order(case))
    if wrong:
        return wrong + out_of_order
    return (out_of_order or first_of(no_deadlock(case))) + held()


def first_of(problems: Iterable[Problem]) -> list[Problem]:
    """Return the first ``MOST`` problems, and a remark where there are more."""
    found = list(islice(problems, MOST + 1))
    if len(found) > MOST:
        found[MOST] = Problem("lists", None, f"has more than {MOST} faults of this kind", "mend these first")
    return found


def on_its_rank(case: CheckedLists) -> Iterator[Problem]:
    """Yield passes that are not on the rank of their stage."""
    placement = case.shape.placement
    for rank, actions in enumerate(case.lists):
        for action in actions:
            home = placement[action.stage or 0]
            if home != rank:
                rule = f"stage {action.stage} lies on rank {home}"
                yield Problem(f"lists.{rank}", str(action), rule, f"move {action} to list {home}")


def every_pass_once(case: CheckedLists) -> Iterator[Problem]:
    """F once; B once, or I and W once each."""
    shape, seen = case.shape, 0
    for way, numbers in enumerate(shape.micro_batches):
        for stage in range(way * shape.ways.length, (way + 1) * shape.ways.length):
            for m in numbers:
                found = {kind: case.counts[kind, stage, m] for kind in COMPUTE_KINDS}
                seen += sum(found.values())
                yield from _pass_problems(case, stage, m, found)
    if seen < case.counts.total():
        yield from _elsewhere(case)


def _pass_problems(
    case: CheckedLists, stage: int, micro_batch: int, found: dict[Kind, int]
) -> Iterator[Problem]:
    field = f"lists.{case.shape.placement[stage]}"
    split = found["I"] + found["W"] > 0 or (case.split and not found["B"])
    expected: tuple[Kind, ...] = ("F", "I", "W") if split else ("F", "B")
    for kind, number in found.items():
        text = str(Action(kind, stage, micro_batch))
        if number > 1:
            yield Problem(field, text, f"is there {number} times", f"{text} once")
        elif number == 0 and kind in expected:
            yield Problem(field, text, "is missing", f"add {text}")
        elif number and kind not in expected:
            yield Problem(field, text, "is there beside I or W, which it consists of", f"take {text} out")


def _elsewhere(case: CheckedLists) -> Iterator[Problem]:
    """Yield passes of stages that the micro-batch does not go through."""
    shape = case.shape
    token_dispatch_of = {m: way for way, numbers in enumerate(shape.micro_batches) for m in numbers}
    for rank, actions in enumerate(case.lists):
        for action in actions:
            if (action.stage or 0) // shape.ways.length != token_dispatch_of[action.micro_batch or 0]:
                rule = f"micro-batch {action.micro_batch} goes the other way, not by stage {action.stage}"
                yield Problem(f"lists.{rank}", str(action), rule, f"take {action} out")


def in_order(case: CheckedLists) -> Iterator[Problem]:
    """On one rank everything stands behind what it needs."""
    for rank, actions in enumerate(case.lists):
        for position, action in enumerate(actions):
            for key in _needed(case, action):
                where, other = case.places.get(key, (rank, -1))
                if where == rank and other > position:
                    needed = case.at(key)
                    rule = f"stands at {position}, and {needed}, which it needs, at {other}"
                    yield Problem(f"lists.{rank}", str(action), rule, f"{needed} before {action}")


def _needed(case: CheckedLists, action: Action) -> Iterator[Key]:
    """Yield the passes that an action needs; a backward pass needs its own forward pass through the loss."""
    yield from sources(action, case.shape.ways)
    _, stage, micro_batch = dependency_key(action)
    if action.kind in ("B", "I") and not case.shape.ways.is_last(stage):
        yield "F", stage, micro_batch


def no_deadlock(case: CheckedLists) -> Iterator[Problem]:
    """Yield the cycles of ranks that wait for each other; each rank is in order by itself."""
    try:
        execution_order(case.lists, case.shape.ways)
    except DeadlockError as error:
        heads = {case.places[dependency_key(action)][0]: action for action in error.waiting}
        waits = {rank: _source(case, action, heads) for rank, action in heads.items()}
        for circle in _circles({rank: case.places[key][0] for rank, key in waits.items()}):
            yield _circle_problem(case, circle, heads, waits)


def _source(case: CheckedLists, action: Action, heads: dict[int, Action]) -> Key:
    """Return the pass that a stuck action waits for, on a rank that is stuck too."""

    def is_done(key: Key) -> bool:
        rank, position = case.places[key]
        return rank not in heads or position < case.places[dependency_key(heads[rank])][1]

    return next(key for key in sources(action, case.shape.ways) if not is_done(key))


def _circles(follows: dict[int, int]) -> Iterator[list[int]]:
    """Yield the cycles of a graph in which each node has one successor."""
    seen: dict[int, int] = {}
    for start in follows:
        path, here = [], start
        while here not in seen:
            seen[here] = start
            path.append(here)
            here = follows[here]
        if seen[here] == start:
            yield path[path.index(here) :]


def _circle_problem(
    case: CheckedLists, circle: Sequence[int], heads: dict[int, Action], waits: dict[int, Key]
) -> Problem:
    words, moves = [], []
    for rank in circle:
        needed, (other, position) = case.at(waits[rank]), case.places[waits[rank]]
        distance = position - case.places[dependency_key(heads[other])][1]
        behind = f", behind {heads[other]}" if distance else ""
        words.append(f"{heads[rank]} on rank {rank} for {needed} on rank {other}{behind}")
        moves += [(distance, f"{needed} before {heads[other]} in list {other}")] if distance else []
    text = " ".join(str(heads[rank]) for rank in circle)
    return Problem("lists", text, "the ranks wait for each other: " + "; ".join(words), min(moves)[1])


def within_limit(lists: ActionLists, shape: Shape, limit: float, kept: float) -> list[Problem]:
    """No rank holds more than the limit."""
    problems = []
    for rank, actions in enumerate(lists):
        held = levels(actions, shape.ranks, shape.ways, kept)
        peak = max(held)
        if peak > limit + TINY:
            first = next(i for i, level in enumerate(held) if level > limit + TINY)
            worst = held.index(peak)
            rule = (
                f"rank {rank} holds {held[first]:g} > {limit:g}, the limit, with {actions[first]} at {first}; "
                f"at most {peak:g}, {peak - limit:g} too much, with {actions[worst]} at {worst}"
            )
            hint = f"a limit of {peak:g}, or W and B before more F"
            problems.append(Problem(f"lists.{rank}", str(actions[first]), rule, hint))
    return problems
