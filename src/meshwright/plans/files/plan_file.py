"""Plan files: text to a plan and back. ``load_plan(dump_plan(p)) == p`` for both forms.

Of plans that train the short form has ``layout``, the long form ``layouts``; a serving plan has ``pools``. A file is
read up to 128 KiB, so that a wrong path never exhausts memory.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from meshwright.errors import InputError, Problem, UnsupportedError
from meshwright.plans.files.meshwright_file import FileKind, read_keys, write_file
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.files.yaml_output import commented
from meshwright.plans.files.yaml_text import read_file
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.serving.conflicts_of_keys import contradictions, missing_lengths
from meshwright.plans.serving.serving_file import ServingFile

Plan = ShortPlan | LongPlan
"""A plan that trains."""
AnyPlan = Plan | ServingFile

_ONE_LINE_SECTIONS = frozenset({"layout", "workload", "pipeline", "states", "pipeline.schedule", "sequence"})
_ONE_LINE_IN_A_POOL = ("layout", "layouts.prefill", "layouts.decode", "batching", "quantise")
PLAN = FileKind(
    "plan",
    (
        "plan",
        "model",
        "cluster",
        "workload",
        "stack",
        "layout (layouts in the long form, pools to serve)",
        "pipeline",
    ),
)
_LAYOUT_EXAMPLE = "layout: {pp: 1, dp_replicate: 1, dp_shard: 8, tp: 1}"
_LEFT_OUT_WHEN_EMPTY = ("synchronise", "edges")
SERVE = "serve"
NOT_FOR_SERVING = "this verb takes no serving plans, only plans that train"
READS_SERVING = "meshwright check, describe, predict, explain, compare or export"


def load_plan(path: str | Path) -> Plan:
    """Load the plan in the file at ``path``, which trains.

    Raises InputError with all problems, never another exception; UnsupportedError for a serving plan.
    """
    return parse_plan(read_file(path, "plan", "check the path"), str(path))


def parse_plan(text: str, where: str = "plan") -> Plan:
    """Parse the plan that ``text`` holds, which trains; ``where`` names the text in problems.

    Raises InputError with all problems; UnsupportedError for a serving plan.
    """
    problems: list[Problem] = []
    data = read_keys(text, where, PLAN, problems)
    keys = {*data, *(problem.field for problem in problems)}
    if _serves(data, keys):
        raise UnsupportedError(_serving_refusal())
    return _training_plan(data, keys, where, problems)


def refuse_serving(text: str, where: str) -> None:
    """Raise UnsupportedError if ``text`` is a serving plan; any other text, readable or not, is fine."""
    if is_serving(text, where):
        raise UnsupportedError(_serving_refusal())


def is_serving(text: str, where: str = "plan") -> bool:
    """Return true for the text of a plan that serves, also of one with problems; any other text is none."""
    if not any(word in text for word in (SERVE, "pools")):
        return False
    data: dict[str, object] = {}
    with suppress(InputError):
        data = read_keys(text, where, PLAN, [])
    return _serves(data, {*data})


def _serving_refusal() -> Problem:
    return Problem("workload.task", SERVE, NOT_FOR_SERVING, READS_SERVING)


def load_any_plan(path: str | Path) -> AnyPlan:
    """Load the plan in the file at ``path``, whatever its task. Raise InputError with all problems."""
    return parse_any_plan(read_file(path, "plan", "check the path"), str(path))


def parse_any_plan(text: str, where: str = "plan") -> AnyPlan:
    """Parse the plan that ``text`` holds, whatever its task; ``where`` names the text in problems. Raise InputError."""
    problems: list[Problem] = []
    data = read_keys(text, where, PLAN, problems)
    keys = {*data, *(problem.field for problem in problems)}
    if not _serves(data, keys):
        return _training_plan(data, keys, where, problems)
    return validated(ServingFile, data, missing_lengths(data), [*problems, *contradictions(data)])


def _serves(data: Mapping[str, object], keys: set[str]) -> bool:
    """Return true for a plan of pools, also where its task is misspelled or missing."""
    if _mapping(data.get("workload")).get("task") == SERVE:
        return True
    return "pools" in keys and not keys & {"layout", "layouts"}


def _training_plan(data: Mapping[str, object], keys: set[str], where: str, problems: list[Problem]) -> Plan:
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


def dump_plan(plan: AnyPlan, notes: Mapping[str, str] | None = None) -> str:
    """Return the plan as text, defaults visible. ``notes`` are comments by path: ``{"layout.tp": "why"}``."""
    return plan_text(plan.to_data(), notes)


def plan_text(
    data: Mapping[str, object], notes: Mapping[str, str] | None = None, below: Sequence[str] = ()
) -> str:
    """Return a plan's data, of any form, as text, with lines of comments below it."""
    kept = {key: value for key, value in data.items() if value or key not in _LEFT_OUT_WHEN_EMPTY}
    return write_file(commented(kept, _flow_paths(kept), notes or {}), below=below)


def _flow_paths(data: Mapping[str, object]) -> frozenset[str]:
    """Paths of mappings that go on one line: the sections of a short plan, the entries of a long one or of pools."""
    if "layout" in data:
        return _ONE_LINE_SECTIONS
    if "pools" in data:
        sections = (f"pools.{name}.{key}" for name in _mapping(data["pools"]) for key in _ONE_LINE_IN_A_POOL)
        return frozenset(("workload", *sections))
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
