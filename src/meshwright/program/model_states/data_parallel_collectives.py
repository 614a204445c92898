"""Data-parallel collectives: gathers and reductions for a unit of parameters.

=========  =====================================  ==========================================
sharding   gradients                              parameters
=========  =====================================  ==========================================
none       all-reduce over all replicas           (replicated)
zero1, 2   reduce-scatter over the shard axes     all-gather after the optimizer
zero3      reduce-scatter over the shard axes     all-gather before use, as ``gather`` says
=========  =====================================  ==========================================

With ``gradient_reduction: all-reduce`` a stack all-reduces gradients over the shard axes under zero1 and zero2.
The shard axes are (cp, dp_shard) for dense and edp_shard for expert parameters; what is left is all-reduced over
dp_replicate or edp_replicate (Rajbhandari et al., arXiv 1910.02054; hybrid sharding: Zhao et al., arXiv
2304.11277, section 3.2.2). Sequence parallelism leaves partial gradients of the parameters that tp does not
cut, and norms of single heads and adapters have them without it: they are all-reduced over tp before all else. Frozen
parameters with a type of their own are gathered as they are stored. Tensors that every data-parallel rank trains for
itself are all-reduced over cp, and never cut.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.lowering.pass_bodies import UnitExchanges
from meshwright.program.model_states.state_elements import (
    DENSE_REPLICA_AXES,
    DENSE_SHARD_AXES,
    EXPERT_REPLICA_AXES,
    EXPERT_SHARD_AXES,
    NOT_PACKED,
    Elements,
    Packed,
    is_some,
)
from meshwright.program.model_states.uneven_shards import largest_shard
from meshwright.program.pass_items import Collective, CollectiveKind, PassKind
from meshwright.program.synchronisation.exact_entries import with_entries
from meshwright.stack.stack import Stack


class EncodedAxes(NamedTuple):
    """Numbers of entries of ``synchronise`` by axis: of gathers of parameters, and of reductions of gradients."""

    gathers: Mapping[str, int]
    reductions: Mapping[str, int]


NOTHING_ENCODED = EncodedAxes({}, {})
GATHERED_BYTES = 2
"""Bytes per element of a parameter that is whole on a rank; on the wire it may have fewer."""
OWN_AXES = ("cp",)
"""Ranks that have the sequences of a data-parallel rank, whose own tensors only they share."""


def gathers(elements: Elements, stack: Stack, what: str) -> tuple[Collective, ...]:
    """All-gathers that make a unit's sharded parameters whole on every rank."""
    size, packed = stack.parameter_wire_bytes, elements.packed
    return _nonzero(
        _collective("all-gather", DENSE_SHARD_AXES, size, elements.dense, what),
        _collective("all-gather", EXPERT_SHARD_AXES, size, elements.expert, what),
        _collective("all-gather", DENSE_SHARD_AXES, 1, packed.dense_bytes, f"{what} as stored"),
        _collective("all-gather", EXPERT_SHARD_AXES, 1, packed.expert_bytes, f"{what} as stored"),
    )


def step_gathers(elements: Elements, sharding: str, stack: Stack, what: str) -> tuple[Collective, ...]:
    """Return the parameter gathers of a step: everything under ZeRO-3, else what the optimizer changed."""
    return gathers(elements if sharding == "zero3" else elements.of("optimizer"), stack, what)


def reductions(
    elements: Elements, sharding: str, shape: LocalShape, stack: Stack, what: str
) -> tuple[Collective, ...]:
    """Return the collectives that reduce a unit's local gradients for the optimizer."""
    size, elements = stack.gradient_communication_bytes, elements.of("gradient")
    own = _collective("all-reduce", OWN_AXES, size, elements.own, what)
    if sharding == "none":
        return _nonzero(
            own,
            _collective("all-reduce", DENSE_SHARD_AXES + DENSE_REPLICA_AXES, size, elements.dense, what),
            _collective("all-reduce", EXPERT_SHARD_AXES + EXPERT_REPLICA_AXES, size, elements.expert, what),
        )
    whole = stack.gradient_reduction == "all-reduce" and sharding != "zero3"
    kind: CollectiveKind = "all-reduce" if whole else "reduce-scatter"
    dense_shard = largest_shard(elements.dense, shape)
    expert_shard = np.ceil(elements.expert / shape.expert_shard)
    return _nonzero(
        own,
        _collective(kind, DENSE_SHARD_AXES, size, elements.dense, what),
        _collective("all-reduce", DENSE_REPLICA_AXES, size, dense_shard, what),
        _collective(kind, EXPERT_SHARD_AXES, size, elements.expert, what),
        _collective("all-reduce", EXPERT_REPLICA_AXES, size, expert_shard, what),
    )


def whole_reduction(elements: Elements, mode: Mode, stack: Stack) -> tuple[Collective, ...]:
    """All-reduce over tp of gradients that each tp rank has computed from its own tokens or heads only."""
    size, trained = stack.gradient_communication_bytes, elements.of("gradient")
    partial = trained.whole if mode.sequence_parallel else trained.partial
    return _nonzero(_collective("all-reduce", ("tp",), size, partial, "whole"))


def unit_reduction(
    elements: Elements, sharding: str, mode: Mode, shape: LocalShape, stack: Stack, what: str
) -> tuple[Collective, ...]:
    """All that turns the local gradients of a unit into what the optimizer needs."""
    return whole_reduction(elements, mode, stack) + reductions(elements, sharding, shape, stack, what)


def unit_exchanges(
    elements: Mapping[int, Elements],
    sharding: str,
    mode: Mode,
    shape: LocalShape,
    stack: Stack,
    live: Callable[[tuple[Collective, ...]], tuple[Collective, ...]] = tuple,
    encoded: EncodedAxes = NOTHING_ENCODED,
) -> UnitExchanges:
    """Return each block's state exchanges in the passes of a micro-batch; ``live`` may leave collectives out.

    ``encoded`` has the entries of ``synchronise`` for some axes.
    """
    named = {index: (f"block {index}", held) for index, held in elements.items()}
    reduced = named if mode.reduce == "per-micro-batch" else {}
    ahead = passes_ahead(mode, stack)
    gathered = named if ahead else {}
    return UnitExchanges(
        gathers={
            index: live(with_entries(gathers(held, stack, what), encoded.gathers))
            for index, (what, held) in gathered.items()
        },
        reductions={
            index: live(
                with_entries(unit_reduction(held, sharding, mode, shape, stack, what), encoded.reductions)
            )
            for index, (what, held) in reduced.items()
        },
        ahead=ahead,
        hidden=stack.overlap_gradient_reduction or mode.gather == "per-layer",
    )


def passes_ahead(mode: Mode, stack: Stack) -> frozenset[PassKind]:
    """Return the passes in which each block's parameters are gathered during the block before."""
    if mode.gather == "per-layer":
        return frozenset(("F", "B", "I"))
    stay_whole = mode.gather == "per-micro-batch" and stack.gathers_layers_ahead
    return frozenset(("F",)) if stay_whole else frozenset()


def stage_gathers(stage: Elements, mode: Mode, stack: Stack, what: str) -> tuple[Collective, ...]:
    """Return the gathers before a forward pass over a whole stage."""
    at_once = mode.gather == "per-micro-batch" and not stack.gathers_layers_ahead
    return gathers(stage, stack, what) if at_once else ()


def add(*parts: Elements) -> Elements:
    """Elements of several blocks together."""
    every = _added(parts)
    if all(part.trained is None for part in parts):
        return every
    return replace(every, trained=_added([part.of("gradient") for part in parts]))


def _added(parts: Sequence[Elements]) -> Elements:
    return Elements(
        sum((p.dense for p in parts), start=0),
        sum((p.expert for p in parts), start=0),
        sum((p.whole for p in parts), start=0),
        partial=sum((p.partial for p in parts), start=0),
        packed=_packed([p.packed for p in parts if p.packed is not NOT_PACKED]),
        own=sum((p.own for p in parts), start=0),
    )


def _packed(parts: Sequence[Packed]) -> Packed:
    return Packed(*map(sum, zip(*parts, strict=True))) if parts else NOT_PACKED


def _collective(
    kind: CollectiveKind, axes: tuple[str, ...], size: int, elements: object, what: str
) -> Collective:
    return Collective(kind, axes, size * elements, what)  # type: ignore[operator]


def _nonzero(*collectives: Collective) -> tuple[Collective, ...]:
    return tuple(c for c in collectives if is_some(c.logical_bytes))
