"""Rules on the order of experts, and the files that have one."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, SPARSE, STACK, cluster, graph, long_plan

from meshwright.errors import InputError
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.overrides import apply_overrides
from meshwright.plans.resolve import with_files_read
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.expert_order import read_expert_order, rows_by_layer

ROW = (7, 6, 5, 4, 3, 2, 1, 0)
ABLE = replace(STACK, orders_experts=True)


def problems(order, architecture=SPARSE, stack=ABLE, ep=8):
    layout = {"dp_shard": 64, "ep": ep, "expert_order": order}
    return check_plan(long_plan(layout), graph(architecture), cluster(64), stack)


@pytest.mark.parametrize("order", [None, (ROW,), (ROW,) * 16])
def test_legal_orders(order):
    assert problems(order) == []


@pytest.mark.parametrize(
    ("order", "about", "value", "rule"),
    [
        ((ROW,), {"architecture": DENSE, "ep": 1}, "1 rows", "the model has no experts"),
        ((ROW,), {"stack": STACK}, "1 rows", "test-stack@1.0 has the experts as the model numbers them"),
        ((ROW,) * 3, {}, "3 rows", "has 3 rows, the model has 16 routed layers"),
        (
            ((0, 0, 1, 2, 3, 4, 5, 6),),
            {},
            "0,0,1,2,3,4,5,6",
            "row 0 must name each of the experts 0 to 7 once",
        ),
        ((ROW[1:],), {}, "6,5,4,3,2,1,0", "row 0 must name each of the experts 0 to 7 once"),
        ("order.csv", {}, "order.csv", "was not read"),
    ],
)
def test_every_problem_is_named(order, about, value, rule):
    (problem,) = problems(order, **about)
    assert (problem.field, problem.value) == ("layout.expert_order", value)
    assert rule in problem.rule


def test_an_order_on_one_rank_is_told_so():
    found = problems((ROW,), ep=1)
    (problem,) = (one for one in found if one.field == "layout.expert_order")
    assert problem.severity == "warning"
    assert "ep: 2 or more" in problem.suggestion


def test_both_forms_say_it():
    plan = long_plan({"dp_shard": 64, "ep": 8, "expert_order": (ROW,)})
    assert plan.layouts["main"].expert_order == (ROW,)
    assert parse_plan(dump_plan(plan)) == plan
    short = shorten(plan)
    assert short.layout.expert_order == (ROW,)
    assert parse_plan(dump_plan(short)) == short
    assert expand(short, SPARSE).layouts["main"].expert_order == (ROW,)


def test_a_file_of_rows_is_read_with_the_plan(tmp_path):
    (tmp_path / "order.csv").write_text("7,6,5,4,3,2,1,0\n" * 2, encoding="utf-8")
    named = long_plan({"dp_shard": 64, "ep": 8, "expert_order": "order.csv"})
    for plan in (named, shorten(named)):
        text = dump_plan(plan)
        assert parse_plan(text) == plan
        read = with_files_read(plan, tmp_path)
        layout = getattr(read, "layout", None) or read.layouts["main"]
        assert layout.expert_order == (ROW, ROW)
    set_to = apply_overrides(shorten(named), [f"expert_order={tmp_path / 'order.csv'}"], 64)
    assert set_to.layout.expert_order == (ROW, ROW)


@pytest.mark.parametrize("text", ["0,1.5", "-1,0", "a,b", ""])
def test_a_file_of_other_things_is_refused(text, tmp_path):
    file = tmp_path / "order.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as raised:
        read_expert_order(file)
    assert [problem.field for problem in raised.value.problems] == ["layout.expert_order"]


def test_rows_stand_for_the_routed_layers():
    other = (1, 0, 2)
    assert rows_by_layer((other,), (False, True, True)) == (None, other, other)
    assert rows_by_layer((other, (0, 1, 2)), (True, False, True)) == (other, None, None)
    assert rows_by_layer(None, (True,)) == ()
