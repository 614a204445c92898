"""Models with linear attention: most targets have none, and scripts on transformers have it within a rank."""

import pytest
from export_cases import case, problem_fields


@pytest.mark.parametrize(
    ("target", "field"),
    [("megatron", "stack"), ("torchtitan", "stack"), ("bridge", "stack"), ("accelerate", "layout.cp")],
)
def test_who_cannot_do_linear_attention_says_so(target: str, field: str) -> None:
    layout = {"dp_shard": 8, "cp": 2} if target == "accelerate" else {"dp_shard": 16}
    this = case("minimax-text-01", layout=layout, sharding="zero3", gather="per-layer")
    assert field in problem_fields(this, target)
