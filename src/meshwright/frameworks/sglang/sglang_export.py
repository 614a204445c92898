"""Export to SGLang 0.5.14: a ``sglang.launch_server`` script for each pool, and a router for several servers.

``--tp-size`` are all ranks of a stage: attention of tp = tp_size/dp_size on each of ``--dp-size`` ranks, experts on
ep·etp = tp_size. ``--max-running-requests`` and ``--chunked-prefill-size`` are of a whole replica, and SGLang divides
them by dp_size; ``--max-prefill-tokens`` is of one rank. Source of the names: ``srt/server_args.py`` of the wheel,
``router_args.py`` of sglang-router 0.3.2.
"""

from collections.abc import Iterator

from meshwright.frameworks.exporting.export_result import Export, Refusal
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

TARGET = "sglang"
RELEASE = "0.5.14"
ROUTER = Router(
    package="sglang-router",
    release="0.3.2",
    command="python3 -m sglang_router.launch_router",
    options=("--host", "--port", "--pd-disaggregation", "--prefill", "--decode", "--worker-urls"),
    pairs="--pd-disaggregation",
)
BOOTSTRAP_PORT, MEETING_PORT = 8998, 20000
"""First ports of the hand-over of caches and of the rendezvous of nodes."""
SHELL_OPTIONS = (
    *("--model-path", "--host", "--port", "--disaggregation-bootstrap-port"),
    *("--nnodes", "--node-rank", "--dist-init-addr"),
)


def export_sglang(resolved: ResolvedServing) -> Export:
    """Return the scripts that serve a plan. Raises UnsupportedError with all that SGLang cannot run."""
    plan = engine_plan(TARGET, resolved)
    assert_known(((name,) for name in SHELL_OPTIONS), TARGET, RELEASE)
    files = engine_files(plan, "sglang", _script, ROUTER, _port_of_caches)
    remarks = [memory_remark(pool, "--mem-fraction-static", pool.memory.static_share) for pool in plan.pools]
    return serving_export(plan, files, [*remarks, *_unsaid(plan)])


def launch_options(plan: EnginePlan, settings: PoolSettings) -> list[Option]:
    """Return the options that all nodes of a pool's replicas share."""
    layout, batching = settings.layout, settings.pool.batching
    ranks = layout.attention_dp
    weights = weights_option(settings.pool, plan.resolved.model.architecture, plan.facts)
    options: list[Option] = [
        ("--tp-size", str(layout.stage_ranks)),
        ("--pp-size", str(layout.pp)),
        ("--max-running-requests", str(settings.sequences * ranks)),
        ("--chunked-prefill-size", str(batching.chunk_tokens * ranks)),
        ("--max-prefill-tokens", str(batching.chunk_tokens)),
        ("--mem-fraction-static", f"{settings.memory.static_share:g}"),
        ("--kv-cache-dtype", plan.facts.word("quantise.kv", settings.pool.formats.kv or "") or "auto"),
        ("--page-size", str(batching.block_tokens)),
    ]
    if ranks > 1:
        options += [("--dp-size", str(ranks)), ("--enable-dp-attention",)]
        options += [("--moe-dense-tp-size", "1")] if layout.tp == 1 else []
    if settings.has_experts:
        options.append(("--ep-size", str(layout.ep)))
    if not batching.prefix_cache:
        options.append(("--disable-radix-cache",))
    if weights is not None:
        options.append((f"--{weights[0]}", weights[1]))
    if settings.pool.overlap == "two-batch":
        options += [("--enable-two-batch-overlap",), ("--moe-a2a-backend", "deepep")]
    if settings.role != "serve":
        options.append(("--disaggregation-mode", settings.role))
    assert_known(options, TARGET, RELEASE)
    return options


def _script(plan: EnginePlan, settings: PoolSettings) -> str:
    words = [
        "python3 -m sglang.launch_server",
        '--model-path "${MODEL}"',
        "--host 0.0.0.0",
        '--port "${PORT}"',
    ]
    words.append('"${ARGS[@]}"')
    if settings.role == "prefill":
        words.append(f'--disaggregation-bootstrap-port "$(({_bootstrap_port(settings)} + REPLICA))"')
    if settings.nodes > 1:
        meeting = MEETING_PORT + 100 * settings.number
        words += [
            f"--nnodes {settings.nodes}",
            '--node-rank "${NODE_RANK}"',
            f'--dist-init-addr "${{HEAD_ADDR}}:$(({meeting} + REPLICA))"',
        ]
    return pool_script(plan, settings, launch_options(plan, settings), ["", command(*words)], each_node=True)


def _bootstrap_port(settings: PoolSettings) -> int:
    return BOOTSTRAP_PORT + 100 * settings.number


def _port_of_caches(settings: PoolSettings, replica: int) -> str:
    """Return the port at which a replica that prefills hands caches over, after a space; none of others."""
    return f" {_bootstrap_port(settings) + replica}" if settings.role == "prefill" else ""


def _unsaid(plan: EnginePlan) -> Iterator[Refusal]:
    """Yield what SGLang does in another way than the plan says."""
    for settings in plan.pools:
        pool, layout = settings.pool, settings.layout
        if settings.role == "serve":
            why = "prompts have iterations of their own, without the tokens of sequences that decode"
            yield Refusal(f"pools.{pool.name}.batching.chunk_tokens", str(pool.batching.chunk_tokens), why)
        prefix = plan.resolved.plan.workload.lengths.prefix_tokens
        if settings.role == "decode" and prefix and pool.batching.prefix_cache:
            why = "servers that decode keep no shared prefix but with the experimental option for a radix cache there"
            yield Refusal(f"pools.{pool.name}.batching.prefix_cache", "true", why)
        if layout.attention_dp > 1 and layout.tp > 1:
            why = f"layers without experts are cut over all {layout.stage_ranks} ranks, not over tp"
            yield Refusal(f"pools.{pool.name}.layout.tp", str(layout.tp), why)
