"""Import from DeepSpeed 0.19.8: its JSON configuration.

Source: DeepSpeed 0.19.8, ``runtime/config.py`` (defaults, batch arithmetic, keys that a release dropped) and the typed
sections beside it. At the top and in untyped sections DeepSpeed takes any key in silence, so unknown ones are warned
of with the nearest known name; its typed sections refuse them. Recomputation, sequence length, optimizer and whatever
else the training script decides are not in the file.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from meshwright.errors import InputError, Problem, Severity
from meshwright.frameworks.deepspeed.importing.option_conflicts import config_rules
from meshwright.frameworks.deepspeed.importing.options_to_plan import config_facts
from meshwright.frameworks.deepspeed.importing.unread_options import unread_keys
from meshwright.frameworks.deepspeed.options import TABLE, ZERO
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import ALONE, ImportedFile, OutsideFacts, completed
from meshwright.frameworks.importing.json_text import read_json
from meshwright.frameworks.importing.unknown_keys import unknown_problems
from meshwright.frameworks.nested_keys import Path, nested_keys

TYPED = (
    *(ZERO, "bf16", "bfloat16", "fp16", "tensor_parallel", "compile", "hybrid_engine"),
    *("comms_logger", "tensorboard", "wandb", "csv_monitor", "comet"),
)
"""Sections that refuse a key that they do not know."""
SECTIONS = (
    *TYPED,
    *("expert_parallel", "optimizer", "scheduler", "pipeline", "activation_checkpointing", "data_types"),
    *("torch_autocast", "checkpoint", "data_efficiency", "autotuning", "flops_profiler"),
)
SHAPES = {
    ZERO: '{"stage": 1}',
    "optimizer": '{"type": "AdamW", "params": {"lr": 0.0001}}',
    "scheduler": '{"type": "WarmupLR"}',
    **dict.fromkeys(("bf16", "bfloat16", "fp16"), '{"enabled": true}'),
}
"""Examples of sections; the others may be left empty."""
REMOVED = (
    *("nebula", "compression_training", "amp", "quantize_training", "sparse_gradients", "eigenvalue"),
    *("sparse_attention", "elasticity", "graph_harvesting", "curriculum_learning", "progressive_layer_drop"),
    "zero_optimization.mics_shard_size",
    "zero_optimization.mics_hierarchical_params_gather",
    "zero_optimization.zeropp_loco_param",
)
"""Keys of older releases that 0.19.8 refuses by name."""


def import_deepspeed(text: str, outside: OutsideFacts = ALONE) -> ImportedFile:
    """Read a DeepSpeed configuration. Raises InputError if it cannot be parsed."""
    data = read_json(text, "file")
    names = frozenset(name for name in TABLE.names if not name.startswith("--"))
    if not data.keys() & {name for name in names if "." not in name}:
        rule = "has none of DeepSpeed's keys"
        raise InputError(
            Problem(
                "file",
                ", ".join(data)[:80],
                rule,
                '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}',
            )
        )
    problems = [*_shapes(data), *unknown_problems(data, names, _verdict)]
    settings = ConfigValues({".".join(path): value for path, value in _readable(data)}, problems=problems)
    facts = completed(config_facts(settings), outside)
    config_rules(settings, facts)
    return ImportedFile(
        source="deepspeed",
        release=TABLE.full_name,
        facts=facts,
        unread=unread_keys(settings),
        problems=tuple(problems),
    )


def _readable(data: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Keys with their values, without names that have a dot in them."""
    return ((path, value) for path, value in nested_keys(data) if not any("." in part for part in path))


def _shapes(data: Mapping[str, Any]) -> Iterator[Problem]:
    """Sections that are no sections; an old way to ask for ZeRO-1 is a truth value."""
    for name in SECTIONS:
        value = data.get(name, {})
        old = name == ZERO and isinstance(value, bool)
        if not isinstance(value, Mapping) and not old and (value is not None or name in TYPED):
            yield Problem(name, str(value)[:80], "must be an object", f'"{name}": {SHAPES.get(name, "{}")}')


def _verdict(path: Path) -> tuple[str, str, Severity]:
    if ".".join(path) in REMOVED:
        return f"is no part of DeepSpeed {TABLE.release} any more, which refuses it", "leave it out", "error"
    if len(path) > 1 and path[0] in TYPED:
        return f"is no key of DeepSpeed {TABLE.release}, which refuses it", "", "error"
    return f"is no key of DeepSpeed {TABLE.release}, which ignores it", "", "warning"
