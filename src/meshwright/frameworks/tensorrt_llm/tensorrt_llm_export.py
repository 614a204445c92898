"""Export to TensorRT-LLM 1.3: a ``trtllm-serve`` script and a YAML of LLM options for each pool, and a router.

With attention_dp ``--tp_size`` are its ranks, each with whole attention; experts lie on ep·etp = tp_size. The cache's
share of free memory is the plan's own. ``--max_batch_size`` and ``--max_num_tokens`` are those of an iteration of one
rank: the stages of a pipeline have a batch each. The default scheduler reserves a request's whole output and evicts
none, so the one that evicts is written. Names are those of the repository at 00209af1 (``commands/serve.py``), 029e223d
(its command reference) and 00043967 (fields of ``LlmArgs``).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from meshwright.frameworks.exporting.export_result import Export, Refusal
from meshwright.frameworks.option_names import Option, assert_known
from meshwright.frameworks.option_table import nested
from meshwright.frameworks.serving.scripts_of_pools import (
    EnginePlan,
    command,
    engine_plan,
    pool_script,
    readme,
    router_script,
    script_name,
    serving_export,
    urls,
)
from meshwright.frameworks.serving.settings_of_pools import PoolSettings, weights_option
from meshwright.plans.serving.resolve_serving import ResolvedServing

TARGET = "tensorrt-llm"
RELEASE = "1.3"
FOLDER = "tensorrt_llm"
SHELL_OPTIONS = ("--host", "--port", "--extra_llm_api_options", "--config_file")
SERVERS = {"prefill": "context_servers", "decode": "generation_servers"}


def export_tensorrt_llm(resolved: ResolvedServing) -> Export:
    """Return the files that serve a plan. Raises UnsupportedError with all that TensorRT-LLM cannot run."""
    plan = engine_plan(TARGET, resolved)
    assert_known(((name,) for name in SHELL_OPTIONS), TARGET, RELEASE)
    files = {f"{FOLDER}/{script_name(pool)}": _script(plan, pool) for pool in plan.pools}
    files |= {f"{FOLDER}/{script_name(pool, 'yaml')}": _yaml_file(plan, pool) for pool in plan.pools}
    further: list[str] = []
    hands_over = any(pool.role != "serve" for pool in plan.pools)
    if hands_over:
        files[f"{FOLDER}/router.sh"] = router_script(plan, [*_router(plan)])
        further = ["Then `bash router.sh`: it takes the requests."]
    files[f"{FOLDER}/README.md"] = readme(plan, further, each_node=False)
    return serving_export(plan, files, [] if hands_over else [*_unsaid(plan)])


def serve_options(plan: EnginePlan, settings: PoolSettings) -> list[Option]:
    """Return the options of ``trtllm-serve``."""
    layout = settings.layout
    options: list[Option] = [
        ("--tp_size", str(layout.stage_ranks)),
        ("--pp_size", str(layout.pp)),
        ("--max_batch_size", str(settings.sequences // layout.pp)),
        ("--max_num_tokens", str(settings.pool.batching.chunk_tokens)),
        ("--gpus_per_node", str(min(settings.node_devices, layout.devices))),
    ]
    if settings.has_experts:
        options.append(("--ep_size", str(layout.ep)))
    assert_known(options, TARGET, RELEASE)
    return options


def llm_options(plan: EnginePlan, settings: PoolSettings) -> dict[str, Any]:
    """Return the options of the LLM by dotted name."""
    layout, batching = settings.layout, settings.pool.batching
    weights = weights_option(settings.pool, plan.resolved.model.architecture, plan.facts)
    values: dict[str, Any] = {
        "enable_attention_dp": layout.attention_dp > 1,
        "enable_chunked_prefill": True,
        "kv_cache_config.free_gpu_memory_fraction": batching.kv_fraction,
        "kv_cache_config.dtype": plan.facts.word("quantise.kv", settings.pool.formats.kv or "") or "auto",
        "kv_cache_config.tokens_per_block": batching.block_tokens,
        "kv_cache_config.enable_block_reuse": batching.prefix_cache,
        "scheduler_config.capacity_scheduler_policy": "MAX_UTILIZATION",
    }
    if settings.has_experts:
        values["moe_tensor_parallel_size"] = layout.etp
    if weights is not None:
        values[weights[0]] = weights[1]
    if settings.role != "serve":
        values["cache_transceiver_config.backend"] = "DEFAULT"
    if settings.role == "prefill":
        values["disable_overlap_scheduler"] = True
    assert_known(((name,) for name in values), TARGET, RELEASE)
    return values


def _script(plan: EnginePlan, settings: PoolSettings) -> str:
    devices = settings.pool.devices_of_replica
    lines = ["", 'HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"']
    start = "trtllm-serve serve"
    if settings.nodes > 1:
        lines.append("# One process for each device of all nodes.")
        lines.append(
            f'LAUNCH="${{LAUNCH:-srun --mpi=pmix --nodes={settings.nodes} --ntasks={devices} '
            f'--ntasks-per-node={settings.node_devices}}}"'
        )
        start = "${LAUNCH} trtllm-llmapi-launch trtllm-serve serve"
    words = [
        f'{start} "${{MODEL}}"',
        "--host 0.0.0.0",
        '--port "${PORT}"',
        '"${ARGS[@]}"',
        f'--extra_llm_api_options "${{HERE}}/{script_name(settings, "yaml")}"',
    ]
    return pool_script(
        plan, settings, serve_options(plan, settings), [*lines, command(*words)], each_node=False
    )


def _yaml_file(plan: EnginePlan, settings: PoolSettings) -> str:
    return "\n".join([plan.top(), *_yaml(nested(llm_options(plan, settings))), ""])


def _yaml(values: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{indent}{name}: {str(value).lower() if isinstance(value, bool) else value}"


def _router(plan: EnginePlan) -> Iterator[str]:
    """Yield the configuration of the server that hands requests from prefill to decode, and its command."""
    yield 'CONFIG="${CONFIG:-disaggregated.yaml}"'
    yield 'cat >"${CONFIG}" <<END'
    yield "hostname: 0.0.0.0"
    yield "port: ${PORT}"
    for role, key in SERVERS.items():
        found = [
            url.removeprefix("http://") for pool in plan.pools if pool.role == role for url in urls(pool)
        ]
        yield f"{key}:"
        yield f"  num_instances: {len(found)}"
        yield "  urls:"
        yield from (f'    - "{url}"' for url in found)
    yield "END"
    yield command("trtllm-serve disaggregated", '--config_file "${CONFIG}"')


def _unsaid(plan: EnginePlan) -> Iterator[Refusal]:
    if plan.servers > 1:
        why = (
            f"{plan.facts.name} has no router of whole requests: put a load balancer in front of the servers"
        )
        yield Refusal("pools", str(plan.servers), why)
