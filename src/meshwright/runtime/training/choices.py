"""What routers chose in all steps of a run, in files that ``plan --routing`` reads (``workload/counts_file.py``).

Counts: a line for each routed layer, a number for each expert. Pairs: how often a token chose both of two experts, a
table for each routed layer.
"""

from pathlib import Path

import torch

from meshwright.model.graph import ModelGraph
from meshwright.model.running import counted_choices
from meshwright.runtime.choice_counts import summed
from meshwright.runtime.rank import Rank
from meshwright.runtime.step_states import WORLD
from meshwright.runtime.tally import rows_of
from meshwright.workload.counts_file import PAIRS


def choices_of_run(rank: Rank, model: ModelGraph) -> torch.Tensor | None:
    """The choices of all ranks together, (layers, experts, experts); None for models without experts."""
    sizes = {name: (experts, experts) for name, (experts,) in counted_choices(model).items()}
    if not sizes:
        return None
    own = rows_of(rank.interpreter.states.plan.tally.seen, sizes).to(rank.communicator.device)
    return summed(rank.communicator, own, WORLD).cpu()


def dropped_of_run(rank: Rank, chosen: torch.Tensor) -> float | None:
    """The share of these choices that experts had no place for; None where they have no capacity."""
    if rank.communicator.program.shape.capacity is None:
        return None
    own = torch.as_tensor(rank.interpreter.states.plan.tally.dropped, device=rank.communicator.device)
    choices = int(chosen.diagonal(dim1=1, dim2=2).sum())
    return int(summed(rank.communicator, own.clone(), WORLD)) / choices if choices else 0.0


def write_choices(counts: Path, pairs: Path, chosen: torch.Tensor) -> None:
    """Write them to both files."""
    counts.write_text(_lines(chosen.diagonal(dim1=1, dim2=2)), encoding="utf-8")
    pairs.write_text(f"{PAIRS}\n" + _lines(chosen.flatten(0, 1)), encoding="utf-8")


def _lines(table: torch.Tensor) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in table.tolist())
