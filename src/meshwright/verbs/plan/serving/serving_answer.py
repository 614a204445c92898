"""Answer a question of plans that serve: search each kind of cluster, predict the best plans, give reasons."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshwright.cost.serving.serving_errors import serving_problems
from meshwright.cost.serving.serving_report import serving_report
from meshwright.errors import Problem
from meshwright.plans.files.plan_file import dump_plan
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_file import ServingFile
from meshwright.result import ServingReport
from meshwright.search.reasons import Reason
from meshwright.search.serving.candidate_table import Table, pareto
from meshwright.verbs.plan.serving.choices_of_plans import choice_reasons
from meshwright.verbs.plan.serving.engine_rules import export_problems
from meshwright.verbs.plan.serving.infeasible_serving import no_plan
from meshwright.verbs.plan.serving.pools.serving_search import distinct
from meshwright.verbs.plan.serving.searched_cluster import (
    SearchedCluster,
    clusters_by_kind,
    searched_cluster,
)
from meshwright.verbs.plan.serving.serving_request import (
    CheckedServingRequest,
    ServingRequest,
    check_serving_request,
)

TIE_RATIO = 1.05
"""Figures that differ by less are a tie: pairs of measured layouts count as different from 5 % on (``validate``)."""
MOST_OF_FRONT = 12


@dataclass(frozen=True, slots=True)
class ServingProposal:
    """A plan as a file has it, predicted, with the reasons for its choices."""

    plan: ServingFile
    report: ServingReport
    reasons: tuple[Reason, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data in the public form."""
        return {
            "plan": self.plan.to_data(),
            "predict": self.report.to_json(),
            "reasons": [reason.to_json() for reason in self.reasons],
        }

    def files(self, output: Path) -> dict[Path, str]:
        """Return the plan's file."""
        return {output: dump_plan(self.plan)}


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """The best plans, and how they were found; counts are those of all clusters that were searched."""

    question: CheckedServingRequest
    proposals: tuple[ServingProposal, ...]
    counts: Mapping[str, int]
    rejected: Mapping[str, int]
    engines: tuple[Mapping[str, Any], ...]
    clusters: tuple[Mapping[str, Any], ...]
    front: tuple[Mapping[str, Any], ...]
    search_time_s: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data in the public form."""
        return {
            **self.counts,
            "tie_ratio": TIE_RATIO,
            "optimal": True,
            "search_time_s": self.search_time_s,
            "rejected": dict(self.rejected),
            "objective": self.question.objective,
            "plans": [proposal.to_json() for proposal in self.proposals],
            "engines": [dict(row) for row in self.engines],
            "clusters": [dict(row) for row in self.clusters],
            "pareto": [dict(row) for row in self.front],
        }


def answer_serving(request: ServingRequest, wrong: Iterable[Problem] = ()) -> ServingAnswer:
    """Search. Raises InputError for a wrong question, and InfeasibleError where no plan keeps the limits.

    ``wrong``: problems of the question that were found before.
    """
    began = time.perf_counter()
    question = check_serving_request(request, wrong)
    searched = [searched_cluster(question, offers) for offers in clusters_by_kind(question)]
    rejected = sum((Counter(one.found.rejected) for one in searched), Counter[str]())
    if not any(len(one.found.table) for one in searched):
        raise no_plan(question, searched, rejected)
    best = _best(question, searched)
    proposals = []
    for at, (one, row) in enumerate(best):
        file, resolved = one.plan(row)
        reasons = choice_reasons(one, row) if not at else ()
        proposals.append(ServingProposal(file, predicted(resolved, question), reasons))
    return ServingAnswer(
        question,
        tuple(proposals),
        _counts(searched),
        dict(rejected.most_common()),
        tuple(_engines(question, searched)),
        tuple(_row(one, ranked_rows[0]) for one in searched if len(ranked_rows := one.found.table)),
        tuple(_front(searched)),
        time.perf_counter() - began,
    )


def predicted(resolved: ResolvedServing, question: CheckedServingRequest) -> ServingReport:
    """Return the Report of a found plan, with doubts about it as remarks."""
    report = serving_report(resolved, question.levels)
    doubts = (*map(str, serving_problems(report, resolved)), *question.terms.remarks([resolved.cluster]))
    exports = (f"export refuses it: {problem}" for problem in export_problems(resolved))
    return replace(report, remarks=(*report.remarks, *doubts, *exports))


def _best(
    question: CheckedServingRequest, searched: Sequence[SearchedCluster]
) -> list[tuple[SearchedCluster, Any]]:
    """Return the best candidates of all clusters, each of another layout, the best first."""
    every = [
        (float(one.goal.scores(row.reshape(1))[0]), at, place, one, row)
        for at, one in enumerate(searched)
        for place, row in enumerate(distinct(one.found.table, one.found.designs)[: question.request.top])
    ]
    every.sort(key=lambda item: (-item[0], item[4]["devices"], item[1], item[2]))
    return [(one, row) for *_, one, row in every[: question.request.top]]


def _counts(searched: Sequence[SearchedCluster]) -> dict[str, int]:
    found = [one.found for one in searched]
    tied = 0
    for one in searched:
        scores = one.goal.scores(one.found.table)
        if len(scores):
            least = scores[0] / TIE_RATIO if scores[0] > 0 else scores[0] * TIE_RATIO
            tied += int((scores >= least).sum())
    return {
        "candidates_considered": sum(one.considered for one in found),
        "candidates_legal": sum(one.legal for one in found),
        "candidates_combined": sum(one.alternatives for one in found),
        "candidates_evaluated": sum(one.evaluated for one in found),
        "candidates_feasible": sum(len(one.table) for one in found),
        "candidates_tied": tied,
    }


def _engines(
    question: CheckedServingRequest, searched: Sequence[SearchedCluster]
) -> Iterator[Mapping[str, Any]]:
    """Yield the figures of the best plan under each engine; without a plan, its name alone."""
    for stack in question.stacks:
        best: list[tuple[float, Mapping[str, Any]]] = []
        for one in searched:
            stacks = [family.stack for family in one.space.families]
            rows = [row for row in one.found.table if stacks[row["family"]] == stack][:1]
            best += [(float(one.goal.scores(row.reshape(1))[0]), _row(one, row)) for row in rows]
        yield max(best, key=lambda item: item[0])[1] if best else {"stack": stack, "cluster": None}


def _row(one: SearchedCluster, row: Table) -> Mapping[str, Any]:
    """Return the figures of a candidate."""
    price = one.offers[-1].cluster.pool.usd_per_device_hour
    tokens = float(row["requests_per_s"]) * one.question.limits.lengths.mean_output
    usd = None if price is None else price.value * int(row["devices"])
    return {
        "stack": one.space.families[row["family"]].stack,
        "cluster": one.offer(int(row["devices"])).on,
        "devices": int(row["devices"]),
        "pools": 1 if row["second"] < 0 else 2,
        "concurrency": int(row["concurrency"]) or None,
        "ttft_s": float(row["ttft_s"]),
        "tpot_s": float(row["tpot_s"]) if one.question.limits.steps > 0 else None,
        "request_latency_s": float(row["latency_s"]),
        "output_tokens_per_s": tokens,
        "usd_per_hour": usd,
    }


def _front(searched: Sequence[SearchedCluster]) -> Iterator[Mapping[str, Any]]:
    """Yield plans that none beats in tokens per second, latency and devices at once, with their figures."""
    for one in searched:
        for row in pareto(one.found.table)[:MOST_OF_FRONT]:
            yield {**_row(one, row), "plan": one.plan(row)[0].to_data()}
