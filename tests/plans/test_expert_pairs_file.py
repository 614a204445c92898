"""Pairs of experts in a file: read with the plan, named with their digest, refused where they are no pairs."""

import pytest
from plan_cases import SPARSE, STACK, cluster, graph, long_plan

from meshwright.errors import InputError
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import shorten
from meshwright.plans.resolve import with_files_read
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.workload.expert_counts_file import read_counts_or_pairs
from meshwright.workload.expert_routing import Pairs

TABLE = "pairs\n3,1,2\n1,1,0\n2,0,4\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def named(**more):
    return long_plan({"dp_shard": 64, "ep": 8}, workload={"routing": {"pairs": "pairs.csv", **more}})


def test_tables_and_their_diagonals_are_read(file):
    found = read_counts_or_pairs(file, "field")
    assert isinstance(found, Pairs)
    assert (found.experts, found.layers) == (3, 1)
    assert found.counts == ((3, 1, 4),)


@pytest.mark.parametrize("short", [False, True])
def test_a_plan_names_the_file_and_has_what_it_says(file, short):
    plan = shorten(named()) if short else named()
    assert parse_plan(dump_plan(plan)) == plan
    read = with_files_read(plan, file.parent)
    assert workload_of(read).routing.counts == ((3, 1, 4),)
    written = dump_plan(read)
    assert "pairs.csv" in written
    assert "values" not in written
    assert with_files_read(parse_plan(written), file.parent) == read


def test_a_file_that_was_changed_is_refused(file):
    read = with_files_read(named(), file.parent)
    file.write_text(TABLE.replace("4", "5"), encoding="utf-8")
    with pytest.raises(InputError, match="it was changed since, or is another file") as raised:
        with_files_read(parse_plan(dump_plan(read)), file.parent)
    assert [problem.field for problem in raised.value.problems] == ["workload.routing.sha256"]


def test_pairs_that_were_not_read_are_refused():
    (problem,) = check_plan(named(), graph(SPARSE), cluster(64), STACK)
    assert problem.field == "workload.routing.pairs"
    assert "was not read" in problem.rule


def test_pairs_of_another_model_are_refused(file):
    (problem,) = check_plan(with_files_read(named(), file.parent), graph(SPARSE), cluster(64), STACK)
    assert "has counts of 3 experts, the model has 8" in problem.rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("pairs\n", "has 0 lines"),
        ("pairs\n1,0\n", "has 1 lines, the first of 2 numbers"),
        ("pairs\n1,0\n0\n", "no tables of as many lines as numbers"),
        ("pairs\n1,0\n0,x\n", "could not convert"),
        ("pairs\n1,0\n0,nan\n", "no finite numbers from 0 on"),
        ("pairs\n1,-1\n-1,1\n", "no finite numbers from 0 on"),
        ("pairs\n2,1\n0,2\n", "table 0 is not symmetric"),
        ("pairs\n1,2\n2,1\n", "chosen with others more often than at all"),
        ("pairs\n1,0\n0,1\n0,0\n0,0\n", "table 1 counts nothing"),
        ("1,2\n", "has counts, and no pairs"),
    ],
)
def test_what_are_no_pairs_is_refused(text, rule, tmp_path):
    (tmp_path / "pairs.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rule) as raised:
        with_files_read(named(), tmp_path)
    assert [problem.field for problem in raised.value.problems] == ["workload.routing.pairs"]
