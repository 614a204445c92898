"""Compare a plan's schedule with others at the same degrees: idle time, time saved or lost, and the limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.explanation.one_step_alternatives import kept_stages, tried
from meshwright.explanation.plan_difference import ExplainedPlan, PlanDifference
from meshwright.plans.layers.plan_of_layout import micro_batches_of
from meshwright.schedules.choice import ScheduleChoice
from meshwright.search.nearby.one_choice_changes import schedule_steps
from meshwright.units import format_bytes, format_seconds

PLAIN = "1f1b"


@dataclass(frozen=True, slots=True)
class Refused:
    """A schedule that the plan can not have, and the rule that says so."""

    name: str
    rule: str


@dataclass(frozen=True, slots=True)
class ScheduleAlternatives:
    """A plan's schedule and the stack's others: schedules that fit come first, in order of step time.

    ``knobs`` are those that it has and that a plan of the stack may turn.
    """

    choice: ScheduleChoice
    ranks: int
    micro_batches: int
    bubble_s: float
    step_s: float
    activations_bytes: float
    others: tuple[tuple[str, PlanDifference], ...]
    refused: tuple[Refused, ...]
    knobs: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the idle time, against 1F1B where it is another schedule, and the knobs."""
        if self.ranks == 1:
            return "There is no pipeline: one stage has the whole model."
        sentences = [
            f"{self.choice} on {self.ranks} ranks with {self.micro_batches} micro-batches idles "
            f"{format_seconds(self.bubble_s)} on the binding rank, {self.bubble_s / self.step_s:.1%} of the step, and "
            f"keeps {format_bytes(self.activations_bytes)} of activations on the fullest one."
        ]
        plain = next((other for name, other in self.others if name == PLAIN), None)
        if plain is not None:
            sentences.append(f"{PLAIN} at the same degrees: {plain.verdict}.")
        limit = self.choice.memory_limit or self.choice.kind.default_memory_limit
        if limit is not None:
            sentences.append(f"No rank holds more than {limit:g} times what 1F1B holds.")
        if self.choice.in_flight is not None:
            sentences.append(f"The first rank holds at most {self.choice.in_flight} passes.")
        if self.knobs:
            sentences.append(f"Its knobs: {', '.join(self.knobs)}.")
        return " ".join(sentences)

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {
            "schedule": str(self.choice),
            "bubble_s": self.bubble_s,
            "activations_bytes": self.activations_bytes,
            "knobs": list(self.knobs),
            "others": [{"schedule": name, **other.to_json()} for name, other in self.others],
            "refused": [{"schedule": one.name, "rule": one.rule} for one in self.refused],
            "text": self.text,
        }


def schedule_alternatives(subject: ExplainedPlan) -> ScheduleAlternatives:
    """Return the schedule part of an explanation; without the others for a long-form plan."""
    others, refused = _others(subject) if subject.short else ([], [])
    choice = subject.header.pipeline.choice
    long, forecast = subject.resolved.long, subject.forecast
    return ScheduleAlternatives(
        choice=choice,
        ranks=long.pipeline.ranks,
        micro_batches=micro_batches_of(long, subject.setting.workload.computed_sequences),
        bubble_s=forecast.parts["bubble"],
        step_s=forecast.step_s,
        activations_bytes=forecast.ledger["activations"],
        others=tuple(sorted(others, key=lambda one: (not one[1].forecast.fits, one[1].forecast.step_s))),
        refused=tuple(refused),
        knobs=tuple(sorted(choice.kind.depends_on & set(subject.setting.stack.schedule_knobs))),
    )


def _others(subject: ExplainedPlan) -> tuple[list[tuple[str, PlanDifference]], Sequence[Refused]]:
    short, setting = subject.short, subject.setting
    assert short is not None
    found, refused = [], []
    for step in schedule_steps(short, setting.cluster.devices, setting.stack):
        name = str(step.plan.pipeline.choice)
        other = tried(subject, step.plan, kept_stages(subject, step.plan))
        if isinstance(other, str):
            refused.append(Refused(name, other))
        else:
            found.append((name, other))
    return found, refused
