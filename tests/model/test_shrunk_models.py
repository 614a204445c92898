"""Small models keep a model's structure and arithmetic, and lose its size."""

import re
from dataclasses import replace

import pytest

from meshwright.model.load import load_model
from meshwright.model.named_tensors import named_parameters
from meshwright.model.rotary import LongRope
from meshwright.model.transforms.shrunk_model import VOCABULARY, layer_kinds, shrunk_model
from meshwright.model.zoo_names import zoo_names

SEQ_LEN, FULL = 16, 4096
RUN = [name for name in zoo_names() if not load_model(name).architecture.numerics.refused]
SAME = (
    *("family", "gated", "activation", "norm", "norms_per_layer", "embedding_norm", "qk_norm", "qkv_bias"),
    *("output_bias", "mlp_bias", "positions", "norm_epsilon", "tied_embeddings", "attention_sinks"),
    "residual_after_norm",
)
SAME_NUMERICS = (
    *("activation", "attention_soft_cap", "logit_soft_cap", "logit_divisor", "embedding_multiplier"),
    *(
        "feedforward_mixing",
        "linear_norm_epsilon",
        "norm_offset",
        "norm_weight_in_fp32",
        "latent_norm_epsilon",
        "expert_activation",
    ),
)


def shrunk(name, layers=4, tp=2, full=FULL):
    return shrunk_model(load_model(name), layers=layers, tp=tp, seq_len=SEQ_LEN, full_seq_len=full)


@pytest.fixture(scope="module", params=RUN)
def pair(request):
    return load_model(request.param), shrunk(request.param, tp=degree(request.param))


def degree(name):
    """Return a degree of tensor parallelism that plans of the model may have: nothing divides a single key head."""
    return 1 if load_model(name).architecture.kv_heads == 1 else 2


def test_structure_and_arithmetic_are_the_same(pair):
    (large, small) = (graph.architecture for graph in pair)
    assert [getattr(small, key) for key in SAME] == [getattr(large, key) for key in SAME]
    for key in SAME_NUMERICS:
        assert getattr(small.numerics, key) == getattr(large.numerics, key)
    assert (small.heads > small.kv_heads) == (large.heads > large.kv_heads)
    narrow = large.hidden != large.heads * large.head_dim
    assert (small.hidden != small.heads * small.head_dim) == narrow
    assert bool(small.numerics.alibi_slopes) == bool(large.numerics.alibi_slopes)


def test_tensors_are_those_of_a_model_with_fewer_layers(pair):
    (large, ends), (small, small_ends) = map(_cuts, pair)
    assert {_first_layer(name): cut for name, cut in small_ends.items()} == {
        _first_layer(name): cut for name, cut in ends.items()
    }
    kinds = {kind: layer for layer, kind in zip(large, _kinds(pair[0]), strict=True)}
    assert [small[layer] for layer in small] == [large[kinds[kind]] for kind in _kinds(pair[1])]


def _first_layer(name):
    """The name in the first layer of an encoder, whose layers are alike."""
    return re.sub(r"^encoder\.\d+", "encoder.0", name)


def _cuts(graph):
    """By layer, and of embedding, encoder and head: which dim of each tensor is cut."""
    layers, ends = {}, {}
    for name, parameter in named_parameters(graph).items():
        cut = (parameter.tp_dim, parameter.ep_dim, len(parameter.shape))
        if name.startswith("layers."):
            _, layer, inner = name.split(".", 2)
            layers.setdefault(int(layer), {})[inner] = cut
        else:
            ends[name] = cut
    return layers, ends


def _kinds(graph):
    """Of every layer: whether it has experts, and how it mixes tokens."""
    arch = graph.architecture
    routed = arch.moe.layers if arch.moe else (False,) * arch.layers
    return tuple(zip(routed, arch.mixers, strict=True))


def test_every_kind_of_layer_is_there(pair):
    large, small = (graph.architecture for graph in pair)
    assert layer_kinds(small) == layer_kinds(large)
    assert set(_kinds(pair[0])) == set(_kinds(pair[1]))
    kinds = {(window is None, rotary is None) for window, rotary in _layers(large)}
    assert {(window is None, rotary is None) for window, rotary in _layers(small)} == kinds
    assert all(window is None or 1 < window < SEQ_LEN for window in small.windows)


def _layers(arch):
    return zip(arch.windows, arch.numerics.rotary, strict=True)


def test_it_is_small_and_tp_divides_all_but_the_vocabulary(pair):
    model, small = pair
    arch, tp = small.architecture, degree(model.name)
    assert small.parameters < (200_000 if arch.encoder is None else 300_000)
    assert not [n for n in (arch.heads, arch.kv_heads, arch.hidden, arch.intermediate) if n % tp]
    assert arch.vocab == VOCABULARY
    assert arch.max_positions >= SEQ_LEN


def test_scores_keep_their_scale_relative_to_the_width_of_a_head(pair):
    large, small = (graph.architecture for graph in pair)
    if large.positions == "relative":  # T5's scores have no scale
        assert set(small.numerics.attention_scales) == {1.0}
        return
    relative = large.numerics.attention_scales[0] * large.head_dim**0.5
    assert small.numerics.attention_scales[0] * small.head_dim**0.5 == pytest.approx(relative)


def test_the_part_of_a_head_that_is_rotated_stays(pair):
    large, small = (graph.architecture for graph in pair)
    for (_, of_large), (_, of_small) in zip(_layers(large), _layers(small), strict=False):
        if of_large is not None and of_small is not None:
            share, whole = (of.dim / _turned(arch) for of, arch in ((of_small, small), (of_large, large)))
            assert share == pytest.approx(whole, abs=0.25)
            assert len(of_small.frequencies(SEQ_LEN)) == of_small.dim // 2


def _turned(arch):
    """The elements of a head that can be rotated."""
    return arch.latent.qk_rope_dim if arch.latent else arch.head_dim


@pytest.mark.parametrize(("full", "beyond"), [(4096, False), (8192, False), (65536, True)])
def test_a_stretched_rotation_is_stretched_if_the_sequence_was_long(full, beyond):
    rotary = shrunk("llama-3.1-8b", full=full).architecture.numerics.rotary[0]
    assert rotary.scaling.original_positions == (8192 * SEQ_LEN / full if not beyond else 2)
    assert (rotary.scaling.original_positions < SEQ_LEN) == beyond


def test_long_ropes_lists_shrink_with_the_head():
    model = load_model("llama-3.1-8b")
    arch = model.architecture
    scaling = LongRope(
        short=tuple(float(i) for i in range(64)),
        long=tuple(float(2 * i) for i in range(64)),
        factor=32.0,
        original_positions=4096,
    )
    rotary = replace(arch.numerics.rotary[0], scaling=scaling)
    numerics = replace(arch.numerics, rotary=(rotary,) * arch.layers)
    long = replace(model, architecture=replace(arch, numerics=numerics))
    small = shrunk_model(long, layers=2, tp=1, seq_len=SEQ_LEN, full_seq_len=8192)
    found = small.architecture.numerics.rotary[0].scaling
    assert found.short == (0.0, 16.0, 32.0, 48.0)
    assert found.long == (0.0, 32.0, 64.0, 96.0)
    assert found.original_positions == 8


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_every_tp_rank_has_heads(tp):
    for name in ("llama-3.1-70b", "gpt-3-175b"):
        arch = shrunk(name, tp=tp).architecture
        assert arch.kv_heads % tp == arch.heads % tp == arch.intermediate % tp == arch.hidden % tp == 0


@pytest.mark.parametrize("ep", [1, 2, 3, 8, 12])
def test_every_rank_of_an_expert_mesh_has_experts_of_some_width(ep):
    for name in ("mixtral-8x7b", "deepseek-v3", "deepseek-v2", "gpt-oss-20b"):
        model = load_model(name)
        small = shrunk_model(model, layers=4, tp=1, seq_len=SEQ_LEN, full_seq_len=FULL, ep=ep, etp=2)
        moe, routing = small.architecture.moe, small.architecture.numerics.routing
        assert moe.experts % ep == moe.intermediate % 2 == 0
        assert 1 < moe.experts_per_token < moe.experts
        assert replace(routing, groups=None) == replace(model.architecture.numerics.routing, groups=None)
        if routing.groups:
            assert moe.experts % routing.groups.count == 0
            assert moe.experts // routing.groups.count >= routing.groups.best
            assert routing.groups.chosen < routing.groups.count


def test_latent_attention_keeps_its_parts():
    assert shrunk("deepseek-v3").architecture.latent.q_rank
    model = load_model("deepseek-v3")
    arch = model.architecture
    direct = replace(model, architecture=replace(arch, latent=replace(arch.latent, q_rank=None)))
    small = shrunk_model(direct, layers=2, tp=2, seq_len=SEQ_LEN, full_seq_len=FULL)
    assert small.architecture.latent.q_rank is None
    assert "layers.0.self_attn.q_proj.weight" in named_parameters(small)
