"""What the communicator refuses and what it says when an operation fails."""

from datetime import timedelta
from time import sleep

import pytest
import torch
import torch.distributed as dist
from local_plans import small
from tiny_models import tiny

from meshwright.errors import RunError
from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import connected
from meshwright.runtime.comm.process_groups import groups_of
from meshwright.runtime.launch.forked_ranks import run_locally

SHARD = ("cp", "dp_shard")


def silent(what, part):
    pass


def on_two_ranks(body, timeout_s=30.0):
    """``body(communicator)`` on two ranks that share shards."""
    program = small(tiny("llama"), sharding="zero1", dp_shard=2).program

    def work(place, store, tell):
        dist.init_process_group(
            "gloo", store=store, rank=place.rank, world_size=2, timeout=timedelta(seconds=timeout_s)
        )
        communicator = connected(place.rank, program, torch.device("cpu"), timeout_s)
        communicator.current.text = "3REDUCE"
        return body(communicator)

    return run_locally(work, 2, 60.0, silent)


def test_an_operation_that_waits_too_long_is_named_with_its_ranks():
    def one_is_missing(communicator):
        if communicator.rank == 1:
            sleep(3.0)
            return
        item = Collective("all-reduce", SHARD, 16, "stage 0")
        communicator.start(item, torch.ones(4), 4).wait()

    with pytest.raises(RunError, match=r"rank 0, 3REDUCE: all-reduce of stage 0 among ranks 0, 1"):
        on_two_ranks(one_is_missing, timeout_s=1.0)


def test_a_collective_of_other_bytes_than_the_programs_is_refused():
    def too_small(communicator):
        communicator.start(Collective("all-reduce", SHARD, 20, "stage 0"), torch.ones(4), 4).wait()

    with pytest.raises(RunError, match="moves 16 bytes, the Program says 20"):
        on_two_ranks(too_small)


def test_kinds_of_collectives_do_what_they_say_and_are_logged():
    def each(communicator):
        own = torch.arange(4.0) + 10 * communicator.rank
        summed, whole, part = own.clone(), torch.empty(8), torch.empty(2)
        communicator.start(Collective("all-reduce", SHARD, 16, "sum"), summed, 4).wait()
        communicator.start(Collective("all-gather", SHARD, 32, "gather"), own, 4, out=whole).wait()
        communicator.start(Collective("reduce-scatter", SHARD, 16, "scatter"), own, 4, out=part).wait()
        log = [(t.action, t.kind, t.what, t.logical_bytes) for t in communicator.log]
        return summed.tolist(), whole.tolist(), part.tolist(), log

    summed, whole, part, log = on_two_ranks(each)
    assert summed == [10, 12, 14, 16]
    assert whole == [0, 1, 2, 3, 10, 11, 12, 13]
    assert part == [10, 12]
    assert log == [
        ("3REDUCE", "all-reduce", "sum", 16),
        ("3REDUCE", "all-gather", "gather", 32),
        ("3REDUCE", "reduce-scatter", "scatter", 16),
    ]


def test_groups_cover_every_rank_once():
    program = small(tiny("gpt2"), sharding="zero1", pp=2, dp_shard=2, tp=2).program
    for axes in (("tp",), SHARD, ("dp_replicate",), ("world",)):
        ranks = [rank for group in groups_of(program, axes) for rank in group]
        assert sorted(ranks) == list(range(8))
    assert groups_of(program, ("tied",)) == [(0, 4), (1, 5), (2, 6), (3, 7)]
