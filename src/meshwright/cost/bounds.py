"""Bounds that need no pricing: plans that can not fit are never evaluated.

Memory: the states of an average pipeline rank are at most those of the worst one, so P·states/P is a lower bound of
the peak. Proof: the maximum of P numbers is at least their mean, and activations, buffers and workspace only add.
"""

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.memory import fits
from meshwright.cost.pricing import array_shape
from meshwright.plan.arrays import PlanArrays
from meshwright.plan.coded import SHARDINGS
from meshwright.plan.setting import Setting
from meshwright.program.sharding import cut_as
from meshwright.program.states import STATE_KINDS, block_elements, state_bytes
from meshwright.program.synchronise import add
from meshwright.program.table import SHARDED


def memory_floor(plans: PlanArrays, setting: Setting) -> NDArray[np.float64]:
    """Lower bound of every plan's peak memory in bytes: states of the mean rank."""
    shape = array_shape(plans, setting)
    elements = block_elements(setting.model.blocks, shape, ends_together=True)
    whole = add(*(elements[index] for index, repeat in setting.model.chain for _ in range(repeat)))
    total = np.zeros(len(plans))
    for kind in STATE_KINDS:
        cut = np.array([kind in SHARDED[cut_as(name, setting.stack)] for name in SHARDINGS])[plans.sharding]
        # gradients that are cut are whole or not, depending on when they are reduced: without them it is a bound
        sharded = 0.0 if kind == "gradient" else state_bytes(whole, kind, True, shape, setting.stack)
        total = total + np.where(cut, sharded, state_bytes(whole, kind, False, shape, setting.stack))
    return total / plans.pp


def may_fit(plans: PlanArrays, setting: Setting) -> NDArray[np.bool_]:
    """False where the lower bound is already too much."""
    capacity = setting.cluster.pool.device.memory_bytes
    return np.asarray(fits(memory_floor(plans, setting), capacity), dtype=np.bool_)
