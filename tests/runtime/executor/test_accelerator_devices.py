"""A step on a device that is not the host mixes no tensors of both: found without such a device.

Tensors are pretended: they know sizes and where they are, and an operation on tensors of two places is an error.
"""

import pytest
import torch
import torch.distributed as dist
from covering_plans import Proven
from tiny_models import dense_names
from torch._subclasses.fake_tensor import FakeTensorMode

from meshwright.model.named_tensors import runnable_numerics
from meshwright.runtime.comm.communicator import connected
from meshwright.runtime.executor.interpreter import Interpreter
from meshwright.runtime.executor.rank_plan import rank_plan
from meshwright.runtime.precision import PRECISIONS
from meshwright.runtime.state.optimizer import Optimizer
from meshwright.runtime.state.parameter_lifecycle import StepStates
from meshwright.runtime.state.post_validation import StepResult
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.verify.verify_case import VerifyCase, micro_batches

ELSEWHERE = torch.device("meta")


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def pretended():
    return FakeTensorMode(allow_non_fake_inputs=True)


def step_elsewhere(trial, precision):
    communicator = connected(0, trial.program, ELSEWHERE)
    numerics = runnable_numerics(trial.model.architecture)
    batches = micro_batches(trial, trial.batches()[0], 0, ELSEWHERE)
    with pretended():
        plan = rank_plan(trial.program, trial.model, numerics, communicator, PRECISIONS[precision])
        Interpreter(plan, StepStates(plan, Optimizer(plan, StepOptions()))).step(batches)
    return plan


def test_tensors_of_two_places_are_an_error():
    here = torch.empty(2)
    with pretended(), pytest.raises(RuntimeError, match="two devices"):
        torch.empty(2, device=ELSEWHERE) + here


PLANS = [(model, "selective", "bf16") for model in dense_names()] + [
    ("llama", "none", "fp32"),
    ("llama", "full", "bf16"),
    ("gemma2", "full", "fp32"),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("model", "recompute", "precision"), PLANS)
def test_a_step_mixes_no_devices(model, recompute, precision, one_rank, monkeypatch):
    monkeypatch.setattr(
        StepResult, "of", classmethod(lambda cls, sums: cls(1.0, 2.0))
    )  # there are no numbers
    plan = step_elsewhere(VerifyCase(*Proven(model, recompute=recompute).lowered()), precision)
    assert all(unit.owned.device == ELSEWHERE for unit in plan.all_units)
