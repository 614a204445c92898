"""Trainings played in arrays against the same trainings played one at a time, segment by segment."""

from dataclasses import replace

import numpy as np
import pytest
from economy_settings import ASSUMED, setting
from simulated_failing_job import Job, played_until
from simulated_trainings import played_days, played_seconds

from meshwright.economy.goodput import failure_model
from meshwright.economy.tokens_and_assumptions import TrainingTerms
from meshwright.economy.training_cost import TrainingCost

COUNT, MOST = 40, 4000
MODELS = {
    "no spare": (0, 7200.0, 600.0, 14400.0),
    "one spare": (1, 7200.0, 600.0, 14400.0),
    "three spares": (3, 7200.0, 600.0, 14400.0),
    "restarts that fail": (0, 3600.0, 3000.0, 600.0),
    "hardly a failure": (1, 1e7, 600.0, 86400.0),
}


class Recorded:
    """Times between failures that were drawn before."""

    def __init__(self, gaps):
        self.gaps = iter(gaps)

    def expovariate(self, rate):
        return next(self.gaps) / rate


@pytest.mark.parametrize("name", MODELS)
def test_trainings_played_together_take_as_long_as_one_by_one(name):
    spares, mtbf_s, restart_s, repair_s = MODELS[name]
    model = replace(
        failure_model(setting("h100-sxm-80gb x 16", ASSUMED), ASSUMED),
        write_s=60.0,
        restart_s=restart_s,
        repair_s=repair_s,
        spare_nodes=spares,
    )
    draw = np.random.default_rng(1)
    gaps = draw.exponential(size=(MOST, COUNT))
    needed_s = draw.uniform(50_000, 200_000, COUNT)
    work_s, mtbf = draw.uniform(600, 1500, COUNT), mtbf_s * draw.uniform(0.8, 1.2, COUNT)
    found = played_seconds(needed_s, work_s, mtbf, model, gaps.__getitem__)
    alone = [
        _alone(needed_s[i], work_s[i], mtbf[i], model, Recorded(gaps[:, i].tolist())) for i in range(COUNT)
    ]
    assert found == pytest.approx(alone, rel=1e-12)


def _alone(needed_s, work_s, mtbf_s, model, draw):
    job = Job(work_s, model.write_s, model.restart_s, mtbf_s, model.repair_s, model.spare_nodes)
    end = played_until(lambda so_far: so_far.kept >= needed_s, job, draw)
    return end.clock - (end.kept - needed_s)


def test_without_failures_days_are_those_of_work_and_checkpoints():
    terms = replace(ASSUMED, failures_per_1000_node_days=0.0)
    course = TrainingCost.of(setting("h100-sxm-80gb x 16", terms), TrainingTerms(10**10, terms))
    step_s = np.array([1.0, 2.0])
    assert played_days(course, step_s, np.random.default_rng(0)) == pytest.approx(
        [course.costs(each).days for each in step_s.tolist()]
    )


def test_a_training_that_never_ends_has_infinite_seconds(monkeypatch):
    monkeypatch.setattr("simulated_trainings.MOST_FAILURES", 50)
    model = failure_model(setting("h100-sxm-80gb x 16", ASSUMED), ASSUMED)
    one = np.array([1e6])
    found = played_seconds(one, one, one / 1e9, model, lambda _: np.array([1.0]))
    assert found.tolist() == [np.inf]
