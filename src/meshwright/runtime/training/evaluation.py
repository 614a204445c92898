"""The loss on held-out data: the forward half of the Program's lists.

What is left of a list are its forward passes with the messages between them, the gathers that they need, and what
frees those. Order and messages stay those of training, so what makes them free of deadlocks holds here too. Nothing is
kept for a backward pass. Of a vocabulary that is spread E, S and their exchanges are left, without gradients, and T,
where the loss is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from meshwright.program.program import Program
from meshwright.runtime.data.batches import whole_batch
from meshwright.runtime.data.opening import TrainingData
from meshwright.runtime.interpreter import Interpreter
from meshwright.runtime.kernels.linear import LinearKernel
from meshwright.runtime.kernels.loss import ShareOfLossKernel
from meshwright.runtime.kernels.softmax import Softmax
from meshwright.runtime.rank import Rank
from meshwright.runtime.rank_plan import RankPlan
from meshwright.runtime.stage_run import StageRun
from meshwright.runtime.training.batches import counted_labels, micro_batches
from meshwright.runtime.training.world import summed
from meshwright.runtime.visit import MicroBatch
from meshwright.runtime.vocabulary.exchanges import Exchanges
from meshwright.runtime.vocabulary.share_run import Logits, ShareRun
from meshwright.runtime.vocabulary.spread import SpreadVocabulary
from meshwright.schedule.action import Action, Kind

SHARED: tuple[Kind, ...] = ("E", "REDUCE_E", "BROADCAST_F", "S", "REDUCE_S", "T")
FORWARD: tuple[Kind, ...] = ("F", "SEND_F", "RECV_F", *SHARED)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The mean loss per label, in nats, on ``tokens`` labels that are not trained on, after step ``step``."""

    step: int
    loss: float
    tokens: int


@dataclass
class Evaluation:
    """Evaluates on one rank, with the parameters that it has."""

    rank: Rank
    interpreter: Interpreter = field(init=False)

    def __post_init__(self) -> None:
        plan = self.rank.plan
        forward = replace(plan, program=forward_only(plan.program))
        self.interpreter = Interpreter(
            forward,
            self.rank.interpreter.states,
            begin_passes=ForwardPass,
            spread=lambda plan, states: SpreadVocabulary(plan, states, Exchanges(plan), ForwardShare),
        )

    def loss(self, data: TrainingData, step: int) -> HeldOut:
        """The loss on all held-out batches; all ranks call it at the same step."""
        total, tokens = 0.0, 0
        for number in range(data.evaluation_batches):
            batch = whole_batch(data.held_out, number)
            tokens += counted_labels(batch)
            total += self._sum(
                micro_batches(
                    batch, self.rank.plan.program, self.rank.place.rank, 1, self.rank.communicator.device
                )
            )
        return HeldOut(step, summed(self.rank.communicator, total, "held-out loss") / tokens, tokens)

    def _sum(self, batches: Sequence[MicroBatch]) -> float:
        """The sum of this rank's losses."""
        states = self.interpreter.states
        states.begin_step(1.0)
        self.interpreter.walk(batches)
        self.interpreter.running.clear()
        if self.interpreter.vocabulary:
            self.interpreter.vocabulary.running.clear()
        if self.rank.plan.program.mode.gather == "per-micro-batch":
            for stage in self.rank.plan.stages:
                states.free(Action("FREE", stage))
        return float(states.loss)


def forward_only(program: Program) -> Program:
    """A Program whose lists evaluate."""
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
    """A stage at work on one micro-batch, of which nothing is left behind."""

    plan: RankPlan
    stage: int
    batch: MicroBatch
    passed_back: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The stage's output; the sum of losses of the last stage, further tokens left out."""
        return StageRun(self.plan, self.stage, replace(self.batch, further=())).forward(x)

    def input_gradient(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """There is no backward pass."""
        raise AssertionError(self.stage)

    def weight_gradient(self) -> None:
        """There is no backward pass."""
        raise AssertionError(self.stage)

    def backward(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """There is no backward pass."""
        raise AssertionError(self.stage)

    def offload(self) -> None:
        """Nothing is kept."""
        raise AssertionError(self.stage)

    let_go = reload = offload


class ForwardShare(ShareRun):
    """A share at work on one micro-batch, of which nothing is left behind."""

    def logits(self, x: torch.Tensor) -> Logits:
        """S: only what the loss needs."""
        (head, visit), (loss, of_loss) = self.kernel(LinearKernel), self.kernel(ShareOfLossKernel)
        softmax = loss.forward(head.forward(x, visit), of_loss)
        visit.kept.clear()
        of_loss.kept.clear()
        return Logits(softmax)

    def gradients(self, softmax: Softmax) -> None:
        """There are none."""
