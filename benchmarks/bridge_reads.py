"""Runs in Megatron-Bridge's own Python: what its configuration classes make of exported folders.

    PYTHON benchmarks/bridge_reads.py CASES.json

CASES.json lists folders with the words of their ``torchrun``, the ranks and the model's ``config.json``. For every
case one JSON line is printed, ``{"accepted": bool, "message": text, "values": {...}}``. A case goes the way that the
exported ``run.py`` goes, up to ``pretrain``: the recipe is called, its precision resolved, ``overrides.yaml`` and the
words merged by Bridge's own ``process_config_with_overrides``; then ``runtime_config_update``, with which ``pretrain``
begins, finalises and validates the configuration (Bridge 0.6.2: ``training/utils/omegaconf_utils.py``,
``training/config.py``). No process group, no model and no kernel is made.

Modules that need CUDA, and those of other modalities, are stand-ins that hold nothing (``ABSENT``): whatever they would
refuse is not seen. The hub is not asked: the model's configuration is ours.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import os
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

ABSENT = (
    *("transformer_engine", "modelopt", "nvidia_resiliency_ext", "datasets", "diffusers", "PIL"),
    *("megatron.energon", "megatron.bridge.diffusion"),
)
"""What stands in for what is not installed, or would load it."""
VERSION = "2.12.0"
"""What a stand-in says of its version: Transformer Engine's, which decides what Megatron-Core allows."""
HOPPER = types.SimpleNamespace(major=9, minor=0, name="NVIDIA H100 80GB HBM3", total_memory=80 * 2**30)
MODEL = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    *("virtual_pipeline_model_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size"),
    *("sequence_parallel", "recompute_granularity", "recompute_modules", "num_layers", "hidden_size"),
    *("num_attention_heads", "bf16", "fp16", "seq_length", "pipeline_model_parallel_layout"),
)
"""Fields of the model's provider that are read back."""


class StandIn(types.ModuleType):
    """A module in which every name is there: a class for a capital, else something that may be called."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return VERSION
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": _nothing}) if name[:1].isupper() else MagicMock(name=name)


def _nothing(self: object, *_: object, **__: object) -> None:
    """Takes whatever it is given."""


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every module of ``ABSENT``."""

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        """A specification for a name of ``ABSENT`` or inside of one."""
        if any(name == absent or name.startswith(f"{absent}.") for absent in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> StandIn:
        """The module."""
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


def prepare() -> None:
    """Stand-ins, and a Hopper's answers to what is asked of a device."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    sys.meta_path.insert(0, StandIns())
    import torch

    torch.cuda.get_device_properties = lambda *_: HOPPER
    torch.cuda.get_device_capability = lambda *_: (HOPPER.major, HOPPER.minor)


def with_our_models(configurations: dict[str, str]) -> None:
    """Let ``AutoBridge`` take the configuration of this case's model in place of the hub's."""
    from megatron.bridge import AutoBridge
    from transformers import AutoConfig

    def ours(cls: Any, *_: object, **__: object) -> Any:
        data = json.loads(Path(configurations["path"]).read_text(encoding="utf-8"))
        data = {key: value for key, value in data.items() if not key.startswith("_")}
        kind = {"kimi_k2": "deepseek_v3"}.get(data["model_type"], data["model_type"])
        given = {key: value for key, value in data.items() if key != "model_type"}
        return AutoBridge.from_hf_config(AutoConfig.for_model(kind, **given))

    AutoBridge.from_hf_pretrained = classmethod(ours)


def read_back(case: dict[str, Any]) -> dict[str, object]:
    """What Bridge's configuration holds in the end. Raises whatever Bridge raises."""
    from megatron.bridge import recipes
    from megatron.bridge.training.config import runtime_config_update
    from megatron.bridge.training.mixed_precision import get_mixed_precision_config
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    recipe, *words = case["words"]
    config = getattr(recipes, recipe)()
    config.mixed_precision = get_mixed_precision_config(config.mixed_precision)
    process_config_with_overrides(config, str(Path(case["folder"]) / "overrides.yaml"), words)
    runtime_config_update(config)
    values = {name: getattr(config.model, name) for name in MODEL}
    return values | {
        "data_parallel_size": config.data_parallel_size,
        "micro_batch_size": config.train.micro_batch_size,
        "global_batch_size": config.train.global_batch_size,
        "use_distributed_optimizer": config.ddp.use_distributed_optimizer,
        "use_megatron_fsdp": config.ddp.use_megatron_fsdp,
        "fp8": config.model.fp8,
        "fp4": config.model.fp4,
    }


def verdict(case: dict[str, Any]) -> dict[str, object]:
    """Whether Bridge takes a case, and the values that it read; a recipe may set variables, as those of its case."""
    before = dict(os.environ)
    os.environ.update(WORLD_SIZE=str(case["ranks"]), RANK="0", **case["variables"])
    try:
        return {"accepted": True, "message": "", "values": read_back(case)}
    except Exception as error:
        return {"accepted": False, "message": f"{type(error).__name__}: {error}"[:400], "values": {}}
    finally:
        os.environ.clear()
        os.environ.update(before)


def main(cases: list[dict[str, Any]]) -> None:
    """One line for every case."""
    prepare()
    configurations: dict[str, str] = {}
    with_our_models(configurations)
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    for case in cases:
        configurations["path"] = case["model"]
        print(json.dumps(verdict(case), default=str), flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
