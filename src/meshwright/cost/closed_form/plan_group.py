"""One group of plans with equal mode, pipeline shape, schedule and sharding: times and bytes of passes as arrays.

Stages of equal content share their numbers (``group_stages.py``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.automatic_stage_times import automatic_stage_times
from meshwright.cost.closed_form.group_parts import (
    CollectivesOf,
    GroupPart,
    pass_exchanges,
    stage_gathers_at_once,
)
from meshwright.cost.closed_form.group_stages import Content, GroupStages
from meshwright.cost.closed_form.host_states_of_plans import PipelineWays, array_host_states
from meshwright.cost.closed_form.overlap_and_optimizer import send_occupancy
from meshwright.cost.operators.pass_prices import (
    Mesh,
    Parts,
    add_parts,
    collective_seconds,
    message_seconds,
    reshard_seconds,
    total,
)
from meshwright.cost.operators.pipeline_vocabulary_costs import Share
from meshwright.cost.pipeline_time.host_state_copies import exposed_copies
from meshwright.cost.pipeline_time.offload_copies import OFFLOAD, OffloadCopies, copy_seconds
from meshwright.plans.arrays.host_states import shared_host_shares
from meshwright.plans.forms.host_offload import HostShares
from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.lowering.lower_plan import blocks_out
from meshwright.program.lowering.pass_bodies import ExchangesOfParts, pass_body
from meshwright.program.lowering.plan_parts import p2p_bytes
from meshwright.program.model_states.data_parallel_collectives import add
from meshwright.program.model_states.state_elements import Elements
from meshwright.program.model_states.states_on_host import HostStates
from meshwright.program.pass_items import Body, Collective, PassKind
from meshwright.program.pipeline_vocabulary import SHARE_PASSES, share_blocks, share_exchanges, share_kept
from meshwright.schedules.action import Kind
from meshwright.schedules.activation_offload import OffloadedStages
from meshwright.schedules.stage_times import StageTimes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class PlanGroup(GroupStages):
    """Plans with equal mode, pipeline shape, schedule and sharding, with times and bytes of their passes."""

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

    def bodies(self, kind: PassKind) -> tuple[Body, ...]:
        """Return the body of a pass for each kind of stage."""
        return tuple(self._body(kind, content) for content in self._contents)

    def _body(self, kind: PassKind, content: Content) -> Body:
        blocks, _ = content

        def make() -> Body:
            stack, changes = self.setting.stack, self._contents[content]
            together = stage_gathers_at_once(self.parts, self.elements_of(blocks), stack)
            return pass_body(blocks, kind, self._pass_exchanges, together, self.shared, changes)

        return self.made_once(("body", kind, content), make)

    @property
    def _pass_exchanges(self) -> ExchangesOfParts:
        """Return the state exchanges of passes by block."""
        stack = self.setting.stack
        return self.made_once(
            ("exchanges",),
            lambda: pass_exchanges(self.parts, self.of_blocks, self.block_elements, stack),
        )

    def priced(self, kind: PassKind) -> tuple[Parts, ...]:
        """Priced passes, one per kind of stage, a row per distinct shape."""
        return self._priced[kind]

    @cached_property
    def _priced(self) -> dict[PassKind, tuple[Parts, ...]]:
        return {
            kind: tuple(self._priced_pass(kind, content) for content in self._contents)
            for kind in self.pass_kinds
        }

    def _priced_pass(self, kind: PassKind, content: Content) -> Parts:
        """Return the seconds of a pass over a stage by part, with the copies of states that it waits for."""
        prices, (blocks, _) = self.prices, content
        parts = self.made_once(("pass", kind, content), lambda: prices.body(self._body(kind, content)))
        states = self.host_states(prices.local.shape, prices.mesh)
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
        """Seconds of the slowest message between two stages on different ranks: (n,)."""
        if self.ranks == 1:
            return np.zeros(len(self.plans))
        if self.layouts is None:
            (usual,) = self._usual_messages
            return usual
        there, back = self.messages_s
        return np.asarray((self.crosses * np.maximum(there, back)).max(1))

    @cached_property
    def _usual_messages(self) -> list[Floats]:
        """Seconds of a message between two blocks of each part: (n,) each."""
        hidden, stack = self.setting.model.architecture.hidden, self.setting.stack
        sizes = (np.floor(p2p_bytes(hidden, part.shape, part.mode, stack)) for part in self.parts)
        return [
            self.per_row(message_seconds(part.mesh, self.forms, size))
            for part, size in zip(self.parts, sizes, strict=True)
        ]

    @cached_property
    def messages_s(self) -> tuple[Floats, Floats]:
        """Seconds of the messages behind each stage: to the next one, and of gradients from there: (n, K) each."""
        shape = len(self.plans), len(self.stages)
        if self.ranks == 1 or self.layouts is None:
            return (usual := np.broadcast_to(self.message_s[:, None], shape)), usual
        there = np.stack([self._usual_messages[self.of_blocks[blocks[-1]]] for blocks in self.stages], 1)
        back = there.copy()
        for (stage, place), change in self.layouts.reshards.items():
            if place is None:
                ends = (there, change.forward, change.source), (back, change.backward, change.target)
                for seconds, moved, part in ends:
                    congestion = self.parts[part].mesh.congestion(("pp",), "p2p")
                    seconds[:, stage - 1] = reshard_seconds(moved, self.forms, congestion)
        return there, back

    def per_row(self, value: Number) -> Floats:
        """Return a value per plan, or one for all of them, as (n,)."""
        return np.broadcast_to(np.asarray(value, dtype=np.float64), len(self.plans))

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
        seconds = np.asarray(copy_seconds(self.kept_on_host, self.stage_forms))
        return OffloadCopies(self.copied, seconds[:, self.kind_of])

    def _stage_bytes(self, of_blocks: list[Number]) -> Floats:
        blocks = [self.per_plan(value) for value in of_blocks]
        return np.floor(np.stack([np.sum([blocks[b] for b in k], axis=0) for k in self.stage_kinds], 1))

    def stage_times(self, passes: tuple[Parts, ...]) -> Floats:
        """Seconds of a pass for every plan and stage: (n, K)."""
        return self.spread([self.per_plan(sum(parts.values(), start=0.0)) for parts in passes])

    def gathers_of(self, part: GroupPart, blocks: Elements) -> tuple[Collective, ...]:
        """Return the collectives of GATHER for the blocks of a stage that belong to a part."""
        return part.gathers(blocks, self.setting.stack)

    def reductions_of(self, part: GroupPart, blocks: Elements) -> tuple[Collective, ...]:
        """Return the collectives of REDUCE for the blocks of a stage that belong to a part."""
        return part.reductions(blocks, self.setting.stack)

    @cached_property
    def gathered_early(self) -> Bools:
        """The mask of stages whose parameters are gathered at the beginning of a step, not at its end: (K,).

        Those with a block whose parameters are whole only during the step are.
        """
        overlap = self.setting.stack.overlap_parameter_gather
        by_step = [part.mode.gather == "per-step" for part in self.parts]
        found = [overlap or any(by_step[self.of_blocks[block]] for block in stage) for stage in self.stages]
        return np.array(found, dtype=np.bool_)

    @property
    def by_unit(self) -> bool:
        """Parameters are gathered and gradients reduced unit by unit."""
        return self.mode.by_unit

    def seconds(self, collectives: CollectivesOf) -> Floats:
        """Seconds of the collectives that each stage's elements call for: (n, K)."""
        of_kinds = (
            (one for part, blocks in kind.items() for one in collectives(self.parts[part], blocks))
            for kind in self.kind_elements
        )
        return self.spread([self.seconds_of(kind) for kind in of_kinds])

    def seconds_of(self, collectives: Iterable[Collective]) -> Floats:
        """Seconds of collectives one after the other: (n,)."""
        seconds = (collective_seconds(one, self.parts[one.part].mesh, self.forms) for one in collectives)
        return np.asarray(sum(seconds, start=np.zeros(len(self.plans))))
