"""What is trained on one accelerator: models, cut down where they would not fit, and plans of one device."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright.model.load import load_config
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve

QWEN3 = {"vocab_size": 151936, "tie_word_embeddings": True, "num_hidden_layers": 28, "head_dim": 128}
MODELS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "llama-3.2-1b": ("llama-3.2-1b", {}),
    "qwen3-0.6b": (
        "qwen3-8b",
        QWEN3 | {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16},
    ),
    "qwen3-1.7b": (
        "qwen3-8b",
        QWEN3 | {"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16},
    ),
    "gpt-1.7b": ("gpt-1.7b", dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)),
    "experts": ("qwen3-30b-a3b", {"num_hidden_layers": 8, "num_experts": 32}),
}
"""A model of the zoo and what is changed in its configuration; ``experts`` keeps the widths and the eight choices."""
SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "n_embd": 64,
    "n_inner": 128,
    "n_layer": 2,
    "n_head": 4,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}
"""Sizes of a rehearsal."""
SMALL_SEQ_LEN = 128
GPIPE = {"pipeline": {"schedule": "gpipe"}}


@dataclass(frozen=True)
class Case:
    """A model and a plan of one device; ``keys`` are further keys of the plan, ``steps`` how many are taken."""

    name: str
    model: str
    seq_len: int
    micro_batch: int
    micro_batches: int
    recompute: str = "none"
    keys: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "bf16"
    steps: int = 16

    def resolved(self, folder: Path, cluster: str, *, small: bool) -> Resolved:
        """The plan for a cluster; the model's configuration is written below ``folder``."""
        data = {
            "plan": 1,
            "model": str(_written(folder, self.model, small=small)),
            "cluster": cluster,
            "workload": {
                "seq_len": min(self.seq_len, SMALL_SEQ_LEN) if small else self.seq_len,
                "global_batch": self.micro_batch * self.micro_batches,
            },
            "stack": "meshwright",
            "layout": {},
            "recompute": self.recompute,
            **self.keys,
            "pipeline": {"micro_batch": self.micro_batch, **self.keys.get("pipeline", {})},
        }
        return resolve(ShortPlan.model_validate(data))


def _written(folder: Path, name: str, *, small: bool) -> Path:
    zoo, changes = MODELS.get(name, (name, {}))
    config = {key: value for key, value in load_config(zoo).items() if not key.startswith("_")} | dict(
        changes
    )
    if small:
        config |= {key: value for key, value in SMALL.items() if key in config}
    path = folder / "models" / name / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    return path.parent


TRAININGS = (
    Case("llama-3.2-1b, 4 at once", "llama-3.2-1b", 2048, 4, 4, steps=60),
    Case("llama-3.2-1b, 4 at once, selective", "llama-3.2-1b", 2048, 4, 4, "selective"),
    Case("llama-3.2-1b, 4 at once, full", "llama-3.2-1b", 2048, 4, 4, "full"),
    Case("llama-3.2-1b, long", "llama-3.2-1b", 8192, 1, 4),
    Case("llama-3.2-1b, long, full", "llama-3.2-1b", 8192, 1, 4, "full"),
    Case("qwen3-0.6b", "qwen3-0.6b", 4096, 2, 4),
    Case("qwen3-0.6b, 1 at once", "qwen3-0.6b", 2048, 1, 8),
    Case("qwen3-1.7b", "qwen3-1.7b", 4096, 2, 4),
    Case("qwen3-1.7b, selective", "qwen3-1.7b", 4096, 2, 4, "selective"),
    Case("gpt-1.7b", "gpt-1.7b", 2048, 4, 4),
    Case("gpt-1.7b, full", "gpt-1.7b", 2048, 4, 4, "full"),
    Case("experts", "experts", 4096, 2, 4),
    Case("experts, full", "experts", 4096, 2, 4, "full"),
    Case("llama-3.2-1b, all forward first", "llama-3.2-1b", 4096, 1, 8, keys=GPIPE),
    Case(
        "llama-3.2-1b, half on the host",
        "llama-3.2-1b",
        4096,
        1,
        8,
        keys=GPIPE | {"offload": {"activations": 0.5}},
    ),
    Case(
        "llama-3.2-1b, all on the host",
        "llama-3.2-1b",
        4096,
        1,
        8,
        keys=GPIPE | {"offload": {"activations": "all"}},
    ),
    Case("llama-3.2-1b, 4 at once, fp32", "llama-3.2-1b", 2048, 4, 4, precision="fp32"),
)
"""The first one has the loss curve; the last one has the same batches, so that its losses can be laid beside."""
PROOFS = ("llama-3.2-1b", "qwen3-1.7b", "gpt-1.7b", "experts", "gemma-2-9b", "gpt-oss-20b", "deepseek-v3")
"""Models whose plans of one device, shrunk, are held in fp64 against plain PyTorch; those of ``MODELS`` or the zoo."""
