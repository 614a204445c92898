"""Predict trainings whose device hours were published (``benchmarks/capacity/published.yaml``).

The plan is the published one where it was published, else the one that ``meshwright plan`` recommends. Nothing is
fitted to these hours.
"""

from collections.abc import Mapping
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

from everyday import words_of
from expert_cases import cases
from ruamel.yaml import YAML

from meshwright import api
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.verbs.predict.training_estimate import report_with_training_estimate

BENCHMARKS = Path(__file__).parents[1]
FILE = BENCHMARKS / "capacity" / "published.yaml"


def published_rows() -> list[dict[str, Any]]:
    """Return a row for each training of the file: published and predicted, JSON-ready."""
    return [_row(asked) for asked in YAML(typ="safe").load(FILE)]


def _row(asked: Mapping[str, Any]) -> dict[str, Any]:
    report, recommended = _prediction(asked)
    assert report.training is not None, "its tokens are known"
    hours, published = report.training["device_hours"], float(asked["published_hours"])
    devices = round(hours["value"] / (24 * report.training["days"]["value"]))
    steps_hours = 24 * devices * report.training["days_without_failures"]["value"]
    said = ("name", "tokens", "published_plan", "assumed", "miss", "sources", "published_goodput")
    return {name: asked.get(name) for name in said} | {
        "recommended": recommended,
        "published_hours": published,
        "predicted_hours": hours["value"],
        "predicted_hours_low": hours["low"],
        "predicted_hours_high": hours["high"],
        "ratio": hours["value"] / published,
        "inside": hours["low"] <= published <= hours["high"],
        "devices": devices,
        "mfu": report.mfu,
        "mfu_of_published_hours": report.mfu and report.mfu * steps_hours / published,
        "days": report.training["days"]["value"],
        "goodput": report.goodput and report.goodput["share"],
        "spare_nodes": report.training["spare_nodes"],
        "step_time_s": report.step_time_s,
        "fits": report.fits,
    }


def _prediction(asked: Mapping[str, Any]) -> tuple[Report, str | None]:
    """Return the report of a training's plan, and the plan in words where it is a recommended one."""
    tokens = asked["tokens"]
    if "plan" in asked:
        return _predicted(BENCHMARKS / asked["plan"], asked.get("changes", {}), tokens), None
    if "run" in asked:
        (plan,) = (case.plan for case in cases() if case.run.run_id == asked["run"])
        assert isinstance(plan, Resolved), plan
        return report_with_training_estimate(lambda: plan, tokens, ()), None
    question = dict(asked["question"])
    if question["model"].endswith(".json"):
        question["model"] = str(BENCHMARKS / question["model"])
    first = api.plan(**question, tokens=tokens, top=1).proposals[0]
    return first.report, words_of(first.plan)


def _predicted(path: Path, changes: Mapping[str, Any], tokens: str) -> Report:
    """Predict a plan file with changed values, which long plans take only in the file itself."""
    if not changes:
        return api.predict(path, tokens=tokens)
    data = YAML(typ="safe").load(path)
    for name, value in changes.items():
        *outer, last = name.split(".")
        inner = data
        for key in outer:
            inner = inner[key]
        inner[last] = value
    with TemporaryDirectory() as folder:
        copy(path.parent / data["stack"], folder)
        changed = Path(folder) / path.name
        YAML(typ="safe").dump(data, changed)
        return api.predict(changed, tokens=tokens)
