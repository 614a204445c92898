"""Read the shapes of GPT-2, GPT-J and BLOOM: LayerNorm, biases, ``n_layer``-style keys."""

from dataclasses import replace

from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.families.dense_decoders import has_dropout


def gpt2(fields: Fields) -> Architecture:
    """Read GPT-2 and GPT-3 (arXiv 2005.14165), Megatron's GPT: learned positions, LayerNorm, biases everywhere."""
    hidden = fields.size("n_embd", "hidden_size")
    if fields.flag("add_cross_attention", False):
        fields.unsupported("add_cross_attention", True, "cross attention is not supported", "use false")
    arch = _classic(fields, hidden)
    return replace(
        arch,
        intermediate=fields.size("n_inner", default=4 * hidden),
        activation=fields.text("activation_function", default="gelu_new"),
        positions="learned",
        max_positions=fields.size("n_positions", "max_position_embeddings", default=1024),
        dropout=has_dropout(fields, "resid_pdrop", "attn_pdrop", default=0.1),
    )


def gptj(fields: Fields) -> Architecture:
    """Read GPT-J: rotary positions, both parts of a layer behind one norm, biases in feed-forward and head only."""
    fields.assume(tie_word_embeddings=False)
    hidden = fields.size("n_embd", "hidden_size")
    arch = _classic(fields, hidden)
    return replace(
        arch,
        intermediate=fields.size("n_inner", default=4 * hidden),
        activation=fields.text("activation_function", default="gelu_new"),
        max_positions=fields.size("n_positions", "max_position_embeddings", default=2048),
        dropout=has_dropout(fields, "resid_pdrop", "attn_pdrop", default=0.0),
        qkv_bias=False,
        output_bias=False,
        head_bias=True,
        parallel_parts=True,
    )


def bloom(fields: Fields) -> Architecture:
    """Read BLOOM (arXiv 2211.05100): ALiBi, a norm after the embedding, biases everywhere."""
    arch = _classic(fields, fields.size("hidden_size", "n_embed"))
    return replace(
        arch,
        embedding_norm=True,
        positions="alibi",
        max_positions=fields.size("seq_length", default=2048),
        dropout=has_dropout(fields, "hidden_dropout", "attention_dropout", default=0.0),
    )


def _classic(fields: Fields, hidden: int) -> Architecture:
    """Read the part that they share: heads that divide the width, a feed-forward of four times the width."""
    layers = fields.size("n_layer", "num_hidden_layers", most=LARGEST_COUNT)
    heads = fields.size("n_head", "num_attention_heads")
    if fields.sound("n_embd", "hidden_size"):
        fields.divides("hidden_size", hidden, "n_head", heads, "choose heads that divide the width")
    head_dim = max(1, hidden // heads)
    return Architecture(
        name="",
        family="",
        source="",
        layers=layers,
        hidden=hidden,
        vocab=fields.size("vocab_size"),
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        intermediate=4 * hidden,
        gated=False,
        activation="gelu",
        norm="layernorm",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        max_positions=1,
        norm_epsilon=fields.number("layer_norm_epsilon", default=1e-5, positive=True),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        windows=(None,) * layers,
    )
