"""What an operator is handed when it works: its parameters, its micro-batch, and what it kept of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from meshwright.program.activations import Keeps
from meshwright.runtime.packing import Packing
from meshwright.runtime.unit import Unit

EVERYTHING = Keeps(inputs=True, inner=True)


@dataclass(frozen=True)
class MicroBatch:
    """Token ids and labels of one micro-batch, (sequence, batch); labels of −100 do not count.

    ``divisor`` is the number of labels of the whole batch over all ranks: the loss is their mean. ``packing`` are the
    documents that attention is confined to; None: each sequence is one. ``further`` are tokens and labels of one place
    ahead, of two …, for layers that predict further tokens; they do without where there are none.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    divisor: float
    packing: Packing | None = None
    further: tuple["MicroBatch", ...] = ()

    def positions(self, held: torch.Tensor) -> torch.Tensor:
        """The places in their documents of positions that a rank holds: (positions, batch), or 1 for all sequences."""
        return held[:, None] if self.packing is None else self.packing.positions(held)


@dataclass
class Visit:
    """One operator on one micro-batch.

    ``kept`` holds what the operator keeps from pass to pass; what is in it is live, what is not can be freed. ``unit``
    finds the unit of a parameter by its name. ``source`` is the input before it was gathered over tp, where it was.
    ``others`` are the visits of all operators of the block; ``routes`` where a dispatch has sent its rows, ``way`` how,
    ``counts`` the rows of each expert that W waits for.
    """

    unit: Callable[[str], Unit]
    batch: MicroBatch
    kept: dict[str, torch.Tensor] = field(default_factory=dict)
    keep: Keeps = EVERYTHING
    source: Any = None
    others: Mapping[str, "Visit"] = field(default_factory=dict)
    routes: Any = None
    way: Any = None
    counts: Sequence[int] = ()
