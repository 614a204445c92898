"""The shortest of several schedules with split backward passes, for the times and messages of a given pipeline.

A ``Source`` gives an order of F and I: one that was made by hand for equal stages, or one that was played
(``greedy_order.py``). Each is filled with W in several ways (``weight_gradient_filling.py``), and the lists with the
shortest makespan (the longest span of a rank) are taken. Long pipelines would take long: sources are compared on as
many micro-batches as give about ``COMPARED`` passes, but on 3P at least, and only the best source is then played
with all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from meshwright.schedules.action import Action
from meshwright.schedules.pipeline import PASS_MEMORY, Pipeline
from meshwright.schedules.split_backward.greedy_order import WaitingRule, greedy
from meshwright.schedules.split_backward.pass_numbers import Orders, numbered, without_weights
from meshwright.schedules.split_backward.pipeline_state import PlayedPasses
from meshwright.schedules.split_backward.weight_gradient_filling import Rule, fill_weight_gradients

Source = Callable[[Pipeline, float], list[PlayedPasses]]
"""``source(pipeline, limit)``: schedules that hold no more than ``limit`` forward passes of a stage on any rank."""

RULES: tuple[Rule, ...] = ("deadline", 0.75)
PATIENCES = (
    WaitingRule(0.99, 0.2),
    WaitingRule(0.99, 0.0),
    WaitingRule(0.5, 0.2),
    WaitingRule(0.5, 0.99),
    WaitingRule(0.0, 0.99),
    WaitingRule(0.0, 0.0),
)
COMPARED = 8000
LEAST_ROUNDS = 3


def shortest_lists(pipeline: Pipeline, memory_limit: float, sources: Sequence[Source]) -> list[list[Action]]:
    """Return the shortest lists that keep ``memory_limit``, in the unit of ``schedules/pipeline.py``."""
    limit = max(memory_limit / PASS_MEMORY, 1.0) * pipeline.chunks
    few = replace(pipeline, micro_batches=_compared(pipeline))
    best = min((*sources, *PLAYED), key=lambda source: _makespan(source(few, limit)))
    found = min(best(pipeline, limit), key=lambda played: played.makespan)
    return numbered(found.passes, pipeline.stages)


def filled_orders(
    orders: Orders, pipeline: Pipeline, limits: Sequence[float], rules: Sequence[Rule] = RULES
) -> list[PlayedPasses]:
    """Return the passes with W filled in by each rule; empty where no rule keeps the ranks' limits."""
    found = (fill_weight_gradients(orders, pipeline, limits, rule) for rule in rules)
    return [played for played in found if played is not None]


def _played(pipeline: Pipeline, limit: float, patience: WaitingRule) -> list[PlayedPasses]:
    as_played = greedy(pipeline, limit, patience)
    orders = without_weights(as_played.passes, pipeline.stages)
    return [as_played, *filled_orders(orders, pipeline, [limit] * pipeline.ranks)]


PLAYED: tuple[Source, ...] = tuple(partial(_played, patience=patience) for patience in PATIENCES)


def _makespan(tried: Sequence[PlayedPasses]) -> float:
    return min((played.makespan for played in tried), default=float("inf"))


def _compared(pipeline: Pipeline) -> int:
    """All micro-batches, or fewer with the same remainder by P."""
    ranks, micro_batches = pipeline.ranks, pipeline.micro_batches
    rounds = max(LEAST_ROUNDS, COMPARED // (3 * pipeline.stages * ranks))
    return min(micro_batches, rounds * ranks + micro_batches % ranks)
