"""Bounds that need no pricing: plans that can not fit are never evaluated.

Memory: the states of an average pipeline rank are at most those of the worst one, so P·states/P is a lower bound of
the peak. Proof: the maximum of P numbers is at least their mean, and activations, buffers and workspace only add.
"""

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.memory import fits
from meshwright.cost.pricing import array_shape
from meshwright.plan.arrays import SHARDINGS, PlanArrays
from meshwright.plan.setting import Setting
from meshwright.program.shape import LocalShape
from meshwright.program.sharding import cut_as
from meshwright.program.states import STATE_KINDS, Elements, block_elements, state_bytes
from meshwright.program.synchronise import add
from meshwright.program.table import SHARDED
from meshwright.stack.stack import Stack


def memory_floor(plans: PlanArrays, setting: Setting) -> NDArray[np.float64]:
    """Lower bound of every plan's peak memory in bytes: states of the mean rank."""
    shape = array_shape(plans, setting)
    elements = block_elements(setting.model.blocks, shape, ends_together=True)
    whole = add(*(elements[index] for index, repeat in setting.model.chain for _ in range(repeat)))
    return least_state_bytes(whole, plans, shape, setting.stack) / plans.pp


def least_state_bytes(
    elements: Elements, plans: PlanArrays, shape: LocalShape, stack: Stack
) -> NDArray[np.float64]:
    """Bytes of the states of so many elements on a rank that holds them, a row for each plan.

    Gradients that are cut are whole or not, depending on when they are reduced; leaving them out keeps it a bound.
    """
    result = np.zeros(len(plans))
    for kind in STATE_KINDS:
        cut = np.array([kind in SHARDED[cut_as(name, stack)] for name in SHARDINGS])[plans.sharding]
        sharded = 0.0 if kind == "gradient" else state_bytes(elements, kind, True, shape, stack)
        result = result + np.where(cut, sharded, state_bytes(elements, kind, False, shape, stack))
    return result


def may_fit(plans: PlanArrays, setting: Setting) -> NDArray[np.bool_]:
    """False where the lower bound is already too much."""
    capacity = setting.cluster.pool.device.memory_bytes
    return np.asarray(fits(memory_floor(plans, setting), capacity), dtype=np.bool_)
