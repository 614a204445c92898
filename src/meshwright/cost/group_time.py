"""Step time of a group of plans: pipeline, exposed gathers and reductions, norm, optimizer, as arrays.

Mirrors ``simulate/simulator.py`` action by action, in closed form; where the simulation follows every rank, this
follows the chain that ends the step. What it leaves out: how long a rank waits between its last passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.cost.group import Floats, Group, Ints
from meshwright.cost.pipeline import pipeline_seconds
from meshwright.cost.pricing import message_seconds
from meshwright.cost.step import (
    beside_gather,
    optimizer_seconds,
    reduction_slowdown,
    reduction_tail,
    send_occupancy,
)
from meshwright.program.items import Collective
from meshwright.program.lower import p2p_bytes
from meshwright.program.states import Elements
from meshwright.program.step import NORM_BYTES, tied_reduction
from meshwright.program.synchronise import gathers, reductions, whole_reduction

PARTS = ("compute", "tp", "cp", "ep", "pp", "dp", "bubble", "optimizer", "host")


@dataclass(frozen=True)
class Pipelined:
    """What the schedule's form needs of a group, with sends counted into the passes; (n, K), (n, K), (n,)."""

    forward: Floats
    backward: Floats
    message: Floats


def pipelined(group: Group, messages: bool) -> Pipelined:
    """Stage times of a group; a send keeps its rank for a part of the message's time."""
    message = _message(group) if messages else np.zeros(len(group.plans))
    kept = send_occupancy(group.chunks > 1, group.setting.stack.overlap_p2p, group.forms)
    held = np.broadcast_to((kept * message)[:, None], group.forward_s.shape).copy()
    down, up = held.copy(), held
    down[:, -1] = up[:, 0] = 0.0
    return Pipelined(group.forward_s + down, group.backward_s + up, (1 - kept) * message)


def pipeline_lengths(groups: Sequence[Group]) -> list[tuple[Floats, Floats]]:
    """Length of every group's schedule, with messages and without; groups of one shape are computed together."""
    lengths: list[tuple[Floats, Floats]] = [(np.zeros(0), np.zeros(0))] * len(groups)
    shapes: dict[tuple[str, int, int], list[int]] = {}
    for index, group in enumerate(groups):
        shapes.setdefault((group.schedule, group.ranks, group.chunks), []).append(index)
    for (schedule, ranks, _), members in shapes.items():
        parts = [pipelined(groups[i], messages) for messages in (True, False) for i in members]
        counts = np.concatenate([groups[i].micro_batches for i in members] * 2)
        forward, backward, message = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("forward", "backward", "message")
        )
        seconds = pipeline_seconds(schedule, forward, backward, message, counts, ranks)
        cuts = np.cumsum([len(part.message) for part in parts])[:-1]
        pieces = np.split(seconds, cuts)
        for at, index in enumerate(members):
            lengths[index] = pieces[at], pieces[at + len(members)]
    return lengths


def step_parts(group: Group, length: Floats, silent: Floats) -> dict[str, Floats]:
    """Seconds of a step by category, for every plan; their sum is the step time.

    ``length`` is that of the schedule, ``silent`` its length if messages took no time. compute, tp, cp, ep, host and
    the part of dp inside passes are those of the busiest pipeline rank; pp is what messages add to the pipeline,
    bubble the rest of its length; dp holds all else that is exposed.
    """
    forward, backward, message = group.forward_s, group.backward_s, _message(group)
    parts = _busiest(group, forward + backward)
    busy = sum(parts.values(), start=np.zeros(len(message)))
    parts["pp"] = np.maximum(0.0, length - silent)
    parts["bubble"] = np.maximum(0.0, length - busy - parts["pp"])
    gather, final = _gathers(group, forward, message)
    around = gather + _reductions(group, backward) + _norm_and_ties(group)
    parts["dp"] = parts.get("dp", 0.0) + around + (length - busy - parts["pp"] - parts["bubble"]) + final
    parts["optimizer"] = _optimizer(group)
    return {name: parts.get(name, np.zeros(len(message))) for name in PARTS}


def _message(group: Group) -> Floats:
    if group.ranks == 1:
        return np.zeros(len(group.plans))
    hidden = group.setting.model.architecture.hidden
    size = np.floor(p2p_bytes(hidden, group.shape, group.mode, group.setting.stack))
    return np.asarray(message_seconds(group.mesh, group.forms, size))


def _busiest(group: Group, stage_times: Floats) -> dict[str, Floats]:
    """What the busiest rank spends its passes on, times the number of micro-batches."""
    rank = group.per_rank(stage_times).argmax(1)
    rows = np.arange(len(rank))
    names = {name for parts in group.forward + group.backward for name in parts}
    result = {}
    for name in sorted(names):
        per_kind = [
            group.per_plan(f.get(name, 0.0)) + group.per_plan(b.get(name, 0.0))
            for f, b in zip(group.forward, group.backward, strict=True)
        ]
        result[name] = group.micro_batches * group.per_rank(group.spread(per_kind))[rows, rank]
    return result


def _gathers(group: Group, forward: Floats, message: Floats) -> tuple[Floats, Floats]:
    """What gathers of whole stages add before the pipeline's end, and after the optimizer."""
    nothing = np.zeros(len(message))
    if group.sharding not in ("zero1", "zero2") and group.mode.gather != "per-step":
        return nothing, nothing
    seconds = group.seconds(lambda elements: gathers(elements, "stage"))
    beside = group.setting.stack.overlap_parameter_gather
    if not beside and group.mode.gather != "per-step":
        return nothing, group.per_rank(seconds).max(1)
    return _first_passes(group, forward, message, seconds, beside), nothing


def _first_passes(group: Group, forward: Floats, message: Floats, seconds: Floats, beside: bool) -> Floats:
    """How much later the first micro-batch has passed all stages because of gathers."""
    arrival = np.zeros(len(message))
    ideal = np.zeros(len(message))
    rank_end = np.zeros((len(message), group.ranks))
    ready = np.zeros((len(message), group.ranks))
    whole = group.per_rank(seconds)
    for stage in range(forward.shape[1]):
        rank = stage % group.ranks
        ready[:, rank] += seconds[:, stage]
        gathered = ready[:, rank] if beside else whole[:, rank]
        start = np.maximum(arrival, rank_end[:, rank]) if beside else np.maximum(arrival, gathered)
        left = np.maximum(0.0, gathered - start)
        end = start + (beside_gather(forward[:, stage], left, group.forms) if beside else forward[:, stage])
        rank_end[:, rank] = end + (group.ranks - 1) * forward[:, stage]
        arrival = end + message
        ideal = ideal + forward[:, stage] + message
        if stage == group.ranks - 1:
            break
    return arrival - ideal


def _reductions(group: Group, backward: Floats) -> Floats:
    """What gradient reductions add after (and, by slowing it down, inside) the last backward passes."""
    stack, shape, mode = group.setting.stack, group.shape, group.mode

    def collectives(elements: Elements) -> tuple[Collective, ...]:
        whole = whole_reduction(elements, mode, stack)
        if mode.gather == "per-layer":
            return whole
        return reductions(elements, group.sharding, shape, stack, "stage") + whole

    seconds = group.seconds(collectives)
    if not stack.overlap_gradient_reduction:
        return _ranks_end(group, backward, group.per_rank(seconds))
    units = np.array([len(blocks) for blocks in group.stages])
    slowed = np.asarray(reduction_slowdown(seconds, backward, units, group.forms)).sum(1)
    return slowed + _ranks_end(group, backward, _first_chunks_tail(group, seconds, backward, units))


def _first_chunks_tail(group: Group, seconds: Floats, backward: Floats, units: Ints) -> Floats:
    """What is left of each rank's reductions when its last pass ends: (n, P).

    A rank's reductions follow each other. Between the last pass of its chunk c+1 and that of its chunk c the last
    micro-batch comes back through the P−1 stages between the two: what chunk c+1's reduction needs beyond that
    delays chunk c's.
    """
    ranks, message = group.ranks, _message(group)[:, None]
    passed = np.cumsum(backward, 1)
    tail = np.zeros((len(seconds), ranks))
    for first in range((group.chunks - 1) * ranks, -1, -ranks):
        chunk = slice(first, first + ranks)
        ahead = np.zeros_like(tail)
        if first + ranks < len(group.stages):
            between = passed[:, first + ranks - 1 : first + 2 * ranks - 1] - passed[:, chunk]
            ahead = np.maximum(0.0, tail - between - ranks * message)
        tail = np.asarray(
            reduction_tail(seconds[:, chunk], backward[:, chunk], units[chunk], group.forms, ahead)
        )
    return tail


def _ranks_end(group: Group, backward: Floats, after: Floats) -> Floats:
    """How much later than rank 0's last pass the last rank is done, when rank r still needs ``after[r]``.

    Rank r ends its passes Σ_{j<r} B_j before rank 0.
    """
    first = backward[:, : group.ranks]
    earlier = np.cumsum(first, 1) - first
    return np.maximum(0.0, (after - earlier).max(1))


def _norm_and_ties(group: Group) -> Floats:
    size, local = group.mesh.group(("world",))
    seconds = np.asarray(group.forms.collective("all-reduce", NORM_BYTES, size, local))
    if group.setting.model.architecture.tied_embeddings and group.ranks > 1:
        embedding = group.per_plan_elements(group.block_elements[group.stages[0][0]])
        tied = tied_reduction(embedding, group.setting.stack)
        size, local = group.mesh.group(tied.axes)
        seconds = seconds + group.forms.collective(tied.kind, tied.logical_bytes, size, local)
    return seconds


def _optimizer(group: Group) -> Floats:
    """The slowest rank's optimizer step."""
    return np.asarray(optimizer_seconds(group.held("optimizer"), group.forms)).max(1)
