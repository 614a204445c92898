"""Bound what plans whose layers differ can gain over the best plan with one layout, without searching them."""

import numpy as np

from meshwright.cost.closed_form.evaluate_plans import mode_groups
from meshwright.cost.operators.pass_prices import total
from meshwright.cost.operators.price_plans import pass_kinds
from meshwright.plans.setting import Setting
from meshwright.search.space.plan_space import Space
from meshwright.verbs.plan.layers.pipeline_strategies import chain_kinds


def least_step_of_ranges(space: Space, setting: Setting) -> float:
    """Return a lower bound, in seconds, of the step of any plan whose layers have strategies of a space.

    Each block has the strategy whose passes take a pipeline rank the least, whatever it holds: a step's P ranks have M
    micro-batches each, the mean rank M/P times the seconds of all blocks. Recomputation, exchanges of states, messages
    and the optimizer are left out.
    """
    plans = space.base
    words = plans.values["recompute"]
    code = words.index("none") if "none" in words else 0
    plans = plans.with_columns({"recompute": np.full(len(plans), code, dtype=plans.recompute.dtype)})
    plans = plans.take(plans.sharding == plans.sharding.min())
    share = plans.micro_batches(setting.workload.computed_sequences) / plans.pp
    least = dict.fromkeys(chain_kinds(setting), np.inf)
    for group in mode_groups(plans, setting):
        kinds = pass_kinds(plans.schedules[int(plans.schedule[group.rows[0]])], setting.stack)
        for block in least:
            if block in group.setting.model.vocabulary:
                continue
            seconds = np.asarray(sum(total(group.prices.block(block, kind)) for kind in kinds))
            of_rows = share[group.rows] * (seconds[group.inverse] if seconds.ndim else seconds)
            least[block] = min(least[block], float(of_rows.min(initial=np.inf)))
    return sum(least[block] for block in chain_kinds(setting))
