"""Try suggestions for another framework's file by reading and checking it with changed numbers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from meshwright.cluster.cluster import Cluster
from meshwright.errors import InputError, Problem
from meshwright.frameworks.importing.imported_file import Fact, ImportedFile, OutsideFacts
from meshwright.frameworks.importing.plan_from_facts import Assembled
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.check_plan import problems_by_rule
from meshwright.plans.suggested_settings import Settings, suggested_settings
from meshwright.plans.tried_suggestions import NamedProblem, SuggestionTrial
from meshwright.stack.stack import Stack

NUMBERS = (
    *(f"layout.{axis}" for axis in ("pp", "tp", "cp", "ep", "etp")),
    *("pipeline.micro_batch", "workload.global_batch"),
)
"""Numbers of a plan that a file states, and that may be changed where they stand."""
DATA_DEGREES = ("layout.dp_shard", "layout.dp_replicate")
"""Degrees that most files leave to the number of processes."""
_NUMBER = re.compile(r"(?:\S+ )?([0-9]+)")


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file as it was read, with the ``draft`` of its plan; ``read`` reads it again with other facts."""

    foreign: ImportedFile
    draft: ShortPlan | None
    sizes: Mapping[str, Fact]
    nouns: tuple[ModelGraph, Cluster, Stack]
    read: Callable[[OutsideFacts], tuple[ImportedFile, Assembled]]

    def with_tried_suggestions(self, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
        """Return the problems; a suggested number of the plan is one that was tried."""
        if self.draft is None or not any(map(self._is_tried, problems)):
            return problems
        model, cluster, stack = self.nouns
        moe = model.architecture.moe
        found, experts = self.judge(self.draft), moe.experts if moe else 1
        trial = SuggestionTrial(self.draft, found, cluster.devices, experts, stack, self.judge)
        return tuple(self._with(trial, one) if self._is_tried(one) else one for one in problems)

    def file_problems(self, plan: ShortPlan) -> list[NamedProblem]:
        """Return the errors of the file with the numbers of ``plan``."""
        return self._read_with(plan)[0]

    def judge(self, plan: ShortPlan) -> list[NamedProblem]:
        """Return the errors of the file with the numbers of ``plan``, and the problems of the plan that it then is."""
        named, draft = self._read_with(plan)
        return named if draft is None else [*named, *self._rules(draft)]

    def _rules(self, draft: ShortPlan) -> list[NamedProblem]:
        model, cluster, stack = self.nouns
        try:
            return problems_by_rule(expand(draft, model.architecture), model, cluster, stack)
        except InputError as error:
            return [("expand", problem) for problem in error.problems]

    def _read_with(self, plan: ShortPlan) -> tuple[list[NamedProblem], ShortPlan | None]:
        changes = {
            path: Fact(attrgetter(path)(plan), self.foreign.words(path))
            for path in (*NUMBERS, *(path for path in DATA_DEGREES if path in self.foreign.facts))
            if attrgetter(path)(plan) != attrgetter(path)(self.draft)
        }
        try:
            again, assembled = self.read(OutsideFacts(self.sizes, changes))
        except InputError as error:
            return [("read", problem) for problem in error.problems], None
        errors = (p for p in (*again.problems, *assembled.problems) if p.severity == "error")
        return [("file", replace(p, field=self._path(p.field) or p.field)) for p in errors], assembled.draft

    def _path(self, key: str) -> str | None:
        """Return the path of the number that a key of the file states; None where a plan has no such number."""
        path = next((path for path in (*NUMBERS, *DATA_DEGREES) if self._key(path) == key), None)
        counts_ranks = self.foreign.value("batch_ranks", 1) > 1
        return None if path == "workload.global_batch" and counts_ranks else path

    def _key(self, path: str) -> str:
        return self.foreign.words(path).split(" ")[0]

    def _is_tried(self, problem: Problem) -> bool:
        numeric = _NUMBER.fullmatch(problem.suggestion) is not None
        return problem.severity == "error" and numeric and self._path(problem.field) is not None

    def _with(self, trial: SuggestionTrial, problem: Problem) -> Problem:
        path, number = self._path(problem.field), _NUMBER.fullmatch(problem.suggestion)
        assert path is not None
        assert number is not None
        asked = replace(problem, field=path, suggestion=f"{path.rpartition('.')[2]}: {number[1]}")
        tried = trial.tried("file", asked)
        if tried == asked:
            return problem
        found = suggested_settings(tried)
        text = ", or ".join(map(self._in_words, found)) if found else tried.suggestion
        return replace(problem, suggestion=text)

    def _in_words(self, settings: Settings) -> str:
        """Write settings with the file's own names; degrees that it leaves to the processes are left out."""
        values = dict(setting.split("=") for setting in settings)
        stated = (*NUMBERS, *(path for path in DATA_DEGREES if path in self.foreign.facts))
        words = ((self._key(path), values.get(path.rpartition(".")[2])) for path in stated)
        return ", ".join(f"{key} {value}" for key, value in words if value is not None)
