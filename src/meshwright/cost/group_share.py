"""Step time where the vocabulary is spread: passes of shares, and gathers and reductions of states, all played.

Lists with a spread vocabulary are always played, and differ from plan to plan. So what states exchange is played with
them (``state_stream.py``) and not estimated by the chain that ends a step.
"""

from collections.abc import Callable

import numpy as np

from meshwright.cost.group import Floats, Group
from meshwright.cost.played import Passes, SharePasses, Span, played_ends
from meshwright.cost.prices import collective_seconds
from meshwright.cost.spread_vocabulary import Share
from meshwright.cost.state_stream import States
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


def states_around(group: Group, share: Share, passes: Passes, message: Floats, span: Span) -> Floats:
    """What gathers before and reductions behind and inside the passes add to a schedule of ``span``: (n,)."""
    stack, mode = group.setting.stack, group.mode
    nothing = np.zeros((len(group.plans), len(group.placement) + group.ranks))
    first = mode.gather == "per-step" or (
        group.sharding in ("zero1", "zero2") and stack.overlap_parameter_gather
    )

    states = States(
        gathers=_parts(group, share, group.gathers_of) if first else nothing,
        reductions=_parts(group, share, group.reductions_of),
        units=[len(blocks) for blocks in group.stages] + [len(group.setting.model.vocabulary)] * group.ranks,
        ranks=[*group.placement, *range(group.ranks)],
        beside=(stack.overlap_parameter_gather, stack.overlap_gradient_reduction),
        forms=group.forms,
    )
    done = played_ends(group.schedule, passes, message, group.micro_batches, group.ranks, states)
    return _length(group, done) - _length(group, span)


def _parts(group: Group, share: Share, collectives: Collectives) -> Floats:
    """Seconds for every stage, and for the share of every rank behind them: (n, K + P)."""
    of_share = share_seconds(group, share, collectives)[:, None]
    return np.concatenate([group.seconds(collectives), np.repeat(of_share, group.ranks, 1)], 1)


def _length(group: Group, span: Span) -> Floats:
    return np.asarray((span.end - span.begin if group.steps_overlap else span.end).max(1))
