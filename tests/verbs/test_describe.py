"""What a name or a file means to ``describe``."""

import pytest
from planning_questions import PLAN, TWO_LAYOUTS

from meshwright import api
from meshwright.errors import InputError


@pytest.mark.parametrize(
    ("name", "kind", "title"),
    [
        ("meta-llama/Llama-3.1-8B", "model", "llama-3.1-8b"),
        ("Llama 3.1 8B", "model", "llama-3.1-8b"),
        ("8xH100", "cluster", "h100-sxm-80gb x 8"),
        ("h100-sxm-80gb", "cluster", "h100-sxm-80gb x 1"),
        ("torchtitan", "stack", "torchtitan"),
    ],
)
def test_names(name, kind, title):
    data = api.describe(name)
    assert (data["kind"], data["name"]) == (kind, title)


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ("name: x\npols:\n- {device: h100-sxm-80gb, count: 64}\n", "pols", "did you mean pools?"),
        ("pools:\n- {device: h100-sxm-80gb, cuont: 64}\n", "pools.0.cuont", "did you mean count?"),
        (PLAN.replace("cluster:", "clustr:"), "clustr", "did you mean cluster"),
    ],
)
def test_a_misspelled_key_does_not_change_the_kind_of_file(tmp_path, text, field, hint):
    file = tmp_path / "file.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        api.describe(str(file))
    (problem,) = caught.value.problems
    assert problem.field == field
    assert hint in problem.suggestion


def test_the_long_form_shows_parts_and_what_moves_between_them(tmp_path):
    file = tmp_path / "two-layouts.yaml"
    file.write_text(TWO_LAYOUTS, encoding="utf-8")
    data = api.describe(str(file), long=True)
    held = [(part["layout"], part["pipeline_rank"], part["blocks"]) for part in data["parts"]]
    assert held == [("wide", 0, "embed, 0..15"), ("wide", 1, "16..19"), ("sharded", 1, "20..31, head")]
    assert [part["sequences_per_replica"] for part in data["parts"]] == [2, 2, 1]
    assert [part["mesh"] for part in data["parts"][1:]] == [{"dp_shard": 4, "tp": 2}, {"dp_shard": 8}]
    (change,) = data["reshards"]
    assert (change["before"], change["after"], change["to_pipeline_rank"]) == ("19", "20", 1)
    # Both ranks of tp hold both sequences of a replica, and need the gradients of both: 4096 tokens of 4096 numbers.
    assert (change["forward_bytes"], change["backward_bytes"]) == (0, 8 * 4096 * 4096 * 2)
    assert "parts" not in api.describe(str(file))
    file.write_text(TWO_LAYOUTS.replace("dp_shard: 8", "dp_shard: 7"), encoding="utf-8")
    assert api.describe(str(file), long=True)["parts"] is None
