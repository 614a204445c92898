"""The section ``megatron_lm_config`` of an Accelerate configuration.

Source: Accelerate 1.15.0, ``utils/launch.py`` and ``MegatronLMPlugin`` in ``utils/dataclasses.py``. Only what the
launcher has an option for reaches Megatron: other fields of the plugin are set in code.
"""

from collections.abc import Mapping

from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import Fact

Facts = dict[str, Fact]
M = "megatron_lm_"
DEGREES: Mapping[str, str] = {
    f"{M}tp_degree": "layout.tp",
    f"{M}pp_degree": "layout.pp",
    f"{M}context_parallel_size": "layout.cp",
    f"{M}expert_model_parallel_size": "layout.ep",
    f"{M}expert_tensor_parallel_size": "layout.etp",
}


def megatron_facts(settings: ConfigValues) -> Facts:
    """Degrees, sharding and recomputation of a job that Accelerate runs with Megatron-LM."""
    facts: Facts = {"stack": Fact("megatron-core", "distributed_type MEGATRON_LM")}
    for key, path in DEGREES.items():
        degree = settings.number(key)
        if degree is not None:
            facts[path] = settings.fact(key, degree)
    sequence = f"{M}sequence_parallelism"
    facts["layout.sequence_parallel"] = settings.fact(sequence, settings.truth(sequence))
    optimizer = f"{M}use_distributed_optimizer"
    facts["sharding"] = settings.fact(optimizer, "zero1" if settings.truth(optimizer) else "none")
    if facts["sharding"].value == "zero1":
        facts["layout.dp_replicate"] = settings.fact(optimizer, 1)
    micro_batches = settings.number(f"{M}num_micro_batches")
    if micro_batches and facts.get("layout.pp", Fact(1, "")).value > 1:
        facts["accumulation"] = settings.fact(f"{M}num_micro_batches", micro_batches)
    return facts | _recompute(settings)


def _recompute(settings: ConfigValues) -> Facts:
    granularity = f"{M}recompute_granularity"
    name = str(settings.get(granularity, "")).lower()
    if name in ("full", "selective"):
        return {"recompute": settings.fact(granularity, name)}
    selective = f"{M}recompute_activations"
    return {"recompute": settings.fact(selective, "selective" if settings.truth(selective) else "none")}
