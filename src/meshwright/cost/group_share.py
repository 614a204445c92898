"""Step time where the vocabulary is spread: passes of shares, and what states exchange with them."""

from collections.abc import Callable

import numpy as np

from meshwright.cost.group import Floats, Group
from meshwright.cost.played import SharePasses
from meshwright.cost.prices import collective_seconds
from meshwright.cost.spread_vocabulary import Share
from meshwright.program.items import Collective
from meshwright.program.states import Elements

Collectives = Callable[[Elements], tuple[Collective, ...]]


def share_passes(group: Group, share: Share, messages: bool) -> SharePasses:
    """The passes of all shares, and what is left of exchanges when a rank goes on, if ``messages`` take time."""
    first, last = group.placement[0], group.placement[-1]
    left = messages * (1 - share.occupancy)
    exchanges = {str(kind): left * seconds for kind, seconds in share.exchanges.items()}
    return SharePasses(share.on_ranks(first, last, group.ranks, messages), exchanges)


def share_seconds(group: Group, share: Share, collectives: Collectives) -> Floats:
    """Seconds of the collectives that the elements of a share call for: (n,)."""
    every = (collective_seconds(c, group.mesh, group.forms) for c in collectives(share.elements))
    return np.asarray(sum(every, start=np.zeros(len(group.plans))))
