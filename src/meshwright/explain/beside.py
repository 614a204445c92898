"""Another plan beside the one that is explained: what it changes and what that does, part by part and in a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from meshwright.cost.intervals import pair_interval
from meshwright.cost.pipeline import has_form
from meshwright.cost.predict import Estimate
from meshwright.explain.forecast import (
    Forecast,
    bytes_in_words,
    compared_times,
    differences,
    forecast_of,
    is_tie,
    seconds_in_words,
)
from meshwright.plan.check import check_plan
from meshwright.plan.expand import expand, short_of, shorten
from meshwright.plan.files import Plan
from meshwright.plan.long import LongPlan, Stages
from meshwright.plan.recomputing import layer_recomputes, recomputing, told
from meshwright.plan.resolve import Resolved
from meshwright.plan.setting import Setting
from meshwright.plan.short import Offload, Recompute, ShortPlan
from meshwright.units import format_bytes
from meshwright.verbs.predicting import estimated, formed

DEGREES = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp", "sequence_parallel")
USUAL: Stages = "balanced"
TOLD = 0.02
"""A difference of memory that is larger than this part of it is told of plans that fit too."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The plan that is explained, in ``tie_ratio`` of whose time others are a tie with it.

    ``short``: its short form, but for the stages, where closed forms know it.
    """

    resolved: Resolved
    short: ShortPlan | None
    estimate: Estimate
    forecast: Forecast
    tie_ratio: float

    @classmethod
    def of(cls, resolved: Resolved) -> "Subject":
        """The plan with its prediction. Raises InputError where predicting it would take minutes."""
        estimate, setting = estimated(resolved), resolved.setting
        ratio = pair_interval(setting).high
        return cls(resolved, formed(resolved), estimate, forecast_of(estimate, setting), ratio)

    @property
    def setting(self) -> Setting:
        """What the plan is for."""
        return self.resolved.setting

    @property
    def stages(self) -> Stages:
        """What its stages hold."""
        return self.resolved.long.pipeline.stages

    @property
    def recomputes(self) -> tuple[Recompute, ...]:
        """What each of its layers recomputes."""
        return layer_recomputes(self.resolved.long, self.setting.model.architecture.layers)

    @property
    def quick(self) -> bool:
        """Whether its step has a closed form, so that it can be priced hundreds of times."""
        return self.short is not None and has_form(self.short.pipeline.choice)

    @property
    def header(self) -> ShortPlan:
        """A short plan with its nouns and degrees, for a search."""
        return self.short or short_of(self.resolved.long)


@dataclass(frozen=True, slots=True)
class Beside:
    """Another plan. ``changes``: (own, other) value of every choice in which they differ."""

    resolved: Resolved
    changes: Mapping[str, tuple[Any, Any]]
    own: Forecast
    forecast: Forecast
    tie_ratio: float

    @property
    def plan(self) -> Plan:
        """The other plan, in short where it has a short form."""
        return self.resolved.short or self.resolved.long

    @property
    def ratio(self) -> float:
        """The other's time over the own."""
        return self.forecast.step_s / self.own.step_s

    @property
    def text(self) -> str:
        """What it changes, what it comes to, and where that is won or lost."""
        return f"{self.said}: {self.verdict}"

    @property
    def said(self) -> str:
        """What it changes, in words."""
        return in_words(self.changes)

    @property
    def verdict(self) -> str:
        """What it comes to, in words."""
        own, other = self.own, self.forecast
        memory = bytes_in_words(differences(own.ledger, other.ledger))
        if not other.fits:
            why = f" ({memory})" if memory else ""
            return (
                f"does not fit: {format_bytes(other.total_bytes)} of {format_bytes(other.usable_bytes)} "
                f"usable{why}"
            )
        told = [compared_times(own.step_s, other.step_s, self.tie_ratio)]
        if words := seconds_in_words(differences(own.parts, other.parts)):
            told = [f"{told[0]}: {words}"]
        if not own.fits:
            told.append(f"fits, with {format_bytes(other.total_bytes)}")
        elif abs(other.total_bytes - own.total_bytes) > TOLD * own.total_bytes:
            told.append(f"{format_bytes(other.total_bytes)} in place of {format_bytes(own.total_bytes)}")
        return "; ".join(told)

    def to_json(self) -> dict[str, Any]:
        """The public form."""
        own, other = self.own, self.forecast
        return {
            "plan": self.plan.to_data(),
            "changes": {name: list(pair) for name, pair in self.changes.items()},
            "step_time_s": other.step_s,
            "ratio": self.ratio,
            "tie": is_tie(own.step_s, other.step_s, self.tie_ratio),
            "difference_s": differences(own.parts, other.parts),
            "fits": other.fits,
            "memory_bytes": other.total_bytes,
            "difference_bytes": differences(own.ledger, other.ledger),
            "text": self.text,
        }


def beside(subject: Subject, resolved: Resolved, forecast: Forecast) -> Beside:
    """A plan for the same setting beside the subject."""
    changes = changed_choices(subject.resolved.long, resolved.long)
    return Beside(resolved, changes, subject.forecast, forecast, subject.tie_ratio)


def legal_plan(
    short: ShortPlan, stages: Stages, setting: Setting, recomputes: Sequence[Recompute] | None = None
) -> Resolved | str:
    """A plan of the setting's model, cluster and stack; the first rule that it breaks where it is illegal.

    ``recomputes``: what each layer runs again, where the short plan does not say it.
    """
    long = expand(short, setting.model.architecture)
    if recomputes is not None:
        long = recomputing(long, recomputes)
    if stages != USUAL:
        long = long.model_copy(update={"pipeline": long.pipeline.model_copy(update={"stages": stages})})
    return legal(long, setting)


def legal(long: LongPlan, setting: Setting) -> Resolved | str:
    """A plan in full for a setting; the first rule that it breaks where it is illegal."""
    found = check_plan(long, setting.model, setting.cluster, setting.stack)
    fault = next((problem for problem in found if problem.severity == "error"), None)
    if fault is not None:
        return f"{fault.field} = {fault.value}: {fault.rule}"
    return Resolved(long, shorten(long), setting)


def changed_choices(own: LongPlan, other: LongPlan) -> dict[str, tuple[Any, Any]]:
    """(own, other) value of every choice in which two plans differ, in the words of the short form."""
    ours, theirs = _choices(own), _choices(other)
    return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}


def in_words(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """``tp 4 → 8, cp 4 → 2``."""
    return ", ".join(f"{name} {a} → {b}" for name, (a, b) in changes.items()) or "the same plan"


def _choices(plan: LongPlan) -> dict[str, Any]:
    short = short_of(plan)
    layers = 1 + max(int(key.rpartition("..")[2]) for key in plan.layers if key not in ("embed", "head"))
    return {
        "cluster": plan.cluster,
        "stack": plan.stack,
        "precision": plan.workload.precision,
        **{name: getattr(short.layout, name) for name in DEGREES},
        "rank_order": " ".join(short.layout.rank_order),
        "micro_batch": short.pipeline.micro_batch,
        "schedule": str(short.pipeline.choice),
        "virtual_stages": short.pipeline.virtual_stages,
        "stages": stages_in_words(plan.pipeline.stages),
        "sharding": short.sharding,
        "gather": plan.gather if short.sharding == "zero3" else "never",
        "recompute": told(layer_recomputes(plan, layers)),
        "offload": str(plan.offload or Offload()),
    }


def stages_in_words(stages: Stages) -> str:
    """The layers of every stage, ``3 4×30 3`` for one of 3, 30 of 4 and one of 3."""
    if isinstance(stages, str):
        return stages
    runs = [(count, len(list(run))) for count, run in groupby(map(_layers_of, stages))]
    return " ".join(f"{count}×{times}" if times > 1 else str(count) for count, times in runs)


def _layers_of(keys: Sequence[str]) -> int:
    """Layers of a stage that is written out: ``0..7`` are 8, ``5`` is one."""
    ends = [key.split("..") for key in keys if key[0].isdecimal()]
    return sum(int(range_[-1]) - int(range_[0]) + 1 for range_ in ends)
