"""Lower a long plan to a Program. Pure; assumes a legal plan (``plans/rules/check_plan.py``).

The steps, in order: grids from the layout's degrees and rank order; the local shape and mode; blocks from what each
layer runs again; stages from the partition and placement; the state table; bodies of passes; data-parallel collectives;
action lists from the schedule's generator, with copies of activations to the host and messages inserted and with
gathers, reductions, norm and optimizer around them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.fast_domains import usable_domain
from meshwright.errors import PlanError, Problem
from meshwright.model.architecture import Architecture
from meshwright.model.graph import Block, ModelGraph, Recomputed
from meshwright.model.transforms.blocks_by_layout import with_layouts
from meshwright.model.transforms.norm_kernels import with_fused_norms
from meshwright.model.transforms.recomputed_layers import with_recompute
from meshwright.model.transforms.vocabulary_parallel import with_vocabulary_parallel
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import Recompute
from meshwright.plans.layers.layout_by_layer import layouts_by_block
from meshwright.plans.layers.plan_of_layout import micro_batches_of
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.synchronisation.plan_axes import encoded_apart, loose_axes_of_plan
from meshwright.play.in_flight import most_in_flight
from meshwright.program.activation_bytes import kept_bytes, kept_for_weights, working_bytes
from meshwright.program.local_shape import LocalShape, Mode, Number
from meshwright.program.lowering.block_items import BLOCK_PASSES, block_passes
from meshwright.program.lowering.pass_bodies import ExchangesOfParts, UnitExchanges, pass_body
from meshwright.program.lowering.plan_parts import plan_parts
from meshwright.program.lowering.stage_blocks import place_stages
from meshwright.program.lowering.stage_reshards import stage_reshards
from meshwright.program.lowering.step_collectives import StepPlan, step_collectives, wrap_lists
from meshwright.program.model_states.data_parallel_collectives import stage_gathers, unit_exchanges
from meshwright.program.model_states.hidden_matrices import elements_by_optimizer
from meshwright.program.model_states.matrix_exchanges import matrix_units, step_exchanges
from meshwright.program.model_states.state_elements import elements_of_parts
from meshwright.program.model_states.state_table import state_table
from meshwright.program.model_states.states_on_host import (
    DENSE_COPIES,
    EXPERT_COPIES,
    HostStates,
    PassCopies,
    gradients_leave,
)
from meshwright.program.pass_items import Body, Collective, Compute, Item, PassKind, item_on_part, on_part
from meshwright.program.pipeline_vocabulary import (
    SHARE_PASSES,
    share_blocks,
    share_exchanges,
    share_items,
    share_kept,
    shares,
)
from meshwright.program.program import Program, Stage
from meshwright.program.program_parts import ProgramParts
from meshwright.program.reshard import Reshard
from meshwright.program.synchronisation.encoded_program import with_encoded_collectives
from meshwright.program.synchronisation.exact_entries import with_entries
from meshwright.schedules.action import ActionLists, Kind
from meshwright.schedules.activation_offload import OffloadedStages, OffloadRule, with_offloads
from meshwright.schedules.choice import ScheduleChoice, validates_afterwards
from meshwright.schedules.forward_only_lists import forward_only_lists
from meshwright.schedules.insert_messages import insert_messages
from meshwright.schedules.stage_times import StageTimes
from meshwright.stack.stack import Stack
from meshwright.stack.state_types import changed_types, with_types
from meshwright.workload.workload import Workload


def lower(
    plan: LongPlan,
    model: ModelGraph,
    cluster: Cluster,
    workload: Workload,
    stack: Stack,
    times: StageTimes | None = None,
) -> Program:
    """Lower a legal plan, whose degrees multiply to the devices; automatic schedules look at the stages' ``times``."""
    stack = with_types(stack, workload.precision, plan.written_types, workload.optimizer)
    choice, ranks = plan.choice, plan.pipeline.ranks
    of_layers = layouts_by_block(plan, model.architecture.layers)
    model, apart = with_layouts(_recomputed(plan, model, stack), encoded_apart(plan, of_layers))
    layouts = [layout for layout, _ in apart]
    model = with_vocabulary_parallel(model) if choice.form else model
    layouts += [layouts[0]] * (len(model.blocks) - len(layouts))
    parts = plan_parts(plan, model, layouts, cluster, workload, stack)
    stages = place_stages(plan, model)
    sections = stages + shares(model, len(stages), ranks)
    micro_batches = micro_batches_of(plan, workload.computed_sequences)
    step = _step_plan(plan, model, parts, sections, micro_batches, workload, stack)
    schedule = _schedule(plan, micro_batches, workload, times)
    host = _host_states(plan, step, model.architecture)
    collectives = _collectives(choice, model, step)
    domain = usable_domain(cluster.pool)
    reshards = stage_reshards(stages, step.ways, parts, model.architecture.hidden, domain)
    out = plan.offload_rule
    offloaded = tuple(_offloaded(out, section, model, step) for section in sections)
    copied = with_offloads(
        schedule, OffloadedStages(frozenset(s.index for s in sections if offloaded[s.index]), out.ahead)
    )
    messages = insert_messages(copied, plan.pipeline.placement, step.ways)
    program = Program(
        blocks=model.blocks,
        hidden=model.architecture.hidden,
        table_shape=(model.architecture.vocab, model.architecture.hidden),
        stack=stack,
        parts=parts,
        stages=stages,
        micro_batches=micro_batches,
        states=state_table(step, model),
        block_items=_block_items(model, step, choice),
        smaller_items=_smaller_items(model, step),
        bodies=_bodies(step, model, reshards),
        collectives=collectives,
        overlapped=step.overlapped,
        activation_bytes=tuple(_activations(section, model, step) for section in sections),
        changed_types=changed_types(stack, workload.precision, plan.written_types, workload.optimizer),
        weight_gradient_bytes=tuple(_kept_for_weights(section, model, step) for section in sections),
        offloaded_layers=tuple(len(blocks_out(out, section.blocks, model)) for section in sections),
        offloaded_bytes=offloaded,
        working_bytes=tuple(_stage_working(section, model, step) for section in sections),
        lists=wrap_lists(messages, step, collectives),
        reshards={stage: reshard for (stage, place), reshard in reshards.items() if place is None},
        in_flight=() if workload.optimizer.forward_only else _in_flight(plan, micro_batches, schedule),
        chains=step.ways.chains,
        shares=step.shares,
        vocabulary=choice.vocabulary,
        synchronise=plan.synchronise,
        loose=step.loose,
        host_states=host,
        state_copies={} if host is None else _state_copies(host, step, model),
    )
    return with_encoded_collectives(program) if any(step.encoded) else program


def _step_plan(
    plan: LongPlan,
    model: ModelGraph,
    parts: ProgramParts,
    sections: tuple[Stage, ...],
    micro_batches: int,
    workload: Workload,
    stack: Stack,
) -> StepPlan:
    """Return the inputs of the actions around the schedule."""
    choice, ranks, virtual = plan.choice, plan.pipeline.ranks, plan.pipeline.virtual_stages
    count = len(plan.pipeline.placement)
    stages = sections[:count]
    alike = parts.of_blocks[stages[0].blocks[0]] == parts.of_blocks[stages[-1].blocks[-1]]
    together = (stages[0].rank == stages[-1].rank and alike) or choice.form is not None
    elements = elements_of_parts(model.blocks, parts, ends_together=together)
    counted = elements
    if stack.optimizer.kind.of_matrices:
        counted = dict(elements_by_optimizer(model.blocks, elements, parts.only.shape, stack, together))
    return StepPlan(
        parts=parts,
        stack=stack,
        stages=stages,
        ways=choice.ways(ranks, virtual),
        elements=elements,
        tied=model.tied_gradients and not workload.optimizer.forward_only,
        tied_head=model.tied_head,
        unit=choice.unit_size(ranks, micro_batches, virtual),
        shares=sections[count:],
        validated_afterwards=validates_afterwards(choice, stack.validates_step_afterwards, ranks),
        optimizer_elements=counted,
        table_shape=(model.architecture.vocab, model.architecture.hidden),
        synchronise=plan.synchronise,
        loose=loose_axes_of_plan(plan),
    )


def _recomputed(plan: LongPlan, model: ModelGraph, stack: Stack) -> ModelGraph:
    return recomputed_model(model, layer_recomputes(plan, model.architecture.layers), stack)


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
        part = step.parts.of(stage.blocks[0])
        units = matrix_units([model.blocks[block] for block in stage.blocks], part.mode)
        items = step.live(tuple(step_exchanges(units, part.sharding, part.shape, step.stack)))
        found |= {(stage.index, "STEP"): items} if items else {}
    return found


def _host_states(plan: LongPlan, step: StepPlan, arch: Architecture) -> HostStates | None:
    """Return the states of a plan that are on the hosts; None if there are none. Raises PlanError for chunks."""
    if plan.in_chunks:
        rule = "chunks are placed by predict alone, when everything else is lowered"
        raise PlanError([Problem("offload.manager", "chunks", rule, "predict, or take manager out")])
    if not plan.host_shares.some:
        return None
    part = step.parts.only
    copies = part.grid.size(DENSE_COPIES)
    if arch.moe is not None:
        copies = max(copies, part.expert_grid.size(EXPERT_COPIES))
    leave = gradients_leave(
        part.sharding, part.mode, copies, step.stack, chains=step.ways.chains, spread=bool(step.shares)
    )
    return HostStates(
        shares=plan.host_shares,
        sharding=part.sharding,
        shape=part.shape,
        stack=step.stack,
        leave=int(leave),
        reduced=part.mode.reduce == "per-micro-batch",
    )


def _state_copies(host: HostStates, step: StepPlan, model: ModelGraph) -> dict[tuple[int, Kind], PassCopies]:
    """Return the copies of every pass over every stage."""
    return {
        (stage.index, kind): host.copies(stage.blocks, step.elements, kind, step.shared, model.head_block)
        for stage in step.stages
        for kind in block_passes(step.stack)
    }


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
            items[index, kind] = _items_of_block(index, block, kind, step.parts.of(index).shape, step)
    return items


def _smaller_items(model: ModelGraph, step: StepPlan) -> dict[tuple[int, PassKind, int], tuple[Item, ...]]:
    """Return what ranks do that have fewer sequences than others."""
    return {
        (index, kind, count): _items_of_block(
            index, block, kind, replace(part.shape, micro_batch=count), step
        )
        for index, block in enumerate(model.blocks)
        for part in (step.parts.of(index),)
        for count in sorted({*part.batch_share} - {part.shape.micro_batch})
        for kind in block_passes(step.stack)
    }


def _items_of_block(
    index: int, block: Block, kind: PassKind, shape: LocalShape, step: StepPlan
) -> tuple[Item, ...]:
    made = BLOCK_PASSES[kind](block, shape, step.parts.of(index).mode, step.stack)
    return _live_items((item_on_part(item, step.parts.of_blocks[index]) for item in made), step)


def _share_collectives(
    choice: ScheduleChoice, model: ModelGraph, step: StepPlan
) -> dict[tuple[int | None, Kind], tuple[Collective, ...]]:
    """Return the collectives of every share for a micro-batch."""
    if choice.form is None:
        return {}
    exchanges = share_exchanges(
        choice.form, model.architecture.hidden, step.parts.only.shape, step.parts.only.mode
    )
    return {
        (share.index, kind): step.live(collectives)
        for share in step.shares
        for kind, collectives in exchanges.items()
    }


def _live_items(items: Iterable[Item], step: StepPlan) -> tuple[Item, ...]:
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


def _bodies(
    step: StepPlan, model: ModelGraph, reshards: Mapping[tuple[int, int | None], Reshard]
) -> dict[tuple[int, Kind], Body]:
    units = _unit_exchanges(step)
    bodies: dict[tuple[int, Kind], Body] = {}
    for stage in step.stages:
        together = _stage_gathers(step, stage)
        changes = {
            at: found for (index, at), found in reshards.items() if index == stage.index and at is not None
        }
        for kind in block_passes(step.stack):
            bodies[stage.index, kind] = pass_body(stage.blocks, kind, units, together, step.shared, changes)
    for share in step.shares:
        for passed in SHARE_PASSES:
            bodies[share.index, passed] = pass_body(share_blocks(model, passed), passed, units)
    return bodies


def _unit_exchanges(step: StepPlan) -> ExchangesOfParts:
    """Return the state exchanges of passes by block."""
    found: dict[int, UnitExchanges] = {}
    for index, part in enumerate(step.parts):
        own = {block: step.elements[block] for block, of in enumerate(step.parts.of_blocks) if of == index}

        def live(collectives: tuple[Collective, ...], index: int = index) -> tuple[Collective, ...]:
            return step.live(on_part(collectives, index))

        exchanges = unit_exchanges(own, part.sharding, part.mode, part.shape, step.stack, live, step.encoded)
        found |= dict.fromkeys(own, exchanges)
    return ExchangesOfParts(found)


def _stage_gathers(step: StepPlan, stage: Stage) -> tuple[Collective, ...]:
    """Return the gathers before a forward pass over a whole stage."""
    found: tuple[Collective, ...] = ()
    for index, blocks in step.parts.blocks_by_part(stage.blocks).items():
        gathers = stage_gathers(
            step.elements_of(blocks), step.parts[index].mode, step.stack, f"stage {stage.index}"
        )
        found += step.live(on_part(with_entries(gathers, step.encoded.gathers), index))
    return found


def _section_sum(
    rule: Callable[[Block, LocalShape, Mode, Stack], Number],
    blocks: Sequence[int],
    model: ModelGraph,
    step: StepPlan,
) -> int:
    """Return the bytes of blocks by a rule, each with the local shape of its part, on the rank with most."""
    parts = step.parts
    return max(
        int(
            sum(
                rule(model.blocks[block], shapes[parts.of_blocks[block]], parts.of(block).mode, step.stack)
                for block in blocks
            )
        )
        for shapes in parts.local_shapes()
    )


def _activations(section: Stage, model: ModelGraph, step: StepPlan) -> int:
    if section in step.shares:
        part = step.parts.only
        return int(share_kept(model, part.shape, part.mode, step.stack))
    return _section_sum(kept_bytes, section.blocks, model, step)


def _kept_for_weights(section: Stage, model: ModelGraph, step: StepPlan) -> int:
    return 0 if section in step.shares else _section_sum(kept_for_weights, section.blocks, model, step)


def _offloaded(out: OffloadRule, section: Stage, model: ModelGraph, step: StepPlan) -> int:
    """Bytes of a stage's activations that go to the host."""
    return _section_sum(kept_bytes, blocks_out(out, section.blocks, model), model, step)


def blocks_out(out: OffloadRule, blocks: Sequence[int], model: ModelGraph) -> tuple[int, ...]:
    """Return a stage's blocks whose activations go to the host: its first layers, none of a share's."""
    layers = [block for block in blocks if model.blocks[block].kind == "layer"]
    return tuple(layers[: out.layers_out(len(layers))])


def _stage_working(section: Stage, model: ModelGraph, step: StepPlan) -> int:
    return max(_section_sum(working_bytes, [block], model, step) for block in section.blocks)
