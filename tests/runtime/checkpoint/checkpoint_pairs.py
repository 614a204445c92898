"""A run that goes on under another plan, beside the run of the first plan that was never interrupted."""

from dataclasses import dataclass
from pathlib import Path

import torch
from checkpoint_runs import on_ranks
from raw_states import States, whole_states

from meshwright.runtime.checkpoint import restore_checkpoint, save_checkpoint
from meshwright.runtime.checkpoint.manifest import read_manifest

BEFORE, STEPS = 3, 5
STATES = ("parameter", "first_moment", "second_moment")


@dataclass(frozen=True)
class WholeRun:
    """A checkpoint in the middle of a run; losses and norms of the steps behind it, and states at the end."""

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
    return WholeRun(path, numbers(results), states_of(end))


def largest_error(run: WholeRun, case, folder) -> float:
    """Go on from a checkpoint under another plan: the largest relative error of losses, norms and states."""

    def work(rank, steps):
        restore_checkpoint(run.checkpoint, rank)
        return steps(range(BEFORE + 1, STEPS + 1)), save_checkpoint(folder, rank, {})

    results, end = on_ranks(case, work)[0]
    states = states_of(end)
    assert states.keys() == run.states.keys()
    errors = [relative(states[name], run.states[name]) for name in states]
    return max(relative(numbers(results), run.results), *errors)


def numbers(results) -> torch.Tensor:
    """Losses and norms of steps as a tensor."""
    return torch.tensor([[float.fromhex(value) for value in of_step] for of_step in results])


def states_of(path) -> States:
    """The whole states of a checkpoint."""
    return whole_states(path, read_manifest(path), STATES)


def relative(found, expected) -> float:
    """The largest difference in units of the largest expected value."""
    return float((found - expected).abs().max() / expected.abs().max())
