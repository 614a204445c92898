"""Ask questions of ``benchmarks/capacity/questions.yaml`` by their command lines, together and separately."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from typer.main import get_command

from meshwright import api
from meshwright.cli.main import app
from meshwright.cli.terminal.search_answer import WITH_UNITS
from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster
from meshwright.economy.cluster_row import family_row
from meshwright.verbs.plan.clusters.choose_cluster import Choice
from meshwright.verbs.plan.clusters.choose_model import ModelChoice
from meshwright.verbs.plan.clusters.infeasible import NoClusterError

FILE = Path(__file__).parents[1] / "capacity" / "questions.yaml"
CLOSE = 1e-9
Given = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A question as a person types it."""

    key: str
    title: str
    command: str
    remark: str = ""

    @property
    def line(self) -> str:
        """The command on one line."""
        return " ".join(self.command.split())


@dataclass(frozen=True)
class Found:
    """The best cluster of each family, or of each model, and the one that is recommended.

    ``standings`` are all clusters. Where no cluster of a separate question keeps the limits, none is recommended.
    """

    rows: tuple[RankedCluster, ...]
    recommended: RankedCluster | None
    standings: tuple[RankedCluster, ...]
    limits: Limits
    doubt: str | None = None

    @property
    def nearest(self) -> RankedCluster:
        """The row whose largest ratio of a figure to its limit is least."""
        return min(self.rows, key=lambda row: self.limits.worst_ratio(row.costs))

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as ``families`` of the JSON answer has them."""
        return [family_row(row, self.limits) for row in self.rows]


def read_questions() -> list[Question]:
    """Return all questions of the file."""
    return [Question(**row) for row in YAML(typ="safe").load(FILE)]


def given_by(line: str) -> dict[str, Any]:
    """Return what a command line of ``plan`` gives, by the names of ``api.plan``."""
    program, verb, *words = shlex.split(line)
    assert program == "meshwright", program
    command = get_command(app).commands[verb]  # type: ignore[attr-defined]
    context = command.make_context(verb, words)
    typed = {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name).name == "COMMANDLINE"
    }
    return {WITH_UNITS.get(name, name): value for name, value in typed.items()}


def answer_to(given: Given) -> Found:
    """Search. A question that no cluster answers has the nearest ones."""
    limits = Limits(
        *(given.get(name) for name in ("budget_usd", "deadline_days", "power_kw")), given.get("sure")
    )
    try:
        found = api.plan(**given)
    except NoClusterError as error:
        return Found(error.families, None, error.standings, limits)
    if isinstance(found, ModelChoice):
        rows = tuple(row.choice.chosen if row.choice else row.nearest for row in found.rows)
        known = tuple(row for row in rows if row is not None)
        everywhere = [row.choice.standings if row.choice else row.refused for row in found.rows]
        return Found(known, found.choice.chosen, tuple(one for each in everywhere for one in each), limits)
    assert isinstance(found, Choice)
    return Found(found.families, found.chosen, found.standings, limits, found.doubt)


def separate_questions(given: Given) -> list[dict[str, Any]]:
    """Return the questions that ask for one model at a time, or for one device family at a time."""
    if len(given["model"]) > 1:
        return [{**given, "model": [model]} for model in given["model"]]
    families: dict[str, list[str]] = {}
    for text in given["on"]:
        families.setdefault(_family(text), []).append(text)
    return [_with_family(given, family, on) for family, on in families.items()]


def _family(text: str) -> str:
    return text.partition(" x ")[0]


def _with_family(given: Given, family: str, on: Sequence[str]) -> dict[str, Any]:
    assumed = [text for text in given.get("assume", ()) if ":" not in text or text.startswith(f"{family}:")]
    return {**given, "on": on, "assume": assumed}


def unequal(together: Found, separate: Sequence[Found]) -> Iterator[str]:
    """Yield each figure in which separate answers differ from the common one, and a wrong recommendation."""
    models = {row.course.setting.model.name for row in together.rows}
    alone = [
        row
        for found in separate
        for row in (
            found.to_json()
            if len(models) == 1
            else [family_row(found.recommended or found.nearest, found.limits)]
        )
    ]
    rows = together.to_json()
    if len(rows) != len(alone):
        yield f"{len(alone)} rows of separate questions, {len(rows)} of the common one"
    for row, other in zip(rows, alone, strict=False):
        yield from (
            f"{row['cluster']}: {name} is {row[name]}, separately {other[name]}"
            for name in row
            if not _same(row[name], other[name])
        )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(one == other)
