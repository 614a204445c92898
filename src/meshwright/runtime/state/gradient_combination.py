"""Combine the replicas' rows of all units by a rule that goes by products of whole rows: Krum, Flag.

Every replica has the rows of all. Each rank multiplies what it counts in the gradient norm, so that a sum over all
ranks has every element of the model once, however tp, pp and shards cut it.
"""

from dataclasses import dataclass

import torch

from meshwright.plans.synchronisation.synchronisation import combined_entry
from meshwright.program.lowering.step_collectives import PRODUCT_BYTES
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.state.optimizer import Optimizer
from meshwright.runtime.synchronisation.combine import WEIGHT_RULES, products_of, weighted_sum
from meshwright.runtime.synchronisation.participation import Participation


@dataclass
class GradientCombination:
    """The rule of a rank's gradients. ``participation`` says whose rows there are."""

    plan: RankPlan
    optimizer: Optimizer
    participation: Participation

    def finish(self, item: Collective) -> None:
        """Combine the rows of all units; ``item`` is the sum of their products over ranks."""
        program = self.plan.program
        entry = combined_entry(program.synchronise)
        assert entry is not None
        said = program.synchronise[entry]
        replicas = program.group_size((said.axis,))
        rows = len(self.participation.arrived(replicas))
        products = torch.zeros(replicas, replicas, dtype=torch.float64, device=self.plan.communicator.device)
        products[:rows, :rows] = self._products(rows)
        self.plan.communicator.start(item, products, PRODUCT_BYTES).wait()
        weights = WEIGHT_RULES[said.combination](said.combination_options, products[:rows, :rows])
        for unit in self.plan.trained_units:
            codecs = unit.codecs
            if codecs is None or codecs.rows is None:
                continue
            assert unit.reduced is not None
            combined = weighted_sum(codecs.rows, weights)
            unit.reduced[: len(combined)] = combined
            codecs.rows = None

    def _products(self, rows: int) -> torch.Tensor:
        """Return the products of what this rank counts."""
        device = self.plan.communicator.device
        total = torch.zeros(rows, rows, dtype=torch.float64, device=device)
        for unit in self.plan.trained_units:
            held = None if unit.codecs is None else unit.codecs.rows
            if held is not None:
                for start, stop in self.optimizer.counted[unit.name]:
                    total += products_of(held[:, start:stop])
        return total
