"""Figures of a schedule by itself: makespan, bubble fraction, activations held, messages sent.

    makespan      max over ranks of (last end − first start)
    latency       last end of all − first start of all
    bubble rate   makespan / work of the busiest rank − 1; with equal stages that work is M·(F + I + W)
    busy          work of a rank / makespan
    memory        peak of each rank in the unit of ``activation_memory.py``
    messages      sent by each rank: one for F and one for B (or I) to every other rank with a neighbouring stage
    p2p volume    all messages over those of 1F1B on as many ranks, 2(P − 1)·M; every message counts the same
    parameters    on the rank that has most, over one P-th of the model: 2 for bidirectional schedules

Times are those of ``StageTimes`` and come out in the same unit. What they ignore: contention of links, host time.
The bubble of a plan, with its times and sends, is predicted in ``cost/pipeline_time``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.schedules.action import ActionLists, Kind
from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.stage_times import StageTimes
from meshwright.schedules.timeline import Timeline, seconds_by_kind

RETURN = ("B", "I")
"""Passes whose result goes to the stage before."""
Passes = Counter[tuple[Kind, int]]
"""How often a rank does what: kind and stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Metrics of a schedule; tuples have one entry per rank. ``p2p_volume`` is None on a single rank."""

    makespan: float
    latency: float
    bubble_rate: float
    peak_memory: tuple[float, ...]
    busy: tuple[float, ...]
    messages: tuple[int, ...]
    p2p_volume: float | None
    parameters_held: float


def figures_of(lists: ActionLists, timeline: Timeline, times: StageTimes, ways: StageChains) -> Figures:
    """Return the metrics of simulated lists that have passed ``schedules/custom/check_lists.py``."""
    counts = passes_of(lists)
    where = ranks_of_stages(counts)
    seconds = seconds_by_kind(times)
    work = [sum(n * seconds[kind][stage] for (kind, stage), n in passes.items()) for passes in counts]
    messages = tuple(_sent(passes, rank, where, ways) for rank, passes in enumerate(counts))
    ranks, makespan = len(lists), timeline.makespan
    micro_batches = (
        sum(n for passes in counts for (kind, _), n in passes.items() if kind == "F") / ways.length
    )
    usual = 2 * (ranks - 1) * micro_batches
    return Figures(
        makespan=makespan,
        latency=timeline.latency,
        bubble_rate=max(0.0, makespan / max(work) - 1),  # below 0 only by rounding
        peak_memory=peaks(lists, ways, times.kept),
        busy=tuple(of_rank / makespan for of_rank in work),
        messages=messages,
        p2p_volume=sum(messages) / usual if usual else None,
        parameters_held=max(Counter(where.values()).values()) * ranks / ways.length,
    )


def passes_of(lists: ActionLists) -> list[Passes]:
    """Count every rank's passes by kind and stage."""
    return [Counter((a.kind, a.stage or 0) for a in actions) for actions in lists]


def ranks_of_stages(counts: Sequence[Passes]) -> dict[int, int]:
    """Return the rank of every stage."""
    return {stage: rank for rank, passes in enumerate(counts) for _, stage in passes}


def messages_of(lists: ActionLists, ways: StageChains) -> tuple[int, ...]:
    """Count the messages that each rank sends."""
    counts = passes_of(lists)
    where = ranks_of_stages(counts)
    return tuple(_sent(passes, rank, where, ways) for rank, passes in enumerate(counts))


def _sent(passes: Passes, rank: int, where: Mapping[int, int], ways: StageChains) -> int:
    """Count the messages that a rank's passes send."""
    sent = 0
    for (kind, stage), count in passes.items():
        if kind == "F":
            sent += count * len({where[other] for other in ways.behind(stage)} - {rank})
        elif kind in RETURN:
            sent += count * len({where[other] for other in ways.before(stage)} - {rank})
    return sent
