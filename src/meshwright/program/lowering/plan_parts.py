"""Lower each layout of a plan to a part of a Program: meshes, local shape, mode and sharding.

Every layout is read as the only one of a plan (``plans/layers/plan_of_layout.py``), so a plan of one layout is no
special case.
"""

from collections.abc import Sequence
from dataclasses import replace

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.fast_domains import usable_domain
from meshwright.model.architecture import Architecture
from meshwright.model.graph import ModelGraph
from meshwright.plans.context_parallel import USUAL
from meshwright.plans.forms.long import Layout, LongPlan
from meshwright.plans.layers.plan_of_layout import plan_of_layout, state_weights
from meshwright.plans.rules.expert_order import rows_by_layer
from meshwright.program.context_parallel.positions_and_masks import CONTEXT_PARTS
from meshwright.program.expert_dispatch.dispatch_forms import ExchangeForm, ep_parts, exchange_form
from meshwright.program.expert_dispatch.expert_load import expert_load, scope_tokens
from meshwright.program.expert_dispatch.fanout_from_router_counts import fanout_from_counts
from meshwright.program.layouts.rank_mesh import RankGrid, strides, together
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.model_states.stack_zero_semantics import effective_sharding, exchange_timing
from meshwright.program.program_parts import Part, ProgramParts
from meshwright.program.synchronisation.token_hashing import token_hashing
from meshwright.stack.stack import Stack
from meshwright.workload.workload import Workload


def plan_parts(
    plan: LongPlan,
    model: ModelGraph,
    of_blocks: Sequence[str],
    cluster: Cluster,
    workload: Workload,
    stack: Stack,
) -> ProgramParts:
    """Return the parts of a plan; ``of_blocks`` names the layout of each block."""
    names = list(dict.fromkeys(of_blocks))
    every = tuple(_part(plan, name, model, cluster, workload, stack) for name in names)
    return ProgramParts(every, tuple(map(names.index, of_blocks)))


def _part(
    plan: LongPlan, name: str, model: ModelGraph, cluster: Cluster, workload: Workload, stack: Stack
) -> Part:
    """Return the part of one layout."""
    own, arch = plan_of_layout(plan, name), model.architecture
    (layout,) = own.layouts.values()
    grid, experts = attention_grid(layout, plan.pipeline.ranks), experts_grid(layout, plan.pipeline.ranks)
    assert grid.ranks == experts.ranks == cluster.devices, "the plan does not fill the cluster"
    shape = local_shape(own, layout, experts, cluster, workload, stack, arch)
    mode = plan_mode(own, layout, stack)
    return Part(
        name=name,
        grid=grid,
        expert_grid=replace(experts, parts=ep_parts(shape, stack)),
        shape=shape,
        mode=mode,
        sharding=effective_sharding(own.sharding, stack),
        message_bytes=int(p2p_bytes(arch.hidden, shape, mode, stack)),
        node_order=layout.node_order,
        expert_orders=_expert_orders(layout, experts, arch),
        batch_share=layout.batch_share or (),
    )


def attention_grid(layout: Layout, pp: int) -> RankGrid:
    """Return the mesh of everything but the experts."""
    context, cp = layout.context_in_full, layout.grid.cp
    parts = {"cp": dict(zip(CONTEXT_PARTS, (context.ulysses, cp // context.ulysses), strict=True))}
    sizes = {**layout.grid.model_dump(), "pp": pp}
    return RankGrid(sizes, tuple(layout.order), parts if context.two_dimensional and cp > 1 else {})


def experts_grid(layout: Layout, pp: int) -> RankGrid:
    """Return the experts' mesh over the same ranks; without experts all of it is edp_replicate."""
    if layout.experts is None:
        grid = layout.grid
        size = grid.dp_replicate * grid.dp_shard * grid.cp * grid.tp
        sizes = {"etp": 1, "ep": 1, "edp_shard": 1, "edp_replicate": size, "pp": pp}
        return RankGrid(sizes, ("etp", "ep", "edp_shard", "edp_replicate", "pp"))
    sizes = {**layout.experts.model_dump(exclude={"order"}), "pp": pp}
    return RankGrid(sizes, tuple(layout.experts.order))


def planned_exchange(
    plan: LongPlan, model: ModelGraph, cluster: Cluster, workload: Workload, stack: Stack
) -> ExchangeForm:
    """Return the form of a legal plan's token exchange."""
    layout = next(iter(plan.layouts.values()))
    experts = experts_grid(layout, plan.pipeline.ranks)
    shape = local_shape(plan, layout, experts, cluster, workload, stack, model.architecture)
    return exchange_form(shape, stack)


def local_shape(
    plan: LongPlan,
    layout: Layout,
    experts: RankGrid,
    cluster: Cluster,
    workload: Workload,
    stack: Stack,
    arch: Architecture,
) -> LocalShape:
    """Return the shape that one rank sees of one micro-batch: a rank of the replica with most sequences."""
    grid, ep = layout.grid, experts.sizes["ep"]
    micro_batch = max(layout.batch_share or (plan.pipeline.micro_batch,))
    cut = grid.cp * (grid.tp if layout.sequence_parallel else 1)
    tokens = scope_tokens(workload, micro_batch, cut)
    found = expert_load(workload, arch, ep, tokens, layout.expert_order)
    return LocalShape(
        micro_batch=micro_batch,
        seq_len=workload.seq_len,
        cp=layout.grid.cp,
        tp=layout.grid.tp,
        ep=ep,
        etp=experts.sizes["etp"],
        shard=layout.grid.dp_shard * layout.grid.cp if plan.sharding != "none" else 1,
        expert_shard=experts.sizes["edp_shard"] if plan.sharding != "none" else 1,
        vocabulary=plan.pipeline.ranks if plan.choice.form else 1,
        vocab_multiple=stack.vocab_multiple,
        product_input_bytes=product_input_bytes(workload),
        ulysses=layout.context_in_full.heads(layout.grid.cp),
        documents=workload.documents,
        capacity=workload.capacity,
        hashing=token_hashing(plan.synchronise, ep),
        sent=found.sent,
        busiest=found.busiest,
        most_busy=found.most,
        ep_inside=_ep_inside(experts, cluster),
        reached=fanout_from_counts(workload.routing, arch.moe, layout.expert_order),
        state_share=state_weights(layout) or (),
        encoder=workload.encoder_lengths,
    )


def _ep_inside(experts: RankGrid, cluster: Cluster) -> int:
    """Return the number of ep's ranks in one fast domain."""
    step = strides(experts.sizes, experts.order)["ep"]
    return int(together(experts.sizes["ep"], step, usable_domain(cluster.pool)))


def _expert_orders(
    layout: Layout, experts: RankGrid, arch: Architecture
) -> tuple[tuple[int, ...] | None, ...]:
    """Return the experts of each layer in the order of the ranks, where there are several."""
    if arch.moe is None or experts.sizes["ep"] == 1:
        return ()
    return rows_by_layer(layout.expert_order, arch.moe.layers)


def product_input_bytes(workload: Workload) -> int:
    """Bytes of an element of a kept input of a matrix product at a workload's precision (Transformer Engine's way)."""
    return 1 if workload.precision in ("fp8", "mxfp8", "nvfp4") else 2


def plan_mode(plan: LongPlan, layout: Layout, stack: Stack) -> Mode:
    """Return the choices of a plan with one layout."""
    gather, reduce = exchange_timing(plan.sharding, plan.gather, stack, pipeline=plan.pipeline.ranks > 1)
    return Mode(
        sequence_parallel=layout.sequence_parallel and layout.grid.tp > 1,
        gather=gather,
        reduce=reduce,
        context=layout.context_in_full if layout.grid.cp > 1 else USUAL,
    )


def p2p_bytes(hidden: int, shape: LocalShape, mode: Mode, stack: Stack) -> float:
    """Bytes of one pipeline message of one rank; cut over tp where the stack cuts it or the tokens are."""
    whole = 2 * hidden * shape.tokens
    return whole / shape.tp if mode.sequence_parallel or stack.partitioned_p2p else whole  # type: ignore[return-value]
