"""The effect of each choice of a plan: the best plan of each kind one step away from it.

A step names what goes up or down (``tp up``); several plans take it, with another axis of the mesh giving way. Told is
the quickest of those that fit, or where none does the one that needs least. Stages are cut anew by time and by memory.
"""

from collections.abc import Iterator

from meshwright.explanation.plan_difference import (
    USUAL,
    ExplainedPlan,
    PlanDifference,
    legal,
    legal_plan,
    plan_difference,
)
from meshwright.explanation.prediction_parts import prediction_parts
from meshwright.plans.forms.long import LongPlan, Stages
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.resolve import Resolved
from meshwright.search.nearby.diverse_subset import coordinates
from meshwright.search.nearby.long_plan_neighbours import neighbours
from meshwright.search.nearby.one_choice_changes import Step, steps
from meshwright.search.partition.balance import BALANCES
from meshwright.verbs.plan.partition_stages import recut
from meshwright.verbs.predict.predict_plan import estimated


def choices(subject: ExplainedPlan) -> list[PlanDifference]:
    """Return the plans one choice away: plans that fit come first, in order of step time."""
    found = list(_short_steps(subject)) if subject.short else list(_long_steps(subject))
    return sorted(found, key=lambda one: (not one.forecast.fits, one.forecast.step_s))


def tried(subject: ExplainedPlan, short: ShortPlan, stages: Stages) -> PlanDifference | str:
    """Return a plan predicted in the subject's setting, or the rule that it breaks."""
    own = subject.recomputes
    kept = own if len(set(own)) > 1 and short.recompute == subject.header.recompute else None
    plan = legal_plan(short, stages, subject.setting, kept)
    return plan if isinstance(plan, str) else _predicted(subject, plan)


def kept_stages(subject: ExplainedPlan, other: ShortPlan) -> Stages:
    """Return the subject's stages if the other plan has as many on the same ranks."""
    own = subject.header

    def places(plan: ShortPlan) -> object:
        pipeline = plan.pipeline
        return plan.layout.pp, pipeline.virtual_stages, pipeline.choice.kind.placement

    return subject.stages if places(own) == places(other) else USUAL


def _predicted(subject: ExplainedPlan, plan: Resolved) -> PlanDifference:
    return plan_difference(subject, plan, prediction_parts(estimated(plan), plan.setting))


def _short_steps(subject: ExplainedPlan) -> Iterator[PlanDifference]:
    short, setting = subject.short, subject.setting
    assert short is not None
    by_move: dict[str, list[PlanDifference]] = {}
    for step in steps(short, setting.cluster.devices, setting.stack):
        other = _stepped(subject, step)
        for move in step.moves if other else ():
            assert other is not None
            by_move.setdefault(move, []).append(other)
    best = [min(of, key=_worth) for of in by_move.values()]
    yield from (one for at, one in enumerate(best) if one not in best[:at])
    yield from _restaged(subject, short)


def _stepped(subject: ExplainedPlan, step: Step) -> PlanDifference | None:
    other = tried(subject, step.plan, kept_stages(subject, step.plan))
    return None if isinstance(other, str) or not other.changes else other


def _worth(other: PlanDifference) -> tuple[bool, float]:
    """Plans that fit by their time, the others by what they need."""
    forecast = other.forecast
    return not forecast.fits, forecast.step_s if forecast.fits else forecast.total_bytes


def _restaged(subject: ExplainedPlan, short: ShortPlan) -> Iterator[PlanDifference]:
    """Yield the plan with rebalanced stages, and with balanced ones where it writes its own."""
    seen = {subject.stages}
    if short.layout.pp == 1 or short.pipeline.choice.kind.chains > 1:
        return
    cuts = (recut(short, subject.setting, aim) for aim in BALANCES)
    written: list[Stages] = [written_stages(cut.counts) for cut in cuts if cut is not None]
    for stages in (USUAL, *written):
        other = None if stages in seen else tried(subject, short, stages)
        seen.add(stages)
        if isinstance(other, PlanDifference) and other.forecast.step_s != subject.forecast.step_s:
            yield other


def _long_steps(subject: ExplainedPlan) -> Iterator[PlanDifference]:
    """Of a plan in full: one degree inside a stage doubled or halved."""
    plan, setting = subject.resolved.long, subject.setting
    for other in neighbours(plan):
        if len(plan.layouts) > 1 or _moved(plan, other) == 1:
            found = legal(other, setting)
            if isinstance(found, Resolved):
                yield _predicted(subject, found)


def _moved(own: LongPlan, other: LongPlan) -> int:
    """Count the degrees in which two plans differ, except data parallelism."""
    return sum(a != b for a, b in zip(coordinates(own), coordinates(other), strict=True))
