"""Training: what is learnt, and that the same data give the same numbers whatever the layout."""

import math

import numpy as np
import pytest

pytest.importorskip("torch")

from training_runs import SEQ_LEN, SEQUENCES, small_run

from meshwright.errors import RunError
from meshwright.model.load import load_model
from meshwright.validation.model_to_columns import model_columns

LAYOUTS = {
    "dp": {"layout": {"dp_replicate": 2}},
    "shards": {"layout": {"dp_shard": 2}, "sharding": "zero1"},
    "parameters layer by layer": {"layout": {"dp_shard": 2}, "sharding": "zero3"},
    "parameters by micro-batch": {
        "layout": {"dp_shard": 2},
        "sharding": "zero3",
        "gather": "per-micro-batch",
        "recompute": "full",
    },
    "parameters by step": {"layout": {"dp_shard": 2}, "sharding": "zero3", "gather": "per-step"},
    "pp": {"layout": {"pp": 2}},
    "split backward": {"layout": {"pp": 2}, "pipeline": {"schedule": "zb-h1"}},
    "steps that are validated afterwards": {
        "layout": {"pp": 2},
        "pipeline": {"schedule": {"name": "zb-h1", "step_validation": "after"}},
    },
    "a spread vocabulary": {
        "layout": {"pp": 2},
        "pipeline": {"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}},
    },
    "a spread vocabulary, one exchange": {
        "layout": {"pp": 2},
        "pipeline": {"schedule": {"name": "zb-h1", "vocabulary": "vocab-2"}},
    },
    "two ways": {"layout": {"pp": 2}, "pipeline": {"schedule": "dualpipe", "virtual_stages": 2}},
    "tp": {"layout": {"tp": 2}},
    "tp alone": {"layout": {"tp": 2, "sequence_parallel": False}},
}


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory):
    """Three steps on one rank, with a look at held-out data behind each."""
    return small_run(tmp_path_factory.mktemp("one")).train("run", 3, evaluate_every=1).outcome


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", list(LAYOUTS))
def test_every_layout_takes_the_same_steps_and_sees_the_same_held_out_loss(name, one_rank, tmp_path):
    outcome = small_run(tmp_path, ranks=2, **LAYOUTS[name]).train("run", 3, evaluate_every=1).outcome
    np.testing.assert_allclose(outcome.losses, one_rank.losses, rtol=1e-12)
    np.testing.assert_allclose(outcome.norms, one_rank.norms, rtol=1e-10)
    held_out, expected = ([h.loss for h in o.held_out] for o in (outcome, one_rank))
    np.testing.assert_allclose(held_out, expected, rtol=1e-12)


def test_a_look_at_held_out_data_changes_nothing(one_rank, tmp_path):
    assert small_run(tmp_path).train("run", 3).outcome.losses == one_rank.losses


@pytest.mark.slow
def test_the_structure_of_the_data_is_learnt(tmp_path):
    run = small_run(tmp_path).train("run", 80, "fp32", lr=1e-2, warmup_steps=5)
    first, last = run.outcome.losses[0], np.mean(run.outcome.losses[-5:])
    assert first == pytest.approx(math.log(97), rel=0.05)
    assert 0.8 * run.data["least_loss"] < last < 0.5 * first, (
        "few tokens: a mean of them may lie below the least"
    )


def test_every_step_is_in_the_log_with_its_numbers(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"dp_shard": 2}, sharding="zero1")
    found = run.train("run", 3, warmup_steps=2, lr=1e-3, evaluate_every=2)
    start, *steps = [line for line in run.metrics("run") if "held_out_loss" not in line]
    assert start["plan"]["layout"]["dp_shard"] == 2
    assert start["model"] == model_columns(load_model(start["plan"]["model"]).architecture)
    assert start["other_device"] == "cpu"  # the plan is for another one
    assert [line["step"] for line in steps] == [0, 1, 2]
    assert [line["lr"] for line in steps[:2]] == pytest.approx([0.5e-3, 1e-3])
    assert [line["loss"] for line in steps] == list(found.outcome.losses)
    assert [line["tokens"] for line in steps] == [(n + 1) * SEQ_LEN * SEQUENCES for n in range(3)]
    assert {line["memory_bytes"] for line in steps} == {None}
    (held_out,) = [line for line in run.metrics("run") if "held_out_loss" in line]
    assert held_out["held_out_loss"] == found.outcome.held_out[0].loss


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("validation", ["before", "after"])
def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(validation, tmp_path):
    pipeline = {"schedule": {"name": "1f1b", "step_validation": validation}}
    run = small_run(tmp_path, ranks=2, layout={"pp": 2}, pipeline=pipeline)
    with pytest.raises(
        RunError, match=r"^step [1-9]\d*: the loss is .*nothing was updated, .*step-0000000\d"
    ):
        run.train("run", 20, "fp32", lr=1e20, clip=None, schedule="constant", checkpoint_every=1)
    last = run.metrics("run")[-1]
    assert math.isfinite(last["loss"])


@pytest.mark.slow
def test_weights_that_were_exported_are_a_beginning(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"tp": 2})
    before = run.train("first", 3, lr=1e-2, export=str(tmp_path / "weights"), evaluate_every=3)
    assert (tmp_path / "weights" / "config.json").is_file()
    after = run.train("second", 1, lr=1e-30, initial=str(tmp_path / "weights"), evaluate_every=1)
    assert after.outcome.held_out[0].loss == pytest.approx(before.outcome.held_out[0].loss, rel=1e-12)
    assert after.outcome.losses[0] < before.outcome.losses[0] - 0.1
