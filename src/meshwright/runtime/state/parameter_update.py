"""Update the parameters in use from the optimizer's, which a step or an exchange has changed."""

from meshwright.runtime.executor.block_passes import PendingExchange
from meshwright.runtime.executor.rank_plan import RankPlan


def refresh(plan: RankPlan) -> None:
    """Update the parameters that only this rank holds from the optimizer's."""
    for unit in plan.all_units:
        if unit.layout.parts == 1:
            PendingExchange(unit.gather(())).begin().finish()
