"""Every collective and message of a step is in the communicator's log: torch issues none by itself."""

from collections import Counter

import pytest
from covering_plans import Proven, told
from torch.utils._python_dispatch import TorchDispatchMode

from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.verify.verify_case import VerifyCase, micro_batches

KINDS = {
    "allreduce_": "all-reduce",
    "_allgather_base_": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "send": "p2p",
}


class Collectives(TorchDispatchMode):
    """Counts operators of torch's process groups."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("c10d", "_c10d_functional"):
            self.seen[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def counted(plan):
    """Of rank 0: what torch ran in a step, what the log has, and messages that its list receives."""
    trial = VerifyCase(*plan.lowered())

    def work(place, store, tell):
        job = Job(trial.program, trial.model, "fp64", timeout_s=60.0, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            before = len(rank.communicator.log)
            batch = trial.batches()[0]
            with Collectives() as collectives:
                rank.interpreter.step(micro_batches(trial, batch, place.rank))
            logged = Counter(entry.kind for entry in rank.communicator.log[before:])
        return collectives.seen, logged

    seen, logged = run_locally(work, plan.ranks, 120, lambda what, part: None)
    received = sum(action.kind in ("RECV_F", "RECV_B") for action in trial.program.lists[0])
    return seen, logged, received


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "plan",
    [
        Proven("qwen3", pp=2, tp=2, sequence_parallel=True),
        Proven("llama", pp=2, dp_shard=2, sharding="zero3", gather="per-layer", schedule="zb-h1"),
        Proven("gpt2", dp_replicate=2, dp_shard=2, sharding="zero2", recompute="full"),
    ],
    ids=told,
)
def test_torch_issues_no_collective_by_itself(plan):
    seen, logged, received = counted(plan)
    assert seen.pop("recv_", 0) == received
    assert Counter({KINDS[name]: number for name, number in seen.items()}) == logged
    assert logged
