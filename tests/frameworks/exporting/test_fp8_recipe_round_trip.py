"""Every recipe of fp8 comes back from the files of the frameworks that have it."""

import pytest

from meshwright.api import import_file
from meshwright.cli.terminal.output import write_tree
from meshwright.cluster.load import load_cluster
from meshwright.errors import UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.stack.load import load_stack
from meshwright.verbs.import_ import ImportRequest

MODEL, CLUSTER = "llama-3.1-8b", "h100-sxm-80gb x 8"
STACKS = {"megatron": "megatron-core", "bridge": "megatron-bridge"}
FILES = {"megatron": "megatron/args.sh", "bridge": "bridge/overrides.yaml"}
CASES = [(target, recipe) for target, stack in STACKS.items() for recipe in load_stack(stack).fp8_recipes]


def exported(target, recipe, stack):
    workload = {"seq_len": 4096, "global_batch": 64, "precision": "fp8", "fp8_recipe": recipe}
    plan = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": MODEL,
            "cluster": CLUSTER,
            "workload": workload,
            "stack": stack,
            "layout": {"dp_shard": 8},
            "sharding": "zero1",
        }
    )
    model = load_model(MODEL)
    return TARGETS[target](expand(plan, model.architecture), model, load_cluster(CLUSTER), load_stack(stack))


@pytest.mark.parametrize(("target", "recipe"), [*CASES, *((target, None) for target in STACKS)])
def test_recipes_come_back_and_the_usual_one_is_left_out(target, recipe, tmp_path):
    stack = load_stack(STACKS[target])
    write_tree(tmp_path, exported(target, recipe, STACKS[target]).files)
    found = import_file(tmp_path / FILES[target], ImportRequest(model=MODEL, on=CLUSTER)).plan
    assert found.workload.precision == "fp8"
    assert (found.workload.fp8_recipe or stack.fp8_recipes[0]) == (recipe or stack.fp8_recipes[0])


@pytest.mark.parametrize("target", ["megatron", "bridge", "accelerate"])
def test_a_recipe_that_the_framework_does_not_have_is_not_exported(target):
    stacks = STACKS | {"accelerate": "accelerate"}
    with pytest.raises(UnsupportedError, match="fp8_recipe"):
        exported(target, "rowwise", stacks[target])
