"""Training with states in a plan's own element types."""

import numpy as np
import pytest

pytest.importorskip("torch")

from training_runs import small_run

NARROW = {"gradient": "bf16", "reduce": "bf16", "first_moment": "bf16", "second_moment": "fp8"}
TINY_STATES = {"master": "none", "gradient": "bf16", "first_moment": "fp16", "second_moment": "fp16"}
SHARDED = {"ranks": 2, "layout": {"dp_shard": 2}, "sharding": "zero1"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("types", [NARROW, TINY_STATES], ids=["moments", "no master copy"])
def test_a_run_that_goes_on_has_the_bits_of_its_narrow_states(types, tmp_path):
    run = small_run(tmp_path, dtypes=types, **SHARDED)
    whole = run.train("whole", 4, "bf16", checkpoint_every=2)
    rest = run.train("rest", 4, "bf16", resume=str(tmp_path / "whole" / "checkpoints" / "step-00000002"))
    assert rest.outcome.losses == whole.outcome.losses[2:]
    for part in sorted(path.name for path in whole.outcome.checkpoint.glob("rank-*")):
        assert (rest.outcome.checkpoint / part).read_bytes() == (whole.outcome.checkpoint / part).read_bytes()


@pytest.mark.slow
def test_narrow_states_change_the_losses_a_little_and_the_usual_ones_not_at_all(tmp_path):
    usual = {"gradient": "fp32", "reduce": "fp32", "gather": "bf16", "master": "fp32"}
    types = {"none": {}, "usual": {"dtypes": usual | {"first_moment": "fp32"}}, "narrow": {"dtypes": NARROW}}
    losses = {
        name: small_run(tmp_path / name, **of, **SHARDED).train("run", 4, "bf16").outcome.losses
        for name, of in types.items()
    }
    assert losses["usual"] == losses["none"]
    assert losses["narrow"] != losses["none"]
    np.testing.assert_allclose(losses["narrow"], losses["none"], rtol=1e-2)


@pytest.mark.parametrize("moment", ["bf16", "fp8"])
def test_a_run_goes_on_with_narrower_states_which_are_rounded_once(moment, tmp_path):
    run = small_run(tmp_path, **SHARDED)
    wide = run.train("first", 2, "bf16").outcome.checkpoint
    narrow = small_run(tmp_path, name="narrow", dtypes={"second_moment": moment}, ranks=2, layout={"tp": 2})
    said = narrow.train("second", 3, "bf16", resume=str(wide)).remarks[-1]
    assert f"Its second moment is rounded once, from fp32 to {moment}." in said
    assert "first moment" not in said


def test_moments_of_eight_bits_keep_their_values_under_another_plan(tmp_path):
    types = {"second_moment": "fp8", "first_moment": "fp16"}
    one = small_run(tmp_path, dtypes=types, **SHARDED).train("first", 2, "bf16").outcome.checkpoint
    other = small_run(tmp_path, name="other", dtypes=types, ranks=2, layout={"tp": 2})
    losses = other.train("other", 4, "bf16", resume=str(one)).outcome.losses
    same = (
        small_run(tmp_path, dtypes=types, **SHARDED).train("same", 4, "bf16", resume=str(one)).outcome.losses
    )
    np.testing.assert_allclose(losses, same, rtol=2e-3)
