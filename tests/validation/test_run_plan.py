"""Plans of runs: defaults, spellings, and the same law as everybody else's plans."""

import pytest
from example_run_tables import random_rows, row, run_of, write

from meshwright.plans.arrays.short_plans import NUMBERS
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.rules.batch_and_pipeline import PIPELINE_RULES
from meshwright.plans.rules.degrees import DEGREE_RULES
from meshwright.plans.rules.rule_input import RuleInput
from meshwright.plans.rules.stack_support import recomputed_operators
from meshwright.validation.read_run_table import Run, read_runs
from meshwright.validation.run_plan import faults, plan_arrays, run_plan
from meshwright.validation.run_setting import setting_of


def of(table, **changes):
    run = run_of(table, **changes)
    return run_plan(run.chosen, run.given.devices)


def reasons(table, **changes):
    run = run_of(table, **changes)
    return "; ".join(faults(run_plan(run.chosen, run.given.devices), setting_of(run.given)))


def short_plan(plan, setting):
    """The plan file that says what ``plan`` says."""
    workload = WorkloadSpec(seq_len=setting.workload.seq_len, global_batch=setting.workload.global_batch)
    degrees = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp", "sequence_parallel")
    return ShortPlan(
        plan=1,
        model="m",
        cluster="c",
        workload=workload,
        stack=setting.stack.id,
        layout=ShortLayout(**{name: getattr(plan, name) for name in degrees}),
        sharding=plan.sharding,
        pipeline=ShortPipeline(
            schedule=plan.schedule, micro_batch=plan.micro_batch, virtual_stages=plan.virtual_stages
        ),
        recompute=plan.recompute,
    )


def test_data_parallelism_is_given_or_what_is_left(table):
    assert of(table, dp="").data == of(table, dp=2).data == 2


@pytest.mark.parametrize(
    ("sharding", "group", "cp", "expected"),
    [
        ("none", "", 1, (8, 1)),
        ("zero1", "", 1, (1, 8)),
        ("fsdp", "", 1, (1, 8)),
        ("hsdp", 4, 1, (2, 4)),
        ("zero1", 2, 1, (4, 2)),
        ("fsdp", 8, 2, (1, 4)),  # the group of 8 counts the ranks of cp
        ("none", 4, 1, (8, 1)),
        ("fsdp", 64, 1, (1, 8)),
    ],
)
def test_sharding_and_its_group(table, sharding, group, cp, expected):
    plan = of(table, tp=1, pp=1, cp=cp, dp="", sharding=sharding, shard_group=group)
    assert (plan.dp_replicate, plan.dp_shard) == expected


def test_without_a_pipeline_there_is_one_schedule(table):
    plan = of(table, pp=1, dp=4, schedule="interleaved-1f1b", virtual_stages=4)
    assert (plan.schedule, plan.virtual_stages) == ("1f1b", 1)


def test_several_virtual_stages_interleave(table):
    plan = of(table, schedule="1f1b", virtual_stages=2)
    assert plan.schedule == "interleaved-1f1b"


def test_sequence_parallelism_is_on_with_tp_unless_told(table):
    told = [
        of(table, tp=tp, sequence_parallel=said).sequence_parallel for tp in (1, 2) for said in ("", "false")
    ]
    assert told == [False, False, True, False]
    assert not of(table, tp=1, sequence_parallel="true").sequence_parallel


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dp": 4}, "pp·dp·cp·tp = 2·4·1·2 = 16 ≠ 8 devices"),
        ({"dp": "", "tp": 3}, "heads % tp = 16 % 3 = 1 ≠ 0"),
        ({"pp": 8, "tp": 1, "dp": 1, "layers": 5}, "8 stages > 5 layers, embedding and head"),
        ({"global_batch": 31}, "global_batch % (dp·micro_batch) = 31 % 2 = 1 ≠ 0"),
        ({"seq_len": 1023}, "seq_len % (cp·tp) = 1023 % 2 = 1 ≠ 0"),
        (
            {"schedule": "dualpipe", "virtual_stages": 2, "pp": 8, "tp": 1, "dp": 1, "layers": 5},
            "8 stages > 5 layers, embedding and head",
        ),
        (
            {"schedule": "dualpipe+vocab-1", "virtual_stages": 2},
            "dualpipe with the vocabulary vocab-1 is not priced",
        ),
        ({"vocab_parallel": "elsewhere"}, "elsewhere is no place of the vocabulary that we know"),
        (
            {"schedule": "1f1b+interlaced", "pp": 8, "tp": 1, "dp": 1, "layers": 7},
            "8 stages > 7 layers, and no stage has the vocabulary",
        ),
        (
            {"schedule": "zb-h1", "pp": 8, "tp": 1, "dp": 1, "global_batch": 2**20},
            "zb-h1 of 8 stages and 1048576 micro-batches is too long to be played",
        ),
        ({"schedule": "v-half", "virtual_stages": 3}, "v-half has 2 stages per rank, and virtual_stages = 3"),
        ({"ep": 2}, "the model has no experts, so ep·etp = 2·1 must be 1"),
        ({"recompute": "moe_act"}, "the model has no moe_act to recompute"),
        (
            {"virtual_stages": 2, "global_batch": 6},
            "interleaved-1f1b needs micro-batches % pp = 3 % 2 = 1, must be 0",
        ),
        ({"sharding": "zero1", "shard_group": 2, "devices": 12, "dp": 3}, "dp % shard group = 3 % 2 = 1 ≠ 0"),
        ({"seq_len": 2**27, "global_batch": 2**27, "micro_batch": 2**20}, "sizes are beyond"),
    ],
)
def test_illegal_plans_have_their_reason(table, changes, reason):
    assert reason in reasons(table, **changes)


def test_embedding_and_head_may_have_stages_of_their_own(table):
    assert reasons(table, layers=6, pp=8, tp=1, dp=1) == ""
    assert reasons(table, layers=14, pp=4, tp=1, dp=2, virtual_stages=4) == ""


def test_the_law_is_that_of_plan_files(table):
    write(table, random_rows(400, seed=3))
    verdicts = set()
    for run in read_runs(table):
        assert isinstance(run, Run)
        setting, plan = setting_of(run.given), run_plan(run.chosen, run.given.devices)
        long = expand(short_plan(plan, setting), setting.model.architecture)
        case = RuleInput(long, setting.model, setting.cluster, setting.stack)
        rules = (*DEGREE_RULES, *PIPELINE_RULES)
        wrong = [p.rule for rule in rules for p in rule(case) if p.severity == "error"]
        if not isinstance(plan.recompute, str):
            wrong += [p.rule for p in recomputed_operators(case)]
        mine = list(faults(plan, setting))
        assert bool(mine) == bool(wrong), (run, mine, wrong)
        verdicts.add(bool(mine))
    assert verdicts == {True, False}


def test_arrays_hold_what_the_plans_say(table):
    write(table, random_rows(30, seed=5))
    runs = list(read_runs(table))
    plans = [run_plan(run.chosen, run.given.devices) for run in runs]
    ((numbers, arrays),) = plan_arrays(plans, setting_of(runs[0].given))
    assert numbers.tolist() == list(range(len(plans)))
    for number, plan in enumerate(plans):
        numbers = [*NUMBERS, "sequence_parallel"]
        assert [getattr(arrays, name)[number] for name in numbers] == [
            getattr(plan, name) for name in numbers
        ]
        assert str(arrays.schedules[arrays.schedule[number]]) == plan.schedule
        assert arrays.values["recompute"][arrays.recompute[number]] == plan.recompute


def test_only_stages_that_are_cut_otherwise_make_arrays_of_their_own(table):
    places = ("", "baseline", "redis", "vocab-1", "vocab-2", "interlaced", "redis")
    write(table, [row(vocab_parallel=place, vocab=200_000) for place in places])
    runs = list(read_runs(table))
    plans = [run_plan(run.chosen, run.given.devices) for run in runs]
    found = list(plan_arrays(plans, setting_of(runs[0].given)))
    assert [numbers.tolist() for numbers, _ in found] == [[0, 1, 3, 4, 5], [2, 6]]
    names = [[str(arrays.schedules[code]) for code in arrays.schedule] for _, arrays in found]
    assert names == [["1f1b", "1f1b", "1f1b+vocab-1", "1f1b+vocab-2", "1f1b+interlaced"], ["1f1b", "1f1b"]]


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ("4 4", ""),
        ("8 0", ""),
        ("3 5", ""),
        ("8", "1 stages, pp·virtual_stages = 2"),
        ("4 5", "holds 9 layers, the model has 8"),
    ],
)
def test_stages_that_are_written_out(table, held, reason):
    said = reasons(table, stage_layers=held)
    assert reason in said
    assert bool(said) == bool(reason)


def test_stages_in_the_middle_hold_something_and_spread_vocabularies_have_equal_ones(table):
    four = {"pp": 4, "dp": 1, "stage_layers": "4 0 2 2"}
    assert "nothing in it" in reasons(table, **four)
    assert "is not priced" in reasons(table, stage_layers="3 5", vocab_parallel="vocab-1")
    assert "is not priced" in reasons(table, stage_layers="3 5", vocab_parallel="redis")


def test_written_stages_and_rank_orders_are_arrays_of_their_own(table):
    write(
        table,
        [
            row(),
            row(stage_layers="3 5"),
            row(rank_order="pp tp cp dp_shard dp_replicate"),
            row(stage_layers="3 5"),
        ],
    )
    runs = list(read_runs(table))
    plans = [run_plan(run.chosen, run.given.devices) for run in runs]
    found = list(plan_arrays(plans, setting_of(runs[0].given)))
    assert [numbers.tolist() for numbers, _ in found] == [[0], [1, 3], [2]]
    assert found[1][1].stages == (("embed", "0..2"), ("3..7", "head"))
    ordered = found[2][1]
    assert ordered.values["order"][int(ordered.order[0])][0] == "pp"


@pytest.mark.parametrize(
    ("schedule", "said", "stages"),
    [
        ("dualpipe", 1, 2),
        ("dualpipe", "", 2),
        ("dualpipe", 2, 2),
        ("zb-v", "", 2),
        ("zb-v", 1, 1),
        ("1f1b", "", 1),
    ],
)
def test_a_row_may_count_the_stages_of_one_chain_or_leave_out_what_is_fixed(table, schedule, said, stages):
    changes = {"pp": 2, "dp": 4, "tp": 1, "cp": 1, "schedule": schedule, "virtual_stages": said}
    assert of(table, **changes).virtual_stages == stages
    assert ("stages per rank" in reasons(table, **changes)) == (stages == 1 and schedule == "zb-v")
