"""Linear attention on several ranks computes what one device does, and exchanges as much whatever the length."""

from dataclasses import replace

import pytest
from covering_plans import SEQ_LEN, told
from linear_attention_plans import CUT, FULL, QUICK, TENSORS
from single_device_check import equal_to_one_device

from meshwright.model.operators.operator_types import LinearAttention
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.verify.verify_case import micro_batches


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", QUICK, ids=lambda plan: f"{plan.model} {told(plan)}")
def test_linear_attention_is_computed_as_on_one_device(plan):
    equal_to_one_device(plan)


@pytest.mark.slow
@pytest.mark.parametrize("plan", FULL, ids=lambda plan: f"{plan.model} {told(plan)}")
def test_linear_attention_with_everything_else(plan):
    equal_to_one_device(plan)


def sent_over_cp(plan):
    """Bytes of each exchange of attention that rank 0 logs in a step, forward and backward, by layer's kind."""
    trial = plan.trial()

    def work(place, store, tell):
        job = Job(trial.program, trial.model, "fp64", timeout_s=60.0, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            rank.interpreter.step(micro_batches(trial, trial.batches()[0], place.rank))
            return [
                (traffic.kind, traffic.logical_bytes)
                for traffic in rank.communicator.log
                if traffic.axes == ("cp",) and traffic.what == "attention"
            ]

    return run_locally(work, plan.ranks, 120, lambda what, part: None)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("more", [{}, TENSORS], ids=["heads whole", "heads over tp"])
def test_states_take_as_many_bytes_however_long_a_sequence_is(more):
    plan = replace(CUT, **more)
    model = plan.graph()
    (core,) = (op for block in model.blocks for op in block.operators if isinstance(op, LinearAttention))
    short, long = (sent_over_cp(replace(plan, seq_len=length)) for length in (SEQ_LEN, 3 * SEQ_LEN))
    states = [size for kind, size in short if kind == "all-gather"]
    pieces, exchanges = 2 * plan.cp, 2 * plan.micro_batches
    assert states == [4 * pieces * core.heads // plan.tp * core.head_dim**2] * exchanges
    assert [size for kind, size in long if kind == "all-gather"] == states
    keys, of_long = ([size for kind, size in log if kind == "ring"] for log in (short, long))
    assert keys
    assert of_long == [3 * size for size in keys]
