"""Save and load adapters in the format of ``peft``: ``adapter_model.safetensors`` and ``adapter_config.json``.

An adapter is named after the module of transformers that it adds to: ``base_model.model.MODULE.lora_A.weight``. So a
matrix needs a module of its own there: one that is stored together with others, as rows of one tensor, transposed, or
as experts, has no adapter that ``peft`` would load.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from meshwright.errors import InputError, Problem, UnsupportedError
from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import adapted_matrices, adapter_shapes
from meshwright.model.operators.operator_types import ExpertLowRank, LowRank
from meshwright.runtime.fsync import fsync_path, give_usual_rights
from meshwright.runtime.weights.family_tensor_names import checkpoint_of, prefixed, stored_places

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BASE = "base_model_name_or_path"
PREFIX = "base_model.model."


def is_adapter_folder(folder: str | Path) -> bool:
    """Return whether a folder holds adapters of ``peft``."""
    return (Path(folder) / CONFIG).is_file()


def check_names(model: ModelGraph) -> None:
    """Raise UnsupportedError for adapters that have no name in ``peft``."""
    problems = list(_without_module(model))
    if problems:
        raise UnsupportedError({problem.rule: problem for problem in problems}.values())


def save_adapters(
    folder: str | Path, model: ModelGraph, tensors: Mapping[str, Tensor], base: str | None
) -> None:
    """Write a model's adapters; ``base`` is the folder or name of its weights. Raises InputError."""
    check_names(model)
    names, target = _stored_names(model), Path(folder)
    stored = {stored: tensors[name].detach().contiguous() for name, stored in names.items()}
    try:
        target.mkdir(parents=True, exist_ok=True)
        save_file(stored, target / WEIGHTS, metadata={"format": "pt"})
        give_usual_rights(target / WEIGHTS)
        text = json.dumps(_config(model, base), indent=2, sort_keys=True) + "\n"
        (target / CONFIG).write_text(text, encoding="utf-8")
        for name in (WEIGHTS, CONFIG):
            fsync_path(target / name)
    except (OSError, SafetensorError) as error:
        rule = f"cannot be written: {' '.join(str(error).split())[:200]}"
        raise InputError(Problem("folder", str(target), rule, "a folder with enough room")) from None


def load_adapters(folder: str | Path, model: ModelGraph) -> dict[str, Tensor]:
    """Return a model's adapters by our names. Raises InputError with all that differs from the model's."""
    check_names(model)
    config, path = read_adapter_config(folder), Path(folder) / WEIGHTS
    op = _first(model)
    problems = [
        Problem(f"{CONFIG}.{key}", config.get(key), f"the plan has {own}", "the adapter of this plan")
        for key, own in (("peft_type", "LORA"), ("r", op.rank), ("lora_alpha", op.scale * op.rank))
        if config.get(key) != own
    ]
    problems += [
        Problem(f"{CONFIG}.{key}", config[key], "is not supported", "an adapter without it")
        for key in ("use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern")
        if config.get(key)
    ]
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        rule = f"cannot be read: {' '.join(str(error).split())[:200]}"
        raise InputError(Problem("init", str(path), rule, "the folder of an adapter")) from None
    shapes, names = adapter_shapes(model), _stored_names(model)
    for name, there in names.items():
        if there not in stored:
            problems.append(Problem(there, None, "is missing from the adapter", "the same targets"))
        elif tuple(stored[there].shape) != shapes[name]:
            rule = f"must have the shape {list(shapes[name])}"
            problems.append(Problem(there, list(stored[there].shape), rule, "the same model"))
    extra = sorted(stored.keys() - set(names.values()))
    problems += [Problem(name, "stored", "is no adapter of this plan", "the same targets") for name in extra]
    if problems:
        raise InputError(problems)
    return {name: stored[there].to(torch.float32) for name, there in names.items()}


def read_adapter_config(folder: str | Path) -> dict[str, Any]:
    """Return the content of ``adapter_config.json``. Raises InputError."""
    path = Path(folder) / CONFIG
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        rule = f"cannot be read: {' '.join(str(error).split())[:200]}"
        raise InputError(Problem("init", str(path), rule, "the folder of an adapter")) from None
    if not isinstance(data, dict):
        raise InputError(Problem("init", str(path), "is no mapping", "the folder of an adapter"))
    return data


def _config(model: ModelGraph, base: str | None) -> dict[str, object]:
    op, modules = _first(model), list(_modules(model).values())
    leaves = sorted({module.rpartition(".")[2] for module in modules})
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        BASE: base,
        "r": op.rank,
        "lora_alpha": op.scale * op.rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": leaves if model.architecture.moe is None else sorted(modules),
    }


def _stored_names(model: ModelGraph) -> dict[str, str]:
    """Return the stored name of every adapter's tensor by ours."""
    found = {}
    for name, module in _modules(model).items():
        for part in ("lora_A", "lora_B"):
            found[f"{name}.{part}.weight"] = f"{PREFIX}{module}.{part}.weight"
    return found


def _modules(model: ModelGraph) -> dict[str, str]:
    """Return the module of transformers by the name of our matrix, without ``.weight``."""
    places, prefix = stored_places(model), checkpoint_of(model.architecture.family).prefixes[0]
    names = [f"{unit}.{matrix.name}" for unit, _, matrix in adapted_matrices(model)]
    stored = {name: places[f"{name}.weight"].parts[0].name for name in names}
    return {name: prefixed(prefix, part.removesuffix(".weight")) for name, part in stored.items()}


def _first(model: ModelGraph) -> LowRank:
    return next(op for _, op, _ in adapted_matrices(model))


def _without_module(model: ModelGraph) -> Iterator[Problem]:
    places, field = stored_places(model), "workload.adapter.targets"
    for unit, op, matrix in adapted_matrices(model):
        if isinstance(op, ExpertLowRank):
            rule = "experts have no adapters in the format of peft"
            yield Problem(field, matrix.name, rule, "targets: [q, k, v, o]")
            continue
        (part,) = places[f"{unit}.{matrix.name}.weight"].parts
        if part.transposed or (part.rows or part.shape[0]) != part.shape[0]:
            module = part.name.removesuffix(".weight").rpartition(".")[2]
            rule = f"{model.name} stores {matrix.name} in {module}, which peft adapts as a whole"
            yield Problem(field, matrix.name, rule, "targets that are modules of their own")
