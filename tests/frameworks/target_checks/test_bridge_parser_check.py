"""Megatron-Bridge's own configuration takes what is exported. Needs its environment: scripts/parsers.sh bridge."""

import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from meshwright.frameworks.megatron.importing.pipeline_layout import layout_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def bridge_accepts():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import bridge_accepts
    finally:
        sys.path.pop(0)
    return bridge_accepts


@pytest.mark.slow
def test_random_plans_are_accepted_and_changed_ones_are_noticed(bridge_accepts):
    python = ROOT / "parsers" / "bridge" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there: bash scripts/parsers.sh bridge")
    answers = list(bridge_accepts.asked(str(python), Counter()))
    found, changed = answers[: bridge_accepts.ASKED], answers[bridge_accepts.ASKED :]
    assert [wrong for _, _, wrong in found] == [[]] * bridge_accepts.ASKED
    assert all(wrong for _, _, wrong in changed)


def test_cases_say_the_words_of_their_launch_script_and_name_a_model_that_is_there(bridge_accepts, tmp_path):
    refused = Counter()
    for resolved, told in islice(bridge_accepts.written(tmp_path, refused), 6):
        recipe, *words = told["words"]
        assert recipe.endswith("_config")
        assert "train.train_iters=100" in words
        assert told["ranks"] == resolved.setting.cluster.devices
        assert Path(told["model"]).is_file()
        assert (Path(told["folder"]) / "overrides.yaml").is_file()


def test_a_value_that_is_not_the_plan_s_is_a_difference(bridge_accepts):
    resolved = next(plan for plan in bridge_accepts.plans() if plan.long.pipeline.ranks > 1)
    layers, pipeline = resolved.setting.model.architecture.layers, resolved.long.pipeline
    values = bridge_accepts.meant(resolved) | {
        "pipeline_model_parallel_layout": layout_of(layers, len(pipeline.placement)),
        "virtual_pipeline_model_parallel_size": pipeline.virtual_stages,
    }
    assert not bridge_accepts.differing(resolved, values)
    for name, value in values.items():
        if type(value) is int and name != "virtual_pipeline_model_parallel_size":
            (said,) = bridge_accepts.differing(resolved, values | {name: 2 * value})
            assert said.startswith(f"{name} = {2 * value}, not ")
    assert bridge_accepts.differing(resolved, values | {"virtual_pipeline_model_parallel_size": 9})
    uneven = f"E|t*{layers}" + "|" * (len(pipeline.placement) - 2) + "L"
    assert bridge_accepts.differing(resolved, values | {"pipeline_model_parallel_layout": uneven})
