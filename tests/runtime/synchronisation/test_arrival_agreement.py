"""On real processes a late replica stops its step, drops its gradient, and takes the same update as the others."""

from dataclasses import dataclass, replace
from time import sleep

import pytest
import torch
import torch.distributed as dist
from combine_plans import THREE, combined

from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.runtime.batch.label_counts import labels_by_replica
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.executor.stage_passes import StageRun
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.verify.verify_case import micro_batches

LATE, STEPS = 1, 3


@dataclass
class WithoutOne:
    """Arrivals of all but one replica, without any agreement."""

    def begin(self, step):
        pass

    def stops(self):
        return False

    def settle(self, step):
        return (0, 2)


def trained(cut, agreed, **entry):
    """Parameters, losses and passes of each rank; where ranks agree, one replica begins no pass in time."""
    entry = combined(**(entry or {"with": {"quorum": 2}}))
    case = replace(
        THREE[cut], synchronise=(Synchronisation.model_validate(entry),), steps=STEPS, micro_batches=3
    ).trial()

    def work(place, store, tell):
        job = Job(
            case.program, case.model, "fp64", case.options, 60.0, accelerated=False, measures_arrivals=agreed
        )
        with rank_of(job, place, store, case.tensors()) as rank:
            states, passes, losses = rank.interpreter.states, [], []
            if not agreed:
                states.arrivals.arrivals = WithoutOne()
            late = agreed and states.arrivals.place[0] == LATE

            def begin(plan, stage, batch):
                while late and not states.arrivals.arrivals._is_late():
                    sleep(0.002)
                passes.append(stage)
                return StageRun(plan, stage, batch)

            rank.interpreter.begin_passes = begin
            states.after_norm = lambda result: losses.append((result.loss, result.norm))
            for batch in case.batches():
                parts = micro_batches(case, batch, place.rank)
                rank.interpreter.step(parts, labels=labels_by_replica(case.program, batch.labels))
            held = torch.cat([unit.owned.flatten() for unit in rank.plan.trained_units])
            found = [None] * place.ranks
            dist.all_gather_object(
                found,
                (
                    states.arrivals.place[0],
                    held.numpy().tobytes(),
                    losses,
                    len(passes),
                    states.arrivals.total_not_seen,
                ),
            )
            return found

    return run_locally(work, case.program.parts.ranks, 120, lambda what, part: None)


@pytest.mark.parametrize("cut", ["replicas", "pp", "tp", "zero1"])
def test_a_late_replica_is_left_out_and_stays_equal(cut):
    without, agreed = trained(cut, False), trained(cut, True)
    assert [one[:3] for one in agreed] == [one[:3] for one in without]
    assert {one[4] for one in agreed} == {STEPS * 3 * (2 if cut == "zero1" else 1)}
    for replica, _, _, passes, _ in agreed:
        assert (passes == STEPS * 3) == (replica != LATE)


def test_of_coded_gradients_all_sequences_are_seen():
    found = trained("replicas", True, combine={"coded": {"tolerate": 1}})
    assert {(one[4], one[3] == 6 * STEPS) for one in found} == {(0, True), (0, False)}
