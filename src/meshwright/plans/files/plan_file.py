"""Plan files: text to a plan and back. ``load_plan(dump_plan(p)) == p`` for both forms.

The short form has ``layout``, the long form ``layouts``. A file is read up to 128 KiB,
so that a wrong path never exhausts memory.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.plans.files.meshwright_file import FileKind, read_keys, write_file
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.files.yaml_output import commented
from meshwright.plans.files.yaml_text import read_file
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan

Plan = ShortPlan | LongPlan

_ONE_LINE_SECTIONS = frozenset({"layout", "workload", "pipeline", "states", "pipeline.schedule", "sequence"})
PLAN = FileKind(
    "plan",
    ("plan", "model", "cluster", "workload", "stack", "layout (layouts in the long form)", "pipeline"),
)
_LAYOUT_EXAMPLE = "layout: {pp: 1, dp_replicate: 1, dp_shard: 8, tp: 1}"
_LEFT_OUT_WHEN_EMPTY = ("synchronise", "edges")


def load_plan(path: str | Path) -> Plan:
    """Load the plan in the file at ``path``. Raise InputError with all problems, never another exception."""
    return parse_plan(read_file(path, "plan", "check the path"), str(path))


def parse_plan(text: str, where: str = "plan") -> Plan:
    """Parse the plan that ``text`` holds; ``where`` names the text in problems. Raise InputError."""
    problems: list[Problem] = []
    data = read_keys(text, where, PLAN, problems)
    keys = {*data, *(problem.field for problem in problems)}
    if "layouts" not in keys:
        return validated(ShortPlan, data, {"layout": _LAYOUT_EXAMPLE}, problems)
    if "layout" in keys:
        rule = "`layout` is the short form, `layouts` the long form: a plan has one of them"
        raise InputError(
            Problem(
                where,
                ["layout", "layouts"],
                rule,
                "take `layout` out for the long form, or `layouts` for the short one",
            )
        )
    return validated(LongPlan, data, others=problems)


def dump_plan(plan: Plan, notes: Mapping[str, str] | None = None) -> str:
    """Return the plan as text, defaults visible. ``notes`` are comments by path: ``{"layout.tp": "why"}``."""
    return plan_text(plan.to_data(), notes)


def plan_text(
    data: Mapping[str, object], notes: Mapping[str, str] | None = None, below: Sequence[str] = ()
) -> str:
    """Return a plan's data, of either form, as text, with lines of comments below it."""
    kept = {key: value for key, value in data.items() if value or key not in _LEFT_OUT_WHEN_EMPTY}
    return write_file(commented(kept, _flow_paths(kept), notes or {}), below=below)


def _flow_paths(data: Mapping[str, object]) -> frozenset[str]:
    """Paths of mappings that go on one line: the sections of a short plan, the entries of a long one."""
    if "layout" in data:
        return _ONE_LINE_SECTIONS
    entries = {
        f"{section}.{name}"
        for section in ("groups", "layers", "calls")
        for name in _mapping(data.get(section))
    }
    layouts = _mapping(data.get("layouts"))
    parts = {f"layouts.{name}.{part}" for name in layouts for part in ("grid", "experts")}
    return (_ONE_LINE_SECTIONS - {"pipeline"}) | entries | parts


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
