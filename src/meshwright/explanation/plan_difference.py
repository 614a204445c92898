"""The difference between the explained plan and another: changed fields, changed parts, one sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import has_form
from meshwright.cost.plan_report import Estimate
from meshwright.cost.uncertainty.step_error import pair_interval
from meshwright.explanation.prediction_parts import (
    PredictionParts,
    bytes_in_words,
    compared_times,
    differences,
    is_tie,
    prediction_parts,
    seconds_in_words,
)
from meshwright.plans.context_parallel import USUAL as USUAL_CONTEXT
from meshwright.plans.files.plan_file import Plan
from meshwright.plans.forms.conversion import expand, short_of_only_layout, shorten
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.forms.long import LongPlan, Stages
from meshwright.plans.forms.short import Recompute, ShortPlan
from meshwright.plans.layers.layout_by_layer import format_batch_share, format_layout_ranges, layers_of_rules
from meshwright.plans.layers.plan_of_layout import plan_of_main_layout, state_weights
from meshwright.plans.layers.recompute_by_layer import (
    format_layer_recomputes,
    layer_recomputes,
    with_layer_recomputes,
)
from meshwright.plans.layers.uneven_partition import stages_in_words
from meshwright.plans.resolve import Resolved
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.setting import Setting
from meshwright.plans.synchronisation.exchange_text import entries_text
from meshwright.units import format_bytes
from meshwright.verbs.predict.predict_plan import closed_form_plan, estimated

DEGREES = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp", "sequence_parallel")
USUAL: Stages = "balanced"
LEAST_MEMORY_CHANGE = 0.02
"""A difference of memory that is larger than this part of it is told of plans that fit too."""


@dataclass(frozen=True, slots=True)
class ExplainedPlan:
    """The plan that is explained, in ``tie_ratio`` of whose time others are a tie with it.

    ``short``: its short form, but for the stages, where closed forms know it.
    """

    resolved: Resolved
    short: ShortPlan | None
    estimate: Estimate
    forecast: PredictionParts
    tie_ratio: float

    @classmethod
    def of(cls, resolved: Resolved) -> "ExplainedPlan":
        """Return the plan with its prediction. Raise InputError where predicting it would take minutes."""
        estimate, setting = estimated(resolved), resolved.setting
        ratio = pair_interval(setting).high
        return cls(resolved, closed_form_plan(resolved), estimate, prediction_parts(estimate, setting), ratio)

    @property
    def setting(self) -> Setting:
        """Return the plan's model, cluster, workload and stack."""
        return self.resolved.setting

    @property
    def stages(self) -> Stages:
        """Return the layers of its stages."""
        return self.resolved.long.pipeline.stages

    @property
    def recomputes(self) -> tuple[Recompute, ...]:
        """Return the recomputation of each layer."""
        return layer_recomputes(self.resolved.long, self.setting.model.architecture.layers)

    @property
    def quick(self) -> bool:
        """Return true if its step has a closed form, so that it can be priced hundreds of times."""
        return self.short is not None and has_form(self.short.pipeline.choice)

    @property
    def header(self) -> ShortPlan:
        """A short plan with its nouns and degrees, for a search."""
        return self.short or short_of_only_layout(plan_of_main_layout(self.resolved.long))


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """Another plan. ``changes``: (own, other) value of every choice in which they differ."""

    resolved: Resolved
    changes: Mapping[str, tuple[Any, Any]]
    own: PredictionParts
    forecast: PredictionParts
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
        """Return the changes and their effect in words."""
        return f"{self.changes_in_words}: {self.verdict}"

    @property
    def changes_in_words(self) -> str:
        """Return the changes in words."""
        return in_words(self.changes)

    @property
    def verdict(self) -> str:
        """Return the effect of the changes on time and memory in words."""
        own, other = self.own, self.forecast
        memory = bytes_in_words(differences(own.ledger, other.ledger))
        if not other.fits:
            why = f" ({memory})" if memory else ""
            return (
                f"does not fit: {format_bytes(other.total_bytes)} of {format_bytes(other.usable_bytes)} "
                f"usable{why}"
            )
        clauses = [compared_times(own.step_s, other.step_s, self.tie_ratio)]
        if words := seconds_in_words(differences(own.parts, other.parts)):
            clauses = [f"{clauses[0]}: {words}"]
        if not own.fits:
            clauses.append(f"fits, with {format_bytes(other.total_bytes)}")
        elif abs(other.total_bytes - own.total_bytes) > LEAST_MEMORY_CHANGE * own.total_bytes:
            clauses.append(f"{format_bytes(other.total_bytes)} in place of {format_bytes(own.total_bytes)}")
        return "; ".join(clauses)

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
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


def plan_difference(subject: ExplainedPlan, resolved: Resolved, forecast: PredictionParts) -> PlanDifference:
    """Compare a plan for the same setting with the subject."""
    changes = changed_choices(subject.resolved.long, resolved.long)
    return PlanDifference(resolved, changes, subject.forecast, forecast, subject.tie_ratio)


def legal_plan(
    short: ShortPlan, stages: Stages, setting: Setting, recomputes: Sequence[Recompute] | None = None
) -> Resolved | str:
    """Return a plan of the setting's model, cluster and stack, or the first rule that it breaks.

    ``recomputes``: what each layer runs again, where the short plan does not say it.
    """
    long = expand(short, setting.model.architecture)
    if recomputes is not None:
        long = with_layer_recomputes(long, recomputes)
    if stages != USUAL:
        long = long.model_copy(update={"pipeline": long.pipeline.model_copy(update={"stages": stages})})
    return legal(long, setting)


def legal(long: LongPlan, setting: Setting) -> Resolved | str:
    """Return a long-form plan for a setting, or the first rule that it breaks."""
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
    short = short_of_only_layout(plan_of_main_layout(plan))
    layers = layers_of_rules(plan)
    return {
        "cluster": plan.cluster,
        "stack": plan.stack,
        "precision": plan.workload.precision,
        **{name: getattr(short.layout, name) for name in DEGREES},
        "context": str(short.layout.context_in_full if short.layout.cp > 1 else USUAL_CONTEXT),
        "rank_order": " ".join(short.layout.rank_order),
        "micro_batch": short.pipeline.micro_batch,
        "batch_share": _shares_in_words(plan),
        "state_share": _weights_in_words(plan),
        "schedule": str(short.pipeline.choice),
        "virtual_stages": short.pipeline.virtual_stages,
        "stages": stages_in_words(plan.pipeline.stages),
        "sharding": short.sharding,
        "gather": plan.gather if short.sharding == "zero3" else "never",
        "recompute": format_layer_recomputes(layer_recomputes(plan, layers)),
        "layouts": format_layout_ranges(plan) if len(plan.layouts) > 1 else "one for all layers",
        "offload": str(plan.offload or Offload()),
        "synchronise": entries_text(plan.synchronise),
        "dtypes": ", ".join(f"{key} {word}" for key, word in plan.written_types.items()) or "the stack's",
    }


def _shares_in_words(plan: LongPlan) -> str:
    """Return the sequences of each replica of a plan with one layout; those of several are in ``layouts``."""
    layout = next(iter(plan.layouts.values()))
    return (len(plan.layouts) == 1 and format_batch_share(layout).strip()) or "even"


def _weights_in_words(plan: LongPlan) -> str:
    """Return the range of the weights of ranks that share states, ``0 to 4``; of the first layout that has some."""
    written = [weights for layout in plan.layouts.values() if (weights := state_weights(layout))]
    return f"{min(written[0])} to {max(written[0])}" if written else "even"
