"""A plan that a search proposes: with its prediction, and the reasons for its choices."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.cost.predict import closed_form, report
from meshwright.placement.experts.gained import Gained
from meshwright.placement.solve import Placed
from meshwright.plan.expand import expand
from meshwright.plan.files import dump_plan
from meshwright.plan.long import LongPlan
from meshwright.plan.partition import written_stages
from meshwright.plan.recomputing import recomputes_of_layers, recomputing
from meshwright.plan.routing_file import seen_from
from meshwright.plan.setting import Setting
from meshwright.plan.short import ShortPlan
from meshwright.plan.written_lists import filed
from meshwright.result import Report
from meshwright.search.exhaustive import Found, search_plans
from meshwright.search.reasons import Reason, explain_choices
from meshwright.search.restage import BY_STAGE, Restaged, explain_stages
from meshwright.search.variants import with_every_later
from meshwright.search.varied import LATER
from meshwright.verbs.predicting import useless_recomputation
from meshwright.verbs.searching import scoring


@dataclass(frozen=True, slots=True)
class Proposal:
    """One plan with its prediction and the reasons for its choices; ``long`` where its stages are written out.

    ``placed``: what came of looking for an order of nodes, where they are not alike; ``experts``: what its order of
    experts does, where it has one.
    """

    plan: ShortPlan
    report: Report
    reasons: tuple[Reason, ...]
    long: LongPlan | None = None
    placed: Placed | None = None
    experts: Gained | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data in the public form."""
        return {
            "plan": self.plan.to_data(),
            "long": None if self.long is None else self.long.to_data(),
            "predict": self.report.to_json(),
            "reasons": [reason.to_json() for reason in self.reasons],
            "placement": None if self.placed is None else self.placed.to_json(),
            "experts": None if self.experts is None else self.experts.to_json(),
        }

    def files(self, output: Path) -> dict[Path, str]:
        """The plan file at ``output``, and beside it one of lists that were searched; a pipe gets both in one.

        Files of lists and of pairs that were there before are named as they are seen from the plan's folder.
        """
        if output.exists() and not output.is_file():
            return {output: self.to_yaml()}
        long = self.long and seen_from(self.long, output.parent)
        return replace(self, plan=seen_from(self.plan, output.parent), long=long)._beside(output)

    def _beside(self, output: Path) -> dict[Path, str]:
        written = self.plan.pipeline.choice.written
        if written is None:
            return {output: self.to_yaml()}
        if written.file is not None:
            seen = os.path.relpath(written.file, output.parent)
            return {output: self.with_lists_in(seen).to_yaml()}
        beside = output.with_suffix(".csv")
        return {output: self.with_lists_in(beside.name).to_yaml(), beside: written.text}

    def with_lists_in(self, file: str) -> "Proposal":
        """The same where its lists, if it has any of its own, are in a file."""
        long = self.long and filed(self.long, file)
        return replace(self, plan=filed(self.plan, file), long=long)

    def to_yaml(self) -> str:
        """The plan file, with the reasons as comments; of a plan in full, those for what the search chose last."""
        if self.long is not None:
            said = {reason.field: reason.text for reason in self.reasons}
            long_notes = {"pipeline.stages": said.get("stages", ""), "layers": said.get(BY_STAGE, "")}
            return dump_plan(self.long, {key: note for key, note in long_notes.items() if note})
        sections = {"micro_batch": "pipeline", "virtual_stages": "pipeline", "schedule": "pipeline"}
        top_level = ("sharding", "recompute")
        notes = {
            r.field if r.field in top_level else f"{sections.get(r.field, 'layout')}.{r.field}": r.text
            for r in self.reasons
        }
        return dump_plan(self.plan, notes)


def proposal(staged: Restaged, row: int, header: ShortPlan, setting: Setting) -> Proposal:
    """The plan at a row of what was found, predicted."""
    short, cut = staged.found.plans.short(row, header), staged.cuts.get(row)
    long = expand(short, setting.model.architecture)
    reasons = (*explain_choices(staged.found, row), *_explain_later(staged.found, row, setting))
    if cut is None:
        prediction = _remarked(short, long, setting, report(long, closed_form(short, setting), setting))
        return Proposal(short, prediction, reasons)
    stages, of_stages = written_stages(cut.counts), cut.recomputes or (short.recompute,) * len(cut.counts)
    of_layers = recomputes_of_layers(cut.counts, of_stages)
    long = recomputing(long, of_layers)
    long = long.model_copy(update={"pipeline": long.pipeline.model_copy(update={"stages": stages})})
    prediction = report(long, closed_form(short, setting, stages, of_layers), setting)
    prediction = _remarked(short, long, setting, prediction)
    return Proposal(short, prediction, (*reasons, *explain_stages(staged, row)), long)


def _explain_later(found: Found, row: int, setting: Setting) -> list[Reason]:
    """What the plan at a row comes to with other values of what is chosen later, its stages balanced."""
    own = found.plans.take(np.array([row]))
    every = search_plans(with_every_later(own, setting), scoring(setting))
    (place,) = np.flatnonzero(getattr(every.plans, LATER) == getattr(own, LATER)[0])
    return explain_choices(every, int(place), (LATER,))


def _remarked(short: ShortPlan, long: LongPlan, setting: Setting, found: Report) -> Report:
    return replace(found, remarks=tuple(map(str, useless_recomputation(short, long, setting, found))))
