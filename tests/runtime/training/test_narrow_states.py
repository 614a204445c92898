"""Training with states in a plan's own element types."""

import numpy as np
import pytest

pytest.importorskip("torch")

from training_runs import small_run

from meshwright.errors import InputError

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


def test_a_checkpoint_of_other_types_is_refused(tmp_path):
    small_run(tmp_path, dtypes=NARROW, **SHARDED).train("first", 1, "bf16")
    other = small_run(tmp_path, **SHARDED)
    with pytest.raises(InputError, match="dtypes"):
        other.train("second", 2, "bf16", resume=str(tmp_path / "first" / "checkpoints" / "step-00000001"))
