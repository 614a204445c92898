"""What routers chose in all steps of a run: a line for each routed layer, a number for each expert.

As ``plan --routing`` reads it (``workload/counts_file.py``).
"""

from collections.abc import Sequence
from pathlib import Path

from meshwright.model.graph import ModelGraph
from meshwright.model.running import counted_choices
from meshwright.runtime.choice_counts import summed
from meshwright.runtime.rank import Rank
from meshwright.runtime.step_states import WORLD
from meshwright.runtime.tally import rows_of

Counts = Sequence[Sequence[int]]


def choices_of_run(rank: Rank, model: ModelGraph) -> Counts:
    """The choices of all ranks together, by layer and expert; nothing for models without experts."""
    layers = counted_choices(model)
    if not layers:
        return ()
    own = rows_of(rank.interpreter.states.plan.tally.seen, layers).to(rank.communicator.device)
    return [[int(count) for count in row] for row in summed(rank.communicator, own, WORLD).tolist()]


def write_choices(path: Path, counts: Counts) -> None:
    """Write them to a file."""
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in counts), encoding="utf-8")
