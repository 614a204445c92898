"""What a name or a file means to ``describe``."""

import pytest
from planning_questions import PLAN

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
