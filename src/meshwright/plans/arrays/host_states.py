"""Shares of optimizer states and parameters in host memory, as columns of plan arrays."""

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.forms.host_offload import HostShares, share_number

OPTIMIZER, PARAMETERS = "offloaded_optimizer", "offloaded_parameters"
"""Columns of the shares."""


def shared_host_shares(plans: PlanArrays) -> HostShares:
    """Return the shares of plans that have the same ones."""
    first = (plans.values[name][int(plans.columns[name][0]) if len(plans) else 0] for name in HOST_COLUMNS)
    return HostShares(*map(share_number, first))


def host_share(plans: PlanArrays, column: str) -> NDArray[np.float64]:
    """Return the share of one kind of state, of every plan: (n,)."""
    return np.array([share_number(value) for value in plans.values[column]])[plans.columns[column]]


def some_states_on_hosts(plans: PlanArrays) -> bool:
    """Return true if any of the plans may have model states on the hosts."""
    return any(share_number(value) > 0 for name in HOST_COLUMNS for value in plans.values[name])


HOST_COLUMNS = (OPTIMIZER, PARAMETERS)
