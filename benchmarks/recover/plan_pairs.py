"""Continue runs from checkpoints of one plan under every other one."""

from pathlib import Path
from tempfile import TemporaryDirectory

from checkpoint_pairs import pair_error, whole_run
from kept_parts import kept
from reshard_plans import FAMILIES

LIMIT = 1e-9


def plan_pairs() -> tuple[str, bool]:
    """Return the section, and whether all pairs agree."""
    errors = {
        (family, source): kept(
            f"pairs {family} {source}", lambda family=family, source=source: errors_from(family, source)
        )
        for family, plans in FAMILIES.items()
        for source in plans
    }
    every = [error for found in errors.values() for error in found.values()]
    text = f"""A run of five steps in fp64 is saved after three. New processes go on under another plan, and losses,
gradient norms, parameters and both moments are compared with the run in one piece under the first plan. The error is
the largest difference in units of the largest value of a tensor. Plans: `tests/runtime/checkpoint/reshard_plans.py`.
Islands that differ when they are saved, and plans with other entries of `synchronise`, take other steps than the first
plan. They are compared with another plan of the same entries that goes on from the same checkpoint; and what they begin
with, with the anchor and the first island's moments.

{len(every)} ordered pairs of plans, {sum(error <= LIMIT for error in every)} within {LIMIT:g};
the largest error is {max(every):.1e}.

{pairs_table(errors)}"""
    return text, max(every) <= LIMIT


def errors_from(family: str, source: str) -> dict[str, float]:
    """Save a run of a plan and go on under every other one: the largest relative error of each."""
    plans = FAMILIES[family]
    with TemporaryDirectory() as folder:
        run = whole_run(plans[source], Path(folder) / "whole")
        return {
            target: pair_error(run, plans, target, Path(folder) / str(number))
            for number, target in enumerate(plans)
            if target != source
        }


def pairs_table(errors: dict[tuple[str, str], dict[str, float]]) -> str:
    """Each saved plan, and the plan that it differs from most."""
    lines = ["| model | saved under | plans that go on | largest error | under |", "|---|---|--:|--:|---|"]
    for (family, source), found in errors.items():
        worst = max(found, key=lambda target: found[target])
        lines.append(f"| {family} | {source} | {len(found)} | {found[worst]:.1e} | {worst} |")
    return "\n".join(lines)
