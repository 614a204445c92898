import pytest

from meshwright.model.adapter_targets import chosen_targets, model_targets, unknown_targets
from meshwright.model.load import load_model


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("llama-3.1-8b", ("q", "k", "v", "o", "gate", "up", "down")),
        ("gpt-3-175b", ("q", "k", "v", "o", "up", "down")),
        ("mixtral-8x7b", ("q", "k", "v", "o", "gate", "up", "down")),
        ("deepseek-v3", ("q", "k", "v", "o", "gate", "up", "down", "q_a", "q_b", "kv_a", "kv_b")),
    ],
)
def test_a_model_has_the_targets_of_its_matrices(name, targets):
    model = load_model(name)
    assert model_targets(model) == targets
    assert chosen_targets(model, None) == tuple(t for t in targets if "_" not in t)


def test_names_of_others_stand_for_ours():
    gpt = load_model("gpt-3-175b")
    assert chosen_targets(gpt, ["c_attn", "c_fc"]) == ("q", "k", "v", "up")
    assert unknown_targets(gpt, ["c_proj", "gate", "gate_proj", "linear_fc1", "lm_head"]) == (
        "gate",
        "gate_proj",
        "lm_head",
    )
