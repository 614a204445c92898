"""Replay state gathers and reductions together with a schedule's passes, for their exposed time.

Where the vocabulary is spread, or activations go to the host, lists are always played, and ranks wait in the middle of
them. So what states exchange is played with them (``play/data_parallel_streams.py``) and not
estimated by the chain that ends a step.
"""

import numpy as np

from meshwright.cost.closed_form.bidirectional_reduction_times import mirrored_seconds
from meshwright.cost.closed_form.group_parts import CollectivesOf
from meshwright.cost.closed_form.pipeline_vocabulary_passes import share_seconds
from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.cost.closed_form.step_time import step_length
from meshwright.cost.pipeline_time.exchange_times import ExchangeTimes
from meshwright.cost.pipeline_time.time_action_lists import Passes, Span, played_ends
from meshwright.program.lowering.step_collectives import gathers_stages, overlapped_kinds


def plays_state_exchanges(group: PlanGroup) -> bool:
    """Return true if state exchanges are played with the passes; units have their own exchanges."""
    return group.share is not None or (group.copies is not None and not group.by_unit)


def exposed_state_exchanges(group: PlanGroup, passes: Passes, message: Floats, span: Span) -> Floats:
    """Return the seconds that state exchanges add to a schedule of ``span``: (n,)."""
    stack = group.setting.stack
    shares = group.ranks if group.share is not None else 0
    nothing = np.zeros((len(group.plans), len(group.placement) + shares))
    early = any(map(gathers_stages, group.parts)) and group.gathered_early.any()
    states = ExchangeTimes(
        gather=_parts(group, group.gathers_of) if early else nothing,
        reduce=_parts(group, group.reductions_of),
        overlapped=overlapped_kinds(stack),
        slowdown=group.forms.constants["overlap_slowdown"],
        blocks=(*map(len, group.stages), *[len(group.setting.model.vocabulary)] * shares),
    )
    done = span
    if states.gather.any() or states.reduce.any():
        slower = passes._replace(exchanges=states)
        done = played_ends(group.schedule, slower, message, group.micro_batches, group.ranks)
    done = done._replace(end=done.end + mirrored_seconds(group))
    return step_length(group, done) - step_length(group, span)


def _parts(group: PlanGroup, collectives: CollectivesOf) -> Floats:
    """Seconds for every stage, and for the share of every rank behind them: (n, K + P)."""
    if group.share is None:
        return group.seconds(collectives)
    of_share = share_seconds(group, group.share, collectives)[:, None]
    return np.concatenate([group.seconds(collectives), np.repeat(of_share, group.ranks, 1)], 1)
