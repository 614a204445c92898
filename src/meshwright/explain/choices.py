"""What each choice of a plan does: the plans one step away from it, the best of each kind.

A step names what goes up or down (``tp up``); several plans take it, with another axis of the mesh giving way. Told is
the quickest of those that fit, or where none does the one that needs least. Stages are cut anew by time and by memory.
"""

from collections.abc import Iterator

from meshwright.explain.beside import USUAL, Beside, Subject, beside, legal, legal_plan
from meshwright.explain.forecast import forecast_of
from meshwright.plan.long import LongPlan, Stages
from meshwright.plan.partition import written_stages
from meshwright.plan.resolve import Resolved
from meshwright.plan.short import ShortPlan
from meshwright.search.neighbours import neighbours
from meshwright.search.partition.balance import BALANCES
from meshwright.search.spread import coordinates
from meshwright.search.steps import Step, steps
from meshwright.verbs.predicting import estimated
from meshwright.verbs.restaging import recut


def choices(subject: Subject) -> list[Beside]:
    """The neighbours of a plan, those that fit first, quickest first."""
    found = list(_short_steps(subject)) if subject.short else list(_long_steps(subject))
    return sorted(found, key=lambda one: (not one.forecast.fits, one.forecast.step_s))


def tried(subject: Subject, short: ShortPlan, stages: Stages) -> Beside | str:
    """A plan for the subject's setting, predicted; the rule that it breaks where it is illegal."""
    own = subject.recomputes
    kept = own if len(set(own)) > 1 and short.recompute == subject.header.recompute else None
    plan = legal_plan(short, stages, subject.setting, kept)
    return plan if isinstance(plan, str) else _predicted(subject, plan)


def kept_stages(subject: Subject, other: ShortPlan) -> Stages:
    """The subject's stages where the other plan has as many, on the same ranks."""
    own = subject.header

    def places(plan: ShortPlan) -> object:
        pipeline = plan.pipeline
        return plan.layout.pp, pipeline.virtual_stages, pipeline.choice.kind.placement

    return subject.stages if places(own) == places(other) else USUAL


def _predicted(subject: Subject, plan: Resolved) -> Beside:
    return beside(subject, plan, forecast_of(estimated(plan), plan.setting))


def _short_steps(subject: Subject) -> Iterator[Beside]:
    short, setting = subject.short, subject.setting
    assert short is not None
    by_move: dict[str, list[Beside]] = {}
    for step in steps(short, setting.cluster.devices, setting.stack):
        other = _stepped(subject, step)
        for move in step.moves if other else ():
            assert other is not None
            by_move.setdefault(move, []).append(other)
    best = [min(of, key=_worth) for of in by_move.values()]
    yield from (one for at, one in enumerate(best) if one not in best[:at])
    yield from _restaged(subject, short)


def _stepped(subject: Subject, step: Step) -> Beside | None:
    other = tried(subject, step.plan, kept_stages(subject, step.plan))
    return None if isinstance(other, str) or not other.changes else other


def _worth(other: Beside) -> tuple[bool, float]:
    """Plans that fit by their time, the others by what they need."""
    forecast = other.forecast
    return not forecast.fits, forecast.step_s if forecast.fits else forecast.total_bytes


def _restaged(subject: Subject, short: ShortPlan) -> Iterator[Beside]:
    """Stages cut anew, or balanced where the plan writes them out."""
    told = {subject.stages}
    if short.layout.pp == 1 or short.pipeline.choice.kind.chains > 1:
        return
    cuts = (recut(short, subject.setting, aim) for aim in BALANCES)
    written: list[Stages] = [written_stages(cut.counts) for cut in cuts if cut is not None]
    for stages in (USUAL, *written):
        other = None if stages in told else tried(subject, short, stages)
        told.add(stages)
        if isinstance(other, Beside) and other.forecast.step_s != subject.forecast.step_s:
            yield other


def _long_steps(subject: Subject) -> Iterator[Beside]:
    """Of a plan in full: one degree inside a stage doubled or halved."""
    plan, setting = subject.resolved.long, subject.setting
    for other in neighbours(plan):
        if _moved(plan, other) == 1:
            found = legal(other, setting)
            if isinstance(found, Resolved):
                yield _predicted(subject, found)


def _moved(own: LongPlan, other: LongPlan) -> int:
    """In how many degrees two plans differ, data parallelism apart."""
    return sum(a != b for a, b in zip(coordinates(own), coordinates(other), strict=True))
