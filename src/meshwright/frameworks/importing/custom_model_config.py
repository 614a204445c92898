"""A model that a file describes by its sizes and that has no name of its own, as a Hugging Face ``config.json``.

Three kinds can be said: a Llama decoder (RMSNorm, gated), the same with experts in every layer (Mixtral), and a GPT-2
decoder (LayerNorm, GELU, learned positions). What else changes a step's time or memory is not described by sizes alone.
"""

import json
from typing import Any

from meshwright.frameworks.importing.imported_file import ImportedFile

NEEDED = ("layers", "hidden", "heads", "vocab")


def config_from_sizes(foreign: ImportedFile) -> dict[str, Any] | None:
    """Return the configuration; None where the file has too few sizes, or another kind of model."""
    size = {name: foreign.value(f"model.{name}") for name in NEEDED}
    gated, rms = foreign.value("shape.gated"), foreign.value("shape.rmsnorm")
    if None in size.values() or gated is None or gated != rms:
        return None
    if gated:
        return _llama(foreign, size)
    return None if foreign.value("model.experts") else _gpt2(foreign, size)


def config_text(config: dict[str, Any]) -> str:
    """Return the configuration as the text of its file."""
    return json.dumps(config, indent=2) + "\n"


def _llama(foreign: ImportedFile, size: dict[str, Any]) -> dict[str, Any] | None:
    experts = foreign.value("model.experts")
    width = foreign.value("model.expert_intermediate") if experts else None
    width = width or foreign.value("model.intermediate")
    if width is None:
        return None
    config = {
        "_source": f"sizes in a file for {foreign.release}",
        "model_type": "mixtral" if experts else "llama",
        "vocab_size": size["vocab"],
        "hidden_size": size["hidden"],
        "intermediate_size": width,
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": foreign.value("model.kv_heads", size["heads"]),
        "head_dim": foreign.value("model.head_dim", size["hidden"] // size["heads"]),
        "hidden_act": "silu",
        "max_position_embeddings": foreign.value("shape.positions", 2**17),
        "tie_word_embeddings": bool(foreign.value("shape.tied", False)),
    }
    if not experts:
        return config
    routed = {
        "num_local_experts": experts,
        "num_experts_per_tok": foreign.value("model.experts_per_token", 2),
    }
    return config | routed


def _gpt2(foreign: ImportedFile, size: dict[str, Any]) -> dict[str, Any]:
    return {
        "_source": f"sizes in a file for {foreign.release}",
        "model_type": "gpt2",
        "vocab_size": size["vocab"],
        "n_positions": foreign.value("shape.positions", foreign.value("workload.seq_len", 2048)),
        "n_embd": size["hidden"],
        "n_layer": size["layers"],
        "n_head": size["heads"],
        "n_inner": foreign.value("model.intermediate", 4 * size["hidden"]),
        "activation_function": "gelu_new",
        "tie_word_embeddings": bool(foreign.value("shape.tied", True)),
    }
