"""Compute the loss on held-out data with the forward half of the Program's lists.

The reduced lists keep forward passes, the messages between them, the gathers they need and the matching frees. Order
and messages are those of training, so they stay free of deadlocks. Nothing is saved for a backward pass. With a spread
vocabulary, E, S and their exchanges remain, without gradients, and T, which knows the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from meshwright.program.program import Program
from meshwright.runtime.data.batches import whole_batch
from meshwright.runtime.data.open_data import TrainingData
from meshwright.runtime.executor.interpreter import Interpreter
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.executor.stage_passes import StageRun
from meshwright.runtime.kernels.linear import LinearKernel
from meshwright.runtime.kernels.vocabulary.cross_entropy import ShareOfLossKernel
from meshwright.runtime.kernels.vocabulary.sharded_softmax import Softmax
from meshwright.runtime.pipeline_vocabulary.share_actions import VocabularyShare
from meshwright.runtime.pipeline_vocabulary.share_exchanges import Exchanges
from meshwright.runtime.pipeline_vocabulary.share_passes import Logits, ShareRun
from meshwright.runtime.state.parameter_lifecycle import free_gathered_in_passes
from meshwright.runtime.training.data_micro_batches import counted_labels, micro_batches
from meshwright.runtime.training.world_reduction import sum_over_ranks
from meshwright.schedules.action import Action, Kind

SHARED: tuple[Kind, ...] = ("E", "REDUCE_E", "BROADCAST_F", "S", "REDUCE_S", "T")
FORWARD: tuple[Kind, ...] = ("F", "SEND_F", "RECV_F", *SHARED)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The mean loss per label, in nats, on ``tokens`` held-out labels, after step ``step``."""

    step: int
    loss: float
    tokens: int


@dataclass
class Evaluation:
    """Evaluator of one rank's current parameters."""

    rank: Rank
    interpreter: Interpreter = field(init=False)

    def __post_init__(self) -> None:
        plan = self.rank.plan
        forward = replace(plan, program=forward_only(plan.program))
        self.interpreter = Interpreter(
            forward,
            self.rank.interpreter.states,
            begin_passes=ForwardPass,
            spread=lambda plan, states: VocabularyShare(plan, states, Exchanges(plan), ForwardShare),
        )

    def loss(self, data: TrainingData, step: int) -> HeldOut:
        """Return the loss on all held-out batches; all ranks call it at the same step."""
        total, tokens = 0.0, 0
        for number in range(data.evaluation_batches):
            batch = whole_batch(data.held_out, number)
            tokens += counted_labels(batch)
            total += self._sum(
                micro_batches(
                    batch, self.rank.plan.program, self.rank.place.rank, 1, self.rank.communicator.device
                )
            )
        total /= self.rank.job.program.stack.optimizer.passes_of_a_sequence
        (everywhere,) = sum_over_ranks(self.rank.communicator, [total], "held-out loss")
        return HeldOut(step, everywhere / tokens, tokens)

    def _sum(self, batches: Sequence[MicroBatch]) -> float:
        """Return the sum of this rank's losses."""
        states = self.interpreter.states
        states.begin_step(1.0)
        self.interpreter.walk(batches)
        self.interpreter.running.clear()
        if self.interpreter.vocabulary:
            self.interpreter.vocabulary.running.clear()
        for stage in self.rank.plan.stages:
            free_gathered_in_passes(self.rank.plan, stage)
        return float(states.loss)


def forward_only(program: Program) -> Program:
    """Return a Program whose lists only evaluate."""
    return replace(program, lists=tuple(tuple(_forward(actions)) for actions in program.lists))


def _forward(actions: Sequence[Action]) -> list[Action]:
    kept = [at for at, action in enumerate(actions) if action.kind in FORWARD]
    unused: dict[int | None, int] = {}
    for at, action in enumerate(actions):
        if action.kind == "GATHER":
            unused[action.stage] = at
        elif action.kind in ("F", "E") and action.stage in unused:
            kept.append(unused.pop(action.stage))
        elif action.kind == "FREE" and unused.pop(action.stage, None) is None:
            kept.append(at)
    return [actions[at] for at in sorted(kept)]


@dataclass
class ForwardPass:
    """A stage on one micro-batch that saves nothing."""

    plan: RankPlan
    stage: int
    batch: MicroBatch
    passed_back: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the stage's output; the sum of losses of the last stage, without multi-token prediction."""
        return StageRun(self.plan, self.stage, replace(self.batch, further=())).forward(x)

    def input_gradient(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """Raise AssertionError: there is no backward pass."""
        raise AssertionError(self.stage)

    def weight_gradient(self) -> None:
        """Raise AssertionError: there is no backward pass."""
        raise AssertionError(self.stage)

    def backward(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """Raise AssertionError: there is no backward pass."""
        raise AssertionError(self.stage)

    def offload(self) -> None:
        """Raise AssertionError: nothing is saved."""
        raise AssertionError(self.stage)

    let_go = reload = offload


class ForwardShare(ShareRun):
    """A vocabulary share on one micro-batch that saves nothing."""

    def logits(self, x: torch.Tensor) -> Logits:
        """S: compute only what the loss needs."""
        (head, visit), (loss, of_loss) = self.kernel(LinearKernel), self.kernel(ShareOfLossKernel)
        softmax = loss.forward(head.forward(x, visit), of_loss)
        visit.kept.clear()
        of_loss.kept.clear()
        return Logits(softmax)

    def gradients(self, softmax: Softmax) -> None:
        """Do nothing: there are no gradients."""
