"""Check a plan or another framework's file: legality, memory, distance from the best plan, and the smallest fix.

Everything that is wrong comes at once, in the words of the file. An illegal plan has no figures. A plan that fits is
compared with the best plan of the same model, cluster, batch and stack; the distance is a problem only beyond what the
interval of two predictions' ratio allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.cluster.cluster import Cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.constants_file import Given, with_constants
from meshwright.cost.serving.serving_errors import serving_problems
from meshwright.cost.serving.serving_report import serving_report
from meshwright.cost.uncertainty.memory_error import LIKELY
from meshwright.cost.uncertainty.step_error import pair_interval
from meshwright.errors import InfeasibleError, InputError, Problem, UnsupportedError
from meshwright.frameworks.import_formats import is_plan
from meshwright.frameworks.importing.imported_file import ImportedFile, UnmappedOption
from meshwright.frameworks.importing.launcher_file import launcher_beside
from meshwright.model.graph import ModelGraph
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.files.plan_file import parse_any_plan
from meshwright.plans.forms.conversion import expand, short_of_only_layout, shorten_ignoring_layers
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.plan_of_layout import plan_of_main_layout
from meshwright.plans.overrides import overrides_between
from meshwright.plans.resolve import load_nouns, resolve_with, with_files_read, with_nouns_from
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.serving.resolve_serving import resolve_serving
from meshwright.plans.serving.serving_file import ServingFile
from meshwright.plans.setting import Setting
from meshwright.plans.tried_suggestions import Judge, no_problems
from meshwright.result import Report
from meshwright.search.nearby.smallest_fix import SmallestFix, mend
from meshwright.stack.stack import Stack
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.import_ import ImportRequest, import_text, renamed
from meshwright.verbs.load_plan import refuse_training_options
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest, answer
from meshwright.verbs.plan.proposal import Proposal
from meshwright.verbs.predict.predict_plan import predicted, useless_recomputation


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The answer of ``check``. ``report`` is None for plans without a prediction: ``no_figures`` is the reason."""

    problems: tuple[Problem, ...]
    unread: tuple[UnmappedOption, ...] = ()
    plan: ShortPlan | LongPlan | ServingFile | None = None
    report: Report | None = None
    no_figures: str = "the file has errors"
    recommended: Proposal | None = None
    fastest: Proposal | None = None
    mended: SmallestFix | None = None

    @property
    def ok(self) -> bool:
        """No error, and it fits."""
        return not any(problem.severity == "error" for problem in self.problems)

    @property
    def change(self) -> tuple[str, ...]:
        """The smallest change with the degrees that go with it; empty where there is none."""
        plan = None if isinstance(self.plan, ServingFile) else self.plan
        short = None if plan is None else _short(plan)
        return overrides_between(short, self.mended.plan) if short and self.mended else ()

    @property
    def best_known(self) -> tuple[float, ShortPlan | LongPlan] | None:
        """The quickest plan that fits: the search's, the file's own, or the mended one.

        A search proposes equal stages only, so the file's plan may be quicker than any that it knows.
        """
        known: list[tuple[float, ShortPlan | LongPlan]] = []
        if self.fastest:
            known.append((self.fastest.report.step_time_s, self.fastest.plan))
        if self.mended:
            known.append((self.mended.step_s, self.mended.plan))
        if self.report and self.report.fits and isinstance(self.plan, ShortPlan | LongPlan):
            known.append((self.report.step_time_s, self.plan))
        return min(known, key=lambda timed: timed[0]) if known else None

    def to_json(self) -> dict[str, Any]:
        """Return the public form; figures that an illegal plan does not have are null."""
        report, best, mended = self.report, self.best_known, self.mended
        origin = {} if report else {"step_time_s": f"null: {self.no_figures}"}
        return {
            "ok": self.ok,
            "problems": [problem.to_json() for problem in self.problems],
            "memory_bytes": report.memory_bytes if report else None,
            "fits": report.fits if report else None,
            "fits_probability": report.fits_probability if report else None,
            "step_time_s": report.to_json()["step_time_s"] if report else None,
            "best_step_time_s": best[0] if best else None,
            "best_plan": best[1].to_data() if best else None,
            "recommended_step_time_s": self.recommended.report.step_time_s if self.recommended else None,
            "recommended_plan": self.recommended.plan.to_data() if self.recommended else None,
            "plan": self.plan.to_data() if self.plan else None,
            "change": {
                "settings": list(mended.settings),
                "all_settings": list(self.change),
                "step_time_s": mended.step_s,
                "plan": mended.plan.to_data(),
            }
            if mended
            else None,
            "unread": [{"key": u.key, "value": u.value, "why": u.why} for u in self.unread],
            "origin": origin if report is None else report.origin,
        }


def check_text(text: str, where: str, request: ImportRequest, constants: Given | None = None) -> Checked:
    """Check the text of a file. Raises InputError where it can not be read, or has keys that nothing knows.

    ``constants`` of the cost model by name, as a file or a mapping.
    """
    if is_plan(text):
        return _check_plan_file(text, where, request, constants)
    imported = import_text(text, request, launcher_beside(where))
    foreign, setting = imported.foreign, None
    if imported.plan is None:
        return Checked(problems=imported.problems, unread=foreign.unread)
    workload = workload_of(_long(imported.plan, imported.model.architecture))
    setting = Setting.of(imported.model, imported.cluster, workload, imported.stack, imported.plan.dtypes)
    setting, further = with_constants(setting, constants), imported.changed_file.file_problems
    return _checked(imported.plan, setting, list(imported.problems), foreign, further)


def _check_plan_file(text: str, where: str, request: ImportRequest, constants: Given | None) -> Checked:
    read, folder = parse_any_plan(text, where), Path(where).parent
    changes = {"model": request.model, "cluster": request.on, "stack": request.stack}
    nouns_given = {name: value for name, value in changes.items() if value}
    if isinstance(read, ServingFile):
        return _check_serving(
            with_nouns_from(read, folder).model_copy(update=nouns_given), request, constants
        )
    plan = with_files_read(read, folder).model_copy(update=nouns_given)
    numbers = {"seq_len": request.seq_len, "global_batch": request.global_batch}
    workload = plan.workload.model_copy(update={name: n for name, n in numbers.items() if n})
    plan = plan.model_copy(update={"workload": workload})
    nouns = load_nouns(plan)
    if nouns.model is None or nouns.cluster is None or nouns.stack is None:
        raise InputError(nouns.problems)
    try:
        spec = workload_of(_long(plan, nouns.model.architecture))
    except InputError:
        return Checked(problems=_problems(plan, nouns.model, nouns.cluster, nouns.stack), plan=plan)
    setting = Setting.of(nouns.model, nouns.cluster, spec, nouns.stack, plan.dtypes)
    return _checked(plan, with_constants(setting, constants), [], None)


def _check_serving(plan: ServingFile, request: ImportRequest, constants: Given | None) -> Checked:
    """Check the laws of a serving plan. Raises InputError for options that only plans that train have."""
    refuse_training_options(
        {"seq_len": request.seq_len, "global_batch": request.global_batch, "constants": constants}
    )
    try:
        resolved = resolve_serving(plan)
    except InputError as error:
        return Checked(problems=error.problems, plan=plan)
    try:
        report = serving_report(resolved)
    except UnsupportedError as error:
        reason = "; ".join(f"{problem.field}: {problem.rule}" for problem in error.problems)
        return Checked(problems=resolved.warnings, plan=plan, no_figures=reason)
    return Checked(
        problems=(*resolved.warnings, *serving_problems(report, resolved)), plan=plan, report=report
    )


def _problems(
    plan: ShortPlan | LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack
) -> tuple[Problem, ...]:
    """Return all problems of a plan whose workload is wrong, those with model and layout too."""
    try:
        return resolve_with(plan, model, cluster, stack, stack_binds=True).warnings
    except InputError as error:
        return error.problems


def _long(plan: ShortPlan | LongPlan, arch: Any) -> LongPlan:
    return plan if isinstance(plan, LongPlan) else expand(plan, arch)


def _short(plan: ShortPlan | LongPlan) -> ShortPlan | None:
    return plan if isinstance(plan, ShortPlan) else shorten_ignoring_layers(plan)


def _of_main_layout(plan: ShortPlan | LongPlan) -> ShortPlan:
    """Return a plan in short, to search by: of several layouts it has the one of most layers everywhere."""
    return plan if isinstance(plan, ShortPlan) else short_of_only_layout(plan_of_main_layout(plan))


def _checked(
    plan: ShortPlan | LongPlan,
    setting: Setting,
    problems: list[Problem],
    foreign: ImportedFile | None,
    further: Judge = no_problems,
) -> Checked:
    unread = foreign.unread if foreign else ()
    short = _short(plan)
    try:
        nouns = setting.model, setting.cluster, setting.stack
        resolved = replace(resolve_with(plan, *nouns, stack_binds=True, further=further), setting=setting)
        report = predicted(resolved)
        if foreign is not None and not report.fits and "recompute" not in foreign.facts and short is not None:
            short, report, doubt = _recomputed(short, report, setting)
            problems += doubt
            plan = short if doubt else plan
    except InputError as error:
        problems += renamed(error.problems, foreign)
        mended = _mended(short, setting)
        return Checked(problems=tuple(problems), unread=unread, plan=plan, mended=mended)
    problems += renamed(resolved.warnings, foreign)
    if short is not None:
        problems += useless_recomputation(short, _long(plan, setting.model.architecture), setting, report)
    found = _searched(short or _of_main_layout(plan), setting)
    best, fastest = (found.proposals[0], found.fastest) if found else (None, None)
    mended = None
    if not report.fits:
        mended = _mended(short, setting)
        problems.append(_too_large(report, plan, mended, best))
    else:
        problems += [*_near_the_edge(report), *_slower(plan, report, best, setting)]
    return Checked(
        problems=tuple(problems),
        unread=unread,
        plan=plan,
        report=report,
        recommended=best,
        fastest=fastest,
        mended=mended,
    )


def _recomputed(
    short: ShortPlan, report: Report, setting: Setting
) -> tuple[ShortPlan, Report, list[Problem]]:
    """With recomputation, where the file can not say whether there is any and without it the plan would not fit."""
    full = short.model_copy(update={"recompute": "full"})
    nouns = setting.model, setting.cluster, setting.stack
    again = predicted(replace(resolve_with(full, *nouns), setting=setting))
    if not again.fits:
        return short, report, []
    without = format_bytes(report.memory_bytes["total"])
    rule = f"without recomputation it would not fit ({without}): the figures are those with all layers recomputed"
    return full, again, [Problem("recompute", None, rule, "recompute in the training script", "warning")]


def _mended(short: ShortPlan | None, setting: Setting) -> SmallestFix | None:
    """Return the smallest change that makes the plan legal and fit."""
    if short is None:
        return None
    arch = setting.model.architecture

    def judge(plans: Sequence[ShortPlan]) -> list[float]:
        return _seconds(plans, setting)

    return mend(short, setting.cluster.devices, arch.moe.experts if arch.moe else 0, judge)


def _seconds(plans: Sequence[ShortPlan], setting: Setting) -> list[float]:
    """Return the seconds per step of every plan; infinite if it is illegal or does not fit."""
    nouns = setting.model, setting.cluster, setting.stack
    legal = [
        not any(p.severity == "error" for p in check_plan(expand(plan, setting.model.architecture), *nouns))
        for plan in plans
    ]
    seconds = np.full(len(plans), inf)
    rows = np.flatnonzero(np.array(legal, dtype=np.bool_))
    if len(rows):
        found = evaluate(from_shorts([plans[int(row)] for row in rows]), setting)
        seconds[rows] = np.where(found.fits, found.step_s, inf)
    return [float(value) for value in seconds]


def _searched(short: ShortPlan, setting: Setting) -> PlanAnswer | None:
    """Return the answer to the question of a plan; None where no plan fits."""
    try:
        return answer(PlanRequest(short, top=1), setting)
    except InfeasibleError:
        return None


def _too_large(
    report: Report,
    plan: ShortPlan | LongPlan,
    mended: SmallestFix | None,
    best: Proposal | None,
) -> Problem:
    memory = report.memory_bytes
    usable = memory["usable"]
    worst = memory["stages"][memory["worst_rank"]]
    largest = max((k for k in worst if k not in ("rank", "layers", "total")), key=lambda k: worst[k])
    rule = (
        f"does not fit: {format_bytes(memory['total'])} on pipeline rank {memory['worst_rank']} "
        f"(layers {', '.join(worst['layers']) or 'none'}; {largest} {format_bytes(worst[largest])}), "
        f"usable are {format_bytes(usable)}"
    )
    short = _short(plan)
    if mended and short:
        settings = ", ".join(overrides_between(short, mended.plan))
        hint = f"{settings} fits, {format_seconds(mended.step_s)} per step"
    elif best:
        hint = ("no one or two changes do; " if short else "") + _spoken(plan, best)
    else:
        hint = "no plan fits on this cluster"
    return Problem("memory_bytes.total", memory["total"], rule, hint)


def _near_the_edge(report: Report) -> list[Problem]:
    probability = report.fits_probability
    if probability is None or probability >= LIKELY:
        return []
    rule = f"fits with a probability of {probability:.0%}: {format_bytes(report.memory_bytes['total'])} at the peak"
    return [
        Problem("memory_bytes.total", report.memory_bytes["total"], rule, "a little less memory", "warning")
    ]


def _slower(
    plan: ShortPlan | LongPlan, report: Report, best: Proposal | None, setting: Setting
) -> list[Problem]:
    """Return the distance from the recommended plan as a remark if it exceeds the prediction interval."""
    if best is None or report.step_time_s <= pair_interval(setting).high * best.report.step_time_s:
        return []
    ratio = report.step_time_s / best.report.step_time_s
    rule = f"{format_seconds(report.step_time_s)} per step is {ratio:.2f} times the recommended plan's"
    return [Problem("step_time_s", round(report.step_time_s, 4), rule, _spoken(plan, best), "warning")]


def _spoken(plan: ShortPlan | LongPlan, best: Proposal) -> str:
    """Return the changes that make a plan the recommended one, and that one's time."""
    changes = overrides_between(_of_main_layout(plan), best.plan)
    if isinstance(plan, LongPlan) and len(plan.layouts) > 1:
        name = next(iter(plan_of_main_layout(plan).layouts))
        changes = (f"layout {name} for all layers", *changes)
    return f"{', '.join(changes)}: {format_seconds(best.report.step_time_s)}"
