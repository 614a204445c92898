"""Values of torchtitan options that depend on several fields of a plan.

The table of all options, with the names of these values: ``options.py`` of the framework.
"""

from collections.abc import Mapping

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.importing.imported_file import Stage
from meshwright.frameworks.option_table import Facts

SCHEDULES: Mapping[str, str] = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved-1f1b": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
    "zb-v": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
MULTI_STAGE = ("interleaved-1f1b", "looped-bfs", "zb-v", "dualpipev")


def plan_refusals(facts: Facts) -> list[Refusal]:
    """Return the plan keys that torchtitan runs differently although the plan stays the same."""
    refusals = []
    if facts["sharding"] == "zero2":
        why = "parameters rest sharded too and stay gathered from forward to backward (reshard never)"
        refusals.append(Refusal("sharding", "zero2", why))
    if facts["workload.task"] == "sft":
        why = "the configuration reads pre-training data; a chat data loader is set in Python"
        refusals.append(Refusal("workload.task", "sft", why))
    return refusals


def reshard_policy(facts: Facts) -> str | None:
    """Return whether parameters are gathered again for the backward pass; None where nothing is sharded."""
    if facts["sharding"] == "none":
        return None
    return "always" if facts["sharding"] == "zero3" and facts["gather"] == "per-layer" else "never"


def local_batch(facts: Facts) -> int:
    """Return the sequences of one data-parallel rank in one accumulation step."""
    steps: int = 1 if facts["layout.pp"] == 1 else facts["accumulation"]
    return steps * facts["pipeline.micro_batch"]


def stage_modules(facts: Facts) -> tuple[str, ...]:
    """Names of the modules of every stage, with commas between: ``tok_embeddings,layers.0,layers.1``."""
    texts, first = [], 0
    stages: tuple[Stage, ...] = facts["stages"]
    for stage in stages:
        names = ["tok_embeddings"] if stage.embed else []
        names += [f"layers.{first + layer}" for layer in range(stage.layers)]
        texts.append(",".join([*names, *(["norm", "lm_head"] if stage.head else [])]))
        first += stage.layers
    return tuple(texts)


def is_not_captured(facts: Facts) -> bool:
    """Return whether CUDA graphs are off: they capture no pipelines, nor token dispatch with host synchronisation."""
    return facts["layout.pp"] > 1 or facts["layout.ep"] > 1
