"""The page on objectives names every assumption with its usual value, and every number of a training."""

import re
from dataclasses import fields
from pathlib import Path

from meshwright.economy.assumptions import FLAGS, Assumptions
from meshwright.economy.objectives import OBJECTIVES
from meshwright.economy.report_with_training_cost import QUANTITIES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "objectives.md").read_text(encoding="utf-8")


def test_every_assumption_stands_there_with_its_usual_value():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
    for field in fields(Assumptions):
        if field.name == "families":
            continue
        usual = "the best" if field.name in ("checkpoint_every_s", "spare_nodes") else "of the cluster"
        usual = "none" if field.name == "churn_per_hour" else usual
        said = str(field.default).lower() if field.name in FLAGS else f"{field.default or 0:g}"
        assert rows[field.name] == (usual if field.default is None else said)


def test_every_number_of_a_training_stands_there():
    assert not [
        name
        for name in (*QUANTITIES, "steps", "days_without_failures", "failures")
        if f"`{name}`" not in PAGE
    ]


def test_every_objective_and_state_stands_there():
    assert re.findall(r"^\| `(\w+)` \| (?:time of a step|dollars|kWh|the same)", PAGE, re.MULTILINE) == list(
        OBJECTIVES
    )
    assert not [
        name for name in ("plans", "clusters", "pareto", "per", "beaten", "why") if f"`{name}`" not in PAGE
    ]
