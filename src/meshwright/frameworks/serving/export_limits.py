"""Everything in a legal serving plan that an engine cannot run, by the facts of its release. No file is written.

A search asks the same to propose only plans that export.
"""

from collections.abc import Callable, Iterator
from itertools import product

from meshwright.errors import Problem
from meshwright.frameworks.serving.engine_facts import EngineFacts, engine_facts
from meshwright.frameworks.serving.replica_placement import place_replicas
from meshwright.frameworks.serving.settings_of_pools import (
    asked_weights,
    device_memory,
    layout_of,
    role_of,
    sequences_of_rank,
)
from meshwright.model.architecture import Architecture
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_plan import Pool
from meshwright.units import format_bytes

FP4 = "fp4"


def serving_export_problems(target: str, resolved: ResolvedServing) -> list[Problem]:
    """Return every reason why ``target`` cannot run a plan; none: ``export`` writes its commands."""
    facts, plan = engine_facts(target), resolved.plan
    problems = [*_of_nouns(facts, resolved), *_of_hand_overs(facts, resolved)]
    for pool in plan.pools.values():
        for rule in POOL_RULES:
            problems += rule(facts, pool, resolved.model.architecture)
    if problems:
        return problems
    return [*_of_places(facts, resolved), *_of_numbers(facts, resolved)]


def _of_nouns(facts: EngineFacts, resolved: ResolvedServing) -> Iterator[Problem]:
    if len(resolved.cluster.pools) > 1:
        rule = f"commands of {facts.name} are written for devices of one kind"
        yield Problem("cluster", resolved.plan.cluster, rule, "a cluster of one kind of device")
    if resolved.model.architecture.encoder is not None:
        rule = "commands are written for decoders: an encoder's memory is not known here"
        yield Problem("model", resolved.plan.model, rule, "a decoder alone")
    for name, pool in resolved.plan.pools.items():
        if pool.formats.kv == FP4 and not all(FP4 in one.device.peak_flops for one in resolved.cluster.pools):
            rule = f"kernels of {facts.name} read caches in 4 bit on devices with 4-bit arithmetic"
            yield Problem(f"pools.{name}.quantise.kv", FP4, rule, "kv: fp8")


def _of_hand_overs(facts: EngineFacts, resolved: ResolvedServing) -> Iterator[Problem]:
    """Require edges between all pools that prefill and all that decode: a router takes any pair."""
    plan = resolved.plan
    handing = {name for edge in plan.edges for name in (edge.source, edge.target)}
    for name in plan.pools if not facts.allows("pipelines_hand_over") else ():
        pp = layout_of(plan.pools[name]).pp
        if name in handing and pp > 1:
            rule = f"{facts.full_name} hands no caches over from or to a pipeline: pp = {pp} > 1"
            yield Problem(f"pools.{name}.layout.pp", pp, rule, "pp: 1")
    pairs = {(edge.source, edge.target) for edge in plan.edges}
    sources, targets = ({pair[end] for pair in pairs} for end in (0, 1))
    missing = sorted(set(product(sources, targets)) - pairs)
    if missing:
        text = ", ".join(f"{{from: {source}, to: {end}, carry: kv}}" for source, end in missing)
        rule = "a router pairs every prefill server with every decode server"
        yield Problem("edges", len(pairs), rule, f"also {text}")
    roles = {role_of(pool, plan) for pool in plan.pools.values()}
    if pairs and "serve" in roles:
        rule = "a router pairs prefill and decode servers, or it sends whole requests"
        yield Problem("pools", len(plan.pools), rule, "a plan of its own for the pools that serve")


def _phases(facts: EngineFacts, pool: Pool, arch: Architecture) -> Iterator[Problem]:
    if pool.has_phase_layouts and not facts.allows("phase_layouts"):
        rule = f"{facts.full_name} has one layout for both phases"
        yield Problem(f"pools.{pool.name}.layouts", [*pool.layouts], rule, "layout, or pools of each phase")


def _context(facts: EngineFacts, pool: Pool, arch: Architecture) -> Iterator[Problem]:
    for field, layout in _layouts(pool):
        if layout.cp > 1 and not facts.allows("context_parallel"):
            rule = f"{facts.full_name} does not cut prompts and their caches over ranks"
            yield Problem(f"{field}.cp", layout.cp, rule, "cp: 1")


def _attention(facts: EngineFacts, pool: Pool, arch: Architecture) -> Iterator[Problem]:
    for field, layout in _layouts(pool):
        ranks = layout.attention_dp
        if ranks == 1:
            continue
        if arch.moe is None and not facts.allows("dense_attention_dp"):
            rule = f"{facts.full_name} shares experts among attention_dp ranks, and the model has none"
            hint = f"attention_dp: 1 and replicas: {pool.replicas * ranks}"
            yield Problem(f"{field}.attention_dp", ranks, rule, hint)
        elif layout.tp > 1 and not facts.allows("tp_in_attention_dp"):
            rule = f"{facts.full_name} has whole attention on each attention_dp rank: tp = {layout.tp} > 1"
            yield Problem(f"{field}.tp", layout.tp, rule, f"tp: 1, attention_dp: {ranks * layout.tp}")


def _experts(facts: EngineFacts, pool: Pool, arch: Architecture) -> Iterator[Problem]:
    for field, layout in _layouts(pool):
        ends = (1, layout.stage_ranks)
        if arch.moe is not None and layout.ep not in ends and facts.limits["expert_degrees"] != "any":
            rule = f"{facts.full_name} has ep = 1, or ep = tp·attention_dp = {layout.stage_ranks}"
            yield Problem(f"{field}.ep", layout.ep, rule, f"ep: {layout.stage_ranks}, or ep: 1")


def _formats(facts: EngineFacts, pool: Pool, arch: Architecture) -> Iterator[Problem]:
    field = f"pools.{pool.name}.quantise"
    weights, kv = asked_weights(pool, arch), pool.formats.kv
    if weights is not None and facts.word("quantise.weights", weights) is None:
        yield _no_word(facts, f"{field}.weights", "quantise.weights", weights)
    if kv is None:
        return
    if facts.word("quantise.kv", kv) is None:
        yield _no_word(facts, f"{field}.kv", "quantise.kv", kv)
    elif arch.latent is not None and kv not in facts.limits["latent_kv"].split():
        rule = f"{facts.full_name} has no cache of latent attention in {kv}"
        yield Problem(f"{field}.kv", kv, rule, f"kv: {facts.limits['latent_kv'].replace(' ', ', or ')}")


def _overlaps(facts: EngineFacts, pool: Pool, arch: Architecture) -> Iterator[Problem]:
    field = f"pools.{pool.name}"
    for name, value in (("overlap", pool.overlap), ("allreduce", pool.allreduce)):
        if facts.word(name, value) is None:
            yield _no_word(facts, f"{field}.{name}", name, value)
    if pool.overlap != "two-batch" or facts.word("overlap", pool.overlap) is None:
        return
    layout = layout_of(pool)
    if arch.moe is None or layout.ep < 2 or layout.ep != layout.stage_ranks:
        rule = f"{facts.full_name} overlaps two batches with the exchange of experts: ep = all ranks of a stage > 1"
        yield Problem(f"{field}.overlap", pool.overlap, rule, "overlap: none")
    elif layout.attention_dp == 1 and not facts.allows("two_batch_without_attention_dp"):
        rule = f"{facts.full_name} overlaps two batches of attention_dp ranks: attention_dp > 1"
        yield Problem(f"{field}.overlap", pool.overlap, rule, "overlap: none")


def _blocks(facts: EngineFacts, pool: Pool, arch: Architecture) -> Iterator[Problem]:
    field, block, chunk = (
        f"pools.{pool.name}.batching",
        pool.batching.block_tokens,
        pool.batching.chunk_tokens,
    )
    multiple = int(facts.limits["block_multiple"])
    if block % multiple:
        rule = f"blocks of {facts.full_name} have a multiple of {multiple} tokens"
        yield Problem(
            f"{field}.block_tokens", block, rule, f"block_tokens: {-(-block // multiple) * multiple}"
        )
    if facts.allows("block_power_of_two") and block & (block - 1):
        rule = f"blocks of {facts.full_name} have a power of two tokens"
        yield Problem(f"{field}.block_tokens", block, rule, f"block_tokens: {1 << block.bit_length()}")
    if facts.allows("chunk_in_blocks") and chunk % block and pool.does != "decode":
        rule = (
            f"chunk_tokens = {chunk} is no multiple of block_tokens = {block}, as {facts.full_name} requires"
        )
        yield Problem(
            f"{field}.chunk_tokens", chunk, rule, f"chunk_tokens: {chunk // block * block or block}"
        )


def _of_places(facts: EngineFacts, resolved: ResolvedServing) -> Iterator[Problem]:
    places = place_replicas(resolved.plan, resolved.cluster.pool)
    for name, pool in resolved.plan.pools.items():
        layout, devices, size = layout_of(pool), pool.devices_of_replica, places.node_devices
        field = f"pools.{name}.layout"
        if name in places.unplaced:
            rule = (
                f"a replica of {devices} devices takes part of one node of {size}, or whole nodes that no other "
                "replica uses"
            )
            yield Problem(field, devices, rule, "degrees that divide a node, or fewer replicas")
        of_rank = layout.tp * layout.pp
        spread = devices > size and layout.attention_dp > 1
        if spread and facts.allows("rank_in_node") and size % of_rank:
            rule = f"{facts.full_name} counts the attention_dp ranks of a node of {size}: tp·pp = {of_rank} divides it"
            yield Problem(field, of_rank, rule, "tp·pp that divides the devices of a node")


def _of_numbers(facts: EngineFacts, resolved: ResolvedServing) -> Iterator[Problem]:
    for name, pool in resolved.plan.pools.items():
        memory = device_memory(facts.name, pool, resolved)
        if memory.cache_bytes <= 0:
            rule = (
                f"weights of {format_bytes(memory.weights_bytes)} leave nothing of "
                f"{format_bytes(memory.device_bytes)} to the cache"
            )
            yield Problem(
                f"pools.{name}.layout", layout_of(pool).devices, rule, "more devices, or quantise.weights"
            )
            continue
        chunk = pool.batching.chunk_tokens
        sequences = sequences_of_rank(facts.name, pool, resolved)
        layout, most = layout_of(pool), pool.batching.max_sequences
        if most is not None and sequences * layout.attention_dp > most:
            least = layout.attention_dp * layout.pp
            rule = f"{facts.full_name} has a batch of each rank and stage: attention_dp·pp = {least} > {most}"
            yield Problem(f"pools.{name}.batching.max_sequences", most, rule, f"max_sequences: {least}")
        if facts.allows("sequences_in_chunk") and sequences > chunk:
            rule = f"an iteration of {facts.full_name} has a token of each of {sequences} sequences of a rank"
            yield Problem(f"pools.{name}.batching.chunk_tokens", chunk, rule, f"chunk_tokens: {sequences}")


def _no_word(facts: EngineFacts, path: str, field: str, value: str) -> Problem:
    known = ", ".join(facts.values(field))
    return Problem(path, value, f"{facts.full_name} has no option for it", f"{field.split('.')[-1]}: {known}")


def _layouts(pool: Pool) -> Iterator[tuple[str, ReplicaLayout]]:
    if not pool.has_phase_layouts:
        yield f"pools.{pool.name}.layout", layout_of(pool)
        return
    for phase, layout in pool.layouts.items():
        yield f"pools.{pool.name}.layouts.{phase}", layout


PoolRule = Callable[[EngineFacts, Pool, Architecture], Iterator[Problem]]
POOL_RULES: tuple[PoolRule, ...] = (_phases, _context, _attention, _experts, _formats, _overlaps, _blocks)
