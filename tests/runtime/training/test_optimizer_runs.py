"""Runs with a plan's optimizer: its options and a run's, checkpoints, and what a resumed run refuses."""

import pytest

pytest.importorskip("torch")

from training_runs import SEQ_LEN, SEQUENCES, small_run

from meshwright.errors import InputError
from meshwright.runtime.training.optimizer_values import optimizer_options, with_plan_values
from meshwright.runtime.training.options import TrainingOptions
from meshwright.workload.optimizer_choice import ADAMW, Optimizer

SHARDED = {"ranks": 2, "layout": {"dp_shard": 2}, "sharding": "zero1"}


def run_with(folder, optimizer, **keys):
    work = {"seq_len": SEQ_LEN, "global_batch": SEQUENCES, "optimizer": optimizer}
    return small_run(folder, workload=work, **SHARDED, **keys)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("optimizer", "types"),
    [
        ("muon", {"first_moment": "bf16", "second_moment": "fp16"}),
        ("lion", {"first_moment": "fp8"}),
        ("sgd", {"master": "none"}),
    ],
)
def test_a_run_that_goes_on_has_the_bits_of_its_states(optimizer, types, tmp_path):
    run = run_with(tmp_path, optimizer, dtypes=types)
    whole = run.train("whole", 4, "bf16", checkpoint_every=2)
    rest = run.train("rest", 4, "bf16", resume=str(tmp_path / "whole" / "checkpoints" / "step-00000002"))
    assert rest.outcome.losses == whole.outcome.losses[2:]
    for part in sorted(path.name for path in whole.outcome.checkpoint.glob("rank-*")):
        assert (rest.outcome.checkpoint / part).read_bytes() == (whole.outcome.checkpoint / part).read_bytes()


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    run_with(tmp_path, "lion").train("first", 1)
    checkpoint = str(tmp_path / "first" / "checkpoints" / "step-00000001")
    for other in ("adamw", "sgd"):
        with pytest.raises(InputError) as caught:
            run_with(tmp_path, other).train("second", 2, resume=checkpoint)
        found = {problem.field: problem for problem in caught.value.problems}
        assert (found["workload.optimizer"].value, other in found["workload.optimizer"].rule) == (
            "lion",
            True,
        )


def test_a_run_uses_the_options_of_its_plan_and_those_it_gives_replace_them(tmp_path):
    def losses(optimizer, folder, **options):
        work = {"seq_len": SEQ_LEN, "global_batch": SEQUENCES, "optimizer": optimizer}
        return small_run(tmp_path, workload=work).train(folder, 3, **options).outcome.losses

    written = {"name": "adamw", "betas": [0.5, 0.9], "weight_decay": 0.3}
    given = losses("adamw", "run", beta1=0.5, beta2=0.9, weight_decay=0.3)
    assert losses(written, "plan") == given != losses("adamw", "usual")
    assert losses(written | {"betas": [0.1, 0.9]}, "both", beta1=0.5) == given


def test_options_without_use_are_refused_by_name():
    options = TrainingOptions(steps=1, beta1=0.9, eps=1e-6, weight_decay=0.0)
    with pytest.raises(InputError) as caught:
        with_plan_values(options, Optimizer("sgd"))
    assert {problem.field for problem in caught.value.problems} == {"beta1", "eps"}
    assert with_plan_values(options, ADAMW).beta2 == 0.95
    muon = with_plan_values(options, Optimizer("muon", (("weight_decay", 0.5),)))
    assert (muon.beta1, muon.beta2, muon.weight_decay) == (0.9, 0.95, 0.0)


def test_muons_weight_decay_is_that_of_the_rest_too():
    muon = Optimizer("muon", (("others", "sgd"), ("weight_decay", 0.5)))
    options = optimizer_options(with_plan_values(TrainingOptions(steps=1), muon))
    assert options.for_optimizer(muon, "shape")["weight_decay"] == 0.5
    assert options.for_optimizer(muon.others, "")["weight_decay"] == 0.5
