"""A proposed plan with its prediction and the reasons for its choices."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from meshwright.cluster.cluster import Pool
from meshwright.cost.plan_report import closed_form, report
from meshwright.cost.uncertainty.regret import Regret
from meshwright.cost.uncertainty.step_error import StepError, plan_errors
from meshwright.placement.expert_order.gain import ExpertOrderGain
from meshwright.placement.node_order.solve import NodePlacement
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.files.custom_schedule_file import filed
from meshwright.plans.files.expert_pairs_file import with_routing_path_from
from meshwright.plans.files.plan_file import dump_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.recompute_by_layer import recomputes_from_stages, with_layer_recomputes
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.setting import Setting
from meshwright.result import Report
from meshwright.search.algorithms.exhaustive import RankedPlans, search_plans
from meshwright.search.choice_reasons import explain_choices
from meshwright.search.reasons import Reason
from meshwright.search.space.choices import DEFERRED_CHOICE
from meshwright.search.space.variants import with_every_later
from meshwright.search.stage_rebalancing import BY_STAGE, RebalancedPlan, explain_stages
from meshwright.verbs.plan.search_space import scoring
from meshwright.verbs.predict.network_advice import with_network_advice
from meshwright.verbs.predict.predict_plan import useless_recomputation


@dataclass(frozen=True, slots=True)
class Proposal:
    """One plan with its prediction and the reasons for its choices; ``long`` where its stages are written out.

    ``placed``: what came of looking for an order of nodes, where they are not alike; ``experts``: what its order of
    experts does, where it has one; ``regret``: by how much it may be slower than the best of the plans compared.
    """

    plan: ShortPlan
    report: Report
    reasons: tuple[Reason, ...]
    long: LongPlan | None = None
    placed: NodePlacement | None = None
    experts: ExpertOrderGain | None = None
    regret: Regret | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data in the public form."""
        return {
            "plan": self.plan.to_data(),
            "long": None if self.long is None else self.long.to_data(),
            "predict": self.report.to_json(),
            "regret": None if self.regret is None else self.regret.to_json(),
            "reasons": [reason.to_json() for reason in self.reasons],
            "placement": None if self.placed is None else self.placed.to_json(),
            "experts": None if self.experts is None else self.experts.to_json(),
        }

    def files(self, output: Path) -> dict[Path, str]:
        """Return the plan file at ``output`` and the file of its solver-found lists; a pipe gets both in one.

        Files of lists and of pairs that were there before are named as they are seen from the plan's folder.
        """
        if output.exists() and not output.is_file():
            return {output: self.to_yaml()}
        long = self.long and with_routing_path_from(self.long, output.parent)
        return replace(self, plan=with_routing_path_from(self.plan, output.parent), long=long)._files(output)

    def _files(self, output: Path) -> dict[Path, str]:
        written = self.plan.pipeline.choice.written
        if written is None:
            return {output: self.to_yaml()}
        if written.file is not None:
            seen = os.path.relpath(written.file, output.parent)
            return {output: self.with_lists_in(seen).to_yaml()}
        lists = output.with_suffix(".csv")
        return {output: self.with_lists_in(lists.name).to_yaml(), lists: written.text}

    def with_lists_in(self, file: str) -> "Proposal":
        """Return the proposal with its own lists, if any, moved to a file."""
        long = self.long and filed(self.long, file)
        return replace(self, plan=filed(self.plan, file), long=long)

    def to_yaml(self) -> str:
        """Return the plan file with reasons as comments; in long form, those of the last choices."""
        if self.long is not None:
            texts = {reason.field: reason.text for reason in self.reasons}
            long_notes = {"pipeline.stages": texts.get("stages", ""), "layers": texts.get(BY_STAGE, "")}
            return dump_plan(self.long, {key: note for key, note in long_notes.items() if note})
        sections = {"micro_batch": "pipeline", "virtual_stages": "pipeline", "schedule": "pipeline"}
        top_level = ("sharding", "recompute", "synchronise")
        notes = {
            r.field if r.field in top_level else f"{sections.get(r.field, 'layout')}.{r.field}": r.text
            for r in self.reasons
        }
        return dump_plan(self.plan, notes)


def proposed(
    staged: RebalancedPlan,
    rows: Sequence[int],
    header: ShortPlan,
    setting: Setting,
    regret: Mapping[int, Regret] = MappingProxyType({}),
    *,
    explained: bool = True,
) -> list[Proposal]:
    """Return the plans at rows of the search result, predicted. The errors of their times are computed at once.

    ``regret``: that of the plans at some rows. ``explained``: with the reasons for their choices.
    """
    if not rows:
        return []
    errors = plan_errors(staged.found.plans.take(np.array(rows, dtype=np.int64)), setting)
    return [
        replace(_proposal(staged, row, header, setting, error, explained), regret=regret.get(row))
        for row, error in zip(rows, errors, strict=True)
    ]


def _proposal(
    staged: RebalancedPlan, row: int, header: ShortPlan, setting: Setting, error: StepError, explained: bool
) -> Proposal:
    short, cut = short_plan(staged.found.plans, row, header), staged.cuts.get(row)
    long = expand(short, setting.model.architecture)
    reasons = _explained(staged, row, setting) if explained else ()
    if cut is None:
        prediction = _remarked(
            short, long, setting, report(long, closed_form(short, setting), setting, error)
        )
        return Proposal(short, prediction, reasons)
    stages, of_stages = written_stages(cut.counts), cut.recomputes or (short.recompute,) * len(cut.counts)
    of_layers = recomputes_from_stages(cut.counts, of_stages)
    long = with_layer_recomputes(long, of_layers)
    long = long.model_copy(update={"pipeline": long.pipeline.model_copy(update={"stages": stages})})
    prediction = report(long, closed_form(short, setting, stages, of_layers), setting, error)
    prediction = _remarked(short, long, setting, prediction)
    return Proposal(short, prediction, reasons, long)


def _explained(staged: RebalancedPlan, row: int, setting: Setting) -> tuple[Reason, ...]:
    of_choices = (*explain_choices(staged.found, row), *_explain_later(staged.found, row, setting))
    return (*of_choices, *explain_stages(staged, row)) if row in staged.cuts else of_choices


def _explain_later(found: RankedPlans, row: int, setting: Setting) -> list[Reason]:
    """Return reasons for the deferred choice of the plan at a row, with balanced stages."""
    own = found.plans.take(np.array([row]))
    every = search_plans(with_every_later(own, setting), scoring(setting))
    (place,) = np.flatnonzero(getattr(every.plans, DEFERRED_CHOICE) == getattr(own, DEFERRED_CHOICE)[0])
    return explain_choices(every, int(place), (DEFERRED_CHOICE,))


def network_advised(one: Proposal, setting: Setting) -> Proposal:
    """Return the proposal with advice on the network cards, where its step depends on them."""
    if one.plan.pipeline.choice.written is not None:
        return one
    long = one.long or expand(one.plan, setting.model.architecture)
    return replace(one, report=with_network_advice(one.report, one.plan, long, setting))


def with_node_remark(one: Proposal, pool: Pool) -> Proposal:
    """Return the proposal with a remark on devices of the last node that do not work."""
    node = pool.node.devices
    working = pool.count % node
    if not working:
        return one
    whole = pool.count - working
    choices = f"{whole} or {whole + node}" if whole else f"{node}"
    remark = (
        f"{pool.count} devices leave {node - working} of the last node's {node} devices without work; {choices} "
        "devices fill whole nodes"
    )
    return replace(one, report=replace(one.report, remarks=(*one.report.remarks, remark)))


def _remarked(short: ShortPlan, long: LongPlan, setting: Setting, found: Report) -> Report:
    return replace(found, remarks=tuple(map(str, useless_recomputation(short, long, setting, found))))
