"""Choose how much slower than modelled an emulated step runs in wall time.

A sleep, a wake-up and a tiny all-reduce take an operating system some tenths of a millisecond, sometimes four. So the
shortest pass must last 10 ms and the shortest exchange 3 ms; twice that if the ranks cannot run under SCHED_RR on a
machine that is not idle. Passes shorter than a twentieth of the longest pass (an embedding that is a stage of its own)
and exchanges shorter than a twentieth of the shortest pass do not count: the clock's slack covers them.
"""

import os
from collections.abc import Iterable

from meshwright.program.program import Program
from meshwright.runtime.emulation.modelled_durations import ModelledTimes
from meshwright.schedules.action import EXCHANGES, PASS_KINDS, Kind

PASS_S, EXCHANGE_S = 0.010, 0.003
SLACK = 0.1
"""Slack of the clock, as a fraction of the shortest pass."""
NEGLIGIBLE = 1 / 20


def shortest_pass(program: Program, times: ModelledTimes) -> float:
    """Return the seconds of the shortest pass that is not negligible."""
    lengths = [times.passes[key].total_s for key in _passes(program)]
    return min(length for length in lengths if length >= NEGLIGIBLE * max(lengths))


def chosen_scale(program: Program, times: ModelledTimes, *, real_time: bool, load: float) -> float:
    """Return the scale: seconds of wall time per modelled second."""
    shortest = shortest_pass(program, times)
    factor = 1.0 if real_time or load <= 1 else 2.0
    scales = [factor * PASS_S / shortest]
    scales += [
        factor * EXCHANGE_S / length
        for length in _exchanges(program, times)
        if length >= NEGLIGIBLE * shortest
    ]
    return max(scales)


def _passes(program: Program) -> set[tuple[int, Kind]]:
    """Return (stage, kind) of every pass in the lists."""
    return {
        (action.stage, action.kind)
        for actions in program.lists
        for action in actions
        if action.stage is not None and action.kind in PASS_KINDS
    }


def _exchanges(program: Program, times: ModelledTimes) -> Iterable[float]:
    """Yield the seconds of everything that is exchanged with every micro-batch."""
    if program.pipeline_ranks > 1:
        yield times.message_s
    for (_, kind), seconds in times.exchanges.items():
        if kind in EXCHANGES:
            yield sum(seconds)
    for key in _passes(program):
        yield from (length for _, length in times.passes[key].exchanges)


def into_real_time() -> bool:
    """Run this thread, and the threads it starts, under SCHED_RR; return False if that is refused."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
    except (OSError, AttributeError):
        return False
    return True


def real_time_allowed() -> bool:
    """Return whether ``into_real_time`` would succeed; the thread keeps its scheduling policy."""
    if not hasattr(os, "sched_getscheduler"):
        return False
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    allowed = into_real_time()
    if allowed:
        os.sched_setscheduler(0, policy, parameters)
    return allowed
