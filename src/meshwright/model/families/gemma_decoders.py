"""Read the shapes of Gemma 1, 2 and 3 from a Hugging Face ``config.json``."""

from dataclasses import replace

from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import Fields
from meshwright.model.families.dense_decoders import attention_biases, decoder, read_windows


def gemma(fields: Fields) -> Architecture:
    """Read Gemma (arXiv 2403.08295): Llama's shapes, tied embeddings, one key-value head in the smaller model."""
    fields.assume(num_key_value_heads=16, head_dim=256, tie_word_embeddings=True)
    fields.assume(hidden_act="gelu_pytorch_tanh")
    arch = attention_biases(fields, decoder(fields))
    return replace(arch, activation=fields.text("hidden_act", default=arch.activation))


def gemma2(fields: Fields) -> Architecture:
    """Read Gemma 2 (arXiv 2408.00118): norms before and after each sublayer; even layers slide."""
    _assume_gemma(fields)
    arch = decoder(fields)
    window = fields.optional_size("sliding_window")
    windows = read_windows(fields, arch.layers, window, lambda layer: layer % 2 == 0)
    return replace(attention_biases(fields, arch), norms_per_layer=4, windows=windows)


def gemma3(fields: Fields) -> Architecture:
    """Read Gemma 3 (arXiv 2503.19786): Gemma 2 with head norms; five of six layers slide.

    Released files omit several sizes, which take the text class's defaults.
    """
    _assume_gemma(fields)
    fields.assume(vocab_size=262208, num_attention_heads=8)
    arch = decoder(fields, theta=1e6)
    pattern = fields.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    window = fields.optional_size("sliding_window")
    windows = read_windows(fields, arch.layers, window, lambda layer: (layer + 1) % pattern != 0)
    return replace(attention_biases(fields, arch), qk_norm=True, norms_per_layer=4, windows=windows)


def _assume_gemma(fields: Fields) -> None:
    fields.assume(num_key_value_heads=4, head_dim=256, tie_word_embeddings=True, sliding_window=4096)
    if not fields.has("hidden_act"):
        fields.assume(hidden_activation="gelu_pytorch_tanh")
