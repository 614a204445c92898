"""The section ``megatron_lm_config`` of an Accelerate configuration.

Source: Accelerate 1.15.0, ``utils/launch.py`` and ``MegatronLMPlugin`` in ``utils/dataclasses.py``. Only what the
launcher has an option for reaches Megatron: other fields of the plugin are set in code.
"""

from dataclasses import replace

from meshwright.frameworks.accelerate.options import MEGATRON, MEGATRON_ROWS
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.option_table import read_facts

Facts = dict[str, Fact]
ROWS = tuple(replace(row, option=row.option.rpartition(".")[2]) for row in MEGATRON_ROWS)
"""The launcher knows a key by its own name."""


def megatron_facts(settings: ConfigValues) -> Facts:
    """Degrees, sharding and recomputation of a job that Accelerate runs with Megatron-LM."""
    facts: Facts = {"stack": Fact("megatron-core", "distributed_type MEGATRON_LM")}
    facts |= read_facts(ROWS, settings)
    optimizer = f"{MEGATRON}use_distributed_optimizer"
    facts["sharding"] = settings.fact(optimizer, "zero1" if settings.truth(optimizer) else "none")
    if facts["sharding"].value == "zero1":
        facts["layout.dp_replicate"] = settings.fact(optimizer, 1)
    micro_batches = settings.number(f"{MEGATRON}num_micro_batches")
    if micro_batches and facts.get("layout.pp", Fact(1, "")).value > 1:
        facts["accumulation"] = settings.fact(f"{MEGATRON}num_micro_batches", micro_batches)
    return facts | _recompute(settings)


def _recompute(settings: ConfigValues) -> Facts:
    granularity = f"{MEGATRON}recompute_granularity"
    name = str(settings.get(granularity, "")).lower()
    if name in ("full", "selective"):
        return {"recompute": settings.fact(granularity, name)}
    selective = f"{MEGATRON}recompute_activations"
    return {"recompute": settings.fact(selective, "selective" if settings.truth(selective) else "none")}
