"""Models of runs: names of releases, proxies, columns over configurations, columns alone."""

import pytest
from example_run_tables import EXPERTS, run_of

from meshwright.errors import InputError
from meshwright.model.load import load_model
from meshwright.model.zoo_names import zoo_names
from meshwright.stack.load import load_stack
from meshwright.validation.read_run_table import COLUMNS
from meshwright.validation.run_model import ALIASES, architecture, released_model_name

NO_SHAPE = dict.fromkeys(
    ("layers", "hidden", "ffn_hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "tied_embeddings"), ""
)


def of(table, stack="megatron-core", **changes):
    return architecture(run_of(table, **changes).given, load_stack(stack))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DeepSeek-V3", "deepseek-v3"),
        ("deepseek-v3 (4 layers)", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
        ("Llama-3-8B", "llama-3-8b"),
        ("llama3-405b", "llama-3.1-405b"),
        ("llama3.1-405b (4 layers)", "llama-3.1-405b"),
        ("Llama 3.1 70B Instruct", "llama-3.1-70b"),
        ("LLaMA-2-7B", "llama-2-7b"),
        ("Mixtral_8x7B", "mixtral-8x7b"),
        ("Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("GPT-OSS 120B", "gpt-oss-120b"),
        ("GPT-1008.0B", "gpt-1008b"),
        ("GPT-7B", None),
        ("MPT-7b", None),
        ("", None),
    ],
)
def test_names_of_releases(name, expected):
    assert released_model_name(name) == expected


def test_every_zoo_model_is_known_under_its_own_name():
    assert {name: released_model_name(name) for name in zoo_names()} == {name: name for name in zoo_names()}
    assert set(ALIASES.values()) <= set(zoo_names())


def test_a_released_model_needs_no_columns(table):
    found = of(table, model="Llama-3.1-70B", **NO_SHAPE)
    assert found == load_model("llama-3.1-70b").architecture


def test_columns_win_over_the_configuration(table):
    found = of(
        table, model="llama-3.1-70b", **NO_SHAPE | {"vocab": 1000, "tied_embeddings": "true", "layers": 3}
    )
    assert (found.vocab, found.tied_embeddings, found.layers, found.hidden) == (1000, True, 3, 8192)


def test_a_proxy_keeps_the_share_of_dense_layers_rounded_up(table):
    found = of(table, model="deepseek-v3", **NO_SHAPE | {"layers": 4, "head_dim": "mla"})
    assert found.moe.layers == (False, True, True, True)
    assert found.latent == load_model("deepseek-v3").architecture.latent
    whole = of(table, model="deepseek-v3", **NO_SHAPE)
    assert whole == load_model("deepseek-v3").architecture


def test_windows_keep_their_pattern(table):
    whole = load_model("gpt-oss-120b").architecture.windows
    assert of(table, model="gpt-oss-120b", **NO_SHAPE | {"layers": 5}).windows == whole[:5]
    assert of(table, model="gpt-oss-120b", **NO_SHAPE | {"layers": 38}).windows == whole + whole[:2]


@pytest.mark.parametrize("name", ["nemotron-3-nano-30b-a3b", "granite-4.0-h-micro", "minimax-text-01"])
@pytest.mark.parametrize("layers", [9, 83])
def test_kinds_of_layers_keep_their_pattern(table, name, layers):
    whole = load_model(name).architecture
    found = of(table, model=name, **NO_SHAPE | {"layers": layers})
    repeated = [i % whole.layers for i in range(layers)]
    assert found.mixers == tuple(whole.mixers[i] for i in repeated)
    assert found.parts == tuple(whole.parts[i] for i in repeated)
    alone = [i for i, parts in enumerate(found.parts) if parts == "feed-forward"]
    assert all(found.moe.layers[i] for i in alone)


def test_columns_of_another_kind_leave_the_configuration_out(table):
    dense = of(table, model="deepseek-v3", experts=0)
    assert (dense.moe, dense.latent, dense.hidden) == (None, None, 1024)


def test_columns_alone(table):
    gelu = of(table, stack="megatron-lm-2022")
    assert (gelu.norm, gelu.mlp_bias, gelu.gated, gelu.head_dim) == ("layernorm", True, False, 64)
    assert gelu.dropout == load_stack("megatron-lm-2022").dropout
    gated = of(table, stack="megatron-lm-2022", ffn="swiglu", head_dim=128)
    assert (gated.norm, gated.mlp_bias, gated.dropout, gated.head_dim) == ("rmsnorm", False, False, 128)
    routed = of(table, **EXPERTS)
    assert (routed.moe.experts, routed.moe.intermediate, routed.intermediate) == (8, 2048, 0)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (NO_SHAPE, {"layers", "hidden", "ffn_hidden", "ffn", "heads", "vocab"}),
        ({"head_dim": "mla"}, {"head_dim"}),
        ({"experts": 8}, {"experts_per_token"}),
        (EXPERTS | {"experts_per_token": 9}, {"experts_per_token"}),
        ({"heads": 15, "kv_heads": ""}, {"heads"}),
        ({"kv_heads": 5}, {"kv_heads"}),
    ],
)
def test_what_can_not_be_built_is_refused_with_all_fields(table, changes, fields):
    with pytest.raises(InputError) as caught:
        of(table, **changes)
    assert {problem.field for problem in caught.value.problems} == fields <= set(COLUMNS)


def test_layers_that_predict_further_tokens_come_on_top(tmp_path):
    shape = NO_SHAPE | {"layers": "61", "experts": "", "model": "deepseek-v3"}
    plain, further = (of(tmp_path / "runs.csv", **shape, next_token_layers=count) for count in ("", "1"))
    assert (plain.layers, plain.next_token_layers) == (61, 0)
    assert (further.layers, further.next_token_layers) == (62, 1)
    assert further.moe.layers == (*plain.moe.layers, True)
