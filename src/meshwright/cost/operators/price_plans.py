"""Prices for one Program, and prices for an array of plans that share their mode.

Both use the same functions of ``program/`` to know what happens and the same ``Prices`` to know how long it takes;
only the numbers are scalars here and arrays there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import exp
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Cluster, Tier
from meshwright.cluster.cluster import Links as ClusterLinks
from meshwright.cluster.fast_domains import node_count, node_devices, usable_domain
from meshwright.cost.constants import step_jitter_on
from meshwright.cost.constants_by_row import ConstantCases
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes, hardware_times_for
from meshwright.cost.operators.operator_times import Local
from meshwright.cost.operators.pass_prices import Links, Mesh, Prices
from meshwright.model.graph import Block
from meshwright.plans.arrays.distinct_rows import map_distinct_rows
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.forms.long import DEFAULT_EXPERT_ORDER
from meshwright.plans.forms.short import NodeOrder
from meshwright.plans.setting import Setting
from meshwright.program.context_parallel.positions_and_masks import CONTEXT_PARTS
from meshwright.program.expert_dispatch.expert_load import expert_load, scope_tokens
from meshwright.program.expert_dispatch.fanout_from_router_counts import fanout_from_counts
from meshwright.program.layouts.node_hops import Fabric, slowdown
from meshwright.program.layouts.rank_mesh import Ints, strides, together
from meshwright.program.local_shape import LocalShape, Mode, Number
from meshwright.program.lowering.block_items import BLOCK_PASSES
from meshwright.program.lowering.plan_parts import product_input_bytes
from meshwright.program.pass_items import Item, PassKind, item_on_part
from meshwright.program.pipeline_vocabulary import share_items
from meshwright.program.program import Program, Stage
from meshwright.program.program_parts import Part, ProgramParts
from meshwright.program.synchronisation.islands import ISLAND
from meshwright.program.synchronisation.token_hashing import token_hashing
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.pipeline import returns_to_first
from meshwright.stack.stack import Stack


def setting_hardware_times(setting: Setting, devices: NDArray[np.int64] | None = None) -> HardwareTimes:
    """Forms of a setting's devices and network, with the cluster's own calibration.

    ``devices``: those of clusters that differ in nothing else, one for each row; None: those of the setting.
    """
    cluster = setting.cluster
    recipe = setting.stack.recipe_of(setting.workload)
    forms = hardware_times_for(cluster.pool, setting.workload.precision, dict(cluster.calibration), recipe)
    jitter = step_jitter_on(cluster)
    slower: Any = slowest_of(cluster.devices, jitter)
    if devices is not None:
        slower = map_distinct_rows(lambda count: slowest_of(count, jitter), [devices.ravel()]).reshape(
            devices.shape
        )
    return replace(
        forms,
        tiers=cluster.tiers,
        fabric=fabric_of(cluster),
        peak_16bit_flops=forms.peak_16bit_flops / slower,
        memory_bytes_per_s=forms.memory_bytes_per_s / slower,
    )


def slowest_of(devices: int, jitter: float) -> float:
    """Return the expected slowness of the slowest of many devices, whose speeds differ by ``jitter`` in the logarithm.

    A step waits for the slowest one. The expected largest of n normal values is that of Blom's approximation,
    Φ⁻¹((n − 3/8)/(n + 1/4)) (Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    if devices == 1 or not jitter:
        return 1.0
    return exp(jitter * NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25)))


def program_prices(program: Program, setting: Setting) -> Prices:
    """Prices of one Program."""
    returns = returns_to_first([stage.rank for stage in program.stages], program.chains)
    priced = replace(setting, stack=program.stack)
    found = _part_prices(program.parts, returns, program.block_items, program.blocks, priced)
    if program.loose:
        (axis,), size = ISLAND, program.group_size(ISLAND)
        mesh = found.mesh
        found.mesh = replace(mesh, sizes={**mesh.sizes, axis: size}, strides={**mesh.strides, axis: 1})
    return found


def layout_prices(
    parts: ProgramParts,
    stages: Sequence[Stage],
    schedule: ScheduleChoice,
    setting: Setting,
    cases: ConstantCases | None = None,
) -> Prices:
    """Prices of a plan with several layouts, whose Program has these parts and stages of the setting's model.

    ``cases``: the constants that each row of the prices has, where they are not those of the setting.
    """
    priced = setting if cases is None else cases.setting(setting)
    items: dict[tuple[int, PassKind], tuple[Item, ...]] = {}
    for index, block in enumerate(setting.model.blocks):
        part, of = parts.of(index), parts.of_blocks[index]
        for kind in pass_kinds(schedule, setting.stack):
            made = BLOCK_PASSES[kind](block, part.shape, part.mode, setting.stack)
            items[index, kind] = tuple(item_on_part(item, of) for item in made)
    returns = returns_to_first([stage.rank for stage in stages], schedule.kind.chains)
    return _part_prices(parts, returns, items, setting.model.blocks, priced)


def _part_prices(
    parts: ProgramParts,
    returns: bool,
    items: Mapping[tuple[int, PassKind], tuple[Item, ...]],
    blocks: tuple[Block, ...],
    setting: Setting,
) -> Prices:
    """Prices of passes over blocks of parts; ``returns``: the last pipeline rank sends to the first one."""
    forms = setting_hardware_times(setting)
    of_parts = tuple(
        (Local(forms, part.shape, part.mode, setting.stack), _part_mesh(part, forms, returns))
        for part in parts
    )
    local, mesh = of_parts[0]
    several = (of_parts, parts.of_blocks) if len(of_parts) > 1 else ()
    return Prices(local, mesh, items, blocks, *several)


def _part_mesh(part: Part, forms: HardwareTimes, returns: bool) -> Mesh:
    """Return the mesh of one part."""
    grid, experts = part.grid, part.expert_grid
    steps = strides(grid.sizes, grid.order), strides(experts.sizes, experts.order)
    return replace(
        whole_mesh(grid.sizes, experts.sizes, steps, forms, part.shape.ulysses),  # type: ignore[arg-type]
        links=links_under(part.node_order, forms),
        returns=returns,
    )


def array_prices(
    plans: PlanArrays, mode: Mode, setting: Setting, cases: ConstantCases | None = None
) -> Prices:
    """Prices of all passes for every plan of an array; all of them have ``mode``, and a vocabulary of one form.

    ``cases``: the constants that each row of the plans is priced with, where they are not those of the setting.
    """
    priced = setting if cases is None else cases.setting(setting)
    forms = setting_hardware_times(priced, plans.devices if plans.several_sizes else None)
    shape, mesh = array_shape(plans, setting), array_mesh(plans, forms)
    items: dict[tuple[int, PassKind], tuple[Item, ...]] = {
        (index, kind): BLOCK_PASSES[kind](block, shape, mode, setting.stack)
        for index, block in enumerate(setting.model.blocks)
        for kind in dict.fromkeys(
            kind for choice in plans.schedules for kind in pass_kinds(choice, setting.stack)
        )
        if index not in setting.model.vocabulary
    }
    form = plans.schedules[int(plans.schedule[0])].form
    items |= share_items(setting.model, form) if form else {}
    return Prices(Local(forms, shape, mode, priced.stack), mesh, items, setting.model.blocks)


def pass_kinds(schedule: ScheduleChoice, stack: Stack) -> tuple[PassKind, ...]:
    """Return the passes of a micro-batch over a stage under a schedule and a stack's optimizer."""
    if stack.optimizer.forward_only:
        return ("F",)
    return ("F", "I", "W") if schedule.kind.split else ("F", "B")


def array_shape(plans: PlanArrays, setting: Setting) -> LocalShape:
    """Return the local shape of every plan."""
    sent, busiest, most = _load(plans, setting)
    return LocalShape(
        micro_batch=plans.micro_batch,
        seq_len=setting.workload.seq_len,
        cp=plans.cp,
        tp=plans.tp,
        ep=plans.ep,
        etp=plans.etp,
        shard=np.where(plans.sharding > 0, plans.dp_shard * plans.cp, 1),
        expert_shard=expert_sizes_of(plans)["edp_shard"],
        vocabulary=plans.vocabulary_ranks,
        vocab_multiple=setting.stack.vocab_multiple,
        product_input_bytes=product_input_bytes(setting.workload),
        ulysses=heads_exchanged(plans),
        documents=setting.workload.documents,
        encoder=setting.workload.encoder_lengths,
        capacity=setting.workload.capacity,
        hashing=token_hashing(plans.synchronise, int(np.max(plans.ep, initial=1))),
        sent=sent,
        busiest=busiest,
        most_busy=most,
        ep_inside=together(plans.ep, plans.etp, usable_domain(setting.cluster.pool)),
        reached=fanout_from_counts(
            setting.workload.routing, setting.model.architecture.moe, plans.expert_order
        ),
    )


def _load(plans: PlanArrays, setting: Setting) -> tuple[Number, Number | None, Number]:
    """Rows of experts of every plan: those sent over those chosen, the busiest rank's over the mean, and at most."""
    workload, arch = setting.workload, setting.model.architecture
    if arch.moe is None or (workload.routing is None and workload.capacity is None):
        return 1.0, None, np.inf

    def of(ep: int, tokens: int) -> tuple[float, float, float]:
        found = expert_load(workload, arch, ep, tokens, plans.expert_order)
        return found.sent, np.nan if found.busiest is None else found.busiest, found.most

    cut = plans.cp * np.where(plans.sequence_parallel, plans.tp, 1)
    tokens = np.broadcast_to(scope_tokens(workload, plans.micro_batch, cut), plans.ep.shape)
    sent, busiest, most = map_distinct_rows(of, [plans.ep, tokens.astype(np.int64)]).T
    return sent, None if np.isnan(busiest).any() else busiest, most


def heads_exchanged(plans: PlanArrays) -> Ints:
    """Ranks of cp that exchange heads in every plan."""
    degrees = np.ones_like(plans.cp)
    if not (plans.cp > 1).any():
        return degrees
    for code in np.flatnonzero(np.bincount(plans.context)):
        context = plans.values["context"][code]
        degrees = np.where(plans.context == code, context.heads(plans.cp), degrees)
    return np.where(plans.cp > 1, degrees, 1)


def array_mesh(plans: PlanArrays, forms: HardwareTimes) -> Mesh:
    """Sizes and strides of every plan's axes, and what links between nodes make of groups over them."""
    sizes, experts = attention_sizes(plans), expert_sizes_of(plans)
    steps = _attention_strides(plans, sizes), strides(experts, DEFAULT_EXPERT_ORDER)
    mesh = whole_mesh(sizes, experts, steps, forms, heads_exchanged(plans))
    known = plans.slowdowns
    links = links_under(plans.node_order, forms) if known is None else known.__getitem__
    return mesh if links is None else replace(mesh, links=links, returns=_returns(plans))


def links_under(order: NodeOrder | None, forms: HardwareTimes) -> Links | None:
    """Return the slow-down by links for nodes in an order; None where nodes and links are all alike."""
    fabric = forms.fabric
    if fabric is None or (order is None and fabric.alike):
        return None
    return partial(slowdown, fabric=fabric, order=order or tuple(range(fabric.nodes)))


def fabric_of(cluster: Cluster) -> Fabric | None:
    """Return a cluster's nodes and links; None without links and tiers, or if nodes are not full."""
    if cluster.links is None and not cluster.tiers:
        return None
    nodes = node_count(cluster.pool)
    return None if nodes is None else _fabric(cluster.links, cluster.tiers, nodes, node_devices(cluster.pool))


@lru_cache(maxsize=16)
def _fabric(links: ClusterLinks | None, tiers: tuple[Tier, ...], nodes: int, per_node: int) -> Fabric:
    """One object for equal clusters, so that what is known of its groups stays known."""
    assert links is None or links.nodes == nodes, "a cluster of another size has other links"
    slowness = np.ones((nodes, nodes)) if links is None else 1 / np.array(links.shares)
    return Fabric(slowness, per_node, tiers)


def _returns(plans: PlanArrays) -> NDArray[np.bool_]:
    """Return the mask of plans whose last pipeline rank sends to the first one."""

    def of_pipeline(pp: int, virtual_stages: int, schedule: int) -> bool:
        kind = plans.schedules[schedule].kind
        return returns_to_first(kind.placement(pp, virtual_stages), kind.chains)

    found = map_distinct_rows(of_pipeline, [plans.pp, plans.virtual_stages, plans.schedule])
    return np.asarray(found, dtype=np.bool_)


def attention_sizes(plans: PlanArrays) -> dict[str, Ints]:
    """Sizes of the attention mesh's axes."""
    return {axis: getattr(plans, axis) for axis in plans.values["order"][0]}


def _attention_strides(plans: PlanArrays, sizes: Mapping[str, Ints]) -> dict[str, Ints]:
    """Return the strides of the attention mesh's axes, in each plan's order."""
    codes = np.flatnonzero(np.bincount(plans.order))
    first, *others = (strides(sizes, plans.values["order"][code]) for code in codes)
    for code, steps in zip(codes[1:], others, strict=True):
        first = {axis: np.where(plans.order == code, steps[axis], first[axis]) for axis in first}
    return first


def expert_sizes_of(plans: PlanArrays) -> dict[str, Ints]:
    """Sizes of the experts' mesh by the defaults of ``plans/forms/conversion.py``."""
    ranks = plans.dp_replicate * plans.dp_shard * plans.cp * plans.tp
    edp = np.maximum(1, ranks // (plans.ep * plans.etp))
    replicas = np.where(plans.sharding == 0, edp, np.gcd(edp, plans.dp_replicate))
    return {
        "etp": plans.etp,
        "ep": plans.ep,
        "edp_shard": edp // replicas,
        "edp_replicate": replicas,
        "pp": plans.pp,
    }


def whole_mesh(
    sizes: Mapping[str, Ints],
    expert_sizes: Mapping[str, Ints],
    both_strides: tuple[Mapping[str, Ints], Mapping[str, Ints]],
    forms: HardwareTimes,
    ulysses: Ints = 1,
) -> Mesh:
    """Both grids in one table of axes, with groups of their own. ``both_strides``: those of each grid's axes.

    "world" are all ranks, "tied" the first and the last pipeline rank, "mirrored" two that have the same layers: of
    these pairs all are taken to be as far apart as the ends are, the dearest.
    """
    world: Ints = 1
    for axis in sizes:
        world = world * sizes[axis]
    inner, outer = CONTEXT_PARTS
    steps, of_experts = both_strides
    steps = {**steps, inner: steps["cp"], outer: steps["cp"] * ulysses}
    every = {
        **sizes,
        inner: ulysses,
        outer: sizes["cp"] // ulysses,
        **{a: s for a, s in expert_sizes.items() if a != "pp"},
        "world": world,
        "tied": 2,
        "table": 2,
        "mirrored": 2,
    }
    expert_steps = {a: s for a, s in of_experts.items() if a != "pp"}
    ends = np.maximum(1, (sizes["pp"] - 1) * steps["pp"])
    own = {"world": 1, "tied": ends, "table": ends, "mirrored": ends}
    return Mesh(every, {**steps, **expert_steps, **own}, forms.domain, forms.tiers)
