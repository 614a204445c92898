import pytest
from plan_cases import short_plan

from meshwright.errors import InputError, PlanError
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand
from meshwright.plans.resolve import load_nouns, resolve, with_files_read

NAMES = {"model": "llama-3.1-8b", "cluster": "h100-sxm-80gb x 64", "stack": "generic"}


def test_a_legal_plan_comes_with_what_it_names():
    plan = short_plan(**NAMES)
    resolved = resolve(plan)
    setting = resolved.setting
    assert resolved.short == plan.model_copy(update={"layout": resolved.short.layout})
    assert resolved.long == expand(plan, load_model("llama-3.1-8b").architecture)
    assert (setting.model.name, setting.cluster.devices, setting.stack.name) == (
        "llama-3.1-8b",
        64,
        "generic",
    )
    assert (setting.workload.seq_len, setting.workload.global_batch) == (4096, 64)
    assert resolve(resolved.long) == resolved


def test_the_problems_of_all_names_come_together():
    with pytest.raises(InputError) as caught:
        resolve(short_plan(model="none", cluster="none x 8", stack="none"))
    assert [problem.field for problem in caught.value.problems] == ["model", "cluster.device", "stack"]
    nouns = load_nouns(short_plan(**NAMES | {"cluster": "none x 8"}))
    assert (nouns.cluster, len(nouns.problems)) == (None, 1)
    assert nouns.model is not None
    assert nouns.stack is not None


def test_an_illegal_plan_is_refused_with_all_its_problems():
    with pytest.raises(PlanError) as caught:
        resolve(short_plan({"pp": 3, "dp_shard": 8, "tp": 3}, **NAMES))
    assert {"layout", "layout.tp"} <= {problem.field for problem in caught.value.problems}


def test_warnings_do_not_stop_a_plan():
    warnings = resolve(
        short_plan({"dp_shard": 4, "tp": 16}, **NAMES | {"model": "gpt-22b", "workload": {"seq_len": 2048}})
    ).warnings
    assert [(problem.field, problem.severity) for problem in warnings] == [("layout.tp", "warning")]


def test_files_beside_a_plan_are_meant_before_names(tmp_path):
    plan = short_plan(model="mine", cluster="ours.yaml", stack="generic")
    assert with_files_read(plan, tmp_path) == plan
    (tmp_path / "ours.yaml").touch()
    (tmp_path / "mine").mkdir()
    assert with_files_read(plan, tmp_path).model == "mine"  # a directory without a configuration is no model
    (tmp_path / "mine" / "config.json").touch()
    found = with_files_read(plan, tmp_path)
    assert (found.model, found.cluster) == (str(tmp_path / "mine"), str(tmp_path / "ours.yaml"))
    assert found.stack == "generic"


@pytest.mark.parametrize("name", ["\0", "a" * 5000, "~", ""])
def test_names_that_no_file_can_have_stay_as_they_are(tmp_path, name):
    plan = short_plan(model=name)
    assert with_files_read(plan, tmp_path / "folder").model == name
