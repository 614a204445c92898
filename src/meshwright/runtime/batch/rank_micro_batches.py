"""Cut a step's batch into one rank's micro-batches: its sequences, and the positions it holds of each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from meshwright.program.program import Program
from meshwright.program.program_parts import Part
from meshwright.runtime.batch.batch_sharding import rank_positions, replica_shares, sequence_indices
from meshwright.runtime.batch.document_packing import Packing
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.kernels.vocabulary.sharded_softmax import IGNORED


class StepBatch(NamedTuple):
    """All sequences of a step, (sequence, position).

    ``begins``: the position at which each token's document begins; None: each sequence is one document. ``encoder`` is
    what an encoder reads of each sequence: token ids (sequence, token), or patches (sequence, patch, element).
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    begins: torch.Tensor | None = None
    encoder: torch.Tensor | None = None

    def ahead(self, places: int) -> "StepBatch":
        """Return the batch shifted ``places`` positions to the left, for multi-token prediction.

        Labels that fall outside the token's document are ignored.
        """

        def moved(ids: torch.Tensor, behind: int) -> torch.Tensor:
            return pad(ids, (0, places), value=behind)[:, places:]

        labels = moved(self.labels, IGNORED)
        if self.begins is not None:
            labels = labels.masked_fill(moved(self.begins, -1) != self.begins, IGNORED)
        return StepBatch(moved(self.tokens, 0), labels, self.begins, self.encoder)


def next_token_layers(program: Program) -> int:
    """Return the number of multi-token-prediction layers; all of them lie in the last stage."""
    return sum(program.blocks[block].predicts_further for block in program.stages[-1].blocks)


def micro_batches(
    program: Program, rank: int, batch: StepBatch, divisor: int, device: torch.device
) -> list[MicroBatch]:
    """Return a rank's micro-batches of a step. Document boundaries cover all positions, not only the rank's."""
    of_parts = [_of_part(program, part, rank, batch, divisor, device) for part in program.parts]
    if len(of_parts) == 1:
        return of_parts[0]
    return [replace(alike[0], of_parts=alike) for alike in zip(*of_parts, strict=True)]


def _has_encoder(program: Program, part: Part, rank: int) -> bool:
    """Return true if a rank has the encoder's stage: the first, or that of the other way."""
    firsts = {stage.rank for stage in program.stages if program.ways.is_first(stage.index)}
    return part.grid.coordinates(rank)["pp"] in firsts


def _of_part(
    program: Program, part: Part, rank: int, batch: StepBatch, divisor: int, device: torch.device
) -> list[MicroBatch]:
    """Return a rank's micro-batches as the blocks of a part take them."""
    positions = torch.tensor(rank_positions(part, rank))

    def own(ids: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        return ids[rows].index_select(1, positions).t().contiguous().to(device)

    def packing(rows: Sequence[int]) -> Packing | None:
        return None if batch.begins is None else Packing(batch.begins[rows].to(device))

    encodes = batch.encoder is not None and _has_encoder(program, part, rank)

    def read(rows: Sequence[int]) -> torch.Tensor | None:
        if not encodes or batch.encoder is None:
            return None
        return batch.encoder[rows].transpose(0, 1).contiguous().to(device)

    further = [batch.ahead(places) for places in range(1, next_token_layers(program) + 1)]

    def made(rows: Sequence[int], factor: float) -> MicroBatch:
        packed = packing(rows)
        main, *ahead = (
            MicroBatch(own(of.tokens, rows), own(of.labels, rows), divisor / factor, packed)
            for of in (batch, *further)
        )
        return replace(main, further=tuple(ahead), encoder=read(rows))

    shares = replica_shares(program, part, rank)
    each = program.micro_batches // len(shares)
    return [
        made(rows, shares[m // each % len(shares)].factor)
        for m, rows in enumerate(sequence_indices(program, part, rank))
    ]
