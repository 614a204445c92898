"""What every entry of TARGETS must do."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from export_cases import GOLDEN, Case, case, golden_cases, golden_text, problem_fields, short_plans
from hypothesis import assume, given, settings

from meshwright.errors import UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.option_names import option_names
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.forms.long import DeviceGroup, LayerRule, LongPlan, Schedule
from meshwright.plans.layers.plan_of_layout import replicas
from meshwright.plans.synchronisation.synchronisation import Synchronisation

WITHOUT_STACK = ("accelerate",)
"""Targets that launch whatever a script does: no stack is theirs."""
SAID = re.compile(r"(?<![\w-])--[A-Za-z][\w.-]*")
LAUNCHER = {
    *("--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--kill-on-bad-exit"),
    *("--job-name", "--nodes", "--ntasks-per-node", "--gpus-per-node", "--exclusive"),
}


@pytest.mark.parametrize("folder", golden_cases())
def test_the_files_are_those_that_were_reviewed(folder: str) -> None:
    target, this = golden_cases()[folder]
    assert this.errors == []
    files = {Path(path).name: golden_text(text) for path, text in this.to(target).files.items()}
    assert files == {path.name: path.read_text(encoding="utf-8") for path in (GOLDEN / folder).iterdir()}


@pytest.mark.parametrize("target", TARGETS)
@given(this=short_plans())
@settings(max_examples=18, deadline=None)
def test_every_option_of_a_legal_plan_is_known_to_the_target(target: str, this: Case) -> None:
    assume(not this.errors)
    try:
        export = this.to(target)
    except UnsupportedError:
        assert problem_fields(this, target)
        return
    known = option_names(export.target, export.release) | LAUNCHER
    for path, text in export.files.items():
        code = "\n".join(line for line in text.splitlines() if not re.match(r"# |#!", line))
        assert set(SAID.findall(code)) <= known, path


@pytest.mark.parametrize("target", TARGETS)
def test_the_public_form_has_files_and_refusals(target: str) -> None:
    other = "megatron-core" if target == "torchtitan" else "torchtitan"
    data = case(stack_name=other, sharding="zero3").to(target).to_json()
    assert set(data) == {"files", "refused"}
    assert all(isinstance(text, str) and text.endswith("\n") for text in data["files"].values())
    assert [(entry["key"], entry["value"]) for entry in data["refused"]] == [
        ("stack", "megatron-core@0.19" if target == "torchtitan" else "torchtitan@0.3")
    ]


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in WITHOUT_STACK])
def test_the_stack_is_not_refused_for_the_targets_own(target: str) -> None:
    own = {"megatron": "megatron-core", "bridge": "megatron-bridge"}.get(target, target)
    assert "stack" not in {
        refusal.key for refusal in case(stack_name=own, sharding="zero3").to(target).refused
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("folder", golden_cases())
def test_the_scripts_are_shell(folder: str, target: str, tmp_path: Path) -> None:
    wanted, this = golden_cases()[folder]
    if wanted != target:
        return
    for path, text in this.to(target).files.items():
        script = tmp_path / Path(path).name
        script.write_text(text, encoding="utf-8")
        done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def long_form(plan: LongPlan, **changes: object) -> LongPlan:
    return plan.model_copy(update=changes)


def uneven(plan: LongPlan) -> tuple[int, ...]:
    """Return shares of the batch of which two are unlike."""
    count = replicas(plan.layouts["main"])
    return (1, 3, *(2,) * (count - 2))


REFUSED_BY_ALL = {
    "layouts": lambda plan: {
        "layouts": {**plan.layouts, "second": plan.layouts["main"]},
        "layers": {**plan.layers, "head": LayerRule(layout="second")},
    },
    "groups.all.devices": lambda plan: {"groups": {"all": DeviceGroup(devices="h100[0:8]")}},
    "layouts.main.batch_share": lambda plan: {
        "layouts": {"main": plan.layouts["main"].model_copy(update={"batch_share": uneven(plan)})}
    },
    "pipeline.schedule.memory_limit": lambda plan: {
        "pipeline": plan.pipeline.model_copy(update={"schedule": Schedule(name="1f1b", memory_limit=1.0)})
    },
    "pipeline.schedule.unit": lambda plan: {
        "pipeline": plan.pipeline.model_copy(update={"schedule": Schedule(name="1f1b", unit=4)})
    },
    "pipeline.schedule.in_flight": lambda plan: {
        "pipeline": plan.pipeline.model_copy(update={"schedule": Schedule(name="1f1b", in_flight=2)})
    },
    "offload.activations": lambda plan: {"offload": Offload(activations="all")},
    "synchronise": lambda plan: {"synchronise": (Synchronisation(state="gradient", over="dp_shard"),)},
    "layers": lambda plan: {
        "layers": {"4..7": LayerRule(layout="main", recompute="full"), **plan.layers},
    },
    "layers.head.vocabulary": lambda plan: {
        "layers": {**plan.layers, "embed": LayerRule(layout="main", vocabulary=("pp", "tp"))},
    },
    "layers.head.recompute": lambda plan: {
        "layers": {**plan.layers, "head": LayerRule(layout="main", recompute="full")},
    },
    "workload.task": lambda plan: {"workload": plan.workload.model_copy(update={"task": "serve"})},
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("field", REFUSED_BY_ALL)
def test_what_no_launcher_can_say_is_refused_by_name(field: str, target: str) -> None:
    this = case(sharding="zero3")
    changed = replace(this, plan=long_form(this.plan, **REFUSED_BY_ALL[field](this.plan)))
    assert problem_fields(changed, target) == {field}


@pytest.mark.parametrize("target", TARGETS)
def test_entries_that_we_run_are_refused_by_name(target: str) -> None:
    this = case(sharding="zero3")
    changes = REFUSED_BY_ALL["synchronise"](this.plan)
    assert problem_fields(replace(this, plan=long_form(this.plan, **changes)), target) == {"synchronise"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("task", "schedule", "changes", "fields"),
    [
        ("serve", {"memory_limit": 2.0}, {}, {"workload.task", "pipeline.schedule.memory_limit"}),
        (
            "lora",
            {},
            {"offload": Offload(activations="all")},
            {"workload.task", "pipeline.schedule", "offload.activations"},
        ),
    ],
    ids=["of the plan language", "of the stack"],
)
def test_all_problems_come_at_once(
    task: str, schedule: dict[str, object], changes: dict[str, object], fields: set[str], target: str
) -> None:
    this = case(
        sharding="zero3",
        layout={"dp_shard": 16, "rank_order": ["pp", "dp_shard", "cp", "tp", "dp_replicate"]},
    )
    changed = long_form(
        this.plan,
        workload=this.plan.workload.model_copy(update={"task": task}),
        pipeline=this.plan.pipeline.model_copy(update={"schedule": Schedule(name="gpipe", **schedule)}),
        **changes,
    )
    assert problem_fields(replace(this, plan=changed), target) == fields


@pytest.mark.parametrize("target", TARGETS)
def test_refusals_name_what_a_short_plan_says(target: str) -> None:
    """A spread vocabulary is a knob of the schedule there, and the V of a schedule has no key of its own."""
    spread = Schedule(name="1f1b", vocabulary="vocab-2").to_data()
    for pipeline in ({"schedule": spread}, {"schedule": "v-half", "virtual_stages": 2}):
        with pytest.raises(UnsupportedError) as caught:
            case(layout={"pp": 2, "dp_shard": 8}, sharding="zero3", pipeline=pipeline).to(target)
        fields = [problem.field for problem in caught.value.problems]
        assert not [
            field for field in fields if field.startswith(("layers", "layouts", "pipeline.placement"))
        ]
        assert len(fields) == len({str(problem) for problem in caught.value.problems})
