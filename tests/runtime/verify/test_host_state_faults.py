"""Faults of states on the host are caught by the check that is about them."""

import pytest
from host_state_plans import PLANS

from meshwright.runtime.state.on_host.gradient_offload import GradientLots
from meshwright.runtime.state.on_host.parameter_offload import ParameterHome
from meshwright.runtime.verify.run_case import run_case

ALONE = PLANS["one rank", "half the optimizer"]
ALL = PLANS["zero3 by layer", "everything"]


def lots_that_are_lost():
    """The last lot of a pass never reaches its sum."""

    def end(self):
        self._going, self._sums = None, []

    GradientLots.end = end


def lots_that_leave_twice():
    leave = GradientLots.leave

    def twice(self, key):
        again = list(self.lots.get(key, ()))
        leave(self, key)
        self.lots[key] = again
        leave(self, key)

    GradientLots.leave = twice


def parameters_that_stay_as_they_were():
    take, seen = ParameterHome.take, set()

    def once(self, master):
        if id(self) not in seen:
            take(self, master)
        seen.add(id(self))

    ParameterHome.take = once


def blocks_that_are_fetched_twice():
    ready = ParameterHome.ready

    def again(self, block):
        self.here.pop(block, None)
        return ready(self, block)

    ParameterHome.ready = again


FAULTS = (
    (lots_that_are_lost, ALONE, "gradients"),
    (lots_that_leave_twice, ALONE, "bytes"),
    (parameters_that_stay_as_they_were, ALL, "gradients"),
    (blocks_that_are_fetched_twice, ALL, "bytes"),
)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("fault", "plan", "seen"), FAULTS, ids=lambda fault: getattr(fault, "__name__", ""))
def test_faults_of_states_on_the_host_are_caught(fault, plan, seen):
    assert seen in run_case(plan.trial(), lambda what, part: None, fault).caught_by
