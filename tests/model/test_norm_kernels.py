import pytest

from meshwright.model.load import load_model
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.model.transforms.norm_kernels import fused_sets, with_fused_norms
from meshwright.stack.load import load_stack, stack_names

FUSING = ("megatron-bridge", "megatron-core", "nemo")
PRODUCTS = load_stack("megatron-core").norm_products
ATTENTION = {"input_norm": ()}
LATENT = {"input_norm": ("layernorm",), "q_a_norm": ("mla_up_proj",), "kv_a_norm": ("mla_up_proj",)}
MLP, EXPERTS = {"ffn_norm": ("mlp",)}, {"ffn_norm": ("layernorm",)}


def norms(block):
    """The recomputation sets of the norms of a layer, those of single heads left out."""
    inner = ("q_norm", "k_norm")
    return {op.name: op.recompute for op in block.operators if "norm" in op.name and op.name not in inner}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", [ATTENTION | MLP]),
        ("qwen3-32b", [ATTENTION | MLP]),
        ("mixtral-8x7b", [ATTENTION | EXPERTS]),
        ("qwen3-30b-a3b", [ATTENTION | EXPERTS]),
        ("glm-4.5-air", [ATTENTION | MLP, ATTENTION | EXPERTS]),
        ("deepseek-v3", [LATENT | MLP, LATENT | EXPERTS]),
    ],
)
@pytest.mark.parametrize("adapted", [False, True])
def test_a_norm_belongs_to_the_product_that_computes_it(name, expected, adapted):
    model = with_adapters(load_model(name)) if adapted else load_model(name)
    fused = with_fused_norms(model, PRODUCTS)
    assert [norms(block) for block in fused.blocks if block.kind == "layer"][: len(expected)] == expected
    assert (fused.chain, fused.parameters) == (model.chain, model.parameters)
    assert with_fused_norms(fused, PRODUCTS) == fused
    assert with_fused_norms(model, ()) == model


def test_layernorm_has_nothing_to_run_again_in_dense_models_alone():
    assert fused_sets(load_model("qwen3-32b"), PRODUCTS) == {"layernorm"}
    assert fused_sets(load_model("qwen3-32b"), ()) == set()
    for name in ("mixtral-8x7b", "deepseek-v3"):
        assert fused_sets(load_model(name), PRODUCTS) == set()


def test_the_stacks_on_transformer_engine_fuse_norms():
    assert tuple(name for name in stack_names() if load_stack(name).norm_products) == FUSING
    assert len({load_stack(name).norm_products for name in FUSING}) == 1
