"""Lower a long plan to a Program. Pure; assumes a legal plan (``plans/rules/check_plan.py``).

The steps, in order: grids from the layout's degrees and rank order; the local shape and mode; blocks from what each
layer runs again; stages from the partition and placement; the state table; bodies of passes; data-parallel collectives;
action lists from the schedule's generator, with copies of activations to the host and messages inserted and with
gathers, reductions, norm and optimizer around them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.fast_domains import usable_domain
from meshwright.errors import PlanError, Problem
from meshwright.model.architecture import Architecture
from meshwright.model.graph import Block, ModelGraph, Recomputed
from meshwright.model.transforms.norm_kernels import with_fused_norms
from meshwright.model.transforms.recomputed_layers import with_recompute
from meshwright.model.transforms.vocabulary_parallel import with_vocabulary_parallel
from meshwright.plans.context_parallel import USUAL
from meshwright.plans.forms.long import Layout, LongPlan
from meshwright.plans.forms.short import Recompute
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.rules.expert_order import rows_by_layer
from meshwright.program.activation_bytes import kept_bytes, kept_for_weights, working_bytes
from meshwright.program.context_parallel.positions_and_masks import CONTEXT_PARTS
from meshwright.program.expert_dispatch.dispatch_forms import ExchangeForm, ep_parts, exchange_form
from meshwright.program.expert_dispatch.expert_load import expert_load, scope_tokens
from meshwright.program.expert_dispatch.fanout_from_router_counts import fanout_from_counts
from meshwright.program.layouts.rank_mesh import RankGrid, strides, together
from meshwright.program.local_shape import LocalShape, Mode, Number
from meshwright.program.lowering.block_items import BLOCK_PASSES, block_passes
from meshwright.program.lowering.pass_bodies import pass_body
from meshwright.program.lowering.stage_blocks import place_stages
from meshwright.program.lowering.step_collectives import StepPlan, step_collectives, wrap_lists
from meshwright.program.model_states.data_parallel_collectives import stage_gathers, unit_exchanges
from meshwright.program.model_states.hidden_matrices import elements_by_optimizer
from meshwright.program.model_states.matrix_exchanges import matrix_units, step_exchanges
from meshwright.program.model_states.stack_zero_semantics import effective_sharding, exchange_timing
from meshwright.program.model_states.state_elements import block_elements
from meshwright.program.model_states.state_table import state_table
from meshwright.program.model_states.states_on_host import (
    DENSE_COPIES,
    EXPERT_COPIES,
    HostStates,
    PassCopies,
    gradients_leave,
)
from meshwright.program.pass_items import Body, Collective, Compute, Item, PassKind
from meshwright.program.pipeline_vocabulary import (
    SHARE_PASSES,
    share_blocks,
    share_exchanges,
    share_items,
    share_kept,
    shares,
)
from meshwright.program.program import Program, Stage
from meshwright.program.program_parts import Part, ProgramParts
from meshwright.schedules.action import ActionLists, Kind, most_in_flight
from meshwright.schedules.activation_offload import OffloadedStages, OffloadRule, with_offloads
from meshwright.schedules.choice import ScheduleChoice, validates_afterwards
from meshwright.schedules.forward_only_lists import forward_only_lists
from meshwright.schedules.insert_messages import insert_messages
from meshwright.schedules.stage_times import StageTimes
from meshwright.stack.stack import Stack
from meshwright.stack.state_types import changed_types, with_types
from meshwright.workload.workload import Workload

REPLICAS = ("dp_replicate", "dp_shard")


def lower(
    plan: LongPlan,
    model: ModelGraph,
    cluster: Cluster,
    workload: Workload,
    stack: Stack,
    times: StageTimes | None = None,
) -> Program:
    """Lower a legal plan, whose degrees multiply to the devices; automatic schedules look at the stages' ``times``."""
    layout = next(iter(plan.layouts.values()))
    stack = with_types(stack, workload.precision, plan.written_types, workload.optimizer)
    grid, expert_grid = attention_grid(layout, plan.pipeline.ranks), experts_grid(layout, plan.pipeline.ranks)
    assert grid.ranks == expert_grid.ranks == cluster.devices, "the plan does not fill the cluster"
    shape = local_shape(plan, layout, expert_grid, cluster, workload, stack, model.architecture)
    mode, choice, ranks = plan_mode(plan, layout, stack), plan.choice, plan.pipeline.ranks
    model = recomputed_model(model, layer_recomputes(plan, model.architecture.layers), stack)
    model = with_vocabulary_parallel(model) if choice.form else model
    stages = place_stages(plan, model)
    parts = stages + shares(model, len(stages), ranks)
    ends_together = stages[0].rank == stages[-1].rank or choice.form is not None
    elements = block_elements(model.blocks, shape, ends_together=ends_together)
    micro_batches = workload.computed_sequences // (grid.size(REPLICAS) * plan.pipeline.micro_batch)
    schedule = _schedule(plan, micro_batches, workload, times)
    ways = choice.ways(ranks, plan.pipeline.virtual_stages)
    step = StepPlan(
        sharding=effective_sharding(plan.sharding, stack),
        mode=mode,
        stack=stack,
        shape=shape,
        stages=stages,
        ways=ways,
        elements=elements,
        tied=model.tied_gradients and not workload.optimizer.forward_only,
        tied_head=model.tied_head,
        grid=grid,
        expert_grid=expert_grid,
        unit=choice.unit_size(ranks, micro_batches, plan.pipeline.virtual_stages),
        shares=parts[len(stages) :],
        validated_afterwards=validates_afterwards(choice, stack.validates_step_afterwards, ranks),
        optimizer_elements=elements_by_optimizer(model.blocks, elements, shape, stack, ends_together),
    )
    part = Part(
        name=next(iter(plan.layouts)),
        grid=grid,
        expert_grid=replace(expert_grid, parts=ep_parts(shape, stack)),
        shape=shape,
        mode=mode,
        sharding=step.sharding,
        node_order=layout.node_order,
        expert_orders=_expert_orders(layout, expert_grid, model.architecture),
    )
    host = _host_states(plan, step, model.architecture)
    collectives = _collectives(choice, model, step)
    out = plan.offload_rule
    offloaded = tuple(_offloaded(out, part, model, shape, mode, stack) for part in parts)
    copied = with_offloads(
        schedule, OffloadedStages(frozenset(p.index for p in parts if offloaded[p.index]), out.ahead)
    )
    messages = insert_messages(copied, plan.pipeline.placement, ways)
    return Program(
        blocks=model.blocks,
        stack=stack,
        parts=ProgramParts((part,), (0,) * len(model.blocks)),
        stages=stages,
        micro_batches=micro_batches,
        states=state_table(step, model),
        block_items=_block_items(model, step, choice),
        bodies=_bodies(step, model),
        collectives=collectives,
        overlapped=step.overlapped,
        p2p_bytes=int(p2p_bytes(model.architecture.hidden, shape, mode, stack)),
        activation_bytes=tuple(_activations(part, model, step) for part in parts),
        changed_types=changed_types(stack, workload.precision, plan.written_types, workload.optimizer),
        weight_gradient_bytes=tuple(_kept_for_weights(part, model, step) for part in parts),
        offloaded_layers=tuple(len(blocks_out(out, part.blocks, model)) for part in parts),
        offloaded_bytes=offloaded,
        working_bytes=tuple(_stage_working(s, model, shape, mode, stack) for s in parts),
        lists=wrap_lists(messages, step, collectives),
        in_flight=() if workload.optimizer.forward_only else _in_flight(plan, micro_batches, schedule),
        chains=ways.chains,
        shares=step.shares,
        vocabulary=choice.vocabulary,
        host_states=host,
        state_copies={} if host is None else _state_copies(host, step, model),
    )


def _collectives(
    choice: ScheduleChoice, model: ModelGraph, step: StepPlan
) -> dict[tuple[int | None, Kind], tuple[Collective, ...]]:
    """Return the collectives of all actions that are no passes."""
    return {
        **step_collectives(step),
        **_share_collectives(choice, model, step),
        **_matrix_collectives(model, step),
    }


def _matrix_collectives(
    model: ModelGraph, step: StepPlan
) -> dict[tuple[int | None, Kind], tuple[Collective, ...]]:
    """Return what each stage's first shard exchanges in the optimizer's step for matrices that Muon takes."""
    found: dict[tuple[int | None, Kind], tuple[Collective, ...]] = {}
    for stage in step.stages:
        units = matrix_units([model.blocks[block] for block in stage.blocks], step.mode)
        items = step.live(tuple(step_exchanges(units, step.sharding, step.shape, step.stack)))
        found |= {(stage.index, "STEP"): items} if items else {}
    return found


def _host_states(plan: LongPlan, step: StepPlan, arch: Architecture) -> HostStates | None:
    """Return the states of a plan that are on the hosts; None if there are none. Raises PlanError for chunks."""
    if plan.in_chunks:
        rule = "chunks are placed by predict alone, when everything else is lowered"
        raise PlanError([Problem("offload.manager", "chunks", rule, "predict, or take manager out")])
    if not plan.host_shares.some:
        return None
    copies = step.grid.size(DENSE_COPIES)
    if arch.moe is not None:
        copies = max(copies, step.expert_grid.size(EXPERT_COPIES))
    leave = gradients_leave(
        step.sharding, step.mode, copies, step.stack, chains=step.ways.chains, spread=bool(step.shares)
    )
    return HostStates(
        shares=plan.host_shares,
        sharding=step.sharding,
        shape=step.shape,
        stack=step.stack,
        leave=int(leave),
        reduced=step.mode.reduce == "per-micro-batch",
    )


def _state_copies(host: HostStates, step: StepPlan, model: ModelGraph) -> dict[tuple[int, Kind], PassCopies]:
    """Return the copies of every pass over every stage."""
    return {
        (stage.index, kind): host.copies(stage.blocks, step.elements, kind, step.shared, model.head_block)
        for stage in step.stages
        for kind in block_passes(step.stack)
    }


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
    """Return the shape that one rank sees of one micro-batch."""
    grid, micro_batch, ep = layout.grid, plan.pipeline.micro_batch, experts.sizes["ep"]
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
        sent=found.sent,
        busiest=found.busiest,
        most_busy=found.most,
        ep_inside=_ep_inside(experts, cluster),
        reached=fanout_from_counts(workload.routing, arch.moe, layout.expert_order),
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


def recomputed_model(model: ModelGraph, of_layers: Sequence[Recompute], stack: Stack) -> ModelGraph:
    """Return the model with each layer's recomputation, norms as the stack's kernels compute them."""
    fused = with_fused_norms(model, stack.norm_products)
    return with_recompute(fused, [resolve_recompute(choice, stack) for choice in of_layers])


def resolve_recompute(choice: Recompute, stack: Stack) -> Recomputed:
    """Resolve ``selective`` to the stack's meaning and ``none`` to no set at all."""
    if choice == "full":
        return "full"
    if choice == "selective":
        return stack.selective_recompute
    return () if choice == "none" else tuple(choice)


def p2p_bytes(hidden: int, shape: LocalShape, mode: Mode, stack: Stack) -> float:
    """Bytes of one pipeline message of one rank; cut over tp where the stack cuts it or the tokens are."""
    whole = 2 * hidden * shape.tokens
    return whole / shape.tp if mode.sequence_parallel or stack.partitioned_p2p else whole  # type: ignore[return-value]


def _schedule(
    plan: LongPlan, micro_batches: int, workload: Workload, times: StageTimes | None
) -> ActionLists:
    ranks, optimizer = plan.pipeline.ranks, workload.optimizer
    if optimizer.forward_only:
        return forward_only_lists(ranks, micro_batches, split=optimizer.splits_perturbations)
    chunks = len(plan.pipeline.placement) // ranks
    return plan.choice.lists(ranks, micro_batches, chunks, times)


def _in_flight(plan: LongPlan, micro_batches: int, lists: ActionLists) -> tuple[int, ...]:
    """As the schedule declares it, or counted where it declares nothing."""
    ranks, choice = plan.pipeline.ranks, plan.choice
    chunks = len(plan.pipeline.placement) // ranks
    declared = [choice.declared_in_flight(rank, ranks, micro_batches, chunks) for rank in range(ranks)]
    return tuple(
        most_in_flight(actions) if most is None else most
        for actions, most in zip(lists, declared, strict=True)
    )


def _block_items(
    model: ModelGraph, step: StepPlan, choice: ScheduleChoice
) -> dict[tuple[int, PassKind], tuple[Item, ...]]:
    items = dict(share_items(model, choice.form)) if choice.form else {}
    for index, block in enumerate(model.blocks):
        for kind in block_passes(step.stack) if index not in model.vocabulary else ():
            items[index, kind] = _live_items(
                BLOCK_PASSES[kind](block, step.shape, step.mode, step.stack), step
            )
    return items


def _share_collectives(
    choice: ScheduleChoice, model: ModelGraph, step: StepPlan
) -> dict[tuple[int | None, Kind], tuple[Collective, ...]]:
    """Return the collectives of every share for a micro-batch."""
    if choice.form is None:
        return {}
    exchanges = share_exchanges(choice.form, model.architecture.hidden, step.shape, step.mode)
    return {
        (share.index, kind): step.live(collectives)
        for share in step.shares
        for kind, collectives in exchanges.items()
    }


def _live_items(items: tuple[Item, ...], step: StepPlan) -> tuple[Item, ...]:
    """Without collectives over groups of one rank."""
    live: list[Item] = []
    for item in items:
        if isinstance(item, Compute):
            live.append(item)
        elif isinstance(item, Collective):
            live += step.live((item,))
        elif step.live(item.overlapped):
            live.append(item)
        else:
            live += item.compute
    return tuple(live)


def _bodies(step: StepPlan, model: ModelGraph) -> dict[tuple[int, Kind], Body]:
    units = unit_exchanges(step.elements, step.sharding, step.mode, step.shape, step.stack, step.live)
    together = {
        stage.index: step.live(
            stage_gathers(step.stage_elements(stage), step.mode, step.stack, f"stage {stage.index}")
        )
        for stage in step.stages
    }
    bodies: dict[tuple[int, Kind], Body] = {
        (stage.index, kind): pass_body(stage.blocks, kind, units, together[stage.index], step.shared)
        for stage in step.stages
        for kind in block_passes(step.stack)
    }
    for share in step.shares:
        for passed in SHARE_PASSES:
            bodies[share.index, passed] = pass_body(share_blocks(model, passed), passed, units)
    return bodies


def _stage_sum(
    rule: Callable[[Block, LocalShape, Mode, Stack], Number],
    stage: Stage,
    model: ModelGraph,
    shape: LocalShape,
    mode: Mode,
    stack: Stack,
) -> int:
    return int(sum(rule(model.blocks[b], shape, mode, stack) for b in stage.blocks))


def _activations(part: Stage, model: ModelGraph, step: StepPlan) -> int:
    if part in step.shares:
        return int(share_kept(model, step.shape, step.mode, step.stack))
    return _stage_sum(kept_bytes, part, model, step.shape, step.mode, step.stack)


def _kept_for_weights(part: Stage, model: ModelGraph, step: StepPlan) -> int:
    if part in step.shares:
        return 0
    return _stage_sum(kept_for_weights, part, model, step.shape, step.mode, step.stack)


def _offloaded(
    out: OffloadRule, stage: Stage, model: ModelGraph, shape: LocalShape, mode: Mode, stack: Stack
) -> int:
    """Bytes of a stage's activations that go to the host."""
    blocks = blocks_out(out, stage.blocks, model)
    return int(sum(kept_bytes(model.blocks[b], shape, mode, stack) for b in blocks))


def blocks_out(out: OffloadRule, blocks: Sequence[int], model: ModelGraph) -> tuple[int, ...]:
    """Return a stage's blocks whose activations go to the host: its first layers, none of a share's."""
    layers = [block for block in blocks if model.blocks[block].kind == "layer"]
    return tuple(layers[: out.layers_out(len(layers))])


def _stage_working(stage: Stage, model: ModelGraph, shape: LocalShape, mode: Mode, stack: Stack) -> int:
    return int(max(working_bytes(model.blocks[b], shape, mode, stack) for b in stage.blocks))
