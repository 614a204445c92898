"""A checkpoint does not depend on where states are: one saved with states on the host goes on without, and back."""

import pytest

pytest.importorskip("torch")

from checkpoint_runs import resumed, run_on
from local_plans import small
from tiny_models import tiny

from meshwright.runtime.checkpoint import latest_checkpoint

LLAMA = tiny("llama", num_hidden_layers=2)
PLANS = {
    "one rank": {},
    "zero3": {"sharding": "zero3", "gather": "per-layer", "dp_shard": 2},
}
SHARES = ({"optimizer": "all"}, {"optimizer": 0.3, "parameters": 0.7})


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("name", PLANS)
def test_a_checkpoint_goes_on_with_states_elsewhere(name, shares, tmp_path):
    on_devices, on_hosts = (small(LLAMA, offload=of, **PLANS[name]) for of in (None, shares))
    for number, (one, other) in enumerate([(on_devices, on_hosts), (on_hosts, on_devices)]):
        folder = tmp_path / str(number)
        ran = run_on(one, folder, "bf16")
        went_on = resumed(other, latest_checkpoint(folder), "bf16")
        for (results, own), (later, found, _) in zip(ran, went_on, strict=True):
            assert later == results[3:]
            assert found == own
