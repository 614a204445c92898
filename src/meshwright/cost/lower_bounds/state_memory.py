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
from meshwright.program.model_states.data_parallel_collectives import add
from meshwright.program.model_states.stack_zero_semantics import effective_sharding
from meshwright.program.model_states.state_elements import STATE_KINDS, block_elements
from meshwright.program.model_states.zero_sharding import SHARDED, state_bytes


def state_memory_bound(plans: PlanArrays, setting: Setting) -> NDArray[np.float64]:
    """Lower bound of every plan's peak memory in bytes: states of the mean rank."""
    shape = array_shape(plans, setting)
    elements = block_elements(setting.model.blocks, shape, ends_together=True)
    whole = add(*(elements[index] for index, repeat in setting.model.chain for _ in range(repeat)))
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
        sharded = 0.0 if kind == "gradient" else state_bytes(whole, kind, True, shape, setting.stack)
        held = np.where(cut, sharded, state_bytes(whole, kind, False, shape, setting.stack))
        total = total + (1 - shares[kind]) * held
    return total / plans.pp


def may_fit(plans: PlanArrays, setting: Setting) -> NDArray[np.bool_]:
    """Return the mask of plans whose lower bound of memory fits."""
    capacity = setting.cluster.pool.device.memory_bytes
    return np.asarray(fits(state_memory_bound(plans, setting), capacity), dtype=np.bool_)
