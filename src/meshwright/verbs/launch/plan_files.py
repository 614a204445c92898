"""The plan of a job with the files that it names, in one folder that works on any machine."""

from dataclasses import dataclass, field
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.plans.files.custom_schedule_file import renamed
from meshwright.plans.files.plan_file import Plan, dump_plan
from meshwright.plans.resolve import Resolved
from meshwright.verbs.absolute_paths import with_whole_paths

PLAN = "plan.yaml"
LISTS = "schedule.csv"
MOST_BYTES = 2**19
"""Bytes of a file that is copied: those of a ConfigMap are limited to 2**20 in all."""


@dataclass(frozen=True, slots=True)
class PlanFiles:
    """``plan.yaml`` and what it names, by file name; remarks on what was left behind."""

    files: dict[str, str]
    remarks: list[str] = field(default_factory=list)


def plan_files(resolved: Resolved, *, copied: bool) -> PlanFiles:
    """Return the plan's files: with what it names ``copied`` next to it, or named by absolute paths."""
    plan: Plan = with_whole_paths(resolved.short or resolved.long)
    if not copied:
        return PlanFiles({PLAN: dump_plan(plan)})
    files: dict[str, str] = {}
    remarks: list[str] = []
    for noun in ("model", "cluster", "stack"):
        path = Path(getattr(plan, noun))
        if not path.is_absolute():
            continue
        if path.is_dir():
            if (path / "tokenizer.json").is_file():
                remarks.append(
                    f"The tokenizer of {path} is not part of the job: name one with --tokenizer where data are text."
                )
            path = path / "config.json"
        name = f"{noun}{path.suffix}"
        files[name] = _text(noun, path)
        plan = plan.model_copy(update={noun: name})
    lists = resolved.long.choice.written
    if lists and lists.file:
        files[LISTS] = lists.text
        plan = renamed(plan, LISTS)
    return PlanFiles({PLAN: dump_plan(plan), **files}, remarks)


def _text(noun: str, path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(noun, str(path), f"cannot be read: {error}", "check the path")) from None
    if len(text.encode()) > MOST_BYTES:
        rule = f"has {len(text.encode()):,} bytes, and a job file holds at most {MOST_BYTES:,} of one file"
        raise InputError(Problem(noun, str(path), rule, "a model of the zoo or a hub id"))
    return text
