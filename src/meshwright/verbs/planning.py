"""Answer a planning question: resolve the nouns, search, predict the best plans, say why."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshwright.cost.bounds import may_fit, memory_floor
from meshwright.cost.constants import constants
from meshwright.cost.evaluate import evaluate
from meshwright.cost.intervals import pair_interval
from meshwright.cost.predict import closed_form, report
from meshwright.errors import InfeasibleError, InputError, Problem, nearest
from meshwright.plan.arrays import COLUMNS, SHARDINGS
from meshwright.plan.expand import expand
from meshwright.plan.files import dump_plan
from meshwright.plan.resolve import load_nouns
from meshwright.plan.setting import Setting
from meshwright.plan.short import ShortPlan
from meshwright.plan.supported import unsupported, workload_of
from meshwright.result import Report
from meshwright.schedule import SCHEDULES
from meshwright.search.exhaustive import Found, search_all
from meshwright.search.reasons import Reason, explain_choices
from meshwright.search.space import RECOMPUTES, Keep, Space, enumerate_space
from meshwright.units import format_bytes

MAX_DEVICES_SUGGESTED = 2**17
FAR_TOO_LARGE = "states alone exceed the memory of a device"
TOO_LARGE = "peak memory exceeds what is usable of a device"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: ``header`` holds the nouns and the workload, ``keep`` the choices that are fixed."""

    header: ShortPlan
    keep: tuple[str, ...] = ()
    top: int = 5


@dataclass(frozen=True, slots=True)
class Proposal:
    """One plan with its prediction and the reasons for its choices."""

    plan: ShortPlan
    report: Report
    reasons: tuple[Reason, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data in the public form."""
        return {
            "plan": self.plan.to_data(),
            "predict": self.report.to_json(),
            "reasons": [reason.to_json() for reason in self.reasons],
        }

    def to_yaml(self) -> str:
        """The plan file, with the reasons as comments."""
        sections = {"micro_batch": "pipeline", "virtual_stages": "pipeline", "schedule": "pipeline"}
        top_level = ("sharding", "recompute")
        notes = {
            r.field if r.field in top_level else f"{sections.get(r.field, 'layout')}.{r.field}": r.text
            for r in self.reasons
        }
        return dump_plan(self.plan, notes)


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """The best plans and how they were found. Times in seconds of wall clock.

    ``tied`` feasible plans are predicted to take at most ``tie_ratio`` times the best: the model can not tell them
    apart.
    """

    considered: int
    legal: int
    evaluated: int
    feasible: int
    tied: int
    tie_ratio: float
    search_time_s: float
    rejected: Mapping[str, int]
    proposals: tuple[Proposal, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data in the public form."""
        return {
            "candidates_considered": self.considered,
            "candidates_legal": self.legal,
            "candidates_evaluated": self.evaluated,
            "candidates_feasible": self.feasible,
            "candidates_tied": self.tied,
            "tie_ratio": self.tie_ratio,
            "search_time_s": self.search_time_s,
            "rejected": dict(self.rejected),
            "plans": [proposal.to_json() for proposal in self.proposals],
        }


def answer(question: Question, setting: Setting | None = None) -> PlanAnswer:
    """Search. Raises InputError for a wrong question and InfeasibleError when nothing fits.

    ``setting`` stands for what the header names, where it is at hand.
    """
    if question.top < 1:
        raise InputError(Problem("top", question.top, "must be at least 1", "top: 5"))
    setting = setting or setting_of(question.header)
    keep = parse_keep(question.keep)
    began = time.perf_counter()
    space, found = _search(setting, keep)
    seconds = time.perf_counter() - began
    if not len(found.ranking):
        raise infeasible(space, found, setting, keep)
    rows, ratio = found.top(question.top), pair_interval(setting).high
    proposals = tuple(_proposal(found, row, question.header, setting) for row in rows)
    return PlanAnswer(
        considered=space.considered,
        legal=len(space.plans),
        evaluated=len(found.plans),
        feasible=len(found.ranking),
        tied=found.within(ratio),
        tie_ratio=ratio,
        search_time_s=seconds,
        rejected=_rejected(space, found),
        proposals=proposals,
    )


def setting_of(header: ShortPlan) -> Setting:
    """The nouns of a question. Raises InputError with the problems of all of them."""
    nouns = load_nouns(header)
    problems = list(nouns.problems)
    if nouns.model is None:
        raise InputError(problems)
    long = expand(header, nouns.model.architecture)
    problems += [p for p in unsupported(long) if p.severity == "error"]
    if problems or nouns.cluster is None or nouns.stack is None:
        raise InputError(problems)
    setting = Setting.of(nouns.model, nouns.cluster, workload_of(long), nouns.stack)
    _check_setting(setting)
    return setting


def _check_setting(setting: Setting) -> None:
    """What no plan could mend: several pools, an unknown precision, too long sequences."""
    arch, seq_len = setting.model.architecture, setting.workload.seq_len
    problems = []
    if len(setting.cluster.pools) != 1:
        rule = "a cluster of several pools is not supported yet"
        problems.append(Problem("cluster", setting.cluster.name, rule, "a cluster of equal devices"))
    elif setting.workload.peak_precision not in setting.cluster.pool.device.peak_flops:
        have = ", ".join(setting.cluster.pool.device.peak_flops)
        rule = f"{setting.cluster.pool.device.id} has no such matrix units"
        problems.append(Problem("workload.precision", setting.workload.precision, rule, f"one of {have}"))
    if arch.positions == "learned" and seq_len > arch.max_positions:
        rule = f"seq_len {seq_len} > max_positions {arch.max_positions} of the model"
        problems.append(Problem("workload.seq_len", seq_len, rule, f"seq_len: {arch.max_positions}"))
    if problems:
        raise InputError(problems)


def parse_keep(keep: tuple[str, ...]) -> Keep:
    """``tp=8`` and the like. Raises InputError with every one that is no choice or no value."""
    names = {"sharding": SHARDINGS, "schedule": tuple(SCHEDULES), "recompute": RECOMPUTES}
    numbers = [c for c in COLUMNS if c not in names and c != "sequence_parallel"]
    result: dict[str, int | str] = {}
    problems = []
    for text in keep:
        name, _, value = (part.strip() for part in text.partition("="))
        if name in names and value in names[name]:
            result[name] = value
        elif name in names:
            problems.append(Problem(f"keep.{name}", value, "is no such choice", nearest(value, names[name])))
        elif name not in numbers:
            problems.append(
                Problem("keep", text, "is no choice of a plan", nearest(name, [*numbers, *names]))
            )
        elif not value.isdecimal() or not 1 <= int(value) < 2**40:
            problems.append(Problem(f"keep.{name}", value, "must be a whole number from 1", f"{name}=8"))
        else:
            result[name] = int(value)
    if problems:
        raise InputError(problems)
    return result


def infeasible(space: Space, found: Found, setting: Setting, keep: Keep) -> InfeasibleError:
    """Why nothing fits, and the smallest cluster that would do."""
    counts = _rejected(space, found)
    memory = [reason for reason in (FAR_TOO_LARGE, TOO_LARGE) if reason in counts]
    rules = [reason for reason in counts if reason not in memory]
    reasons = [f"{counts[reason]:,} plans: {reason}" for reason in memory + rules]
    if memory:
        reasons.insert(0, _leanest(space, found, setting))
    verb = "fits" if memory else "is legal"
    message = f"No plan of {setting.model.name} {verb} on {setting.cluster.name}."
    return InfeasibleError(message, reasons, smallest_cluster(setting, keep))


def _leanest(space: Space, found: Found, setting: Setting) -> str:
    """How much is too much: the least peak, or the least bound where no plan was worth evaluating."""
    if len(found.plans):
        least, what = float(found.total_bytes.min()), "the leanest plan needs"
    else:
        least, what = float(memory_floor(space.plans, setting).min()), "states alone take at least"
    usable = constants()["usable_memory"] * setting.cluster.pool.device.memory_bytes
    return f"{what} {format_bytes(least)} per device, usable are {format_bytes(usable)}"


def smallest_cluster(setting: Setting, keep: Keep) -> str:
    """The first larger count of whole nodes for which a plan fits; a few counts per octave are tried."""
    pool, (_, at, node) = setting.cluster.pool, setting.cluster.name.partition(" @ ")
    nodes = {quarter * 2**octave // 4 for octave in range(18) for quarter in (4, 5, 6, 7)}
    counts = (pool.node.devices * number for number in sorted(nodes))
    legal = False
    for count in (c for c in counts if setting.cluster.devices < c <= MAX_DEVICES_SUGGESTED):
        larger = replace(setting.cluster, pools=(replace(pool, count=count),))
        space, found = _search(replace(setting, cluster=larger), keep)
        legal = legal or len(space.plans) > 0
        if len(found.ranking):
            return (
                f"{pool.device.id} x {count}{at}{node} would do (the smallest of the counts that were tried)"
            )
    if not legal:
        return "keep less" if keep else "a batch or a sequence length that more degrees divide"
    return "another device with more memory, or a smaller model, batch or sequence"


def _search(setting: Setting, keep: Keep) -> tuple[Space, Found]:
    space = enumerate_space(setting, keep)
    return space, search_all(
        space, lambda p: evaluate(p, setting, only_fitting=True), lambda p: may_fit(p, setting)
    )


def _proposal(found: Found, row: int, header: ShortPlan, setting: Setting) -> Proposal:
    short = found.plans.short(row, header)
    long = expand(short, setting.model.architecture)
    prediction = report(long, closed_form(short, setting), setting)
    return Proposal(short, prediction, tuple(explain_choices(found, row)))


def _rejected(space: Space, found: Found) -> dict[str, int]:
    """Reasons with counts, most frequent first."""
    counts = Counter(space.rejected)
    counts[FAR_TOO_LARGE] += len(space.plans) - len(found.plans)
    counts[TOO_LARGE] += int((~found.fits).sum())
    return {reason: count for reason, count in counts.most_common() if count}
