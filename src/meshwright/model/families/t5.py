"""Read T5 (arXiv 1910.10683): version 1.0, and 1.1 with its gated feed-forward and a head of its own (FLAN-T5 too).

Keys and defaults are those of transformers 5.23. Encoder and decoder have the same widths.
Relative positions have no limit: ``max_positions`` is the length of pre-training if the file has none.
"""

from math import sqrt

from meshwright.model.architecture import Architecture
from meshwright.model.encoder import TextEncoder
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.families.dense_decoders import has_dropout
from meshwright.model.families.dense_numerics import read_activation
from meshwright.model.numerics import Numerics

PROJECTION = "feed_forward_proj"
GATED = "gated"
WHOLE = ("T5ForConditionalGeneration", "T5WithLMHeadModel")
"""Classes that have encoder, decoder and head."""
LEAST_BUCKETS = 4
"""A quarter of the encoder's buckets are distances in one direction that have a bucket each."""


def t5(fields: Fields) -> Architecture:
    """Read the shapes of an encoder and a decoder."""
    hidden, heads, width = fields.size("d_model"), fields.size("num_heads"), fields.size("d_kv", default=64)
    encoder_layers = fields.size("num_layers", most=LARGEST_COUNT)
    layers = fields.size("num_decoder_layers", default=encoder_layers, most=LARGEST_COUNT)
    gated, activation = _projection(fields)
    if not fields.flag("is_encoder_decoder", True):
        rule = "T5's encoder or decoder alone is not supported"
        fields.unsupported("is_encoder_decoder", False, rule, "use true")
    named = fields.items("architectures", lambda name: isinstance(name, str), "names of classes")
    if named and not any(name in WHOLE for name in named):
        rule = "T5's encoder or decoder alone, or with another head, is not supported"
        fields.unsupported("architectures", ", ".join(named), rule, f"use {WHOLE[0]}")
    return Architecture(
        name="",
        family="",
        source="",
        layers=layers,
        hidden=hidden,
        vocab=fields.size("vocab_size"),
        heads=heads,
        kv_heads=heads,
        head_dim=width,
        v_head_dim=width,
        intermediate=fields.size("d_ff"),
        gated=gated,
        activation=activation,
        positions="relative",
        max_positions=fields.size("n_positions", default=512),
        norm_epsilon=fields.number("layer_norm_epsilon", default=1e-6, positive=True),
        dropout=has_dropout(fields, "dropout_rate", default=0.1),
        tied_embeddings=_tied(fields),
        encoder=_encoder(fields, encoder_layers),
        windows=(None,) * layers,
    )


def t5_numerics(fields: Fields, arch: Architecture) -> Numerics:
    """Read the arithmetic: no rotation, no scale of scores; logits of a tied head are divided by √d_model."""
    return Numerics(
        activation=read_activation(fields, arch.activation, PROJECTION),
        rotary=(None,) * arch.layers,
        attention_scales=(1.0,) * arch.layers,
        logit_divisor=sqrt(arch.hidden) if arch.tied_embeddings else 1.0,
    )


def _projection(fields: Fields) -> tuple[bool, str]:
    """Return whether the feed-forward is gated, and its activation as transformers calls it."""
    given = fields.text(PROJECTION, default="relu")
    kind, _, activation = given.rpartition("-")
    if kind not in ("", GATED) or not activation:
        rule = f"{PROJECTION} must be an activation, or gated- and an activation"
        fields.problem(PROJECTION, given, rule, '"relu" or "gated-gelu"')
    return kind == GATED, "gelu_new" if given == "gated-gelu" else activation


def _encoder(fields: Fields, layers: int) -> TextEncoder:
    buckets = fields.size("relative_attention_num_buckets", default=32, least=LEAST_BUCKETS)
    farthest = fields.size("relative_attention_max_distance", default=128)
    keys = ("relative_attention_num_buckets", "relative_attention_max_distance")
    if fields.sound(*keys) and farthest <= buckets // 2:
        rule = f"{keys[1]} = {farthest} must be > {keys[0]} / 2 = {buckets // 2}"
        fields.problem(keys[1], farthest, rule, f'"{keys[1]}": {4 * buckets}')
    return TextEncoder(layers=layers, buckets=buckets, max_distance=farthest)


def _tied(fields: Fields) -> bool:
    """Read whether the head is the embedding's table; its logits are scaled then, and only then.

    transformers 5 writes version 1.1 as tied and unscaled, with or without a table of its own in the checkpoint.
    """
    tied = fields.flag("tie_word_embeddings", True)
    scaled = fields.flag("scale_decoder_outputs", tied) if fields.has("scale_decoder_outputs") else tied
    if scaled != tied:
        rule = "logits are scaled if the head is the embedding's table, and only then"
        hint = f'"tie_word_embeddings": {str(scaled).lower()} as in T5 1.{0 if scaled else 1}'
        fields.unsupported("scale_decoder_outputs", scaled, rule, hint)
    return tied
