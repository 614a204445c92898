"""The comparison of a target's step with the Program: planted disagreements are named, with both figures."""

from dataclasses import replace
from pathlib import Path

import pytest
from dry_run_cases import KIND, faithful, held, place_of, resolved, seat, without

from meshwright.errors import InputError, MeasurementError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.target_checks.dry_run import dry_run, shortened_plan, target_stack
from meshwright.frameworks.target_checks.known_differences import DIFFERENCES, Difference
from meshwright.frameworks.target_checks.recorded_step import IssuedCollective, read_recorded_step
from meshwright.frameworks.target_checks.target_python import TARGET_CHECKS
from meshwright.model.load import load_config
from meshwright.plans.resolve import resolve
from meshwright.stack.load import load_stack

ROOT = Path(__file__).resolve().parents[3]
PLANS = (
    {},
    {"layout": {"pp": 2, "tp": 2}, "recompute": "full"},
    {"layout": {"dp_shard": 2, "cp": 2}, "recompute": "full"},
    {"layout": {"dp_shard": 2, "dp_replicate": 2}, "sharding": "zero2"},
)


@pytest.mark.parametrize("changes", PLANS)
def test_a_target_that_does_what_the_program_means_agrees_without_an_explanation(changes):
    at = seat(**changes)
    found = held(at, faithful(at))
    assert (found.disagreements, found.explained) == ([], [])
    assert all(row["plan_bytes"] == row["target_bytes"] > 0 for row in found.collectives)


def test_a_missing_collective_is_named_with_its_group_and_bytes():
    at = seat()
    ran = faithful(at)
    place = place_of(ran, "reduce-scatter")
    (found,) = held(at, without(ran, place)).disagreements
    assert found.name == "reduce-scatter over tp"
    assert (found.plan, found.target) == (
        f"1 reduce-scatter of {ran.issued[place].bytes:,} bytes over 2 ranks",
        "nothing",
    )


def test_a_collective_too_many_is_named_with_its_bytes():
    at = seat()
    ran = faithful(at)
    again = IssuedCollective("all-to-all", ran.issued[0].members, 12_345)
    (found,) = held(at, replace(ran, issued=(*ran.issued, again))).disagreements
    assert (found.plan, found.target) == ("nothing", "1 all-to-all of 12,345 bytes over 2 ranks")


def test_wrong_bytes_are_named_with_both_figures():
    at = seat()
    ran = faithful(at)
    place = place_of(ran, "all-gather", count=3)
    wrong = replace(ran.issued[place], bytes=ran.issued[place].bytes // 2)
    issued = (*ran.issued[:place], wrong, *ran.issued[place + 1 :])
    (found,) = held(at, replace(ran, issued=issued)).disagreements
    assert f"of {ran.issued[place].bytes:,} bytes" in found.plan
    assert f"of {wrong.bytes:,} bytes" in found.target


def test_a_wrong_group_is_named_with_the_ranks_of_both_sides():
    at = seat(cluster="h100-sxm-80gb x 8", layout={"dp_shard": 4, "tp": 2})
    ran = faithful(at)
    swapped = {(0, 1): (0, 4)}
    issued = tuple(replace(one, members=swapped.get(one.members, one.members)) for one in ran.issued)
    found = held(at, replace(ran, issued=issued, made=tuple({one.members for one in issued}))).disagreements
    named = {one.name: (one.plan, one.target) for one in found}
    assert named["group tp"] == ("ranks 0, 1", "ranks 0, 4")
    assert named["group of no axes of the plan"] == ("none", "ranks 0, 4")


def test_another_order_is_named_and_what_runs_side_by_side_has_none():
    at = seat(layout={"dp_shard": 4}, workload={"seq_len": 512, "global_batch": 4})
    ran = faithful(at)
    table, layer = ran.issued[0], ran.issued[1]
    assert (table.kind, layer.kind) == ("all-gather", "all-gather")
    (found,) = held(at, replace(ran, issued=(layer, table, *ran.issued[2:]))).disagreements
    assert found.name == f"order over cp·dp_shard, after 0 of {len(ran.issued)}"
    beside = next(m for m in at.step() if {s.kind for s in m} == {"all-gather", "reduce-scatter"})
    pair = next(
        i
        for i in range(len(ran.issued))
        if [s.kind for s in beside] == [o.kind for o in ran.issued[i : i + 2]]
    )
    turned = (*ran.issued[:pair], ran.issued[pair + 1], ran.issued[pair], *ran.issued[pair + 2 :])
    assert held(at, replace(ran, issued=turned)).disagreements == []


def test_other_elements_and_another_place_are_named():
    at = seat()
    ran = faithful(at)
    found = held(at, replace(ran, parameters=ran.parameters + 7, rank=3)).disagreements
    assert {one.name for one in found} == {"parameters", "rank"}


def test_pieces_cut_by_rows_are_explained():
    at = seat()
    ran = replace(faithful(at), rows=10)
    assert held(at, replace(ran, parameters=ran.parameters + 7)).disagreements == []
    assert held(at, replace(ran, parameters=ran.parameters + 11)).disagreements


def test_a_row_explains_equal_bytes_in_other_pieces_and_nothing_else():
    at = seat()
    ran = faithful(at)
    place = place_of(ran, "all-reduce")
    whole = ran.issued[place]
    row = Difference(
        name="cut", effect="recut", why="it is", kind=("all-reduce",), axes=("tp",), what=("loss",)
    )
    for size, agrees in ((whole.bytes // 4, True), (whole.bytes // 4 - 1, False)):
        of_its_size = [one for one in ran.issued if one == whole]
        pieces = (replace(whole, bytes=size),) * 4 * len(of_its_size)
        changed = replace(ran, issued=(*(one for one in ran.issued if one != whole), *pieces))
        assert (not held(at, changed, row).disagreements) == agrees


def test_what_is_small_or_absent_or_again_is_explained_within_its_bound():
    at = seat()
    ran = faithful(at)
    small = Difference(name="small", effect="small", why="it is", kind=("all-reduce",), most_bytes=64)
    for size, agrees in ((64, True), (65, False)):
        more = replace(ran, issued=(*ran.issued, IssuedCollective("all-reduce", ran.issued[0].members, size)))
        assert (not held(at, more, small).disagreements) == agrees
    again = Difference(
        name="again", effect="again", why="it is", kind=("all-gather",), axes=("dp_shard",), what=("embed",)
    )
    gather = ran.issued[place_of(ran, "all-gather")]
    assert not held(at, replace(ran, issued=(*ran.issued, gather)), again).disagreements
    layer = max(ran.issued, key=lambda one: (one.kind == "reduce-scatter", one.bytes))
    assert held(at, replace(ran, issued=(*ran.issued, layer)), again).disagreements
    norm = Difference(name="norm", effect="absent", why="it is", kind=("all-reduce",), axes=("world",))
    none = tuple(one for one in ran.issued if len(one.members) < 4)
    assert not held(at, replace(ran, issued=none), norm).disagreements
    assert held(at, replace(ran, issued=none)).disagreements


def test_more_and_less_are_explained_as_often_as_the_row_says():
    at = seat()
    ran = faithful(at)
    gather = ran.issued[place_of(ran, "all-gather")]
    of = {"why": "it is", "kind": ("all-gather",), "axes": ("dp_shard",), "what": ("embed",), "times": 1}
    again, kept = (Difference(name=effect, effect=effect, **of) for effect in ("again", "kept"))
    assert at.program.micro_batches == 2
    for count, agrees in ((2, True), (3, False)):
        more = replace(ran, issued=(*ran.issued, *(gather,) * count))
        halves = (replace(gather, bytes=gather.bytes // 2),) * 2 * count
        in_pieces = replace(ran, issued=(*ran.issued, *halves))
        assert (not held(at, more, again).disagreements) == agrees
        assert (not held(at, in_pieces, again).disagreements) == agrees
        less = ran
        for _ in range(count):
            less = without(less, less.issued.index(gather))
        assert (not held(at, less, kept).disagreements) == agrees


def test_what_lies_between_bounds_is_explained_and_nothing_outside():
    at = seat()
    ran = faithful(at)
    of_it = [one for one in ran.issued if one.kind == "reduce-scatter" and one.members == (0, 2)]
    total, micro_batches = sum(one.bytes for one in of_it), at.program.micro_batches
    row = Difference(
        name="between",
        effect="between",
        why="it is",
        kind=("reduce-scatter",),
        axes=("dp_shard",),
        factor=1.5,
        most_bytes=64,
    )
    rest = tuple(one for one in ran.issued if one not in of_it)
    bounds = {total - 64 * micro_batches: True, total * 3 // 2: True}
    bounds |= {total - 64 * micro_batches - 1: False, total * 3 // 2 + 1: False}
    for size, agrees in bounds.items():
        done = replace(ran, issued=(*rest, replace(of_it[0], bytes=size)))
        assert (not held(at, done, row).disagreements) == agrees


def test_an_order_is_explained_where_the_same_is_sent():
    at = seat()
    ran = faithful(at)
    row = Difference(
        name="turned", effect="order", why="it is", kind=("all-gather", "reduce-scatter"), axes=("tp",)
    )
    tp = [i for i, one in enumerate(ran.issued) if one.members == (0, 1)]
    issued = list(ran.issued)
    issued[tp[0]], issued[tp[1]] = issued[tp[1]], issued[tp[0]]
    turned = replace(ran, issued=tuple(issued))
    assert held(at, turned).disagreements
    assert [e.name for e in held(at, turned, row).explained] == ["turned"]
    assert held(at, without(turned, tp[0]), row).disagreements


def test_the_first_rank_of_a_class_stands_at_the_start_of_all_other_axes():
    at = seat(1, cluster="h100-sxm-80gb x 8", layout={"pp": 2, "dp_shard": 2, "tp": 2})
    assert at.program.parts.only.grid.coordinates(at.rank) == {
        axis: int(axis == "pp") for axis in at.program.parts.only.grid.order
    }


def test_a_stage_at_once_is_held_against_blocks():
    at = seat(layout={"pp": 2, "dp_shard": 2}, workload={"seq_len": 512, "global_batch": 8})
    kind, ran, gathers = replace(KIND, pipeline=True), faithful(at), ("all-gather",)
    row = Difference(name="units", effect="units", why="it does", kind=gathers, what=("stage",))
    blocks = [
        part for moment in at.step() for s in moment for part in at.units(s, "zero3") if s.kind in gathers
    ]
    done = tuple(IssuedCollective(s.kind, s.members, s.bytes) for s in blocks)
    changed = replace(ran, issued=(*done, *(one for one in ran.issued if one.kind not in gathers)))
    assert len(done) > sum(one.kind in gathers for one in ran.issued) > 0
    assert held(at, changed, row, kind=kind).disagreements == []
    assert held(at, without(changed, 0), row, kind=kind).disagreements


def test_every_target_can_be_asked_or_says_why_not():
    assert set(TARGET_CHECKS) == set(TARGETS)
    scripts = ROOT / "src" / "meshwright" / "frameworks" / "target_checks" / "scripts"
    for asked in TARGET_CHECKS.values():
        assert (asked.parser is None or asked.steps is None) == bool(asked.why_not)
        assert all((scripts / name).is_file() for name in (asked.parser, asked.steps) if name)
    assert set(DIFFERENCES) == {target for target, asked in TARGET_CHECKS.items() if asked.steps}


@pytest.mark.parametrize("target", ["megatron", "bridge"])
def test_targets_that_need_a_gpu_are_refused_by_name_with_what_to_do(target):
    plan = resolved()
    with pytest.raises(InputError, match=r"CUDA[^;]*.*GPUs run a few steps"):
        dry_run(target, plan.long, plan.setting, {}, "/no/such/python")


def test_a_step_has_no_more_micro_batches_than_show_everything():
    plan = resolved(workload={"seq_len": 512, "global_batch": 64})
    assert shortened_plan(plan.long, plan.setting).workload.global_batch == 4
    deep = resolved(layout={"pp": 2, "tp": 2}, workload={"seq_len": 512, "global_batch": 64})
    assert shortened_plan(deep.long, deep.setting).workload.global_batch == 4


def test_the_stack_is_the_one_that_the_files_run_on():
    assert target_stack("torchtitan", load_stack("megatron-core")).name == "torchtitan"
    assert target_stack("accelerate", load_stack("generic")).name == "accelerate"
    own = replace(load_stack("deepspeed"), overlap_gradient_reduction=False)
    assert target_stack("deepspeed", own) == own


@pytest.mark.parametrize(
    "line", [{}, {"groups": [["x"]], "collectives": []}, {"groups": [], "collectives": [["a", 3, 1]]}]
)
def test_a_line_in_another_form_is_a_failed_measurement(line):
    with pytest.raises(MeasurementError, match="another form"):
        read_recorded_step(line)


@pytest.mark.slow
@pytest.mark.parametrize("target", DIFFERENCES)
def test_a_step_of_the_target_is_what_the_plan_means(target, monkeypatch):
    python = ROOT / "parsers" / target / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there: bash scripts/parsers.sh {target}")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from dry import PLANS, plan_of

    row = PLANS[target][0]
    plan = resolve(plan_of(target, row))
    found = dry_run(target, plan.long, plan.setting, load_config(row[0]), str(python))
    assert [one.disagreements for one in found.classes] == [[]]
    assert found.classes[0].explained
