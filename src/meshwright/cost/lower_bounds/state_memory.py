"""Lower bounds of memory from states alone: plans above the capacity are never evaluated.

Memory: the states of an average pipeline rank are at most those of the worst one, so P·states/P is a lower bound of
the peak; shares of them that are on the hosts are left out. Proof: the maximum of P numbers is at least their mean, and
activations, buffers and workspace only add.
"""

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.memory.memory_breakdown import fits
from meshwright.cost.operators.price_plans import array_shape
from meshwright.plans.arrays.host_states import OPTIMIZER, PARAMETERS, host_share
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.setting import Setting
from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.model_states.data_parallel_collectives import add
from meshwright.program.model_states.hidden_matrices import elements_by_optimizer
from meshwright.program.model_states.stack_zero_semantics import effective_sharding
from meshwright.program.model_states.state_elements import STATE_KINDS, Elements, block_elements
from meshwright.program.model_states.zero_sharding import SHARDED, state_bytes
from meshwright.stack.stack import Stack


def state_memory_bound(plans: PlanArrays, setting: Setting) -> NDArray[np.float64]:
    """Lower bound of every plan's peak memory in bytes: states of the mean rank."""
    shape = array_shape(plans, setting)
    elements = block_elements(setting.model.blocks, shape, ends_together=True)
    by_optimizer = elements_by_optimizer(setting.model.blocks, elements, shape, setting.stack, True)
    whole, of_optimizer = (
        add(*(each[index] for index, repeat in setting.model.chain for _ in range(repeat)))
        for each in (elements, by_optimizer)
    )
    total = np.zeros(len(plans))
    shares = {
        "parameter": host_share(plans, PARAMETERS),
        "optimizer": host_share(plans, OPTIMIZER),
        "gradient": host_share(plans, OPTIMIZER),
    }
    for kind in STATE_KINDS:
        cut = np.array([kind in SHARDED[effective_sharding(name, setting.stack)] for name in SHARDINGS])[
            plans.sharding
        ]
        # gradients that are cut are whole or not, depending on when they are reduced: without them it is a bound
        held = of_optimizer if kind == "optimizer" else whole
        sharded = 0.0 if kind == "gradient" else state_bytes(held, kind, True, shape, setting.stack)
        on_rank = np.where(cut, sharded, state_bytes(held, kind, False, shape, setting.stack))
        if kind == "optimizer":
            on_rank = on_rank + np.where(cut, *_matrix_bytes(whole, held, shape, setting.stack))
        total = total + (1 - shares[kind]) * on_rank
    return total / plans.pp


def _matrix_bytes(whole: Elements, held: Elements, shape: LocalShape, stack: Stack) -> tuple[Number, Number]:
    """Return the bytes of Muon's states of matrices: cut over the shard axes, and whole."""
    dense, expert = (a - b for a, b in zip(_trained(whole), _trained(held), strict=True))
    each = stack.matrix_optimizer_bytes
    return each * (dense / shape.shard + expert / shape.expert_shard), each * (dense + expert)


def _trained(elements: Elements) -> tuple[Number, Number]:
    trained = elements.of("optimizer")
    return trained.dense, trained.expert


def may_fit(plans: PlanArrays, setting: Setting) -> NDArray[np.bool_]:
    """Return the mask of plans whose lower bound of memory fits."""
    return np.asarray(fits(state_memory_bound(plans, setting), setting.cluster), dtype=np.bool_)
