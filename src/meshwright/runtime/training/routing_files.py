"""Write the routers' choices over all steps of a run as files for ``plan --routing``.

The format is that of ``workload/expert_counts_file.py``. Counts: a line for each routed layer, a number for each
expert. Pairs: how often a token chose both of two experts, a table for each routed layer.
"""

from pathlib import Path

import torch

from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import expert_choice_counts
from meshwright.runtime.comm.routing_count_exchange import sum_router_counts
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.executor.router_statistics import load_rows
from meshwright.runtime.state.parameter_lifecycle import WORLD
from meshwright.workload.expert_counts_file import PAIRS


def routing_counts_of_run(rank: Rank, model: ModelGraph) -> torch.Tensor | None:
    """Return the choices of all ranks, (layers, experts, experts); None for models without experts."""
    sizes = {name: (experts, experts) for name, (experts,) in expert_choice_counts(model).items()}
    if not sizes:
        return None
    own = load_rows(rank.interpreter.states.plan.tally.seen, sizes).to(rank.communicator.device)
    return sum_router_counts(rank.communicator, own, WORLD).cpu()


def dropped_of_run(rank: Rank, chosen: torch.Tensor) -> float | None:
    """Return the share of these choices that exceeded expert capacity; None without a capacity."""
    if rank.communicator.part.shape.capacity is None:
        return None
    own = torch.as_tensor(rank.interpreter.states.plan.tally.dropped, device=rank.communicator.device)
    choices = int(chosen.diagonal(dim1=1, dim2=2).sum())
    return int(sum_router_counts(rank.communicator, own.clone(), WORLD)) / choices if choices else 0.0


def write_choices(counts: Path, pairs: Path, chosen: torch.Tensor) -> None:
    """Write the choices to both files."""
    counts.write_text(_lines(chosen.diagonal(dim1=1, dim2=2)), encoding="utf-8")
    pairs.write_text(f"{PAIRS}\n" + _lines(chosen.flatten(0, 1)), encoding="utf-8")


def _lines(table: torch.Tensor) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in table.tolist())
