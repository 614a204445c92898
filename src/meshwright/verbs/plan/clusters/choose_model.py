"""Answer one planning question for several models, and name the largest that keeps the limits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster
from meshwright.economy.cluster_row import cluster_row, family_row
from meshwright.errors import InfeasibleError, InputError, Problem
from meshwright.model.graph import ModelGraph
from meshwright.verbs.plan.clusters.choose_cluster import Choice, choose
from meshwright.verbs.plan.clusters.cluster_request import ClusterChoiceRequest, check_request
from meshwright.verbs.plan.clusters.infeasible import NoClusterError
from meshwright.verbs.plan.plan_on_cluster import PlanRequest
from meshwright.verbs.plan.proposal import Proposal
from meshwright.verbs.plan.search_space import Progress


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model with its answer: a choice, or the refusal.

    ``refused`` are the clusters of a refusal, and ``nearest`` the one that misses the limits least.
    """

    graph: ModelGraph
    name: str
    choice: Choice | None = None
    refusal: InfeasibleError | None = None
    nearest: RankedCluster | None = None
    refused: tuple[RankedCluster, ...] = ()

    def table(self, limits: Limits) -> list[dict[str, Any]]:
        """Return a row for each cluster."""
        if self.choice is not None:
            return self.choice.table
        return [cluster_row(standing, limits) for standing in self.refused]

    def to_json(self, request: ClusterChoiceRequest) -> dict[str, Any]:
        """Return the public form."""
        standing = self.nearest if self.choice is None else self.choice.chosen
        row = None if standing is None else family_row(standing, request.limits)
        first = None if self.choice is None else self.choice.proposals[0]
        report = first.report if first else standing and standing.report
        return {
            "model": self.name,
            "parameters": self.graph.parameters,
            "parameters_active": self.graph.parameters_active,
            "meets": self.choice is not None,
            "misses": row["misses"] if row else dict.fromkeys(("days", "usd", "kw")),
            "cluster": row and row["cluster"],
            "plan": first.plan.to_data() if first else row and row["plan"],
            "predict": report.to_json() if report else None,
        }


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The answers for several models in the order of the question.

    ``largest`` has the most parameters of the models that keep the limits.
    """

    rows: tuple[ModelRow, ...]
    largest: ModelRow
    request: ClusterChoiceRequest

    @property
    def choice(self) -> Choice:
        """The answer for the largest model."""
        assert self.largest.choice is not None, "it keeps the limits"
        return self.largest.choice

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """The plans of the largest model."""
        return self.choice.proposals

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each model and cluster."""
        return [line for row in self.rows for line in row.table(self.request.limits)]

    def to_json(self) -> dict[str, Any]:
        """Return the public form: the answer for the largest model, with a row for each."""
        return self.choice.to_json() | {
            "models": [row.to_json(self.request) for row in self.rows],
            "largest": self.largest.name,
        }


def choose_model(
    questions: Sequence[PlanRequest], request: ClusterChoiceRequest, progress: Progress | None = None
) -> ModelChoice:
    """Search for each question, which differ in their models.

    Raises InputError with the problems of all, and InfeasibleError where no model keeps the limits.
    """
    problems: list[Problem] = []
    graphs = []
    for question in questions:
        try:
            graphs.append(check_request(question, request).settled[0][0].model)
        except InputError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise InputError(problems)
    rows = tuple(
        _row(graph, question, request, progress) for graph, question in zip(graphs, questions, strict=True)
    )
    kept = [row for row in rows if row.choice is not None]
    if not kept:
        raise _none_keeps(rows)
    return ModelChoice(rows, max(kept, key=lambda row: row.graph.parameters), request)


def _row(
    graph: ModelGraph, question: PlanRequest, request: ClusterChoiceRequest, progress: Progress | None
) -> ModelRow:
    row = ModelRow(graph, question.header.model)
    try:
        return replace(row, choice=choose(question, request, progress))
    except NoClusterError as error:
        searched = [one for one in error.families if one.state == "searched"]
        nearest = min(searched, key=lambda one: request.limits.worst_ratio(one.costs), default=None)
        return replace(row, refusal=error, nearest=nearest, refused=error.standings)
    except InfeasibleError as error:
        return replace(row, refusal=error)


def _none_keeps(rows: Sequence[ModelRow]) -> InfeasibleError:
    refused = [(row.name, row.refusal) for row in rows if row.refusal is not None]
    reasons = [f"{name}: {error.message}" for name, error in refused]
    hints = [f"{name}: {error.suggestion}" for name, error in refused if error.suggestion]
    return InfeasibleError("None of the models has an answer.", reasons, "; ".join(hints))
