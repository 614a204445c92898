"""The exchanges of a step as the Program lists them, against those that a rank has logged.

Passes and messages are compared action by action. A reduction of several exchanges begins in its action and goes on
beside later ones, so what a pass has too many of counts for the step, which is compared as a whole.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from meshwright.program.items import Collective, exchanges_of, legs_of
from meshwright.program.program import Program
from meshwright.program.step import NORM_BYTES, late_gathers
from meshwright.program.step_validation import before_validation
from meshwright.runtime.communicator import MESSAGES, Traffic
from meshwright.schedule.action import EXCHANGES, PASS_KINDS, SUM_SENDS, Action

Exchange = tuple[str, tuple[str, ...], float]
"""Kind, axes, logical bytes."""
AS_ROUTED = -1.0
"""Stands for bytes that depend on what routers choose (``routed.py``)."""
STEP = "step"
"""Stands for all actions that are neither passes nor messages nor exchanges of shares."""


def differing_traffic(
    program: Program, pipeline_rank: int, log: Sequence[Traffic], *, anew: bool = False
) -> list[str]:
    """Where the log of one step differs from the Program, in words; ``anew``: it had to begin a second time."""
    expected = expected_traffic(program, pipeline_rank, anew=anew)
    logged: dict[str, Counter[Exchange]] = {action: Counter() for action in expected}
    for entry in log:
        logged.get(entry.action, logged[STEP])[_exchange(entry)] += 1
    logged[STEP] += _surplus(expected, logged)
    return list(_differences(expected, logged))


def expected_traffic(
    program: Program, pipeline_rank: int, *, anew: bool = False
) -> dict[str, Counter[Exchange]]:
    """What a rank exchanges in a step: per pass and message, and in the rest of the step.

    One that begins anew repeats what stands before VALIDATE, and the gathers at the end of the step before.
    """
    expected: dict[str, Counter[Exchange]] = {STEP: Counter()}
    actions = program.lists[pipeline_rank]
    again = (*before_validation(actions), *late_gathers(actions)) if anew else ()
    for action in (*actions, *again):
        named = action.kind in (*PASS_KINDS, *EXCHANGES, "SEND_F", "SEND_B", *SUM_SENDS)
        expected.setdefault(str(action) if named else STEP, Counter()).update(_exchanges(program, action))
    return expected


def _exchanges(program: Program, action: Action) -> Iterator[Exchange]:
    if action.kind in ("SEND_F", "SEND_B"):
        yield "p2p", MESSAGES, float(program.p2p_bytes)
        return
    if action.kind in SUM_SENDS:
        yield "p2p", MESSAGES, float(NORM_BYTES)
        return
    own = in_pass(program, action) if action.kind in PASS_KINDS else _of_step(program, action)
    yield from map(_exchange, own)


def _exchange(of: Collective | Traffic) -> Exchange:
    return of.kind, of.axes, AS_ROUTED if of.routed else float(of.logical_bytes)


def in_pass(program: Program, action: Action) -> Iterator[Collective]:
    """What is exchanged in a pass, leg by leg."""
    assert action.stage is not None
    for segment in program.bodies[action.stage, action.kind]:
        for _ in range(segment.count):
            yield from segment.beside
            if segment.block is not None:
                yield from _of_block(program, segment.block, segment.kind)


def _of_block(program: Program, block: int, kind: str) -> Iterator[Collective]:
    for item in program.block_items[block, kind]:  # type: ignore[index]
        for exchange in exchanges_of(item):
            yield from legs_of(exchange, program.expert_grid)


def _of_step(program: Program, action: Action) -> Iterable[Collective]:
    return program.collectives.get((action.stage, action.kind), ())


def _surplus(
    expected: Mapping[str, Counter[Exchange]], logged: Mapping[str, Counter[Exchange]]
) -> Counter[Exchange]:
    """What passes and messages have too many of."""
    extra = Counter[Exchange]()
    for action in expected.keys() - {STEP}:
        extra += logged[action] - expected[action]
    return extra


def _differences(
    expected: Mapping[str, Counter[Exchange]], logged: Mapping[str, Counter[Exchange]]
) -> Iterator[str]:
    for action, exchanges in expected.items():
        for (kind, axes, size), number in (exchanges - logged[action]).items():
            yield f"{action}: {number} {kind} over {', '.join(axes)}{_of(size)} missing"
    for (kind, axes, size), number in (logged[STEP] - expected[STEP]).items():
        yield f"{STEP}: {number} {kind} over {', '.join(axes)}{_of(size)} too many"


def _of(size: float) -> str:
    return "" if size == AS_ROUTED else f" of {size:.0f} bytes"
