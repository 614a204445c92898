"""Our lists, executed by PyTorch's own pipeline runtime: an oracle that shares no code with the interpreter.

Stages are modules of the plain reference decoder. PyTorch is given the passes of a Program's lists alone: messages, the
split of the backward pass and sums of gradients are its own. The way in is private to PyTorch.
"""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime
from torch.nn import functional

from meshwright.model.named_tensors import runnable_numerics
from meshwright.program.program import Stage
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.reference.decoder import NO_LABEL, Decoder
from meshwright.runtime.verify.reference_steps import reference_steps
from meshwright.runtime.verify.tensor_errors import number_error, tensor_error
from meshwright.runtime.verify.verify_case import VerifyCase
from meshwright.schedules.action import PASS_KINDS

LIMIT_S = 120.0


class StageModule(nn.Module):
    """A stage of the reference decoder: token ids or a stream in, a stream or logits out."""

    def __init__(self, trial: VerifyCase, stage: Stage, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.arch, self.layers = trial.model.architecture, stage.layers
        kinds = [trial.model.blocks[block].kind for block in stage.blocks]
        self.embeds, self.heads = "embed" in kinds, "head" in kinds
        units = {f"layers.{layer}" for layer in stage.layers}
        units |= {name for name, there in (("embed", self.embeds), ("head", self.heads)) if there}
        self.names = [name for name in tensors if any(name.startswith(f"{unit}.") for unit in units)]
        self.own = nn.ParameterList(nn.Parameter(tensors[name].clone()) for name in self.names)

    def forward(self, x: Tensor) -> Tensor:
        """(sequence, position) or (sequence, position, hidden) → (sequence, position, hidden or words)."""
        own = dict(zip(self.names, self.own, strict=True))
        whole = torch.zeros(1, x.shape[1], dtype=torch.long)
        decoder = Decoder(self.arch, runnable_numerics(self.arch), own, whole)
        x = decoder.embedded(x) if self.embeds else x
        for layer in self.layers:
            x = decoder.fed_forward(layer, decoder.after_attention(layer, x))[0]
        return decoder.logits(x) if self.heads else x


Gradients = dict[str, Tensor]


def worst_difference(trial: VerifyCase) -> float:
    """The largest relative error of the first step's loss and gradients, of those that PyTorch finds on local ranks.

    There are as many as the Program has pipeline ranks.
    """

    def work(place, store, tell):
        with _process_group(place, store):
            loss, gradients = _gathered(*_step(trial, place.rank))
        expected = reference_steps(trial)
        assert gradients.keys() == expected.gradients[0].keys()
        loss_error = number_error(loss, expected.losses[0], "loss")
        return max(loss_error.value, tensor_error(gradients, expected.gradients[0]).value)

    found = run_locally(work, trial.program.pipeline_ranks, LIMIT_S, lambda what, part: None)
    assert isinstance(found, float)
    return found


@contextmanager
def _process_group(place, store) -> Iterator[None]:
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.ranks)
    try:
        yield
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _step(trial: VerifyCase, rank: int) -> tuple[float, Gradients]:
    program, batch, tensors = trial.program, trial.batches()[0], trial.tensors()
    modules = {stage.index: StageModule(trial, stage, tensors) for stage in program.stages_of(rank)}
    count, cpu = len(program.stages), torch.device("cpu")
    schedule = _PipelineScheduleRuntime(
        [PipelineStage(module, index, count, cpu) for index, module in modules.items()],
        program.micro_batches,
        loss_fn=lambda logits, labels: (
            functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=NO_LABEL, reduction="sum"
            )
            / batch.counted
        ),
        scale_grads=False,
    )
    schedule._prepare_schedule_with_comms(
        {
            number: [_Action.from_str(str(action)) for action in actions if action.kind in PASS_KINDS]
            for number, actions in enumerate(program.lists)
        }
    )
    losses: list[Tensor] = []
    tokens = (batch.tokens,) if 0 in modules else ()
    ends = {"target": batch.labels, "losses": losses} if count - 1 in modules else {}
    schedule.step(*tokens, **ends)
    gradients = {
        name: parameter.grad
        for module in modules.values()
        for name, parameter in zip(module.names, module.own, strict=True)
    }
    return sum(loss.item() for loss in losses), gradients


def _gathered(loss: float, gradients: Gradients) -> tuple[float, Gradients]:
    """The one loss and all ranks' gradients, on every rank."""
    out = io.BytesIO()
    torch.save((loss, gradients), out)
    everyone: list[bytes] = [b""] * dist.get_world_size()
    dist.all_gather_object(everyone, out.getvalue())
    parts = [torch.load(io.BytesIO(data), weights_only=False) for data in everyone]
    return sum(part[0] for part in parts), {name: value for part in parts for name, value in part[1].items()}
