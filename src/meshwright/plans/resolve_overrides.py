"""A plan with some of its settings changed, resolved."""

from dataclasses import replace
from pathlib import Path

from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.files.custom_schedule_file import with_custom_lists_read
from meshwright.plans.forms.conversion import shorten
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.overrides import apply_overrides, moved_degrees
from meshwright.plans.resolve import Resolved, resolve


def resolve_overrides(read: ShortPlan | LongPlan, settings: tuple[str, ...]) -> Resolved:
    """Return the plan with its settings; its warnings name degrees that changed without being set."""
    short = shorten(read) if isinstance(read, LongPlan) else read
    if short is None:
        rule = "the plan has no short form, so single settings can not be changed"
        raise InputError(Problem("set", list(settings), rule, "edit the file"))
    pairs = (setting.partition("=") for setting in settings)
    named = {name.strip(): value.strip() for name, _, value in pairs}.get("cluster", short.cluster)
    problems: list[Problem] = []
    cluster = attempted(lambda: load_cluster(named), problems)
    devices = None if cluster is None else cluster.devices
    changed = attempted(lambda: apply_overrides(short, settings, devices), problems)
    if problems or changed is None:
        raise InputError(problems)
    found = resolve(with_custom_lists_read(changed, Path()))
    return replace(found, warnings=(*moved_degrees(short, changed, settings), *found.warnings))
