"""Read the metrics of Meshwright's own runtime: JSON objects, one per line, of rank 0 or of every rank.

The first line of a start is ``{"meshwright": "0.2.0", "plan": {…}}``: the version, and the plan in its short form
(``plans/forms/short.py``); also ``model``, the columns of the model's shape, ``precision``, the compute precision, and
``other_device``, the name of the device if it is not the plan's. Every step is
``{"step": 10, "step_time_s": 1.25, "tokens_per_s": 52428.8, "loss": 9.5, "memory_bytes": 42000000000}``: seconds of
this step on this rank, tokens per second of all devices, and the peak of the rank's allocated tensors so far. Only
``step`` and ``step_time_s`` are required; further keys are ignored. Rank marks may precede an object. A plan that
cannot be parsed is ignored.
"""

import json
from collections.abc import Iterator

from meshwright.errors import InputError
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.ingestion.logs.events import (
    Cells,
    Event,
    Restart,
    Setting,
    Settings,
    Step,
    duration,
    first_text,
    peak,
)
from meshwright.ingestion.logs.lines import without_rank_marks
from meshwright.ingestion.logs.plan_columns import fields_without_column, plan_columns
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.validation.model_to_columns import SHAPE

LARGEST_STEP = 10**12
STARTS = ("plan", "model", "precision", "other_device")
"""Keys of a start line that are read."""
IN_FULL = "a plan in full, of which nothing is read"


class Runtime:
    """Reader of our own runtime's lines."""

    looked_for = '{"step": 10, "step_time_s": 1.25, "memory_bytes": 42000000000}'

    def events(self, line: str) -> Iterator[Event]:
        """Yield steps with their memory, the plan, starts."""
        if '"meshwright"' not in line and '"step_time_s"' not in line:
            return
        try:
            data = json.loads(without_rank_marks(line))
            begins = isinstance(data, dict) and "meshwright" in data
            initial_settings = [Setting(name, json.dumps(data.get(name))) for name in STARTS if begins]
        except (ValueError, RecursionError):
            return
        if not isinstance(data, dict):
            return
        if begins:
            yield Restart()
            yield Setting("release", str(data["meshwright"])[:40])
            yield from initial_settings
        yield from _step(data)

    def cells(self, settings: Settings) -> Cells:
        """Return the columns of the plan and of its model."""
        if "plan" not in settings:
            return {}
        planned = _planned(settings["plan"])
        if device := first_text(settings, "other_device"):
            elsewhere = f"ran on {device}, which the plan is not for"
            planned["notes"] = "; ".join(filter(None, (planned.get("notes"), elsewhere)))
        cells = {name: Fact(text, f"plan: {name} {text}") for name, text in planned.items()}
        shape = _shape(settings.get("model", ""))
        cells |= {name: Fact(text, f"model: {name} {text}") for name, text in shape.items()}
        for name in ("precision", "release"):
            if word := first_text(settings, name):
                cells[name] = Fact(word, f"{name} {word}")
        return cells | {"stack": Fact("meshwright", "the runtime's lines")}


def _planned(text: str) -> dict[str, str]:
    """Return the columns of the plan, and a remark on its fields that have no column."""
    try:
        plan = parse_plan(text)
    except InputError:
        return {}
    if not isinstance(plan, ShortPlan):
        return {"notes": IN_FULL}
    unsaid = "; ".join(f"{problem.field} {problem.value}" for problem in fields_without_column(plan))
    return plan_columns(plan) | ({"notes": unsaid} if unsaid else {})


def _shape(text: str) -> dict[str, str]:
    """Return the columns of the model."""
    try:
        model = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    named = model if isinstance(model, dict) else {}
    return {name: str(named[name]).lower() for name in SHAPE if named.get(name) is not None}


def _step(data: dict[object, object]) -> Iterator[Event]:
    step, seconds = data.get("step"), duration(str(data.get("step_time_s")))
    if type(step) is int and 0 <= step < LARGEST_STEP and seconds is not None:
        yield Step(iteration=step, pace_s=seconds)
        yield from peak(str(data.get("memory_bytes")), 1, "allocated")
