import json
from math import inf, nan
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.runtime.training.learning_rate import LR_SCHEDULES
from meshwright.runtime.training.options import TrainingOptions


def fields(error):
    return {problem.field for problem in error.value.problems}


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(InputError) as caught:
        TrainingOptions(
            steps=0,
            seed=2**32,
            lr=nan,
            schedule="cosin",
            warmup_steps=-1,
            lr_floor=1.5,
            decay_steps=0,
            beta1=1.0,
            beta2=-0.1,
            eps=0,
            weight_decay=inf,
            clip=-1.0,
            evaluate_every=-1,
            held_out=1.0,
            checkpoint_every=True,
            keep_last=0,
            keep_every=-1,
            checkpoint_buffer_gib=0.0,
            checkpoint_local=Path("local"),
            tokenizer="",
            end_of_document="",
            inject=("burn:rank=1,step=2",),
            hash_every=-1,
            hang_s=0.0,
            on_fault="begin",
            max_restarts=-1,
            listen="host",
            prometheus="host:99999",
        )
    everything = set(TrainingOptions.__dataclass_fields__)
    assert fields(caught) == everything - {
        *("output", "data", "mask_document_starts", "cache", "checkpoint_async", "tensorboard"),
    }
    (schedule,) = [problem for problem in caught.value.problems if problem.field == "schedule"]
    assert "cosine" in schedule.suggestion


@pytest.mark.parametrize("value", ["3", None, [], 1.5, True, 10**13])
def test_values_of_another_kind_are_problems_and_no_errors(value):
    for name in ("steps", "seed", "keep_last"):
        with pytest.raises(InputError):
            TrainingOptions(**{"steps": 10, name: value})


@pytest.mark.parametrize("value", ["3", [], True, nan, {}, 10**400, -inf])
def test_numbers_of_another_kind_are_problems_and_no_errors(value):
    for name in ("lr", "beta1", "eps", "held_out", "clip", "schedule"):
        with pytest.raises(InputError) as caught:
            TrainingOptions(**{"steps": 10, name: value})
        assert fields(caught) == {name}


def test_warm_up_and_decay_fit_into_the_run():
    with pytest.raises(InputError) as caught:
        TrainingOptions(steps=10, warmup_steps=11, decay_steps=12)
    assert fields(caught) == {"warmup_steps", "decay_steps"}
    with pytest.raises(InputError, match="from 1 to 6, the steps behind the warm-up"):
        TrainingOptions(steps=10, warmup_steps=4, decay_steps=7)
    assert TrainingOptions(steps=10, warmup_steps=4, decay_steps=6).decay_steps == 6
    assert TrainingOptions(steps=10, warmup_steps=10, schedule="wsd").learning_rate(9) == 3e-4


@pytest.mark.parametrize("schedule", LR_SCHEDULES)
def test_the_highest_rate_is_the_one_that_was_asked_for(schedule):
    options = TrainingOptions(steps=50, warmup_steps=5, lr=2e-3, schedule=schedule)
    assert max(map(options.learning_rate, range(50))) == pytest.approx(2e-3)


def test_a_tenth_of_the_steps_decays_unless_said_otherwise():
    options = TrainingOptions(steps=100, schedule="wsd", lr=1.0, lr_floor=0.0)
    rates = [options.learning_rate(step) for step in range(100)]
    assert rates[:91] == [1.0] * 91
    assert rates[91] < 1.0


def test_options_are_json_and_say_everything():
    options = TrainingOptions(steps=3, data=("a", "b"), cache=Path("c"))
    data = json.loads(json.dumps(options.to_json()))
    assert data.keys() == TrainingOptions.__dataclass_fields__.keys()
    assert (data["data"], data["output"], data["cache"]) == (["a", "b"], "run", "c")
