"""Inputs of an operator's kernel: its parameters, its micro-batch, and the tensors saved from earlier passes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from meshwright.program.activation_bytes import SavedTensors
from meshwright.runtime.batch.document_packing import Packing

EVERYTHING = SavedTensors(inputs=True, inner=True)


@dataclass(frozen=True)
class MicroBatch:
    """Token ids and labels of one micro-batch, (sequence, batch); labels of −100 do not count.

    ``divisor`` is the number of labels of the whole batch over all ranks: the loss is their mean. ``packing`` holds the
    documents that attention is confined to; None: each sequence is one document. ``further`` holds the tokens and
    labels shifted by one place, by two …, for multi-token-prediction layers; these are skipped if there are none.
    ``of_parts`` are the tokens that the rank holds in each part of a Program with several. ``encoder`` is what a
    model's encoder reads: token ids (encoder tokens, batch), or patches (patches, batch, elements of one).
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    divisor: float
    packing: Packing | None = None
    further: tuple["MicroBatch", ...] = ()
    of_parts: tuple["MicroBatch", ...] = ()
    encoder: torch.Tensor | None = None

    def on(self, part: int) -> "MicroBatch":
        """Return the micro-batch as a rank holds it in a part of the Program."""
        return self.of_parts[part] if self.of_parts else self

    def positions(self, held: torch.Tensor) -> torch.Tensor:
        """Return each held position's offset in its document: (positions, batch).

        (positions, 1) if all sequences agree.
        """
        return held[:, None] if self.packing is None else self.packing.positions(held)


@dataclass
class OperatorCall:
    """One operator on one micro-batch.

    ``kept`` holds the tensors that the operator saves from pass to pass; what is in it is live, everything else can be
    freed. ``unit`` finds the unit of a parameter by name, trained or frozen. ``source`` is the input before its
    all-gather over tp, if there was one. ``others`` are the calls of all operators of the block; ``routes`` is where a
    dispatch sent its rows, ``way`` how, ``counts`` the rows of each expert that W needs.
    """

    unit: Callable[[str], Any]
    batch: MicroBatch
    kept: dict[str, torch.Tensor] = field(default_factory=dict)
    keep: SavedTensors = EVERYTHING
    source: Any = None
    others: Mapping[str, "OperatorCall"] = field(default_factory=dict)
    routes: Any = None
    way: Any = None
    counts: Sequence[int] = ()
