"""Execute one rank's list of actions: the Program's own list, which the simulator plays too.

``ACTIONS`` maps each kind of action to its effect: passes of stages, messages, copies to the host, or operations on
states. The interpreter knows no schedule and no sharding: the list gives the order, stages and units do the work. If
the vocabulary is spread, ``vocabulary`` runs the passes of shares and exchanges results with all ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from meshwright.program.lowering.optimizer_post_validation import before_validation, validation_on
from meshwright.program.program import Program, matching_receive
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.comm.pipeline_messages import PipelineMessages
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.executor.stage_passes import StageRun
from meshwright.runtime.pipeline_vocabulary.share_actions import VocabularyShare, vocabulary_share
from meshwright.runtime.state.parameter_lifecycle import StepStates, free_gathered_in_passes
from meshwright.runtime.state.post_validation import StepResult
from meshwright.runtime.state.post_validation_sums import ValidationSums
from meshwright.schedules.action import (
    EXCHANGES,
    PASS_KINDS,
    SUM_RECEIVES,
    SUM_SENDS,
    VOCABULARY_KINDS,
    Action,
    Kind,
)

TP = ("tp",)
Listener = Callable[[Action, str], None]
"""Callback at the begin ("begin") and end ("end") of every action."""


class Passes(Protocol):
    """A stage on one micro-batch, from F until W; ``passed_back`` is set after its I.

    Between F and I its saved tensors may move to the host: ``offload``, ``let_go``, ``reload``.
    """

    passed_back: bool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """F: return the stage's output, or the loss of the last stage."""

    def input_gradient(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """I: return the gradient of the stage's input; None for the first stage."""

    def weight_gradient(self) -> None:
        """W: compute the weight gradients that I has left."""

    def backward(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """B: run I and W in one."""

    def offload(self) -> None:
        """Start to copy saved tensors to the host."""

    def let_go(self) -> None:
        """Wait for the end of that copy and free the device memory."""

    def reload(self) -> None:
        """Start to copy back; I and B wait for it."""


@dataclass
class PendingOffloads:
    """Passes being copied to the host: ``begun`` since the last pass began, ``due`` before the next one."""

    begun: list[Passes] = field(default_factory=list)
    due: list[Passes] = field(default_factory=list)

    def before_pass(self) -> None:
        """Free what is due before another pass begins; copies started since then become due."""
        self.let_go()
        self.due, self.begun = self.begun, []

    def let_go(self) -> None:
        """End the copies that are due."""
        for run in self.due:
            run.let_go()
        self.due = []


@dataclass
class Interpreter:
    """Executor of one rank's steps. ``hear`` is called for every action; ``begin_passes`` creates a stage's passes.

    ``spread`` creates the rank's share of a spread vocabulary.

    ``running`` holds the passes in flight by (stage, micro-batch), ``leaving`` those that are being copied to the
    host; ``results`` the outputs of passes: the input of ("F", stage, micro-batch), the gradient for ("B", stage,
    micro-batch).
    """

    plan: RankPlan
    states: StepStates
    hear: Listener = lambda action, word: None
    begin_passes: Callable[[RankPlan, int, MicroBatch], Passes] = StageRun
    spread: Callable[[RankPlan, StepStates], VocabularyShare] = vocabulary_share
    vocabulary: VocabularyShare | None = field(init=False)
    channels: PipelineMessages = field(init=False)
    sums: ValidationSums = field(init=False)
    batches: Sequence[MicroBatch] = ()
    running: dict[tuple[int, int], Passes] = field(default_factory=dict)
    leaving: PendingOffloads = field(default_factory=PendingOffloads)
    results: dict[tuple[str, int, int], torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.channels = PipelineMessages(
            self.program, self.plan.communicator, self.plan.pipeline_rank, self.plan.message_buffer
        )
        self.sums = ValidationSums(self.plan, self.states)
        self.vocabulary = self.spread(self.plan, self.states) if self.program.vocabulary else None

    @property
    def program(self) -> Program:
        """The Program that is run."""
        return self.plan.program

    def step(
        self, batches: Sequence[MicroBatch], lr_factor: float = 1.0, labels: torch.Tensor | None = None
    ) -> StepResult | None:
        """Run one optimizer step on this rank's micro-batches and return its result.

        ``labels`` are those that count, by replica: (dp_replicate, dp_shard). Only plans that synchronise need them.
        If steps are validated afterwards, return the result of the previous step; None if there was none.
        """
        self.states.begin_step(lr_factor)
        self.states.synchroniser.begin_step(labels)
        self.states.arrivals.begin_step(self.states.optimizer.step, labels)
        self.walk(batches)
        shares = self.vocabulary.running if self.vocabulary else None
        assert not any((self.running, self.results, shares)), "passes were left over"
        self.sums.end_step()
        return self.states.result

    def walk(self, batches: Sequence[MicroBatch]) -> None:
        """Execute every action of this rank's list, in order."""
        assert len(batches) == self.program.micro_batches
        self.batches = batches
        self.channels.begin_step()
        if self.vocabulary:
            self.vocabulary.begin_step(batches)
        for action in self.program.lists[self.plan.pipeline_rank]:
            self.execute(action)
        self.channels.end_step()
        if self.vocabulary:
            self.vocabulary.end_step()

    def execute(self, action: Action) -> None:
        """Execute one action and report its begin and end to ``hear``."""
        self.plan.communicator.current.text = str(action)
        self.hear(action, "begin")
        if action.kind in PASS_KINDS:
            self.leaving.before_pass()
        late = action.kind in PASS_KINDS and self.states.arrivals.stops()
        (_leave_out if late else ACTIONS[action.kind])(self, action)
        if action.kind in PASS_KINDS:
            self.states.reductions.after_pass()
        self.hear(action, "end")

    # -- passes -------------------------------------------------------------------------------------------------

    def forward(self, action: Action) -> None:
        """F: compute the stage's output for the next stage; the last stage's is the loss."""
        stage, m = _pass_of(action)
        self.states.ready(stage)
        x = self._input_of(action, stage, m)
        run = self.begin_passes(self.plan, stage, self.batches[m])
        if not self.program.stack.optimizer.forward_only:
            self.running[stage, m] = run
        y = run.forward(x)
        if not self.program.ways.is_last(stage):
            self.results["F", stage + 1, m] = y
        elif self.vocabulary:
            self.vocabulary.put("BROADCAST_F", m, y)
        elif _communicator_of(self.plan, stage, -1).place_in(TP) == 0:
            self.states.loss = self.states.loss + y

    def backward(self, action: Action) -> None:
        """B: run I and W together."""
        stage, m = _pass_of(action)
        self.states.ready(stage)
        self.give(stage, m, self.running.pop((stage, m)).backward(self._gradient_for(action, stage, m)))

    def input_gradient(self, action: Action) -> None:
        """I: compute the gradient of the stage's input for the previous stage."""
        stage, m = _pass_of(action)
        self.states.ready(stage)
        self.give(stage, m, self.running[stage, m].input_gradient(self._gradient_for(action, stage, m)))

    def weight_gradient(self, action: Action) -> None:
        """W: compute the weight gradients that I has left."""
        self.running.pop(_pass_of(action)).weight_gradient()

    def _input_of(self, action: Action, stage: int, m: int) -> torch.Tensor:
        """Return a stage's input: tokens if it is the first stage and looks them up itself."""
        if not self.program.ways.is_first(stage):
            return self.results.pop(("F", stage, m))
        if self.vocabulary:
            return self.vocabulary.take(action)
        return self.batches[m].on(_communicator_of(self.plan, stage, 0).part_index).tokens

    def _gradient_for(self, action: Action, stage: int, m: int) -> torch.Tensor | None:
        """Return the gradient of a stage's output; None for a last stage that computes the loss itself."""
        if not self.program.ways.is_last(stage):
            return self.results.pop(("B", stage, m))
        return self.vocabulary.take(action) if self.vocabulary else None

    def give(self, stage: int, m: int, gradient: torch.Tensor | None) -> None:
        """Keep the gradient of a stage's input for the previous stage, and free what no pass needs any more."""
        if not self.program.ways.is_first(stage):
            assert gradient is not None
            self.results["B", stage - 1, m] = gradient
        elif self.vocabulary:
            self.vocabulary.put("BROADCAST_B", m, gradient)
        if not self._in_flight(stage, m):
            free_gathered_in_passes(self.plan, stage)

    def _in_flight(self, stage: int, but: int) -> bool:
        """Return whether a micro-batch other than ``but`` still waits for a stage's backward pass."""
        return any(s == stage and m != but and not run.passed_back for (s, m), run in self.running.items())

    # -- messages -----------------------------------------------------------------------------------------------

    def send(self, action: Action) -> None:
        """Send a pass's result to another rank."""
        target = matching_receive(action)
        self.channels.send(action, self.results.pop((target.kind[-1], *_pass_of(target))))

    def receive(self, action: Action) -> None:
        """Receive another rank's result."""
        self.results[action.kind[-1], *_pass_of(action)] = self.channels.receive(action)


def finish_validation(interpreter: Interpreter) -> StepResult | None:
    """Validate the last step now, if that is still to be done. All ranks must call it after the same step."""
    interpreter.states.result = None
    if interpreter.states.settled:
        return None
    for action in validation_on(interpreter.plan.pipeline_rank, interpreter.program.pipeline_ranks):
        if action.kind == "VALIDATE":
            interpreter.states.validate(action)
        else:
            interpreter.execute(action)
    interpreter.sums.end_step()
    return interpreter.states.result


def _leave_out(interpreter: Interpreter, action: Action) -> None:
    """Make no pass, since the rank's replica is late: pass zeros on, and drop what a pass before has kept."""
    stage, m = _pass_of(action)
    if action.kind == "F":
        interpreter.results.pop(("F", stage, m), None)
        if not interpreter.program.ways.is_last(stage):
            interpreter.results["F", stage + 1, m] = interpreter.plan.message_buffer().zero_()
        return
    if action.kind != "I":
        interpreter.running.pop((stage, m), None)
    if action.kind != "W":
        interpreter.results.pop(("B", stage, m), None)
        interpreter.give(stage, m, interpreter.plan.message_buffer().zero_())


def _vocabulary(interpreter: Interpreter, action: Action) -> None:
    assert interpreter.vocabulary is not None, action
    interpreter.vocabulary.run(action)


def _offload(interpreter: Interpreter, action: Action) -> None:
    run = interpreter.running.get(_pass_of(action))
    if run is None:
        return  # the replica is late: the pass was left out
    run.offload()
    interpreter.leaving.begun.append(run)


def _reload(interpreter: Interpreter, action: Action) -> None:
    interpreter.leaving.let_go()
    run = interpreter.running.get(_pass_of(action))
    if run is not None:
        run.reload()


def _validate(interpreter: Interpreter, action: Action) -> None:
    """Restart the current step if the previous one was wrong."""
    if not interpreter.states.validate(action):
        return
    interpreter.running.clear()
    interpreter.results.clear()
    interpreter.channels.begin_anew()
    for earlier in before_validation(interpreter.program.lists[interpreter.plan.pipeline_rank]):
        interpreter.execute(earlier)


ACTIONS: Mapping[Kind, Callable[[Interpreter, Action], None]] = {
    "F": Interpreter.forward,
    "B": Interpreter.backward,
    "I": Interpreter.input_gradient,
    "W": Interpreter.weight_gradient,
    **dict.fromkeys((*VOCABULARY_KINDS, *EXCHANGES), _vocabulary),
    "SEND_F": Interpreter.send,
    "SEND_B": Interpreter.send,
    "RECV_F": Interpreter.receive,
    "RECV_B": Interpreter.receive,
    "GATHER": lambda interpreter, action: interpreter.states.gather(action),
    "FREE": lambda interpreter, action: interpreter.states.free(action),
    "REDUCE": lambda interpreter, action: interpreter.states.reduce(action),
    "REDUCE_MIRRORED": lambda interpreter, action: interpreter.states.reductions.mirrored(action),
    "REDUCE_TIED": lambda interpreter, action: interpreter.states.reductions.tied(action),
    "NORM": lambda interpreter, action: interpreter.states.reduce_norm(action),
    "PERTURB": lambda interpreter, action: interpreter.states.perturb(action),
    "STEP": lambda interpreter, action: interpreter.states.step(action),
    "SYNC_BEGIN": lambda interpreter, action: interpreter.states.synchroniser.begin(action),
    "SYNC_END": lambda interpreter, action: interpreter.states.synchroniser.end(action),
    "OFFLOAD": _offload,
    "RELOAD": _reload,
    **dict.fromkeys(SUM_SENDS, lambda interpreter, action: interpreter.sums.send(action)),
    **dict.fromkeys(SUM_RECEIVES, lambda interpreter, action: interpreter.sums.receive(action)),
    "VALIDATE": _validate,
}
"""The effect of each kind of action."""


def _communicator_of(plan: RankPlan, stage: int, place: int) -> Communicator:
    """Return the communicator of a block of a stage."""
    block = plan.program.stages[stage].blocks[place]
    return plan.communicator.on(plan.program.parts.of_blocks[block])


def _pass_of(action: Action) -> tuple[int, int]:
    assert action.stage is not None
    assert action.micro_batch is not None
    return action.stage, action.micro_batch
