"""Goodput of a job: closed form against play, rates and checkpoints of real settings."""

from random import Random
from statistics import mean, stdev

import pytest
from economy_settings import ASSUMED, setting
from hypothesis import given
from hypothesis import strategies as st
from simulated_failing_job import Job, played

from meshwright.economy.assumptions import Assumptions
from meshwright.economy.checkpoint_interval import best_interval
from meshwright.economy.goodput import FailureModel, checkpoint_bytes, failure_model
from meshwright.economy.spare_nodes import stopped_share

JOBS = {
    "no spare": Job(900.0, 60.0, 600.0, 7200.0, 14400.0, 0),
    "one spare": Job(900.0, 60.0, 600.0, 7200.0, 14400.0, 1),
    "three spares": Job(900.0, 60.0, 600.0, 7200.0, 14400.0, 3),
    "restarts that fail": Job(1500.0, 300.0, 3000.0, 3600.0, 600.0, 0),
    "hardly a failure": Job(20000.0, 100.0, 600.0, 1e6, 86400.0, 0),
}
REPAIRS = {
    "always as long": lambda draw: lambda repair_s: repair_s,
    "often short": lambda draw: lambda repair_s: draw.expovariate(1 / repair_s),
}
PLAYS, FAILURES = 12, 4000


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("name", JOBS)
def test_the_closed_form_is_what_is_played(name, repair):
    job, draw = JOBS[name], Random(f"{name} {repair}")
    shares = [played(job, FAILURES, draw, REPAIRS[repair](draw)) for _ in range(PLAYS)]
    found = _outages(job)
    for seen, said in zip(zip(*shares, strict=True), (found.share(1.0), found.stopped), strict=True):
        error = stdev(seen) / PLAYS**0.5
        assert abs(mean(seen) - said) < 5 * error + 1e-6
        assert error < 0.005


def _outages(job):
    return FailureModel(
        nodes=1,
        mtbf_s=job.mtbf_s,
        checkpoint_bytes=0.0,
        write_s=job.write_s,
        restart_s=job.restart_s,
        interval_s=job.work_s,
        stopped=stopped_share(job.mtbf_s, job.repair_s, job.spare_nodes),
        source="",
    )


@given(load=st.floats(1e-6, 1e3), spares=st.integers(0, 40))
def test_spares_help_and_no_spare_is_a_cycle(load, spares):
    assert stopped_share(1.0, load, 0) == pytest.approx(load / (1 + load))
    assert 0 <= stopped_share(1.0, load, spares + 1) <= stopped_share(1.0, load, spares) < 1


def test_a_cluster_of_which_nobody_knows_has_no_goodput():
    assert failure_model(setting("mi300x x 64"), Assumptions()) is None
    assumed = Assumptions(failures_per_1000_node_days=4.0)
    known = setting("mi300x x 64", assumed)
    assert failure_model(known, assumed).source.startswith("4 failures per 1000 node-days: assumed")


def test_failures_of_the_cluster_are_the_rate_times_the_nodes():
    """The 16,384 H100 of Llama 3 405B: 419 interruptions in 54 days, one every 3.09 hours."""
    found = failure_model(setting("h100-sxm-80gb x 16384", ASSUMED), ASSUMED)
    assert found.nodes == 2048
    assert found.mtbf_s / 3600 == pytest.approx(54 * 24 / 419, rel=0.001)
    part = failure_model(setting("h100-sxm-80gb x 12", ASSUMED), ASSUMED)
    assert (part.nodes, part.mtbf_s) == (2, pytest.approx(1024 * found.mtbf_s))


def test_a_checkpoint_has_every_state_once():
    whole = setting("h100-sxm-80gb x 16")
    per_parameter = whole.stack.parameter_bytes + whole.stack.optimizer_bytes
    assert checkpoint_bytes(whole) == pytest.approx(per_parameter * whole.model.parameters, rel=0.01)
    adapters = setting("h100-sxm-80gb x 16", task="lora")
    assert checkpoint_bytes(adapters) < 0.05 * checkpoint_bytes(whole)


def test_all_nodes_write_and_a_restart_reads():
    found = failure_model(setting("h100-sxm-80gb x 16", ASSUMED), ASSUMED)
    assert found.write_s == pytest.approx(found.checkpoint_bytes / (2 * 2e9))
    assert found.restart_s == pytest.approx(300 + found.write_s)
    assert found.interval_s == best_interval(found.write_s, found.mtbf_s)


def test_nothing_is_written_in_the_middle_of_a_step():
    found = _outages(JOBS["no spare"])
    assert found.work_s(100.0) == 900.0
    assert found.work_s(5000.0) == 5000.0
    assert found.share(5000.0) < found.share(900.0) == found.share(1.0)


def test_where_nothing_fails_all_time_is_useful():
    none = Assumptions(failures_per_1000_node_days=0.0)
    found = failure_model(setting("h100-sxm-80gb x 16", none), none)
    assert (found.share(1.0), found.stopped) == (1.0, 0.0)
