"""Price the change from each layout to each other one on a pipeline rank, in seconds."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fast_domains import usable_domain
from meshwright.cost.operators.pass_prices import reshard_seconds
from meshwright.cost.operators.price_plans import setting_hardware_times
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.setting import Setting
from meshwright.program.lowering.plan_parts import plan_parts
from meshwright.program.program_parts import Part, ProgramParts
from meshwright.program.reshard import Way, reshard_between

MOST_RANKS_OF_A_SEQUENCE = 64
"""Changes between layouts that cut a sequence over more ranks have too many pieces to be counted in a search."""
WAYS: tuple[Way, ...] = ("F", "B")


def layout_part(plan: LongPlan, setting: Setting) -> Part:
    """Return the part of a plan with one layout."""
    (name,), blocks = plan.layouts, len(setting.model.blocks)
    nouns = setting.cluster, setting.workload, setting.stack
    return plan_parts(plan, setting.model, [name] * blocks, *nouns).only


def change_seconds(parts: Sequence[Part], setting: Setting) -> NDArray[np.float64]:
    """Return the seconds of a micro-batch's change from one part to another on a pipeline rank, both ways: (S, S).

    Infinite where a sequence is cut over more than ``MOST_RANKS_OF_A_SEQUENCE``.
    """
    forms, hidden = setting_hardware_times(setting), setting.model.architecture.hidden
    domain = usable_domain(setting.cluster.pool)
    found = np.zeros((len(parts), len(parts)))
    for source, target in combinations(range(len(parts)), 2):
        if max(parts[at].grid.size(("tp", "cp")) for at in (source, target)) > MOST_RANKS_OF_A_SEQUENCE:
            found[source, target] = found[target, source] = np.inf
            continue
        pair = ProgramParts((parts[source], parts[target]), ())
        change = reshard_between(pair, ((0, 0), (1, 0)), hidden, domain)
        seconds = sum(float(reshard_seconds(change.moved(way), forms)) for way in WAYS)
        found[source, target] = found[target, source] = seconds
    return found
