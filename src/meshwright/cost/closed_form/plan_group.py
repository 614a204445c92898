"""One group of plans with equal mode, pipeline shape, schedule and sharding: their stages as arrays.

``stage_kinds`` are the distinct contents of stages (first, middle, last, …) and ``kind_of`` says which one each
stage has, so that everything is priced once per kind and then spread over the K stages.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.automatic_stage_times import automatic_stage_times
from meshwright.cost.closed_form.host_states_of_plans import PipelineWays, array_host_states
from meshwright.cost.closed_form.overlap_and_optimizer import send_occupancy
from meshwright.cost.constants_by_row import ConstantCases
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.operators.pass_prices import (
    Mesh,
    Parts,
    Prices,
    add_parts,
    collective_seconds,
    message_seconds,
    total,
)
from meshwright.cost.operators.pipeline_vocabulary_costs import Share
from meshwright.cost.operators.price_plans import (
    array_mesh,
    array_shape,
    pass_kinds,
    setting_hardware_times,
)
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import have_forms
from meshwright.cost.pipeline_time.host_state_copies import exposed_copies
from meshwright.cost.pipeline_time.offload_copy_streams import OFFLOAD, OffloadCopies, copy_seconds
from meshwright.cost.pipeline_time.time_action_lists import stages_of_ranks
from meshwright.plans.arrays.host_states import shared_host_shares
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.forms.host_offload import HostShares
from meshwright.plans.forms.long import Pipeline
from meshwright.plans.forms.short import Schedule
from meshwright.plans.layers.layer_assignment import stage_layers
from meshwright.plans.setting import Setting
from meshwright.program.local_shape import LocalShape, Mode, Number
from meshwright.program.lowering.lower_plan import blocks_out
from meshwright.program.lowering.pass_bodies import Shared, pass_body
from meshwright.program.lowering.plan_parts import p2p_bytes
from meshwright.program.lowering.stage_blocks import stage_blocks
from meshwright.program.model_states.data_parallel_collectives import (
    add,
    stage_gathers,
    step_gathers,
    unit_exchanges,
    unit_reduction,
)
from meshwright.program.model_states.hidden_matrices import (
    Matrices,
    elements_by_optimizer,
    held_matrices,
    stage_matrices,
)
from meshwright.program.model_states.stack_zero_semantics import effective_sharding
from meshwright.program.model_states.state_elements import Elements, StateKind, block_elements
from meshwright.program.model_states.states_on_host import HostStates
from meshwright.program.model_states.zero_sharding import SHARDED, held_elements
from meshwright.program.pass_items import Body, Collective, PassKind
from meshwright.program.pipeline_vocabulary import SHARE_PASSES, share_blocks, share_exchanges, share_kept
from meshwright.schedules.action import Kind
from meshwright.schedules.activation_offload import OffloadedStages
from meshwright.schedules.choice import ScheduleChoice, validates_afterwards
from meshwright.schedules.pipeline import looped_placement
from meshwright.schedules.schedule_kind import ScheduleKind
from meshwright.schedules.stage_times import StageTimes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class PlanGroup:
    """``inverse[i]`` is the row of ``prices`` that plan i has; all other arrays have one row per plan.

    ``cases``: the constants that each plan is priced with, where they are not those of the setting.
    """

    plans: PlanArrays
    inverse: Ints
    prices: Prices
    mode: Mode
    setting: Setting
    cases: ConstantCases | None = None

    def take(self, rows: Ints) -> "PlanGroup":
        """Return the plans at ``rows``, with the same prices."""
        cases = self.cases and self.cases.take(rows)
        return replace(self, plans=self.plans.take(rows), inverse=self.inverse[rows], cases=cases)

    @property
    def ranks(self) -> int:
        """Pipeline ranks P."""
        return int(self.plans.pp[0])

    @property
    def chunks(self) -> int:
        """Stages per rank V."""
        return int(self.plans.virtual_stages[0])

    @property
    def schedule(self) -> ScheduleChoice:
        """Return the schedule choice that all plans of the group share."""
        return self.plans.schedules[int(self.plans.schedule[0])]

    @property
    def kind(self) -> ScheduleKind:
        """Facts about the schedule."""
        return self.schedule.kind

    @property
    def formed(self) -> bool:
        """Return true if a closed form holds for the passes, offload copies aside."""
        return bool(have_forms(self.plans)[0])

    @property
    def split(self) -> bool:
        """Backward passes are I and W."""
        return self.kind.split

    @property
    def forward_only(self) -> bool:
        """There are no backward passes."""
        return self.setting.stack.optimizer.forward_only

    @property
    def pass_kinds(self) -> tuple[PassKind, ...]:
        """The passes of a micro-batch over a stage."""
        return pass_kinds(self.schedule, self.setting.stack)

    @property
    def steps_overlap(self) -> bool:
        """As ``Program.steps_overlap``."""
        usually = self.setting.stack.validates_step_afterwards
        return validates_afterwards(self.schedule, usually, self.ranks)

    @cached_property
    def placement(self) -> tuple[int, ...]:
        """The pipeline rank of every stage."""
        return self.kind.placement(self.ranks, self.chunks)

    @cached_property
    def stages_at(self) -> Ints:
        """The stages of every rank by their places in a chain: (V, P)."""
        return stages_of_ranks(self.schedule, self.ranks, self.chunks)

    @cached_property
    def crosses(self) -> Floats:
        """1 for each stage whose successor is on another rank, 0 for the others."""
        ranks = np.array(self.placement).reshape(self.kind.chains, -1)
        crosses = np.pad(ranks[:, 1:] != ranks[:, :-1], ((0, 0), (0, 1)))
        return crosses.reshape(-1).astype(np.float64)

    @property
    def ends_together(self) -> bool:
        """Whoever holds the embedding, or a share of it, holds that of the head too."""
        return self.placement[0] == self.placement[-1] or self.schedule.form is not None

    @property
    def tied_apart(self) -> bool:
        """Two ranks hold a copy of the embedding table each."""
        return self.setting.model.tied_gradients and not self.ends_together and not self.forward_only

    @property
    def shared(self) -> Shared | None:
        """The blocks of embedding and head, where they share a table on one rank."""
        chain = self.setting.model.chain
        together = self.setting.model.tied_head and self.ends_together
        return (chain[0][0], chain[-1][0]) if together else None

    @property
    def sharding(self) -> str:
        """ZeRO name of what the stack cuts."""
        return effective_sharding(SHARDINGS[int(self.plans.sharding[0])], self.setting.stack)

    @cached_property
    def forms(self) -> HardwareTimes:
        """HardwareTimes of the pool; constants that differ between plans have one row per plan."""
        return self._forms(1)

    @cached_property
    def stage_forms(self) -> HardwareTimes:
        """As ``forms``, for arrays of plans and stages or ranks: (n, 1)."""
        return self._forms(2)

    def _forms(self, axes: int) -> HardwareTimes:
        found, rows = self.prices.local.forms, (-1,) + (1,) * (axes - 1)
        if self.cases is not None:
            devices = self.plans.devices.reshape(rows) if self.plans.several_sizes else None
            return setting_hardware_times(self.cases.setting(self.setting, axes), devices)
        return found.spread(self.inverse, rows) if self.plans.several_sizes else found

    @cached_property
    def micro_batches(self) -> Ints:
        """M of every plan."""
        return self.plans.micro_batches(self.setting.workload.computed_sequences)

    @property
    def visits(self) -> Ints:
        """Micro-batches that go through a stage, of every plan: M by the number of chains."""
        return self.micro_batches // self.kind.chains

    @cached_property
    def shape(self) -> LocalShape:
        """Local shapes, one row per plan."""
        return array_shape(self.plans, self.setting)

    @cached_property
    def mesh(self) -> Mesh:
        """Axes, one row per plan."""
        return array_mesh(self.plans, self.forms)

    @cached_property
    def stages(self) -> tuple[tuple[int, ...], ...]:
        """Block indices of every stage."""
        schedule = Schedule.of(self.schedule)
        pipeline = Pipeline(stages=self.plans.stages, placement=self.placement, schedule=schedule)
        model = self.setting.model
        contents = stage_layers(pipeline, len(model.layer_blocks))
        return tuple(stage_blocks(content, model) for content in contents)

    @cached_property
    def share(self) -> Share | None:
        """Return every pipeline rank's share of a spread vocabulary; None if it is not spread."""
        form, model, stack = self.schedule.form, self.setting.model, self.setting.stack
        if form is None:
            return None
        seconds = {
            kind: self.per_plan(sum(total(self.prices.block(b, kind)) for b in share_blocks(model, kind)))
            for kind in SHARE_PASSES
        }
        return Share(
            seconds=seconds,
            exchanges={
                kind: np.asarray(sum(collective_seconds(c, self.mesh, self.forms) for c in collectives))
                for kind, collectives in self.share_exchanges.items()
            },
            occupancy=send_occupancy(not form.exposed, stack.overlap_p2p, self.forms),
            elements=self.per_plan_elements(add(*(self.block_elements[b] for b in model.vocabulary))),
            kept_bytes=np.floor(np.asarray(share_kept(model, self.shape, self.mode, stack))),
        )

    @cached_property
    def share_exchanges(self) -> Mapping[Kind, tuple[Collective, ...]]:
        """Return the vocabulary collectives of one micro-batch, one row per plan."""
        form, hidden = self.schedule.form, self.setting.model.architecture.hidden
        return share_exchanges(form, hidden, self.shape, self.mode) if form else {}

    @cached_property
    def stage_kinds(self) -> tuple[tuple[int, ...], ...]:
        """Distinct contents of stages."""
        return tuple(dict.fromkeys(self.stages))

    @cached_property
    def kind_of(self) -> Ints:
        """Index into ``stage_kinds`` of every stage."""
        return np.array([self.stage_kinds.index(stage) for stage in self.stages])

    @cached_property
    def block_elements(self) -> dict[int, Elements]:
        """Elements of each block, one row per distinct shape."""
        blocks = self.setting.model.blocks
        return block_elements(blocks, self.prices.local.shape, ends_together=self.ends_together)

    @cached_property
    def plan_elements(self) -> Mapping[int, Elements]:
        """As ``block_elements``, one row per plan."""
        return {index: self.per_plan_elements(each) for index, each in self.block_elements.items()}

    @cached_property
    def optimizer_elements(self) -> Mapping[int, Elements]:
        """As ``block_elements``, without the matrices that Muon takes."""
        blocks, shape, stack = self.setting.model.blocks, self.prices.local.shape, self.setting.stack
        return elements_by_optimizer(blocks, self.block_elements, shape, stack, self.ends_together)

    @cached_property
    def kind_matrices(self) -> tuple[Matrices, ...]:
        """Return the matrices that Muon takes of each kind of stage."""
        blocks, stack = self.setting.model.blocks, self.setting.stack
        return tuple(stage_matrices((blocks[b] for b in kind), stack) for kind in self.stage_kinds)

    @cached_property
    def held_matrices(self) -> Floats:
        """Elements of matrices whose optimizer states each pipeline rank holds: (n, P)."""
        stack, nothing = self.setting.stack, np.zeros(len(self.plans))
        if not stack.optimizer.kind.of_matrices:
            return np.zeros((len(self.plans), self.ranks))
        held = (held_matrices(matrices, self.sharding, self.shape, stack) for matrices in self.kind_matrices)
        return self.per_rank(self.spread([nothing + dense + expert for dense, expert in held]))

    @cached_property
    def kind_elements(self) -> tuple[Elements, ...]:
        """Elements of each kind of stage, one row per plan."""
        of_kinds = (add(*(self.block_elements[b] for b in kind)) for kind in self.stage_kinds)
        return tuple(map(self.per_plan_elements, of_kinds))

    def held(self, kind: StateKind) -> Floats:
        """Elements of a kind of state on every pipeline rank: (n, P); each block's shard is rounded up by itself."""
        sharded = kind in SHARDED[self.sharding]
        apart = kind == "optimizer" and self.setting.stack.optimizer.kind.of_matrices
        apart = apart or any(elements.trained is not None for elements in self.block_elements.values())
        key = sharded, kind if apart else "parameter"
        if key not in self._held:
            self._held[key] = self._rank_elements(kind, sharded)
        return self._held[key]

    @cached_property
    def _held(self) -> dict[tuple[bool, str], Floats]:
        return {}

    def _rank_elements(self, kind: StateKind, sharded: bool) -> Floats:
        of_kind = self.optimizer_elements if kind == "optimizer" else self.block_elements
        counts = {index: self.per_plan_elements(each.of(kind)) for index, each in of_kind.items()}
        held = {index: held_elements(each, kind, sharded, self.shape) for index, each in counts.items()}
        return self.on_ranks({index: np.asarray(each.total) for index, each in held.items()})

    def on_ranks(self, blocks: Mapping[int, Floats]) -> Floats:
        """Sum up what each rank has of every block, one row per plan: (n, P)."""
        held = self.per_rank(self.spread([np.sum([blocks[b] for b in k], axis=0) for k in self.stage_kinds]))
        return held + np.sum([blocks[b] for b in self.setting.model.vocabulary], axis=0).reshape(-1, 1)

    def per_plan_elements(self, elements: Elements) -> Elements:
        """Spread rows of distinct shapes over plans."""
        return elements.mapped(self.per_plan)

    def per_plan(self, value: object) -> Floats:
        """Spread a value per distinct shape (or a scalar) over plans."""
        array = np.asarray(value, dtype=np.float64)
        return array[self.inverse] if array.ndim else np.full(len(self.plans), float(array))

    def bodies(self, kind: PassKind) -> tuple[Body, ...]:
        """Return the body of a pass for each kind of stage."""
        mode, stack, elements = self.mode, self.setting.stack, self.block_elements
        units = unit_exchanges(elements, self.sharding, mode, self.prices.local.shape, stack)
        sums = (add(*(elements[b] for b in blocks)) for blocks in self.stage_kinds)
        together = [stage_gathers(of_stage, mode, stack, "stage") for of_stage in sums]
        return tuple(
            pass_body(blocks, kind, units, at_once, self.shared)
            for blocks, at_once in zip(self.stage_kinds, together, strict=True)
        )

    def priced(self, kind: PassKind) -> tuple[Parts, ...]:
        """Priced passes, one per kind of stage, a row per distinct shape."""
        return self._priced[kind]

    @cached_property
    def _priced(self) -> dict[PassKind, tuple[Parts, ...]]:
        return {
            kind: tuple(map(partial(self._priced_pass, kind), self.bodies(kind), self.stage_kinds))
            for kind in self.pass_kinds
        }

    def _priced_pass(self, kind: PassKind, body: Body, blocks: tuple[int, ...]) -> Parts:
        """Return the seconds of a pass over some blocks by part, with the copies of states that it waits for."""
        prices = self.prices
        parts, states = prices.body(body), self.host_states(prices.local.shape, prices.mesh)
        if states is None:
            return parts
        copies = states.copies(blocks, self.block_elements, kind, self.shared, self.setting.model.head_block)
        return add_parts(parts, {OFFLOAD: exposed_copies(copies, total(parts), prices.local.forms)})

    @cached_property
    def host_shares(self) -> HostShares:
        """Return the shares of model states on the hosts, which all plans of the group have."""
        return shared_host_shares(self.plans)

    def host_states(self, shape: LocalShape, mesh: Mesh, axes: int = 1) -> HostStates | None:
        """Return the model states on the hosts, a row per row of ``shape``; None if there are none."""
        shares, setting = self.host_shares, self.setting
        if not shares.some:
            return None
        ways = PipelineWays(self.kind.chains, self.schedule.form is not None, setting.model.architecture.moe)
        return array_host_states(shares, self.sharding, self.mode, setting.stack, shape, mesh, ways, axes)

    @cached_property
    def forward_s(self) -> Floats:
        """Seconds of the forward pass of every plan and stage: (n, K)."""
        return self.stage_times(self.priced("F"))

    @cached_property
    def backward_s(self) -> Floats:
        """Seconds of the whole backward pass: (n, K)."""
        return self.input_s if self.weight_s is None else self.input_s + self.weight_s

    @cached_property
    def input_s(self) -> Floats:
        """Seconds of I, or of B where backward passes are not split; 0 without them: (n, K)."""
        if self.forward_only:
            return np.zeros_like(self.forward_s)
        return self.stage_times(self.priced(self.pass_kinds[1]))

    @cached_property
    def weight_s(self) -> Floats | None:
        """Seconds of W where backward passes are split: (n, K)."""
        return self.stage_times(self.priced("W")) if self.split else None

    @cached_property
    def message_s(self) -> Floats:
        """Seconds of a message between two stages: (n,)."""
        if self.ranks == 1:
            return np.zeros(len(self.plans))
        hidden = self.setting.model.architecture.hidden
        size = np.floor(p2p_bytes(hidden, self.shape, self.mode, self.setting.stack))
        return np.asarray(message_seconds(self.mesh, self.forms, size))

    @cached_property
    def times(self) -> list[StageTimes] | None:
        """Return the stage times that an automatic schedule uses, per plan; None for other schedules."""
        if not self.schedule.automatic:
            return None
        passes, kept = (self.forward_s, self.input_s, self.weight_s), (self.kept, self.kept_for_weights)
        return automatic_stage_times(passes, self.message_s, kept, self.kind_of, self.share)

    @cached_property
    def kept(self) -> Floats:
        """Bytes that a stage of each kind keeps from F to B or I: (n, kinds)."""
        return self._stage_bytes(self.prices.kept)

    @cached_property
    def kept_for_weights(self) -> Floats:
        """Bytes that a stage of each kind keeps from I to W: (n, kinds)."""
        return self._stage_bytes(self.prices.kept_for_weights)

    @cached_property
    def kept_on_host(self) -> Floats:
        """Bytes of what a stage of each kind keeps from F to B or I that go to the host: (n, kinds)."""
        rule, model = self.plans.offload_rule, self.setting.model
        blocks = [self.per_plan(value) for value in self.prices.kept]
        out = [blocks_out(rule, kind, model) for kind in self.stage_kinds]
        nothing = np.zeros(len(self.plans))
        return np.floor(np.stack([np.sum([nothing, *(blocks[b] for b in k)], axis=0) for k in out], 1))

    @cached_property
    def copied(self) -> OffloadedStages | None:
        """Return the stages whose activations the lists offload to the host; None if there are none."""
        if not self.plans.offload_rule.share:
            return None
        out = self.kept_on_host.max(0)[self.kind_of] > 0
        stages = frozenset(np.flatnonzero(out).tolist())
        return OffloadedStages(stages, self.plans.offload_rule.ahead) if stages else None

    @cached_property
    def copies(self) -> OffloadCopies | None:
        """Copies of activations to the host and back; None where there are none."""
        if self.copied is None:
            return None
        seconds = np.asarray(copy_seconds(self.kept_on_host, self.forms))
        return OffloadCopies(self.copied, seconds[:, self.kind_of])

    def _stage_bytes(self, of_blocks: list[Number]) -> Floats:
        blocks = [self.per_plan(value) for value in of_blocks]
        return np.floor(np.stack([np.sum([blocks[b] for b in k], axis=0) for k in self.stage_kinds], 1))

    def stage_times(self, passes: tuple[Parts, ...]) -> Floats:
        """Seconds of a pass for every plan and stage: (n, K)."""
        return self.spread([self.per_plan(sum(parts.values(), start=0.0)) for parts in passes])

    def spread(self, per_kind: list[Floats]) -> Floats:
        """(n,) per kind of stage → (n, K)."""
        return np.stack(per_kind, 1)[:, self.kind_of]

    def per_rank(self, stages: Floats) -> Floats:
        """Sum over the chunks of a rank: (n, K) → (n, P)."""
        if self.kind.placement is looped_placement:
            return np.asarray(stages.reshape(len(stages), self.chunks, self.ranks).sum(1))
        return np.asarray(stages[:, self.stages_at].sum(1))

    def gathers_of(self, stage: Elements) -> tuple[Collective, ...]:
        """Return the collectives of a stage's GATHER."""
        return step_gathers(stage, self.sharding, self.setting.stack, "stage")

    def reductions_of(self, stage: Elements) -> tuple[Collective, ...]:
        """Return the collectives of a stage's REDUCE."""
        return unit_reduction(stage, self.sharding, self.mode, self.shape, self.setting.stack, "stage")

    @property
    def by_unit(self) -> bool:
        """Parameters are gathered and gradients reduced unit by unit."""
        return self.mode.by_unit

    def seconds(self, collectives: Callable[[Elements], tuple[Collective, ...]]) -> Floats:
        """Seconds of the collectives that each stage's elements call for: (n, K)."""
        return self.spread([self.seconds_of(collectives(elements)) for elements in self.kind_elements])

    def seconds_of(self, collectives: Iterable[Collective]) -> Floats:
        """Seconds of collectives one after the other: (n,)."""
        seconds = (collective_seconds(one, self.mesh, self.forms) for one in collectives)
        return np.asarray(sum(seconds, start=np.zeros(len(self.plans))))
