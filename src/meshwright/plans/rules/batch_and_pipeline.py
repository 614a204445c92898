"""Rules on sequences, batches, micro-batches, stages and layers."""

from collections.abc import Iterator
from math import ceil, lcm

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.plans.forms.short import default_gather
from meshwright.plans.layers.layer_assignment import layer_rules, stage_problems
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.schedules.choice import known_kind
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.schedule_kind import nearest_unit


def layers_and_stages(case: RuleInput) -> Iterator[Problem]:
    """Every layer has one rule and lies on one stage."""
    layers = case.arch.layers
    yield from layer_rules(case.plan, layers).problems
    yield from stage_problems(case.plan.pipeline, layers)


def sequence_length(case: RuleInput) -> Iterator[Problem]:
    """Pieces of ring ranks (with head and tail two each), cp, and with sequence parallelism tp cut a sequence."""
    workload, cp = case.workload, case.grid.cp
    if workload is None:
        return
    context, seq_len = case.layout.context_in_full, workload.seq_len
    ring = max(1, cp // context.heads(cp))
    each = 2 if context.pieces == "head-tail" and ring > 1 else 1
    pieces, cut = each * ring, cp * (case.grid.tp if case.layout.sequence_parallel else 1)
    cut = cut if pieces % cut else 1
    hint = f"seq_len: {_nearest_multiple(seq_len, lcm(pieces, cut))}"
    if seq_len % pieces:
        unit = f"{each}·{'cp' if ring == cp else 'cp/ulysses'}"
        rule = f"seq_len % ({unit}) = {seq_len} % {pieces} = {seq_len % pieces} ≠ 0"
        yield Problem("workload.seq_len", seq_len, rule, hint)
    if seq_len % cut:
        by_tp = case.layout.sequence_parallel and case.grid.tp > 1
        condition = "with sequence_parallel seq_len % (cp·tp)" if by_tp else "seq_len % cp"
        rule = f"{condition} = {seq_len} % {cut} = {seq_len % cut} ≠ 0"
        yield Problem("workload.seq_len", seq_len, rule, hint)


def known_positions(case: RuleInput) -> Iterator[Problem]:
    """Sequences no longer than the model's positions."""
    if case.workload is not None:
        length, field = case.workload.seq_len, "workload.seq_len"
        hint = f"seq_len: {case.arch.max_positions}"
        yield from position_problems(case.arch, length, field, f"seq_len {length}", hint)


def position_problems(
    arch: Architecture, length: int, field: str, described: str, hint: str
) -> Iterator[Problem]:
    """Yield a sequence longer than the model's positions: an error where each position has a learned row."""
    if length <= arch.max_positions or arch.positions in ("alibi", "none", "relative"):
        return
    rule = f"{described} > max_positions {arch.max_positions} of the model"
    yield Problem(field, length, rule, hint, "error" if arch.positions == "learned" else "warning")


def batch_division(case: RuleInput) -> Iterator[Problem]:
    """dp_replicate·dp_shard·micro_batch, or the sum of batch_share, divides the global batch."""
    workload = case.workload
    if workload is None or case.micro_batches is not None:
        return
    batch, unit = workload.global_batch, case.sequences_at_once
    grid, micro = case.grid, case.plan.pipeline.micro_batch
    half = "" if case.replicas == grid.dp_replicate else "/2"
    terms, counts = f"dp_replicate{half}·dp_shard·micro_batch", f"{case.replicas}·{grid.dp_shard}·{micro}"
    replicas = unit // micro
    if case.layout.batch_share is not None:
        terms, counts = "sum of batch_share", " + ".join(map(str, case.layout.batch_share))
        replicas = len(case.layout.batch_share)
    rule = f"global_batch % ({terms}) = {batch} % ({counts}) = {batch % unit} ≠ 0"
    if batch < unit:
        rule += f": less than one micro-batch for each of {replicas} replicas"
    legal = _nearest_multiple(batch, unit)
    hint = f"global_batch: {legal} (gives {legal // unit} micro-batches)"
    yield Problem("workload.global_batch", batch, rule, hint)


def schedule_shape(case: RuleInput) -> Iterator[Problem]:
    """Interleaving wants several stages on each of several ranks; the others want one stage a rank."""
    pipeline = case.plan.pipeline
    choice = pipeline.schedule.choice
    name, kind = choice.name, known_kind(choice)
    if kind is None or not pipeline.usual:
        return
    pp, virtual, chunked = pipeline.ranks, pipeline.virtual_stages, kind.chunked
    if chunked and pp == 1:
        rule = f"{name} needs pp > 1: with pp = 1 there is one pipeline rank, and nothing to schedule"
        alone = "schedule: 1f1b" + (", virtual_stages: 1" if virtual > 1 else "")
        yield Problem("pipeline.schedule", name, rule, f"pp: {max(2, kind.rank_multiple)}, or {alone}")
        return
    if pp % kind.rank_multiple:
        rule = f"{name} needs pp % {kind.rank_multiple} = {pp} % {kind.rank_multiple} = 0"
        yield Problem("layout.pp", pp, rule, f"pp: {pp + kind.rank_multiple - pp % kind.rank_multiple}")
    if kind.fixed_chunks and virtual != kind.fixed_chunks:
        rule = f"{name} has {kind.fixed_chunks} stages per pipeline rank, and virtual_stages = {virtual}"
        yield Problem("pipeline.virtual_stages", virtual, rule, f"virtual_stages: {kind.fixed_chunks}")
    elif chunked and virtual == 1:
        rule = "needs virtual_stages > 1, and virtual_stages = 1"
        yield Problem("pipeline.schedule", name, rule, "virtual_stages: 2, or schedule: 1f1b")
    if not chunked and virtual > 1:
        rule = f"{name} has one stage per pipeline rank, and virtual_stages = {virtual}"
        hint = "virtual_stages: 1" + (", or schedule: interleaved-1f1b" if pp > 1 else "")
        yield Problem("pipeline.virtual_stages", virtual, rule, hint)


def micro_batch_count(case: RuleInput) -> Iterator[Problem]:
    """Interleaving works in rounds of pp micro-batches; fewer micro-batches than pp leave ranks idle."""
    micro_batches, pp, workload = case.micro_batches, case.pp, case.workload
    choice = case.plan.pipeline.schedule.choice
    name, kind = choice.name, known_kind(choice)
    if micro_batches is None or workload is None or kind is None:
        return
    multiple = 1 if "unit" in choice.heeded else kind.micro_batch_multiple(pp)
    batch = _nearest_multiple(workload.global_batch, case.sequences_at_once * multiple)
    hint = f"global_batch: {batch} (gives {batch // case.sequences_at_once} micro-batches)"
    if micro_batches % multiple:
        rest, of = micro_batches % multiple, "pp" if multiple == pp else multiple
        rule = f"{name} needs micro-batches % {of} = {micro_batches} % {multiple} = {rest}, must be 0"
        yield Problem("workload.global_batch", workload.global_batch, rule, hint)
    elif micro_batches < pp:
        rule = f"{micro_batches} micro-batches < pp = {pp}: some pipeline ranks are always idle"
        enough = f"a global_batch of at least {case.sequences_at_once * pp}, or a smaller pp"
        yield Problem("layout.pp", pp, rule, enough, "warning")


def schedule_knobs(case: RuleInput) -> Iterator[Problem]:
    """Only knobs that the schedule looks at are turned, and not so far that nothing fits."""
    choice, pp = case.plan.pipeline.schedule.choice, case.pp
    if known_kind(choice) is None:
        return
    for knob, value in choice.given_knobs.items():
        if knob not in choice.heeded:
            others = [name for name, kind in SCHEDULES.items() if knob in kind.depends_on]
            rule = f"{choice.name} does not look at it"
            hint = f"take it out, or a schedule that does: {', '.join(others)}"
            yield Problem(f"pipeline.schedule.{knob}", value, rule, hint)
    limit, unit, field = choice.memory_limit, choice.unit, "pipeline.schedule"
    if limit is not None and "memory_limit" in choice.heeded and limit * pp < 1:
        rule = (
            f"memory_limit·pp = {limit:g}·{pp} = {limit * pp:g} < 1 micro-batch, the least that a rank holds"
        )
        yield Problem(f"{field}.memory_limit", limit, rule, f"memory_limit: {ceil(1000 / pp) / 1000:g}")
    yield from _first_rank(case)
    if unit is None or "unit" not in choice.heeded or case.micro_batches is None:
        return
    fault = choice.fault(pp, case.micro_batches)
    if fault:
        other = nearest_unit(choice.kind, pp, case.micro_batches, unit)
        hint = f"unit: {other}" if other else "more micro-batches, or a smaller pp"
        yield Problem(f"{field}.unit", unit, fault, hint)


def _first_rank(case: RuleInput) -> Iterator[Problem]:
    """Require that the first rank may hold a pass of each of its stages, in lists without passes of a vocabulary."""
    choice, stages = case.plan.pipeline.schedule.choice, case.plan.pipeline.virtual_stages
    most, field = choice.in_flight, "pipeline.schedule.in_flight"
    if most is None or "in_flight" not in choice.heeded:
        return
    if most < stages:
        rule = f"in_flight = {most} < {stages} stages of a pipeline rank, and a micro-batch goes through all of them"
        yield Problem(field, most, rule, f"in_flight: {stages}")
    if choice.vocabulary is not None:
        rule = f"with vocabulary = {choice.vocabulary} ranks hold more: backward passes wait for the softmax"
        yield Problem(field, most, rule, "take in_flight or vocabulary out")


def written_lists(case: RuleInput) -> Iterator[Problem]:
    """Require custom lists to match the plan's ranks and micro-batches and to keep to its memory limit."""
    choice, workload = case.plan.pipeline.schedule.choice, case.workload
    kind = known_kind(choice)
    if choice.written is None or kind is None or kind.only is None:
        return
    ranks, count = kind.only
    if case.pp != ranks:
        yield Problem(
            "layout.pp", case.pp, f"{choice.name} has lists of {ranks} pipeline ranks", f"pp: {ranks}"
        )
    if workload is not None and case.micro_batches not in (None, count):
        rule = (
            f"{choice.name} has {count} micro-batches, and global_batch / (dp_replicate·dp_shard·micro_batch) = "
            f"{case.micro_batches}"
        )
        hint = f"global_batch: {count * case.sequences_at_once}"
        yield Problem("workload.global_batch", workload.global_batch, rule, hint)
    if choice.memory_limit is not None:
        yield from choice.written.beyond(choice.memory_limit)


def gathers_by_unit(case: RuleInput) -> Iterator[Problem]:
    """``gather: per-unit`` wants parameters that are sharded, and a schedule whose micro-batches go in units."""
    plan, choice = case.plan, case.plan.pipeline.schedule.choice
    if plan.gather != "per-unit":
        return
    usual = default_gather("zero3", case.pp)
    if plan.sharding != "zero3":
        rule = f"is for sharded parameters, and sharding = {plan.sharding} leaves them whole"
        yield Problem("gather", plan.gather, rule, "sharding: zero3, or take gather out")
    kind = known_kind(choice)
    if kind and kind.usual_unit is None:
        having = ", ".join(other for other, kind in SCHEDULES.items() if kind.usual_unit)
        rule = f"{choice.name} has no units of micro-batches that go through a rank's stages together"
        yield Problem("gather", plan.gather, rule, f"gather: {usual}, or a schedule of {having}")


def _nearest_multiple(value: int, unit: int) -> int:
    """Return the positive multiple of ``unit`` nearest to ``value``, the smaller of two."""
    return max(1, (2 * value + unit - 1) // (2 * unit)) * unit


PIPELINE_RULES: tuple[Rule, ...] = (
    layers_and_stages,
    sequence_length,
    known_positions,
    batch_division,
    schedule_shape,
    micro_batch_count,
    schedule_knobs,
    written_lists,
    gathers_by_unit,
)
