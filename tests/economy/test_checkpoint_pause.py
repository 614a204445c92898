"""Checkpoints that are saved in the background: pauses and shares against play, and those of plans."""

from dataclasses import replace
from math import inf
from random import Random
from statistics import mean, stdev

import pytest
from command_runs import plan_text, refused, run, write
from economy_settings import ASSUMED, setting
from simulated_background_saves import PlayedRun, Run, played_share

from meshwright.economy.assumptions import Assumptions
from meshwright.economy.checkpoint_pause import BackgroundCopies, even_copies
from meshwright.economy.goodput import WORTH_SAVING, FailureModel, failure_model
from meshwright.errors import InputError

RUNS = {
    "copies behind the passes": Run(8.0, 1.0, 3.0, 40.0, 10),
    "copies longer than the passes": Run(8.0, 1.0, 11.5, 40.0, 10),
    "copies slower than the disk": Run(8.0, 1.0, 30.0, 20.0, 10),
    "every step, the disk is slow": Run(8.0, 1.0, 3.0, 20.0, 1),
    "every step, copies are slow": Run(8.0, 1.0, 11.5, 5.0, 1),
    "every step, nothing waits": Run(8.0, 1.0, 3.0, 6.0, 1),
}
SAVES, PLAYS, FAILURES = 50, 10, 150


def _copies(of):
    return BackgroundCopies(of.copy_s, of.passes_s / of.step_s)


@pytest.mark.parametrize("name", RUNS)
def test_the_pause_is_that_of_played_streams(name):
    of = RUNS[name]
    played = PlayedRun(of)
    for _ in range((SAVES + 1) * of.every):
        played.take_step()
    said = _copies(of).pause_s(of.step_s, of.every * of.step_s, of.write_s)
    first = PlayedRun(of)
    for _ in range(of.every):
        first.take_step()
    assert (played.waited_s - first.waited_s) / SAVES == pytest.approx(said)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("mtbf_s", [1200.0, 4800.0])
def test_the_share_is_that_of_played_runs(name, mtbf_s):
    of, draw = RUNS[name], Random(name)
    shares = [played_share(of, mtbf_s, 300.0, FAILURES, draw) for _ in range(PLAYS)]
    found = _failures(of, mtbf_s, of.every * of.step_s)
    error = stdev(shares) / PLAYS**0.5
    assert abs(mean(shares) - found.share(of.step_s)) < 5 * error + 1e-6
    assert error < 0.01


def _failures(of, mtbf_s, interval_s):
    return FailureModel(1, mtbf_s, 0.0, of.write_s, 300.0, interval_s, 0.0, "", copies=_copies(of))


@pytest.mark.parametrize("name", RUNS)
def test_no_interval_saves_much_more_than_the_best(name):
    of = RUNS[name]
    best = _failures(of, 3600.0, None)
    work_s = best.work_s(of.step_s)
    assert work_s >= of.step_s
    for factor in (0.3, 0.7, 0.95, 1.05, 1.5, 3.0):
        other = replace(best, interval_s=factor * work_s)
        assert other.share(of.step_s) <= best.share(of.step_s) + WORTH_SAVING


def test_steps_over_the_share_grow_with_the_step():
    found = _failures(RUNS["copies slower than the disk"], 3600.0, None)
    times = [step_s / found.share(step_s) for step_s in (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0)]
    assert times == sorted(times)


def test_a_background_without_copies_and_disk_costs_nothing():
    free = FailureModel(1, inf, 0.0, 0.0, 0.0, None, 0.0, "", copies=BackgroundCopies(0.0))
    assert free.share(1.0) == 1.0


def test_copies_take_the_link_between_device_and_host():
    """PCIe 5.0 at 0.82 of its rate: a sixteenth of the states of Llama-3.1-8B on each of 16 H100."""
    on = setting("h100-sxm-80gb x 16")
    size = failure_model(on, ASSUMED).checkpoint_bytes
    assert even_copies(on, size).copy_s == pytest.approx(size / 16 / (0.82 * 63.015e9))


def test_an_unknown_link_is_a_problem():
    assumed = Assumptions(checkpoint_async=True, failures_per_1000_node_days=1.0)
    on = setting("trainium-1 x 16", assumed)
    with pytest.raises(InputError, match="host_gbyte_per_s_per_device"):
        failure_model(on, assumed)


def test_a_plan_waits_for_the_rank_with_most_states(tmp_path):
    file = write(tmp_path / "plan.yaml", plan_text())
    words = ("predict", file, "--json", "--assume", "storage_gbyte_per_s_per_node=0.1")
    at_once = run(*words).data["goodput"]
    found = run(*words, "--assume", "checkpoint_async=true").data
    saved = found["goodput"]
    assert at_once["checkpoint_blocked_s"] == at_once["checkpoint_write_s"] == saved["checkpoint_write_s"]
    stage = max(stage["parameters"] + stage["optimizer"] for stage in found["memory_bytes"]["stages"])
    parts = found["breakdown_s"]
    passes_s = found["step_time_s"] - parts["optimizer"] - parts["dp"] - parts.get("codec", 0.0)
    copy_s = min(stage, saved["checkpoint_bytes"]) / (0.82 * 63.015e9)
    assert saved["checkpoint_blocked_s"] == pytest.approx(max(0.0, copy_s - passes_s))
    assert saved["share"] > at_once["share"]
    assert saved["checkpoint_every_s"] >= saved["checkpoint_write_s"]
    assert "checkpoint_async = true" in found["origin"]["goodput"]
    assert "must be true or false" in refused("predict", file, "--assume", "checkpoint_async=1")
