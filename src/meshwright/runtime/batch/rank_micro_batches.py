"""Cut a step's batch into one rank's micro-batches: its sequences, and the positions it holds of each."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from meshwright.program.program import Program
from meshwright.runtime.batch.batch_sharding import rank_positions, sequence_indices
from meshwright.runtime.batch.document_packing import Packing
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.kernels.vocabulary.sharded_softmax import IGNORED


class StepBatch(NamedTuple):
    """All sequences of a step, (sequence, position).

    ``begins``: the position at which each token's document begins; None: each sequence is one document.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    begins: torch.Tensor | None = None

    def ahead(self, places: int) -> "StepBatch":
        """Return the batch shifted ``places`` positions to the left, for multi-token prediction.

        Labels that fall outside the token's document are ignored.
        """

        def moved(ids: torch.Tensor, behind: int) -> torch.Tensor:
            return pad(ids, (0, places), value=behind)[:, places:]

        labels = moved(self.labels, IGNORED)
        if self.begins is not None:
            labels = labels.masked_fill(moved(self.begins, -1) != self.begins, IGNORED)
        return StepBatch(moved(self.tokens, 0), labels, self.begins)


def next_token_layers(program: Program) -> int:
    """Return the number of multi-token-prediction layers; all of them lie in the last stage."""
    return sum(program.blocks[block].predicts_further for block in program.stages[-1].blocks)


def micro_batches(
    program: Program, rank: int, batch: StepBatch, divisor: int, device: torch.device
) -> list[MicroBatch]:
    """Return a rank's micro-batches of a step. Document boundaries cover all positions, not only the rank's."""
    positions = torch.tensor(rank_positions(program.parts.only, rank))

    def part(ids: torch.Tensor, rows: range) -> torch.Tensor:
        return ids[rows.start : rows.stop].index_select(1, positions).t().contiguous().to(device)

    def packing(rows: range) -> Packing | None:
        return None if batch.begins is None else Packing(batch.begins[rows.start : rows.stop].to(device))

    further = [batch.ahead(places) for places in range(1, next_token_layers(program) + 1)]

    def made(rows: range) -> MicroBatch:
        packed = packing(rows)
        main, *ahead = (
            MicroBatch(part(of.tokens, rows), part(of.labels, rows), divisor, packed)
            for of in (batch, *further)
        )
        return replace(main, further=tuple(ahead))

    return [made(rows) for rows in sequence_indices(program, program.parts.only, rank)]
