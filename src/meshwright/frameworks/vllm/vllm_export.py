"""Export to vLLM 0.24.0: a ``vllm serve`` script for each pool, and a router for several servers.

Each rank of attention_dp is an engine core of ``--data-parallel-size``: ``--max-num-seqs`` and
``--max-num-batched-tokens`` are those of one core. Experts are cut over tp·dp ranks, whole with
``--enable-expert-parallel``, else in width. Pools that hand over caches use the NIXL connector. Source of the names:
``engine/arg_utils.py`` and ``openai/cli_args.py`` of the wheel, ``router_args.py`` of vllm-router 0.1.17.
"""

import json
from collections.abc import Iterator

from meshwright.frameworks.exporting.export_result import Export
from meshwright.frameworks.option_names import Option, assert_known
from meshwright.frameworks.serving.memory_share import memory_remark
from meshwright.frameworks.serving.scripts_of_pools import (
    EnginePlan,
    Router,
    command,
    engine_files,
    engine_plan,
    pool_script,
    serving_export,
)
from meshwright.frameworks.serving.settings_of_pools import PoolSettings, weights_option
from meshwright.plans.serving.resolve_serving import ResolvedServing

TARGET = "vllm"
RELEASE = "0.24.0"
ROUTER = Router(
    package="vllm-router",
    release="0.1.17",
    command="vllm-router",
    options=("--host", "--port", "--vllm-pd-disaggregation", "--prefill", "--decode", "--worker-urls"),
    pairs="--vllm-pd-disaggregation",
)
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
EXCHANGES = {"prefill": "deepep_high_throughput", "decode": "deepep_low_latency"}
SIDE_PORT, RPC_PORT, MASTER_PORT = 5600, 13345, 29600
"""First ports of NIXL's side channel, of the exchange between data-parallel nodes, and of torch's rendezvous."""
SHELL_OPTIONS = (
    *("--host", "--port", "--data-parallel-size-local", "--data-parallel-address"),
    *("--data-parallel-rpc-port", "--data-parallel-start-rank", "--headless"),
    *("--nnodes", "--node-rank", "--master-addr", "--master-port"),
)


def export_vllm(resolved: ResolvedServing) -> Export:
    """Return the scripts that serve a plan. Raises UnsupportedError with all that vLLM cannot run."""
    plan = engine_plan(TARGET, resolved)
    assert_known(((name,) for name in SHELL_OPTIONS), TARGET, RELEASE)
    files = engine_files(plan, "vllm", _script, ROUTER)
    remarks = (memory_remark(pool, "--gpu-memory-utilization", pool.memory.used_share) for pool in plan.pools)
    return serving_export(plan, files, remarks)


def serve_options(plan: EnginePlan, settings: PoolSettings) -> list[Option]:
    """Return the options that all nodes of a pool's replicas share."""
    layout, batching = settings.layout, settings.pool.batching
    weights = weights_option(settings.pool, plan.resolved.model.architecture, plan.facts)
    options: list[Option] = [
        ("--tensor-parallel-size", str(layout.tp)),
        ("--pipeline-parallel-size", str(layout.pp)),
        ("--data-parallel-size", str(layout.attention_dp)),
        ("--max-num-seqs", str(settings.sequences)),
        ("--max-num-batched-tokens", str(batching.chunk_tokens)),
        ("--max-model-len", "auto"),
        ("--gpu-memory-utilization", f"{settings.memory.used_share:g}"),
        ("--kv-cache-dtype", plan.facts.word("quantise.kv", settings.pool.formats.kv or "") or "auto"),
        ("--block-size", str(batching.block_tokens)),
        ("--enable-prefix-caching" if batching.prefix_cache else "--no-enable-prefix-caching",),
    ]
    if settings.has_experts and layout.ep > 1:
        options.append(("--enable-expert-parallel",))
    if weights is not None:
        options.append((f"--{weights[0]}", weights[1]))
    if settings.pool.overlap == "two-batch":
        exchange = EXCHANGES.get(settings.pool.does, EXCHANGES["prefill"])
        options += [("--enable-dbo",), ("--all2all-backend", exchange)]
    if settings.role != "serve":
        transfer = {"kv_connector": "NixlConnector", "kv_role": ROLES[settings.role]}
        options.append(("--kv-transfer-config", json.dumps(transfer)))
    assert_known(options, TARGET, RELEASE)
    return options


def _script(plan: EnginePlan, settings: PoolSettings) -> str:
    words = ['vllm serve "${MODEL}"', "--host 0.0.0.0", '--port "${PORT}"', '"${ARGS[@]}"']
    lines = [*_transfer_lines(settings), *_node_arguments(settings)]
    if settings.nodes > 1:
        words.append('"${NODE_ARGS[@]}"')
    return pool_script(
        plan, settings, serve_options(plan, settings), [*lines, "", command(*words)], each_node=True
    )


def _transfer_lines(settings: PoolSettings) -> Iterator[str]:
    """Yield the address under which other pools ask NIXL for caches; each rank of attention_dp has a port."""
    if settings.role == "serve":
        return
    ranks = settings.layout.attention_dp
    first = SIDE_PORT + 1000 * settings.number
    yield f'export VLLM_NIXL_SIDE_CHANNEL_PORT="$(({first} + REPLICA * {ranks}))"'
    yield 'export VLLM_NIXL_SIDE_CHANNEL_HOST="${NODE_ADDR:-$(hostname -f)}"'


def _node_arguments(settings: PoolSettings) -> Iterator[str]:
    """Yield the arguments of one of several nodes: ranks of attention_dp on each, or parts of one rank."""
    if settings.nodes == 1:
        return
    layout, number = settings.layout, settings.number
    if layout.attention_dp == 1:
        yield "NODE_ARGS=("
        yield f"  --nnodes {settings.nodes}"
        yield '  --node-rank "${NODE_RANK}"'
        yield '  --master-addr "${HEAD_ADDR}"'
        yield f'  --master-port "$(({MASTER_PORT + 100 * number} + REPLICA))"'
        yield ")"
        yield "if ((NODE_RANK > 0)); then NODE_ARGS+=(--headless); fi"
        return
    local = settings.node_devices // (layout.tp * layout.pp)
    yield "NODE_ARGS=("
    yield f"  --data-parallel-size-local {local}"
    yield '  --data-parallel-address "${HEAD_ADDR}"'
    yield f'  --data-parallel-rpc-port "$(({RPC_PORT + 100 * number} + REPLICA))"'
    yield ")"
    yield "if ((NODE_RANK > 0)); then"
    yield f'  NODE_ARGS+=(--headless --data-parallel-start-rank "$((NODE_RANK * {local}))")'
    yield "fi"
