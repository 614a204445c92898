"""Step time with a vocabulary spread over pipeline ranks: its passes, and overlapped state exchanges."""

import numpy as np

from meshwright.cost.closed_form.group_parts import CollectivesOf
from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.cost.operators.pass_prices import collective_seconds
from meshwright.cost.operators.pipeline_vocabulary_costs import Share
from meshwright.cost.pipeline_time.time_action_lists import SharePasses


def share_passes(group: PlanGroup, share: Share, messages: bool) -> SharePasses:
    """Return the passes of all shares, and the remaining exchange time if ``messages`` take time."""
    first, last = group.placement[0], group.placement[-1]
    left = messages * (1 - share.occupancy)
    exchanges = {str(kind): left * seconds for kind, seconds in share.exchanges.items()}
    return SharePasses(share.on_ranks(first, last, group.ranks, messages), exchanges)


def share_seconds(group: PlanGroup, share: Share, collectives: CollectivesOf) -> Floats:
    """Seconds of the collectives that the elements of a share call for: (n,)."""
    every = (
        collective_seconds(c, group.mesh, group.forms) for c in collectives(group.parts[0], share.elements)
    )
    return np.asarray(sum(every, start=np.zeros(len(group.plans))))
