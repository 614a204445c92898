"""Models with Mamba-2 layers: most targets have none, and scripts on transformers do not cut it over tp."""

import pytest
from export_cases import case, problem_fields


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("megatron", "stack"),
        ("torchtitan", "stack"),
        ("bridge", "stack"),
        ("accelerate", "layout.tp"),
        ("deepspeed", "layout.tp"),
    ],
)
def test_targets_without_mamba_2_say_so(target: str, field: str) -> None:
    layout = {"dp_shard": 8, "tp": 2} if field == "layout.tp" else {"dp_shard": 16}
    this = case("granite-4.0-h-micro", layout=layout, sharding="zero3", gather="per-layer")
    assert field in problem_fields(this, target)
