"""Legal plans: generated, counted, and every refusal with its reason.

The raw space is the product of all ordered factorisations of the devices into (pp, tp, cp, dp_replicate, dp_shard) and
of the options for micro-batch, schedule with virtual stages, experts' degrees, sharding and variants (``variants.py``).
It is built in stages, each cutting what its rules forbid before the next multiplies it; a cut counts all raw plans that
it removes. Variants multiply what is left without being written out: most plans are only counted and bounded; one
choice is made after that (``deferred_choice.py``). The rules are those of ``plans/rules/check_plan.py`` on arrays (a
test holds the two against each other), and some that only a search has: no plan that equals another one, several
stages a rank only where all get equally many layers (``COUNTED_ENDS``), micro-batches up to ``MAX_MICRO_BATCH``, etp
inside a scale-up domain, and what the question keeps fixed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from meshwright.model.encoder import TextEncoder
from meshwright.plans.arrays.distinct_rows import map_distinct_rows
from meshwright.plans.arrays.plan_arrays import SEQUENCES, PlanArrays
from meshwright.plans.arrays.short_plans import usual_codes, usual_values
from meshwright.plans.choices import CHOICES
from meshwright.plans.choices.gather import GATHERS, NEVER
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.rules.encoder_models import NO_CONTEXT as NO_CUT_ENCODER
from meshwright.plans.rules.encoder_models import NO_STAGES, NO_VOCABULARY, encoder_widths
from meshwright.plans.rules.routing_and_capacity import shares_padding
from meshwright.plans.rules.stack_limits.limits import StackLimit
from meshwright.plans.rules.state_space_layers import NO_CONTEXT
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.schedule_kind import ScheduleKind
from meshwright.search.space.adapter_limits import cut_adapters
from meshwright.search.space.choices import VariantChecks
from meshwright.search.space.constraints import Forbidden, Keep, SearchConstraints, exclusion_reason
from meshwright.search.space.plan_space import Space
from meshwright.search.space.searched_schedules import SearchedSchedules, fits_ranks, usual_schedules
from meshwright.search.space.stack_limits_of_rows import StackLimitsOfRows
from meshwright.search.space.variants import Variants, legal_variants, usual_variants
from meshwright.stack.stack import Stack

MAX_MICRO_BATCH = 64
DEGREES = ("pp", "tp", "cp", "dp_replicate", "dp_shard")
COUNTED_ENDS = (0, 1, 2)
"""Interleaved stages are equal with none, one or both of embedding and head counted as a layer."""
UNEQUAL_SHARES = (
    "interleaved stages would hold unequal shares of {layers} layers, with embedding and head or without"
)

Ints = NDArray[np.int64]
Table = dict[str, Ints]


@dataclass(frozen=True)
class _Options:
    """The values that each stage of the enumeration multiplies in."""

    micro_batch: tuple[int, ...]
    schedule: tuple[tuple[int, int], ...]
    experts: tuple[tuple[int, int], ...]
    sharding: tuple[tuple[int, int], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, (self.micro_batch, self.schedule, self.experts, self.sharding)))


class _Cutter:
    """Applies masks to a table and counts what they remove.

    The ``limits`` of the stack are asked as soon as the columns that they read are there (``cut_limits``). Between
    ``multiply`` and the next ``cut`` columns are not written out: (rows, 1), those of the options (1, options).
    """

    def __init__(self, table: Table, weight: int, limits: StackLimitsOfRows) -> None:
        self.table, self.weight, self.limits = table, weight, limits
        self.rejected: Counter[str] = Counter()
        self.asked: set[StackLimit] = set()

    def cut(self, *rules: tuple[str, NDArray[np.bool_]]) -> None:
        """Keep the rows that all rules allow; of the others each counts for ``weight`` raw plans of its first rule."""
        left = np.ones(np.broadcast_shapes(*(column.shape for column in self.table.values())), dtype=np.bool_)
        for reason, legal in rules:
            removed = int(np.count_nonzero(left & ~legal))
            if removed:
                self.rejected[reason] += removed * self.weight
                left &= legal
        if left.ndim == 1 and left.all():
            return
        places = np.nonzero(left)
        self.table = {
            name: np.broadcast_to(column, left.shape)[places] for name, column in self.table.items()
        }

    def multiply(self, names: tuple[str, ...], options: Iterable[tuple[int, ...]]) -> None:
        """Every row with every option."""
        values = np.array(list(options), dtype=np.int64).reshape(-1, len(names))
        self.table = {name: column[:, None] for name, column in self.table.items()}
        self.table |= {name: values[None, :, i] for i, name in enumerate(names)}
        self.weight //= max(1, len(values))

    def cut_limits(self) -> None:
        """Apply the limits that read nothing but columns of the table, each once."""
        for limit in self.limits.reading(self.table):
            if limit not in self.asked:
                self.asked.add(limit)
                self.cut((self.limits.reason(limit), self.limits.allowed(limit, self.table)))

    def column(self, name: str) -> Ints:
        return self.table[name]


def enumerate_space(
    setting: Setting,
    keep: Keep | None = None,
    schedules: SearchedSchedules | None = None,
    variants: Variants | None = None,
    forbid: Forbidden | None = None,
    sizes: Sequence[int] = (),
    batches: Sequence[int] = (),
) -> Space:
    """All legal plans for a setting. ``keep`` fixes choices of the plan (``{"tp": 8, "sharding": "zero1"}``).

    ``schedules`` and ``variants`` are the usual ones if nothing is said. ``forbid``: values that no plan may have.
    ``sizes``: several numbers of devices in place of the cluster's own; plans of one after those of the other.
    ``batches``: the global batch for each of the sizes, which may then be there several times.
    """
    keep, constraints = keep or {}, SearchConstraints(keep or {}, forbid or {})
    schedules = usual_schedules(setting.stack) if schedules is None else schedules
    variants = usual_variants(setting, keep) if variants is None else variants
    sizes = sizes or (setting.cluster.devices,)
    options = _options(setting, sizes, schedules, keep.get("gather"), batches)
    every = [factorisations(size, len(DEGREES)) for size in sizes]
    layouts = np.concatenate(every)
    of_layout = prod(options.sizes) * variants.count
    table = {name: layouts[:, i] for i, name in enumerate(DEGREES)}
    if batches:
        computed = np.array(batches, dtype=np.int64) * setting.workload.optimizer.passes_of_a_sequence
        table[SEQUENCES] = np.repeat(computed, [len(own) for own in every])
    limits = StackLimitsOfRows(setting, schedules)
    cutter = _Cutter(table, of_layout, limits)
    cutter.cut_limits()
    _cut_layouts(cutter, setting)
    _cut_excluded(cutter, constraints, schedules)
    cutter.multiply(("micro_batch",), ((m,) for m in options.micro_batch))
    _cut_batches(cutter, setting)
    cutter.multiply(("schedule", "virtual_stages"), options.schedule)
    _cut_schedules(cutter, setting, schedules, "unit" in keep)
    _cut_excluded(cutter, constraints, schedules)
    cutter.cut_limits()
    cutter.multiply(("ep", "etp"), options.experts)
    _cut_experts(cutter)
    cutter.cut_limits()
    cutter.multiply(("sharding", "gather"), options.sharding)
    _cut_shardings(cutter, setting, schedules)
    _cut_split_experts(cutter, setting)
    cut_adapters(cutter.cut, cutter.table, setting, schedules)
    _cut_excluded(cutter, constraints, schedules)
    cutter.cut_limits()
    base = PlanArrays(
        columns=usual_codes(len(cutter.column("tp"))) | cutter.table,
        values=usual_values()
        | {name: variants.known(name) for name in variants.values}
        | {"schedule": schedules},
        several_sizes=len(sizes) > 1,
    )
    checks = VariantChecks(base, setting, variants.values, constraints, limits)
    legal, later = legal_variants(checks, variants, cutter.rejected)
    used = np.flatnonzero(legal.any(axis=1))
    left = tuple(variants.all[code] for code in used)
    space = Space(base, left, legal[used], later, len(layouts) * of_layout, dict(cutter.rejected))
    some = np.asarray(space.legal.any(axis=0))
    return space if some.all() else space.where(some)


def raw_plans(setting: Setting, keep: Keep, schedules: SearchedSchedules) -> int:
    """Count the raw plans of a setting, without their variants."""
    devices = setting.cluster.devices
    ordered = prod(comb(power + len(DEGREES) - 1, power) for power in _prime_powers(devices))
    return ordered * prod(_options(setting, (devices,), schedules, keep.get("gather")).sizes)


def _prime_powers(number: int) -> Iterator[int]:
    """Yield the exponent of each prime factor of a number."""
    factor = 2
    while number > 1:
        power = 0
        while number % factor == 0:
            number, power = number // factor, power + 1
        if power:
            yield power
        factor = factor + 1 if factor * factor <= number else max(number, 2)


def factorisations(number: int, parts: int) -> Ints:
    """All ordered factorisations of a number into ``parts`` factors: (count, parts)."""
    rows: list[tuple[int, ...]] = [(number,)]
    for _ in range(parts - 1):
        rows = [(*row[:-1], d, row[-1] // d) for row in rows for d in divisors(row[-1])]
    return np.array(rows, dtype=np.int64)


def divisors(number: int) -> tuple[int, ...]:
    """Divisors in ascending order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def _chunk_counts(kind: ScheduleKind, layers: int) -> tuple[int, ...]:
    """Stages per rank to try."""
    if kind.fixed_chunks is not None:
        return (kind.fixed_chunks,)
    if not kind.chunked:
        return (1,)
    every = {part for counted in COUNTED_ENDS for part in divisors(layers + counted)[1:]}
    return tuple(sorted(part for part in every if 2 * part <= layers))


def _options(
    setting: Setting,
    sizes: Sequence[int],
    schedules: SearchedSchedules,
    gather: object,
    batches: Sequence[int] = (),
) -> _Options:
    stack, arch = setting.stack, setting.model.architecture
    schedule = [
        (code, virtual)
        for code, choice in enumerate(schedules)
        for virtual in _chunk_counts(choice.kind, arch.layers)
    ]
    moe = arch.moe
    ep = divisors(moe.experts) if moe and stack.ep else (1,)
    etp = divisors(moe.intermediate) if moe and stack.etp else (1,)
    domain = setting.cluster.pool.node.scaleup_domain
    return _Options(
        micro_batch=_micro_batch_sizes(batches or (setting.workload.global_batch,)),
        schedule=tuple(schedule),
        experts=tuple(
            (e, t) for e in ep for t in etp if t <= domain and any(size % (e * t) == 0 for size in sizes)
        ),
        sharding=tuple(
            (SHARDINGS.index(name), GATHERS.index(how))
            for name in SHARDINGS
            if name in stack.shardings
            for how in (_gathers(stack, gather) if name == "zero3" else (NEVER,))
        ),
    )


def _micro_batch_sizes(batches: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of micro-batches that divide any of the batches."""
    return tuple(
        size for size in range(1, MAX_MICRO_BATCH + 1) if any(batch % size == 0 for batch in batches)
    )


def _gathers(stack: Stack, fixed: object) -> tuple[object, ...]:
    """Return the gather times of the stack, and the one that the question fixes."""
    own = () if fixed in (None, NEVER) else (fixed,)
    return tuple(dict.fromkeys((*stack.gathers, *stack.pipeline_gathers, *own)))


def _cut_layouts(cutter: _Cutter, setting: Setting) -> None:
    arch, stack, seq_len = setting.model.architecture, setting.stack, setting.workload.seq_len
    for axis in ("pp", "tp", "cp"):
        if not getattr(stack, axis):
            cutter.cut((f"{stack.id} has no {axis}", cutter.column(axis) == 1))
    widths = {"heads": arch.heads, "hidden": arch.hidden, "ffn": arch.intermediate}
    widths |= {} if arch.latent else {"kv_heads": arch.kv_heads}
    widths |= {"shared experts' ffn": arch.moe.shared_intermediate} if arch.moe else {}
    widths |= {"Mamba-2 heads": arch.state_space.heads} if arch.state_space else {}
    widths |= (
        {"Mamba-2 groups": arch.state_space.groups}
        if arch.state_space and arch.state_space.groups > 1
        else {}
    )
    widths |= encoder_widths(arch)
    for name, width in widths.items():
        cutter.cut((f"tp does not divide {name} = {width}", width % cutter.column("tp") == 0))
    cutter.cut((f"more stages than layers = {arch.layers}", cutter.column("pp") <= arch.layers))
    if shares_padding(setting.workload):
        alone = cutter.column("cp") * cutter.column("tp") == 1
        cutter.cut(("cp and tp share a scope whose experts are padded", alone))
    if arch.state_space is not None:
        cutter.cut((NO_CONTEXT, cutter.column("cp") == 1))
    if arch.encoder is not None:
        cutter.cut((NO_CUT_ENCODER, cutter.column("cp") == 1))
    if isinstance(arch.encoder, TextEncoder):
        cutter.cut((NO_STAGES, cutter.column("pp") == 1))
    cp = cutter.column("cp")
    cutter.cut(
        (f"cp does not cut seq_len = {seq_len} into 2·cp pieces", (cp == 1) | (seq_len % (2 * cp) == 0))
    )


def _cut_batches(cutter: _Cutter, setting: Setting) -> None:
    each = 1
    if setting.workload.optimizer.splits_perturbations:
        each = 2
        even = cutter.column("dp_replicate") % each == 0
        cutter.cut(("dp_replicate is odd, and two halves of it compute one loss each", even))
    at_once = cutter.column("dp_replicate") * cutter.column("dp_shard") * cutter.column("micro_batch")
    computed = _sequences(cutter, setting)
    batch = computed // setting.workload.optimizer.passes_of_a_sequence
    name = f"global_batch = {batch}" if isinstance(batch, int) else "the global batch"
    cutter.cut((f"dp·micro_batch does not divide {name}", batch % (at_once // each) == 0))


def _cut_schedules(cutter: _Cutter, setting: Setting, schedules: SearchedSchedules, any_unit: bool) -> None:
    layers, stack = setting.model.architecture.layers, setting.stack
    alone = (ScheduleChoice("1f1b"), ScheduleChoice("1f1b", step_validation="before"))
    is_1f1b = np.array([choice in alone for choice in schedules], dtype=np.bool_)
    runs = np.array(
        [choice.written or choice.name in stack.schedules for choice in schedules], dtype=np.bool_
    )
    pp = cutter.column("pp")
    cutter.cut(
        (
            "without a pipeline (pp = 1) there is one schedule, 1f1b",
            (pp > 1) | is_1f1b[cutter.column("schedule")],
        )
    )
    pp = cutter.column("pp")
    cutter.cut((f"{stack.id} does not run 1f1b", (pp == 1) | runs[cutter.column("schedule")]))
    pp, stages = cutter.column("pp"), cutter.column("pp") * cutter.column("virtual_stages")
    chains = np.array([choice.kind.chains for choice in schedules], dtype=np.int64)[cutter.column("schedule")]
    fixed = np.array([choice.kind.fixed_chunks is not None for choice in schedules], dtype=np.bool_)
    own = fixed[cutter.column("schedule")] & (stages // chains <= layers)
    shares = [(layers + counted) % (stages // chains) == 0 for counted in COUNTED_ENDS]
    even = np.any(shares, axis=0) & (stages // chains <= layers)
    cutter.cut((UNEQUAL_SHARES.format(layers=layers), (cutter.column("virtual_stages") == 1) | own | even))
    of_ranks = np.array([choice.kind.rank_multiple for choice in schedules], dtype=np.int64)[
        cutter.column("schedule")
    ]
    cutter.cut(("pp is no multiple of what the schedule needs", cutter.column("pp") % of_ranks == 0))
    most = [choice.in_flight or layers for choice in schedules]
    enough = np.array(most, dtype=np.int64)[cutter.column("schedule")] >= cutter.column("virtual_stages")
    cutter.cut(("fewer passes in flight than a rank has stages", enough))
    _cut_spread(cutter, setting, schedules)
    _cut_written(cutter, setting, schedules)
    count = _micro_batches(cutter, setting)
    whole, limited, in_rounds = _legal(cutter.column("schedule"), cutter.column("pp"), count, schedules)
    in_rounds = in_rounds | any_unit
    cutter.cut(("a memory limit below one micro-batch", limited))
    cutter.cut(("a unit of other rounds of micro-batches", in_rounds[limited]))
    cutter.cut(("micro-batches are no multiple of pp (interleaving)", whole[limited & in_rounds]))


def _cut_spread(cutter: _Cutter, setting: Setting, schedules: SearchedSchedules) -> None:
    """Remove plans that spread the vocabulary where there are no ranks to spread it over, or the model has reasons."""
    spread = _spreads(cutter, schedules)
    arch, lora = setting.model.architecture, setting.workload.task == "lora"
    cutter.cut(
        ("without a pipeline (pp = 1) the vocabulary lies on one rank", ~spread | (cutter.column("pp") > 1)),
        ("layers that predict further tokens read whole tables", ~spread | (not arch.next_token_layers)),
        ("frozen tables that are spread are not supported yet", ~spread | (not lora)),
        (NO_VOCABULARY, ~spread | (arch.encoder is None)),
    )


def _spreads(cutter: _Cutter, schedules: SearchedSchedules) -> NDArray[np.bool_]:
    """Return the mask of rows whose schedules spread the vocabulary over the pipeline ranks."""
    spread = np.array([choice.form is not None for choice in schedules], dtype=np.bool_)
    return spread[cutter.column("schedule")]


def _cut_written(cutter: _Cutter, setting: Setting, schedules: SearchedSchedules) -> None:
    """Remove plans whose ranks or micro-batches differ from those of a custom schedule."""
    for code, choice in enumerate(schedules):
        if choice.kind.only:
            ranks, fixed = choice.kind.only
            fit = (cutter.column("pp") == ranks) & (_micro_batches(cutter, setting) == fixed)
            rule = f"{choice.name} has lists of {ranks} pipeline ranks and {fixed} micro-batches"
            cutter.cut((rule, fit | (cutter.column("schedule") != code)))


def _micro_batches(cutter: _Cutter, setting: Setting) -> Ints:
    at_once = cutter.column("dp_replicate") * cutter.column("dp_shard") * cutter.column("micro_batch")
    return np.asarray(_sequences(cutter, setting) // at_once)


def _sequences(cutter: _Cutter, setting: Setting) -> int | Ints:
    """Return the sequences that a step computes: of all plans, or of each."""
    return cutter.column(SEQUENCES) if SEQUENCES in cutter.table else setting.workload.computed_sequences


def _legal(schedule: Ints, pp: Ints, count: Ints, schedules: SearchedSchedules) -> NDArray[np.bool_]:
    """(3, rows): a schedule may have so many micro-batches, its memory limit, its unit."""

    def of_code(code: int, ranks: int, micro_batches: int) -> tuple[bool, bool, bool]:
        return _is_legal(schedules[code], ranks, micro_batches)

    return map_distinct_rows(of_code, [schedule, pp, count]).reshape(-1, 3).T.astype(np.bool_)


def _is_legal(choice: ScheduleChoice, ranks: int, micro_batches: int) -> tuple[bool, bool, bool]:
    limited = choice.memory_limit is None or choice.memory_limit * ranks >= 1
    return choice.fault(ranks, micro_batches) is None, limited, fits_ranks(choice, ranks)


def _cut_experts(cutter: _Cutter) -> None:
    ranks = prod((cutter.column(axis) for axis in ("tp", "cp", "dp_replicate", "dp_shard")), start=1)
    mesh = cutter.column("ep") * cutter.column("etp")
    cutter.cut(("ep·etp does not divide the ranks of a stage", ranks % mesh == 0))


def _cut_shardings(cutter: _Cutter, setting: Setting, schedules: SearchedSchedules) -> None:
    """Shardings that are new, and that the stack has; it gathers so, and a schedule has units if it gathers by them."""
    stack, sharding, gather = setting.stack, cutter.column("sharding"), cutter.column("gather")
    none, alone = sharding == 0, cutter.column("dp_shard") * cutter.column("cp") == 1
    allowed = np.array([name in stack.pipeline_shardings for name in SHARDINGS])
    piped = (cutter.column("pp") > 1).astype(np.int64)
    with_units = np.array([choice.kind.usual_unit is not None for choice in schedules], dtype=np.bool_)
    by_unit = gather == GATHERS.index("per-unit")
    spread = _spreads(cutter, schedules)
    cutter.cut(
        ("equal to a plan with dp_replicate: nothing is sharded", ~(none & (cutter.column("dp_shard") > 1))),
        (
            "equal to a plan without sharding: no ranks to shard over",
            none | ~alone | ("none" not in stack.shardings),
        ),
        (f"{stack.id} does not run this sharding in a pipeline", (piped == 0) | allowed[sharding]),
        (
            "tables that are spread are gathered once a step",
            ~(spread & (sharding == SHARDINGS.index("zero3"))) | (gather == GATHERS.index("per-step")),
        ),
        (
            "the schedule has no units to gather parameters for",
            ~by_unit | with_units[cutter.column("schedule")],
        ),
    )


def _cut_split_experts(cutter: _Cutter, setting: Setting) -> None:
    """Remove plans in which experts of both halves of the replicas meet, where these have unlike parameters."""
    if setting.model.architecture.moe is None or not setting.workload.optimizer.splits_perturbations:
        return
    ranks = prod((cutter.column(axis) for axis in ("tp", "cp", "dp_replicate", "dp_shard")), start=1)
    copies = ranks // (cutter.column("ep") * cutter.column("etp"))
    shared = np.gcd(copies, cutter.column("dp_replicate"))
    replicas = np.where(cutter.column("sharding") == 0, copies, shared)
    cutter.cut(("experts of both halves of the replicas meet", replicas % 2 == 0))


def _cut_excluded(cutter: _Cutter, constraints: SearchConstraints, schedules: SearchedSchedules) -> None:
    """Remove plans that break a constraint of the question, as soon as its column exists."""
    for name in cutter.table:
        for value, wanted in constraints.of(name):
            if name == "schedule":
                same = np.array([choice.name == value for choice in schedules])[cutter.column(name)]
            else:
                same = cutter.column(name) == (CHOICES[name].known.index(value) if name in CHOICES else value)
            cutter.cut((exclusion_reason(name, value, wanted=wanted), same == wanted))
