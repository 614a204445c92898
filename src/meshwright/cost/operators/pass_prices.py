"""Prices: seconds of items, passes over blocks, and whole bodies, for one plan or an array of plans.

Compute that overlaps collectives slows down by ``overlap_slowdown`` of the time that it hides:
t = max(c + s·x, x) for compute c and collectives x on a stream of their own. So do the experts' exchanges of a pass
over a block if the stack or its recipe overlaps them with another micro-batch's compute.
A pass over a block takes no less than its host launch time, and that time more on a synchronous device. ``Breakdown``
splits a time into compute and the exposed part of each axis.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Tier
from meshwright.cost.operators.kernel_and_collective_times import CollectiveTimes, HardwareTimes
from meshwright.cost.operators.operator_times import Local, operator_seconds
from meshwright.model.graph import Block
from meshwright.model.operators.operator_types import Dispatch
from meshwright.plans.arrays.distinct_rows import map_distinct_rows
from meshwright.program.activation_bytes import kept_bytes, kept_for_weights, working_bytes
from meshwright.program.expert_dispatch.dispatch_forms import ACROSS, INSIDE
from meshwright.program.layouts.node_hops import Groups, Pairs, Shape
from meshwright.program.layouts.rank_mesh import Ints, members_in_domain
from meshwright.program.local_shape import LocalShape, Mode, Number
from meshwright.program.model_states.bidirectional_gradient_reduction import MIRRORED
from meshwright.program.model_states.state_elements import DENSE_SHARD_AXES
from meshwright.program.model_states.uneven_shards import largest_over_mean
from meshwright.program.pass_items import Body, Collective, CollectiveKind, Compute, Item, PassKind, Segment
from meshwright.program.reshard import MovedBytes
from meshwright.stack.stack import Stack

CATEGORY: Mapping[str, str] = {
    "pp": "pp",
    "tp": "tp",
    "etp": "ep",
    "ep": "ep",
    INSIDE: "ep",
    ACROSS: "ep",
    "cp": "cp",
    "cp_ulysses": "cp",
    "cp_ring": "cp",
    "dp_shard": "dp",
    "dp_replicate": "dp",
    "edp_shard": "dp",
    "edp_replicate": "dp",
    "mirrored": "dp",
    "tied": "dp",
    "table": "dp",
    "world": "dp",
    "island": "dp",
}
"""Which entry of a breakdown the time of a collective goes to, by its last axis."""

ALONG_CHAIN: tuple[CollectiveKind, ...] = ("broadcast", "reduce")
"""Collectives that go from rank to rank in small pieces, at the speed of the slowest link."""

SHORTEST_S = 1e-6
"""Host time of a layer that no stack goes below."""

EXPERT_AXES = ("ep", "etp")
EXCHANGED = "ep"
"""The entry of what is exchanged with experts."""

MESSAGES: tuple[CollectiveKind, ...] = ("p2p", *ALONG_CHAIN)
MIRRORING: Mapping[tuple[str, ...], Pairs] = {("tied",): "ends", MIRRORED: "all"}
"""Groups that are pairs of pipeline ranks, and which."""

T = TypeVar("T")
Parts = dict[str, Number]
Links = Callable[[Groups], float]


@dataclass(frozen=True)
class Mesh:
    """Sizes and strides of all axes, for one plan (ints) or many (arrays), the size of a fast domain, and tiers.

    ``links``: how many times longer collectives of some groups take than between cards of full rate, where links
    between nodes are not alike or nodes have an order; ``returns``: the last pipeline rank sends to the first one.
    """

    sizes: Mapping[str, Ints]
    strides: Mapping[str, Ints]
    domain: int
    tiers: tuple[Tier, ...] = ()
    links: Links | None = None
    returns: Ints | NDArray[np.bool_] = False
    _groups: dict[tuple[str, ...], tuple[Ints, Ints]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _times: dict[tuple[tuple[str, ...], CollectiveKind], CollectiveTimes] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def group(self, axes: tuple[str, ...]) -> tuple[Ints, Ints]:
        """Members of a group over ``axes``, and how many of them share a fast domain."""
        if axes not in self._groups:
            size: Ints = 1
            for axis in axes:
                size = size * self.sizes[axis]
            counts, steps = [self.sizes[a] for a in axes], [self.strides[a] for a in axes]
            self._groups[axes] = size, members_in_domain(counts, steps, self.domain)
        return self._groups[axes]

    def collective_times(
        self, axes: tuple[str, ...], kind: CollectiveKind, forms: HardwareTimes
    ) -> CollectiveTimes:
        """Return the times of a kind of collective over groups."""
        found = self._times.get((axes, kind))
        if found is None or found.forms is not forms:
            size, together = self.group(axes)
            found = forms.over(kind, size, together, self.congestion(axes, kind))
            self._times[axes, kind] = found
        return found

    def congestion(self, axes: tuple[str, ...], kind: CollectiveKind) -> Number:
        """Return the slow-down of the network relative to the cards alone; 1 where all links are alike.

        By ``links`` if there are any (``program/layouts/node_hops.py``), else because a tier is oversubscribed: a
        unit of D devices has uplinks of D/o cards. A ring of which m members are in the unit, g of them in a fast
        domain, crosses its border once with what g cards send, as do the D/m other rings beside it: o·g/m.
        All-to-all crosses with all that goes to the n − m members outside, of what leaves the fast domain to n − g
        members: o·(n − m)/(n − g). A message between neighbouring stages crosses with those of all min(stride, D)
        devices that send at once.
        """
        if self.links is not None:
            return self._slowest_links(axes, kind, self.links)
        result: Number = 1.0
        if not self.tiers:
            return result
        size, together = self.group(axes)
        for tier in self.tiers:
            counts, steps = [self.sizes[a] for a in axes], [self.strides[a] for a in axes]
            inside = members_in_domain(counts, steps, tier.devices)
            if kind in MESSAGES:
                share = np.minimum(self.strides[axes[0]], tier.devices) / tier.devices
            elif kind == "all-to-all":
                share = (size - inside) / np.maximum(1, size - together)
            else:
                share = together / np.maximum(1, inside)
            factor = np.maximum(1.0, tier.oversubscription * share)
            result = np.maximum(result, np.where(inside < size, factor, 1.0))
        return result

    def _slowest_links(self, axes: tuple[str, ...], kind: CollectiveKind, links: Links) -> Number:
        """Return the slow-down by links of each plan's groups; equal sizes and strides share one computation."""
        mirrored: Pairs = MIRRORING.get(axes, "")
        own = ("pp",) if mirrored else axes
        shape: Shape = "chain" if kind in MESSAGES else "all" if kind == "all-to-all" else "ring"

        def of_groups(world: int, together: int, loops: int, *numbers: int) -> float:
            spread = tuple((n, t) for n, t in zip(numbers[::2], numbers[1::2], strict=True) if n > 1)
            way: Shape = "loop" if loops else shape
            return links(Groups(spread, world, way, together, mirrored, axes)) if spread else 1.0

        loops = self.returns if kind == "p2p" else False
        numbers = [number for a in own for number in (self.sizes[a], self.strides[a])]
        rows = np.broadcast_arrays(self.sizes["world"], self.group(axes)[1], loops, *numbers)
        factor = map_distinct_rows(of_groups, [np.atleast_1d(row).astype(np.int64) for row in rows])
        return factor if rows[0].ndim else float(factor[0])


def collective_seconds(collective: Collective, mesh: Mesh, forms: HardwareTimes) -> Number:
    """Seconds of one collective by itself."""
    if collective.kind in ALONG_CHAIN:
        return message_seconds(mesh, forms, collective.logical_bytes, collective.axes, collective.kind)
    times = mesh.collective_times(collective.axes, collective.kind, forms)
    return times.seconds(collective.logical_bytes, collective.once)


def message_seconds(
    mesh: Mesh,
    forms: HardwareTimes,
    message_bytes: Number,
    axes: tuple[str, ...] = ("pp",),
    kind: CollectiveKind = "p2p",
) -> Number:
    """One message on the slowest boundary of a chain of ranks, by default the pipeline's."""
    size, together = mesh.group(axes)
    return forms.p2p(message_bytes, together < size, mesh.congestion(axes, kind))


def reshard_seconds(moved: MovedBytes, forms: HardwareTimes, congestion: Number = 1.0) -> Number:
    """Seconds of a change of layout: the busiest rank's, inside a fast domain or across, whichever takes longer."""
    ways = ((moved.inside, False, 1.0), (moved.across, True, congestion))
    found = (forms.p2p(size, crosses, slower) for size, crosses, slower in ways if size)
    return reduce(lambda one, other: np.maximum(one, other), found, 0.0)  # type: ignore[arg-type,return-value]


class SharedValues:
    """Values that groups of plans with the same prices have in common, each computed once."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, made if it is not known."""
        if key not in self.known:
            self.known[key] = make()
        found: T = self.known[key]
        return found


@dataclass
class Prices:
    """Prices of a model's passes; ``items_of`` maps (block, pass) to its items.

    Of a Program with several parts, ``of_parts`` has shapes and mesh of each, and ``of_blocks`` the part of each block;
    ``local`` and ``mesh`` are the first part's. Collectives of sharded parameters (dp axes) are multiplied by the
    stack's ``fsdp_communication_factor``.
    """

    local: Local
    mesh: Mesh
    items_of: Mapping[tuple[int, PassKind], tuple[Item, ...]]
    blocks: tuple[Block, ...]
    of_parts: tuple[tuple[Local, Mesh], ...] = ()
    of_blocks: tuple[int, ...] = ()
    _blocks: dict[tuple[int, PassKind], Parts] = field(default_factory=dict)
    _bodies: dict[tuple[tuple[int | None, PassKind, int], ...], Parts] = field(default_factory=dict)
    shared: SharedValues = field(default_factory=SharedValues, init=False, repr=False, compare=False)

    def of_part(self, part: int) -> tuple[Local, Mesh]:
        """Return the shapes and the mesh of a part."""
        return self.of_parts[part] if self.of_parts else (self.local, self.mesh)

    def local_of(self, block: int) -> Local:
        """Return the shapes of a block."""
        return self.of_part(self.of_blocks[block])[0] if self.of_parts else self.local

    def collective(self, collective: Collective) -> Number:
        """Seconds of one collective by itself.

        What goes to experts and back takes as long as with the busiest rank, uneven shards as long as the largest.
        """
        local, mesh = self.of_part(collective.part)
        if local.shape.state_share and collective.axes == DENSE_SHARD_AXES:
            size = collective.logical_bytes * largest_over_mean(local.shape)
            collective = replace(collective, logical_bytes=size)
        busiest = local.shape.busiest
        if busiest is not None and collective.axes[-1] in EXPERT_AXES:
            once = collective.once and collective.once.times(busiest)
            size = collective.logical_bytes * busiest
            collective = replace(collective, logical_bytes=size, once=once)
        return collective_seconds(collective, mesh, local.forms)

    def collectives(self, collectives: Iterable[Collective]) -> Number:
        """Seconds of collectives one after the other."""
        return sum((self.collective(c) for c in collectives), start=0.0)

    def item(self, item: Item, local: Local) -> Parts:
        """Seconds of one item of a block by category."""
        if isinstance(item, Compute):
            return {"compute": operator_seconds(item.operator, item.phase, local)}
        if isinstance(item, Collective):
            return {CATEGORY[item.axes[-1]]: self.collective(item)}
        compute = sum((operator_seconds(c.operator, c.phase, local) for c in item.compute), start=0.0)
        overlapped = self.collectives(item.overlapped)
        return self.with_overlap({"compute": compute}, overlapped, CATEGORY[item.overlapped[0].axes[-1]])

    def block(self, block: int, kind: PassKind) -> Parts:
        """Seconds of one pass over one block by category, host time included."""
        if (block, kind) not in self._blocks:
            local = self.local_of(block)
            parts = add_parts(*(self.item(item, local) for item in self.items_of[block, kind]))
            if self._overlaps_exchange and EXCHANGED in parts:
                parts = self.with_overlap(parts, parts.pop(EXCHANGED), EXCHANGED)
            if self.blocks[block].kind == "layer":
                hidden = 0.0 if self.local.forms.synchronous else total(parts)
                parts["host"] = np.maximum(0.0, self._host(block, kind) - hidden)
            self._blocks[block, kind] = parts
        return self._blocks[block, kind]

    def with_overlap(self, compute: Parts, overlapped: Number, category: str) -> Parts:
        """Return compute with overlapped collectives: the exposed part and the slow-down go to ``category``."""
        slowdown = self.local.forms.constants["overlap_slowdown"]
        extra = np.maximum(slowdown * overlapped, overlapped - total(compute))
        return add_parts(compute, {category: extra})

    def body(self, body: Body) -> Parts:
        """Seconds of a whole pass over a stage by category; stages of equal blocks without exchanges share them."""
        if any(segment.overlapped or segment.reshard for segment in body):
            return self._body(body)
        key = tuple((segment.block, segment.kind, segment.count) for segment in body)
        if key not in self._bodies:
            self._bodies[key] = self._body(body)
        return self._bodies[key]

    def _body(self, body: Body) -> Parts:
        result: Parts = {}
        for segment in body:
            parts = {} if segment.block is None else self.block(segment.block, segment.kind)
            if segment.reshard:
                moved = segment.reshard.moved("F" if segment.kind == "F" else "B")
                parts = {"pp": reshard_seconds(moved, self.local.forms)}
            if segment.overlapped:
                parts = self.with_overlap(parts, self.overlapped(segment), "dp")
            result = add_parts(result, {name: segment.count * value for name, value in parts.items()})
        return result

    def overlapped(self, segment: Segment) -> Number:
        """Return the unoverlapped seconds of the state exchanges that run during a segment of a pass."""
        exchanges = segment.overlapped
        key = ("overlapped", *map(id, exchanges))  # the value holds them, so that no others get their ids
        return self.shared.once(key, lambda: (_state_exchange_seconds(self, exchanges), exchanges))[0]

    @cached_property
    def kept(self) -> list[Number]:
        """Bytes that each block keeps from F to its backward pass."""
        return _bytes_of_blocks(self, kept_bytes)

    @cached_property
    def kept_for_weights(self) -> list[Number]:
        """Bytes that each block keeps from I to W."""
        return _bytes_of_blocks(self, kept_for_weights)

    @cached_property
    def working(self) -> list[Number]:
        """Bytes that each block's backward pass brings back."""
        return _bytes_of_blocks(self, working_bytes)

    @property
    def _overlaps_exchange(self) -> bool:
        local = self.local
        return local.stack.overlap_expert_exchange or local.device_recipe.overlaps_exchange

    def _host(self, block: int, kind: PassKind) -> float:
        """Launch time of one layer's pass; I and W share a backward pass's launches evenly.

        Experts add their own, in proportion to a host that was measured. What is captured is launched at once.
        """
        constants, stack = self.local.forms.constants, self.local.stack
        forward = constants.get("host_s_per_layer", stack.host_s_per_layer)
        if any(isinstance(operator, Dispatch) for operator in self.blocks[block].operators):
            captured = {"nothing": 0.0, "attention": constants["captured_attention"], "step": 1.0}
            forward = forward * (1 + stack.expert_host_s / np.maximum(stack.host_s_per_layer, SHORTEST_S))
            forward = forward * (1 - captured[self.local.device_recipe.captures])
        backward = forward * constants["backward_host_ratio"]
        return {"F": forward, "B": backward, "I": backward / 2, "W": backward / 2}[kind]


def _state_exchange_seconds(prices: Prices, exchanges: Iterable[Collective]) -> Number:
    """Return the seconds of exchanges of model states one after the other."""
    whole: Number = 0.0
    for collective in exchanges:
        local, _ = prices.of_part(collective.part)
        cut = local.mode.gather != "never"
        factor = local.stack.fsdp_communication_factor if cut else 1.0
        whole = whole + factor * prices.collective(collective)
    return whole


def _bytes_of_blocks(
    prices: Prices, rule: Callable[[Block, LocalShape, Mode, Stack], Number]
) -> list[Number]:
    """Return the bytes of every block by a rule."""
    found = ((block, prices.local_of(index)) for index, block in enumerate(prices.blocks))
    return [rule(block, local.shape, local.mode, local.stack) for block, local in found]


def add_parts(*parts: Parts) -> Parts:
    """Sum of breakdowns, category by category."""
    result: Parts = {}
    for part in parts:
        for name, value in part.items():
            result[name] = result.get(name, 0.0) + value
    return result


def total(parts: Parts) -> Number:
    """All categories together."""
    return sum(parts.values(), start=0.0)
