"""A run that goes on under another plan, against the run of the first plan that was never interrupted.

Islands that differ go on from their anchor under another plan, with the moments of the first of them, and a plan with
other entries of ``synchronise`` takes other steps. Then the reference is the first other plan of the family with the
entries of the target, which goes on from the same checkpoint; and all begin with the anchor and those moments.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from checkpoint_runs import on_ranks
from local_plans import Small
from raw_states import States, whole_states

from meshwright.runtime.checkpoint import restore_checkpoint, save_checkpoint
from meshwright.runtime.checkpoint.exchange_states import ANCHOR
from meshwright.runtime.checkpoint.manifest import read_manifest

BEFORE, STEPS = 3, 5
PARAMETER = "parameter"
STATES = (PARAMETER, "first_moment", "second_moment")


@dataclass(frozen=True)
class WholeRun:
    """A checkpoint of a plan in the middle of a run; losses and norms of the steps behind it, and states at the end."""

    case: Small
    checkpoint: Path
    results: torch.Tensor
    states: States


def whole_run(case, folder) -> WholeRun:
    """Run a plan in one piece, and save it in the middle."""

    def work(rank, steps):
        steps(range(1, BEFORE + 1))
        path = save_checkpoint(folder / "middle", rank, {})
        return path, steps(range(BEFORE + 1, STEPS + 1)), save_checkpoint(folder / "end", rank, {})

    path, results, end = on_ranks(case, work)[0]
    return WholeRun(case, path, numbers(results), states_of(end))


def pair_error(run: WholeRun, plans: Mapping[str, Small], target: str, folder: Path) -> float:
    """Go on from a checkpoint under another plan: the largest relative error of losses, norms and states."""
    case = plans[target]
    if takes_the_same_steps(run.case, case):
        return largest_error(run, case, folder)
    entries = case.program.synchronise
    alike = [of for of in plans.values() if of.program.synchronise == entries]
    first = next(of for of in alike if of is not run.case)
    begin = begin_error(run, case, folder / "begin")
    if first is case:
        return begin
    results, states = resumed(run, first, folder / "first")
    return max(begin, largest_error(replace(run, results=results, states=states), case, folder / "target"))


def takes_the_same_steps(source: Small, target: Small) -> bool:
    """Return whether a run goes on as before: with equal entries, each of which ends with the checkpoint."""
    entries = source.program.synchronise
    return target.program.synchronise == entries and not any(BEFORE % entry.every for entry in entries)


def largest_error(run: WholeRun, case, folder) -> float:
    """Go on from a checkpoint under another plan: the largest relative error against a run."""
    results, states = resumed(run, case, folder)
    return max(relative(results, run.results), states_error(states, run.states))


def resumed(run: WholeRun, case, folder) -> tuple[torch.Tensor, States]:
    """Return losses and norms, and the states at the end, of a plan that goes on from a checkpoint."""

    def work(rank, steps):
        restore_checkpoint(run.checkpoint, rank)
        return steps(range(BEFORE + 1, STEPS + 1)), save_checkpoint(folder, rank, {})

    results, end = on_ranks(case, work)[0]
    return numbers(results), states_of(end)


def begin_error(run: WholeRun, case, folder) -> float:
    """Return the largest relative error of the states with which a plan goes on: anchor and first moments."""

    def work(rank, steps):
        restore_checkpoint(run.checkpoint, rank)
        return save_checkpoint(folder, rank, {})

    stored = whole_states(run.checkpoint, read_manifest(run.checkpoint), (*STATES, ANCHOR))
    anchors = {(PARAMETER, name): of for (state, name), of in stored.items() if state == ANCHOR}
    expected = {key: of for key, of in stored.items() if key[0] != ANCHOR} | anchors
    return states_error(states_of(on_ranks(case, work)[0]), expected)


def states_error(found: States, expected: States) -> float:
    """Return the largest relative error of whole states."""
    assert found.keys() == expected.keys()
    return max(relative(found[name], expected[name]) for name in found)


def numbers(results) -> torch.Tensor:
    """Losses and norms of steps as a tensor."""
    return torch.tensor([[float.fromhex(value) for value in of_step] for of_step in results])


def states_of(path) -> States:
    """The whole states of a checkpoint."""
    return whole_states(path, read_manifest(path), STATES)


def relative(found, expected) -> float:
    """The largest difference in units of the largest expected value."""
    return float((found - expected).abs().max() / expected.abs().max())
