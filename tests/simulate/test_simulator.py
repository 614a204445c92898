"""The simulator against schedule tables, textbook formulas and conservation laws."""

import itertools
import random
from dataclasses import fields, replace

import pytest
from pipeline_programs import STAGE_BYTES, GivenPrices, lowered, plain_program

from meshwright.cost.closed_form.overlap_and_optimizer import optimizer_seconds, send_occupancy
from meshwright.cost.operators.kernel_and_collective_times import CollectiveTimes, HardwareTimes
from meshwright.cost.operators.pass_prices import total
from meshwright.cost.operators.price_plans import program_prices
from meshwright.plans.forms.conversion import expand
from meshwright.play.in_flight import most_in_flight
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.lowering.optimizer_post_validation import with_validation
from meshwright.schedules.action import Action
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.timeline import run
from meshwright.simulate.memory_ledger import activation_curve
from meshwright.simulate.simulator import simulate

SHAPES = [
    ("gpipe", 4, 6, 1),
    ("1f1b", 4, 6, 1),
    ("1f1b", 4, 2, 1),
    ("1f1b", 1, 5, 1),
    ("interleaved-1f1b", 4, 8, 2),
    ("interleaved-1f1b", 2, 6, 3),
    ("zb-h1", 4, 8, 1),
    ("zb-h2", 3, 9, 1),
    ("v-half", 4, 8, 2),
    ("v-min", 2, 6, 2),
    ("dualpipe", 4, 8, 2),
]


def random_seconds(stages: int, seed: int) -> dict[tuple[int, str], float]:
    rng = random.Random(seed)
    return {(stage, kind): rng.uniform(0.5, 2.0) for stage in range(stages) for kind in "FBIW"}


@pytest.mark.parametrize(("schedule", "ranks", "micro_batches", "chunks"), SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_without_messages_a_pipeline_is_the_schedule_table(schedule, ranks, micro_batches, chunks, seed):
    seconds = random_seconds(ranks * chunks, seed)
    program = plain_program(schedule, ranks, micro_batches, chunks)
    played = simulate(program, GivenPrices(seconds, 0.0))
    lists = SCHEDULES[schedule].lists(ranks, micro_batches, chunks)
    table = run(lists, lambda action: seconds[action.stage, action.kind], ways=program.ways)
    for records, starts, ends in zip(played.ranks, table.start, table.end, strict=True):
        passes = [record for record in records if record.stream == "compute"]
        assert [record.start for record in passes] == pytest.approx(starts)
        assert [record.end for record in passes] == pytest.approx(ends)


@pytest.mark.parametrize(("schedule", "ranks", "micro_batches", "chunks"), SHAPES)
def test_a_message_keeps_its_sender_and_then_travels(schedule, ranks, micro_batches, chunks):
    """The table with the sender's share of a message in the pass and the rest between ranks."""
    seconds, message = random_seconds(ranks * chunks, 7), 0.2
    program = plain_program(schedule, ranks, micro_batches, chunks)
    prices = GivenPrices(seconds, message)
    beside = chunks > 1 or SCHEDULES[schedule].split
    kept = send_occupancy(beside, program.stack.overlap_p2p, prices.local.forms)
    placement = SCHEDULES[schedule].placement(ranks, chunks)

    def duration(action):
        to = action.stage + {"F": 1, "B": -1, "I": -1, "W": 0}[action.kind]
        sends = 0 <= to < len(placement) and placement[to] != placement[action.stage]
        return seconds[action.stage, action.kind] + (kept * message if sends else 0.0)

    lists = SCHEDULES[schedule].lists(ranks, micro_batches, chunks)
    table = run(lists, duration, (1 - kept) * message, program.ways)
    assert simulate(program, prices).step_s == pytest.approx(table.latency)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2"])
def test_where_steps_overlap_the_longest_rank_sets_the_pace(schedule):
    """Makespan of the table in place of its latency: the first ranks are a step ahead of the last ones."""
    seconds = {(stage, kind): 1.0 + 0.1 * stage for stage in range(4) for kind in "FIW"}
    program = plain_program(schedule, 4, 12)
    apart = simulate(program, GivenPrices(seconds, 0.0))
    lists = with_validation(program.lists, program.ways)
    overlapping = simulate(replace(program, lists=lists), GivenPrices(seconds, 0.0))
    table = run(SCHEDULES[schedule].lists(4, 12, 1), lambda a: seconds[a.stage, a.kind])
    assert apart.step_s == pytest.approx(table.latency)
    assert overlapping.step_s == pytest.approx(table.makespan)
    assert table.makespan < table.latency


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 4), (2, 2), (4, 4), (4, 16), (8, 5)])
def test_equal_stages_give_the_textbook_bubble(schedule, ranks, micro_batches):
    forward, backward = 1.0, 2.0
    seconds = {(s, kind): forward if kind == "F" else backward for s in range(ranks) for kind in "FB"}
    played = simulate(plain_program(schedule, ranks, micro_batches), GivenPrices(seconds, 0.0))
    assert played.step_s == pytest.approx((micro_batches + ranks - 1) * (forward + backward))
    bubble = 1 - played.busy_s(0) / played.step_s
    assert bubble == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))


@pytest.mark.parametrize(("ranks", "rounds", "chunks"), [(2, 1, 2), (4, 2, 2), (4, 3, 4), (8, 1, 2)])
def test_interleaving_divides_the_bubble(ranks, rounds, chunks):
    micro_batches = rounds * ranks
    seconds = {(s, kind): 1.0 if kind == "F" else 2.0 for s in range(ranks * chunks) for kind in "FB"}
    program = plain_program("interleaved-1f1b", ranks, micro_batches, chunks)
    played = simulate(program, GivenPrices(seconds, 0.0))
    ideal = micro_batches * chunks * 3.0
    assert played.step_s / ideal - 1 == pytest.approx((ranks - 1) / (chunks * micro_batches))


@pytest.mark.parametrize(("schedule", "ranks", "micro_batches", "chunks"), SHAPES)
def test_no_rank_runs_two_passes_at_once_nor_a_pass_before_its_data(schedule, ranks, micro_batches, chunks):
    program = plain_program(schedule, ranks, micro_batches, chunks)
    placement = SCHEDULES[schedule].placement(ranks, chunks)
    played = simulate(program, GivenPrices(random_seconds(ranks * chunks, 3), 0.1))
    passes = {r.action: r for records in played.ranks for r in records if r.stream == "compute"}
    for records in played.ranks:
        mine = [record for record in records if record.stream == "compute"]
        assert all(a.end <= b.start + 1e-12 for a, b in itertools.pairwise(mine))
    for action, record in passes.items():
        feeds = action.stage + {"F": 1, "B": -1, "I": -1, "W": 0}[action.kind]
        if action.kind == "W":
            assert record.start >= passes[replace(action, kind="I")].end - 1e-12
        elif 0 <= feeds < ranks * chunks and replace(action, stage=feeds) in passes:
            fed = passes[replace(action, stage=feeds)]
            crossing = 0.1 if placement[feeds] != placement[action.stage] else 0.0
            assert fed.start >= record.end + crossing - 1e-12
    kinds = 3 if SCHEDULES[schedule].split else 2
    assert len(passes) == kinds * ranks * chunks * micro_batches // program.chains


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved-1f1b"])
def test_a_step_grows_with_the_time_of_a_message(schedule):
    chunks = 2 if schedule == "interleaved-1f1b" else 1
    program, seconds = plain_program(schedule, 4, 8, chunks), random_seconds(4 * chunks, 11)
    steps = [simulate(program, GivenPrices(seconds, m)).step_s for m in (0.0, 0.01, 0.1, 1.0, 10.0)]
    assert all(a < b for a, b in itertools.pairwise(steps))


@pytest.mark.parametrize(("schedule", "ranks", "micro_batches", "chunks"), SHAPES)
def test_what_is_held_returns_to_nothing(schedule, ranks, micro_batches, chunks):
    program = plain_program(schedule, ranks, micro_batches, chunks)
    for rank in range(ranks):
        curve = [held for _, held in activation_curve(program, rank)]
        assert curve[0] == curve[-1] == 0
        assert min(curve) == 0
        expected = {
            "gpipe": micro_batches,
            "1f1b": min(micro_batches, ranks - rank),
            "interleaved-1f1b": min(
                micro_batches * chunks, 2 * (ranks - 1 - rank) + (chunks - 1) * ranks + 1
            ),
        }
        in_flight = expected.get(schedule, most_in_flight(program.lists[rank]))
        assert max(curve) <= STAGE_BYTES * in_flight
        assert max(curve) == STAGE_BYTES * in_flight or SCHEDULES[schedule].split


@pytest.mark.parametrize("overlap", [True, False])
def test_ranks_with_the_same_layers_meet_to_sum_up_their_gradients(overlap):
    """Each exchange begins when the later of both is ready, and both end it at once."""
    made = lowered(pp=4, dp_replicate=2, schedule="dualpipe", virtual_stages=2, stack="generic")
    stack = replace(made.setting.stack, overlap_gradient_reduction=overlap)
    setting = replace(made.setting, stack=stack)
    nouns = setting.model, setting.cluster, setting.workload, setting.stack
    program = lower(expand(made.short, setting.model.architecture), *nouns)
    played = simulate(program, program_prices(program, setting))
    records = [{r.action: r for r in of_rank} for of_rank in played.ranks]
    prices = program_prices(program, setting)
    for position in range(4):
        a, b = program.ways.same_layers(position)
        met = [records[program.stages[s].rank][Action("REDUCE_MIRRORED", s)] for s in (a, b)]
        assert met[0].start == met[1].start
        took = prices.collectives(program.collectives[a, "REDUCE_MIRRORED"])
        assert met[0].end == met[1].end == pytest.approx(met[0].start + took)
    for ranks in program.mirrors:
        ready = [
            max(r.end for action, r in records[rank].items() if action.kind in ("I", "W", "REDUCE"))
            for rank in ranks
        ]
        first = min(
            r.start for rank in ranks for a, r in records[rank].items() if a.kind == "REDUCE_MIRRORED"
        )
        assert first == pytest.approx(max(ready))


class FreeCollectives(CollectiveTimes):
    def seconds(self, logical_bytes, once=None):
        return 0.0


class FreeLinks(HardwareTimes):
    """The same device; nothing that is sent takes time."""

    def over(self, kind, ranks, local, congestion=1.0):
        return FreeCollectives(self, kind, ranks, local, congestion)

    def p2p(self, message_bytes, crosses, congestion=1.0):
        return 0.0


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved-1f1b", 2)])
def test_free_links_leave_only_compute(schedule, chunks):
    case = lowered(pp=2, tp=2, dp_shard=2, sharding="zero1", schedule=schedule, virtual_stages=chunks)
    prices = program_prices(case.program, case.setting)
    forms = FreeLinks(**{f.name: getattr(prices.local.forms, f.name) for f in fields(HardwareTimes)})
    free = replace(prices, local=replace(prices.local, forms=forms), _blocks={})
    played = simulate(case.program, free)

    def compute(action):
        parts = free.body(case.program.bodies[action.stage, action.kind])
        assert set(parts) <= {"compute", "host", "tp"}
        assert not parts["tp"]
        return float(total(parts))

    passes = run(SCHEDULES[schedule].lists(2, case.program.micro_batches, chunks), compute)
    optimizer = max(
        float(optimizer_seconds(case.program.held_elements(rank, "optimizer"), case.program.stack, forms))
        for rank in range(2)
    )
    assert played.step_s == pytest.approx(passes.latency + optimizer)
    assert played.step_s < case.simulated().step_s


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3"])
@pytest.mark.parametrize("stack", ["megatron-core", "deepspeed", "megatron-lm-2021"])
def test_a_whole_step_is_played_to_the_end_and_again_the_same(sharding, stack):
    shard = {"dp_replicate": 4} if sharding == "none" else {"dp_shard": 4}
    case = lowered(pp=2, sharding=sharding, stack=stack, **shard)
    played = case.simulated()
    assert played == case.simulated()
    prices = program_prices(case.program, case.setting)
    for rank, records in enumerate(played.ranks):
        actions = [a for a in case.program.lists[rank] if a.kind not in ("RECV_F", "RECV_B", "FREE")]
        assert [record.action for record in records] == actions
        busy = sum(
            float(total(prices.body(case.program.bodies[a.stage, a.kind])))
            for a in actions
            if a.kind in ("F", "B")
        )
        assert played.busy_s(rank) >= busy * (1 - 1e-12)
        assert played.step_s > busy


def test_ranks_leave_the_gradient_norm_together():
    played = lowered(pp=4, dp_replicate=2).simulated()
    norms = [record for records in played.ranks for record in records if record.action.kind == "NORM"]
    assert len(norms) == 4
    assert len({(record.start, record.end) for record in norms}) == 1
    last_pass = max(r.end for records in played.ranks for r in records if r.action.kind == "B")
    assert norms[0].start >= last_pass
