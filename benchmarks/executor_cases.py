"""What is trained to compare speed: two sizes of a decoder, a plan for each layout, and a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from meshwright.cluster.load import load_cluster
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.program import Program
from meshwright.runtime.batch.batch_sharding import sequence_indices
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

PLANS: Mapping[str, Mapping[str, Any]] = {
    "one process": {},
    "DDP": {"layout": {"dp_replicate": 2}},
    "ZeRO-1": {"layout": {"dp_shard": 2}, "sharding": "zero1"},
    "FSDP2": {"layout": {"dp_shard": 2}, "sharding": "zero3", "gather": "per-layer"},
    "TP": {"layout": {"tp": 2, "sequence_parallel": False}},
    "TP and SP": {"layout": {"tp": 2, "sequence_parallel": True}},
    "1F1B": {"layout": {"pp": 2}, "pipeline": {"schedule": "1f1b"}},
}
"""Our plan for each layout of ``LAYOUTS``."""


@dataclass(frozen=True)
class Size:
    """A decoder and what a replica trains on in a step."""

    hidden: int
    micro_batches: int
    layers: int = 4
    head_dim: int = 32
    vocab: int = 2048
    seq_len: int = 256

    def model(self) -> ModelGraph:
        """Llama's shape: two query heads for each key-value head."""
        heads = self.hidden // self.head_dim
        config = {
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.hidden * 8 // 3 // 16 * 16,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads // 2,
            "max_position_embeddings": self.seq_len,
        }
        return build_graph(read_architecture(config, f"llama of width {self.hidden}", "executor_cases.py"))


SIZES = (Size(256, 4), Size(512, 2))


def program_of(layout: str, size: Size, model: ModelGraph) -> Program:
    """Our Program of a layout."""
    changes = PLANS[layout]
    degrees = changes.get("layout", {})
    replicas = degrees.get("dp_replicate", 1) * degrees.get("dp_shard", 1)
    cluster = f"h100-sxm-80gb x {ranks_of(layout)}"
    workload = {"seq_len": size.seq_len, "global_batch": replicas * size.micro_batches}
    data = {
        "plan": 1,
        "model": "decoder",
        "cluster": cluster,
        "workload": workload,
        "stack": "meshwright",
        "recompute": "none",
        **changes,
    }
    plan = expand(ShortPlan.model_validate(data), model.architecture)
    stack = load_stack("meshwright")
    return lower(plan, model, load_cluster(cluster), Workload(**workload), stack)


def ranks_of(layout: str) -> int:
    """How many processes a layout needs."""
    degrees = PLANS[layout].get("layout", {})
    return prod(degree for degree in degrees.values() if not isinstance(degree, bool))


def micro_batches(program: Program, rank: int, size: Size) -> list[MicroBatch]:
    """This rank's part of a random batch in which a tenth of the labels does not count."""
    rows = [list(r) for r in sequence_indices(program, program.parts.only, rank)]
    sequences = size.micro_batches * program.parts.only.grid.size(("dp_replicate", "dp_shard"))
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(size.vocab, (sequences, size.seq_len), generator=generator)
    labels = torch.randint(size.vocab, (sequences, size.seq_len), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.1] = -100
    divisor = int((labels != -100).sum())
    return [MicroBatch(tokens[r].t().contiguous(), labels[r].t().contiguous(), divisor) for r in rows]
