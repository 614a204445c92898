"""The metrics of Meshwright's own runtime: JSON objects, one a line, of rank 0 or of every rank.

The first line of a start is ``{"meshwright": "0.2.0", "plan": {…}}``: the version, and the plan in its short form
(``plan/short.py``); further ``model``, the columns of the model's shape, ``precision``, in which it was computed, and
``other_device``, the name of the device where the plan is for another one. Every step is
``{"step": 10, "step_time_s": 1.25, "tokens_per_s": 52428.8, "loss": 9.5, "memory_bytes": 42000000000}``: seconds of
this step on this rank, tokens per second of all devices, and the most bytes that the rank's allocator has given to
tensors so far. Only ``step`` and ``step_time_s`` must be there; further keys are left for people. Marks of ranks may
stand before an object. A plan that does not read as one says nothing.
"""

import json
from collections.abc import Iterator

from meshwright.errors import InputError
from meshwright.import_.foreign import Fact
from meshwright.import_.logs.events import (
    Cells,
    Event,
    Restart,
    Setting,
    Settings,
    Step,
    duration,
    peak,
    said,
)
from meshwright.import_.logs.lines import unmarked
from meshwright.import_.logs.plan_cells import plan_cells, without_column
from meshwright.plan.files import parse_plan
from meshwright.plan.short import ShortPlan
from meshwright.validation.model_columns import SHAPE

LARGEST_STEP = 10**12
STARTS = ("plan", "model", "precision", "other_device")
"""What a start says, under these keys."""
IN_FULL = "a plan in full, of which nothing is read"


class Runtime:
    """Lines of our own runtime."""

    looked_for = '{"step": 10, "step_time_s": 1.25, "memory_bytes": 42000000000}'

    def events(self, line: str) -> Iterator[Event]:
        """Steps with their memory, the plan, starts."""
        if '"meshwright"' not in line and '"step_time_s"' not in line:
            return
        try:
            data = json.loads(unmarked(line))
            begins = isinstance(data, dict) and "meshwright" in data
            said_first = [Setting(name, json.dumps(data.get(name))) for name in STARTS if begins]
        except (ValueError, RecursionError):
            return
        if not isinstance(data, dict):
            return
        if begins:
            yield Restart()
            yield Setting("release", str(data["meshwright"])[:40])
            yield from said_first
        yield from _step(data)

    def cells(self, settings: Settings) -> Cells:
        """The columns of the plan and of its model."""
        if "plan" not in settings:
            return {}
        planned = _planned(settings["plan"])
        if device := said(settings, "other_device"):
            elsewhere = f"ran on {device}, which the plan is not for"
            planned["notes"] = "; ".join(filter(None, (planned.get("notes"), elsewhere)))
        cells = {name: Fact(text, f"plan: {name} {text}") for name, text in planned.items()}
        shape = _shape(settings.get("model", ""))
        cells |= {name: Fact(text, f"model: {name} {text}") for name, text in shape.items()}
        for name in ("precision", "release"):
            if word := said(settings, name):
                cells[name] = Fact(word, f"{name} {word}")
        return cells | {"stack": Fact("meshwright", "the runtime's lines")}


def _planned(text: str) -> dict[str, str]:
    """The columns of the plan, and a remark on what it says and no column does."""
    try:
        plan = parse_plan(text)
    except InputError:
        return {}
    if not isinstance(plan, ShortPlan):
        return {"notes": IN_FULL}
    unsaid = "; ".join(f"{problem.field} {problem.value}" for problem in without_column(plan))
    return plan_cells(plan) | ({"notes": unsaid} if unsaid else {})


def _shape(text: str) -> dict[str, str]:
    """The columns of the model."""
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
