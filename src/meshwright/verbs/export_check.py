"""Check an export with its target: ``CHECKS`` lists the ways, from parsing to a run."""

from collections.abc import Callable, Mapping
from typing import Any

from meshwright.errors import InputError, Problem, nearest
from meshwright.plans.resolve import Resolved

Check = Callable[[str, Mapping[str, str], Resolved, str], dict[str, Any]]


def by_parser(target: str, texts: Mapping[str, str], resolved: Resolved, python: str) -> dict[str, Any]:
    """Hand the files to the target's own parser."""
    from meshwright.frameworks.target_checks.parser_check import check_with_parser

    return check_with_parser(target, texts, python).to_json()


def by_dry_run(target: str, texts: Mapping[str, str], resolved: Resolved, python: str) -> dict[str, Any]:
    """Have the target take a step of the plan without devices, and hold it against the plan's Program."""
    from meshwright.frameworks.target_checks.dry_run import dry_run
    from meshwright.model.load import load_config

    config = load_config(resolved.long.model)
    return dry_run(target, resolved.long, resolved.setting, config, python).to_json()


CHECKS: Mapping[str, Check] = {"parser": by_parser, "dry": by_dry_run}
"""What ``export --check`` may be."""


def checked(
    how: str, target: str, texts: Mapping[str, str], resolved: Resolved, python: str
) -> dict[str, Any]:
    """Return the target's answer. Raise InputError for an unknown check or a target that is missing."""
    if how not in CHECKS:
        raise InputError(Problem("check", how, "is no way to ask a target", nearest(how, CHECKS)))
    return CHECKS[how](target, texts, resolved, python)
