"""What a stage has sent lives until it has left, and no longer than the step."""

from weakref import ref

import pytest
from covering_plans import Proven, told

from meshwright.runtime.comm.pipeline_messages import PipelineMessages
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.verify.verify_case import VerifyCase, micro_batches


def sent_and_alive(plan):
    """How many tensors rank 0 sent in a step, and how many of them are left afterwards."""
    trial, sent, send = VerifyCase(*plan.lowered()), [], PipelineMessages.send

    def watched(self, action, tensor):
        sent.append(ref(tensor))
        send(self, action, tensor)

    def work(place, store, tell):
        PipelineMessages.send = watched
        job = Job(trial.program, trial.model, "fp64", timeout_s=60.0, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            rank.interpreter.step(micro_batches(trial, trial.batches()[0], place.rank))
            return len(sent), sum(tensor() is not None for tensor in sent)

    return run_locally(work, plan.ranks, 120, lambda what, part: None)


@pytest.mark.parametrize("schedule", ["1f1b", "v-half"])
def test_nothing_that_was_sent_is_left_after_a_step(schedule):
    plan = Proven("llama", pp=2, schedule=schedule, micro_batches=4, layers=4)
    sent, alive = sent_and_alive(plan)
    assert sent >= plan.micro_batches, told(plan)
    assert alive == 0
