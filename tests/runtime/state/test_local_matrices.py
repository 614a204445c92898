"""Owners of whole matrices: as many of each kind as the plan's prices say, every element once."""

from collections import Counter

import pytest
from covering_plans import Proven

from meshwright.model.named_tensors import runnable_numerics
from meshwright.program.model_states.hidden_matrices import stage_matrices, stepped
from meshwright.program.rank_units.local_matrices import local_matrices, segments
from meshwright.runtime.executor.rank_plan import rank_plan
from meshwright.runtime.precision import PRECISIONS


class Alone:
    """A communicator of a rank that exchanges nothing."""

    def __init__(self, program, rank):
        import torch

        self.program, self.rank, self.device = program, rank, torch.device("cpu")
        self.pipeline_rank, self.part, self.part_index = (
            program.parts.pipeline_rank(rank),
            program.parts.only,
            0,
        )

    def on(self, part_index):
        return self

    def place_in(self, axes):
        return self.part.mesh_with(axes).group_of(self.rank, axes).index(self.rank)


PLANS = (
    Proven("llama", dp_shard=3, sharding="zero1", optimizer="muon"),
    Proven("qwen3", pp=2, dp_shard=2, cp=2, sharding="zero2", layers=4, optimizer="muon"),
    Proven("mixtral", dp_shard=4, tp=2, ep=2, sharding="zero1", sequence_parallel=True, optimizer="muon"),
)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.model)
def test_every_matrix_has_one_owner_and_the_first_ones_have_as_many_as_are_priced(plan):
    program, model = plan.lowered()
    numerics = runnable_numerics(model.architecture)
    held = []
    for rank in range(plan.ranks):
        communicator = Alone(program, rank)
        parts = rank_plan(program, model, numerics, communicator, PRECISIONS["fp32"])
        for stage in parts.stages:
            kinds = stage_matrices((program.blocks[b] for b in program.stages[stage].blocks), program.stack)
            places = {unit.layout.mesh.width: unit.part for unit in parts.units_of(stage)}
            priced = stepped(
                kinds,
                program.parts.only.sharding,
                program.parts.only.shape,
                program.stack,
                (places["tp"], places.get("etp", 0)),
            )
            found = Counter()
            for unit in parts.units_of(stage):
                matrices = local_matrices(parts.named_blocks, unit.layout, program.stack)
                for index, start, stop, _ in segments(unit.layout, unit.part, matrices):
                    matrix = matrices[index]
                    assert (start, stop) == (0, matrix.stop - matrix.start)
                    found[matrix.kind] += 1
                    held.append((stage, matrix.kind.expert and unit.part, matrix.name, matrix.start))
                every = [
                    range(*piece) for part in range(unit.layout.parts) for piece in unit.layout.pieces(part)
                ]
                assert sorted(i for piece in every for i in piece) == list(range(unit.layout.size))
            assert found == Counter({kind: int(number) for kind, number in priced.items() if number})
    assert held
