"""Probe jobs: whole, different, likely to fit, and runnable."""

import subprocess
from functools import cache

import pytest
from local_cluster import machine_and_model

from meshwright.errors import InfeasibleError, InputError
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.resolve import resolve
from meshwright.verbs.probe.probe_jobs import probes

PLAN = """plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 8
workload: {seq_len: 4096, global_batch: 32}
stack: STACK
layout: {dp_shard: 4, tp: 2}
sharding: SHARDING
"""


@cache
def made(stack="megatron-core", sharding="zero1", **asked):
    text = PLAN.replace("STACK", stack).replace("SHARDING", sharding)
    return probes(resolve(parse_plan(text)), **{"top": 3} | asked)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("stack", "sharding", "target"), [("megatron-core", "zero1", "megatron"),
                                                            ("torchtitan", "zero3", "torchtitan"),
                                                            ("meshwright", "zero1", "meshwright")])  # fmt: skip
def test_jobs_have_a_plan_and_the_files_of_their_stack(stack, sharding, target):
    found = made(stack, sharding)
    assert found.target == target
    assert len({job.name for job in found.jobs}) == len(found.jobs) == 3
    assert len({(j.plan.layout.tp, j.plan.layout.pp, j.plan.pipeline.micro_batch) for j in found.jobs}) > 1
    for job in found.jobs:
        assert parse_plan(job.files["plan.yaml"]) == job.plan
        assert f"{target}/launch.sh" in job.files
        assert job.step_time_s <= 1.25 * found.jobs[0].step_time_s
    page = found.files()["README.md"]
    assert all(job.name in page for job in found.jobs)


def test_the_plan_itself_is_the_first_job():
    assert made("megatron-core", "zero1").jobs[0].plan.layout.tp == 2


def test_a_plan_that_does_not_fit_is_not_probed():
    text = PLAN.replace("STACK", "megatron-core").replace("SHARDING", "none").replace("8b", "70b")
    with pytest.raises(InfeasibleError, match="does not fit"):
        probes(resolve(parse_plan(text)), 3)


@pytest.mark.slow
def test_run_scripts_are_shell_and_ask_for_twenty_steps(tmp_path):
    for target in ("megatron", "torchtitan"):
        found = made(*(("torchtitan", "zero3") if target == "torchtitan" else ()), top=1)
        script = found.jobs[0].files["run.sh"]
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        (tmp_path / target / target).mkdir(parents=True)
        fake = tmp_path / target / target / "launch.sh"
        fake.write_text('echo "steps ${TRAIN_ITERS} ${TRAIN_STEPS} $*"\n')
        (tmp_path / target / "run.sh").write_text(script)
        subprocess.run(["bash", str(tmp_path / target / "run.sh"), "--more"], check=True, capture_output=True)
        logged = (tmp_path / target / "probe.log").read_text()
        assert logged.startswith("steps 20 20")
        assert logged.rstrip().endswith("--more")


@pytest.mark.parametrize(
    ("asked", "match"), [({"top": 0}, "at least 1"), ({"target": "nothing"}, "no target of export")]
)
def test_what_can_not_be_probed(asked, match):
    with pytest.raises(InputError, match=match):
        made(**asked)


UNEVEN = """plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 32
workload: {seq_len: 8192, global_batch: 32}
stack: torchtitan
layouts:
  main:
    grid: {dp_shard: 4, tp: 2}
    order: [tp, cp, dp_shard, dp_replicate, pp]
    sequence_parallel: true
states: {parameter: [dp_shard, cp], gradient: [dp_shard, cp], optimizer: [dp_shard, cp]}
gather: per-step
layers: {embed: {layout: main}, 0..31: {layout: main, recompute: selective}, head: {layout: main}}
pipeline:
  stages: [[embed, 0..3], [4..8], [9..12], [13..16], [17..20], [21..24], [25..28], [29..31, head]]
  placement: [0, 1, 2, 3, 0, 1, 2, 3]
  schedule: {name: interleaved-1f1b}
"""


def test_the_jobs_of_a_plan_in_full_keep_its_stages_and_differ():
    plan = parse_plan(UNEVEN)
    found = probes(resolve(plan), 3)
    assert found.jobs[0].plan == plan
    assert len({(job.plan.layouts["main"].grid, job.plan.pipeline.micro_batch) for job in found.jobs}) == 3
    for job in found.jobs:
        assert job.plan.pipeline.stages == plan.pipeline.stages
        assert parse_plan(job.files["plan.yaml"]) == job.plan
        assert job.step_time_s <= 1.25 * found.jobs[0].step_time_s
        assert "torchtitan/launch.sh" in job.files
    assert "in full" in found.to_json()["remark"]
    assert found.remark in found.files()["README.md"]


def test_where_no_change_of_a_plan_in_full_will_do_it_is_said_why():
    """One sequence per replica and no head left to cut: what remains is slower by more than a quarter."""
    alone = UNEVEN.replace("x 32", "x 4").replace("dp_shard: 4, tp: 2", "dp_shard: 1, tp: 1")
    alone = alone.replace("sequence_parallel: true", "sequence_parallel: false").replace("8192", "4096")
    found = probes(resolve(parse_plan(alone.replace("global_batch: 32", "global_batch: 4"))), 3)
    assert len(found.jobs) == 1
    assert "Only 1 of 3 jobs: no change of tp, cp, ep or micro-batch that keeps its stages" in found.remark
    assert "`calibrate` needs 3 runs" in found.remark


@pytest.mark.slow
def test_a_short_plan_with_all_its_jobs_has_no_remark():
    assert made("megatron-core", "zero1").to_json()["remark"] is None


@pytest.mark.slow
def test_where_layouts_are_few_other_micro_batches_are_probed(tmp_path):
    """Two devices have few layouts, and a calibration needs three runs."""
    cluster, model = (str(tmp_path / name) for name in machine_and_model(tmp_path))
    text = PLAN.replace("STACK", "meshwright").replace("SHARDING", "zero1").replace("llama-3.1-8b", model)
    text = text.replace("h100-sxm-80gb x 8", cluster).replace("4096, global_batch: 32", "64, global_batch: 8")
    text = text.replace("dp_shard: 4, tp: 2", "dp_shard: 2") + "pipeline: {micro_batch: 4}\n"
    found = probes(resolve(parse_plan(text)), 3)
    assert {(j.plan.layout.pp, j.plan.pipeline.micro_batch) for j in found.jobs} > {(1, 4), (1, 2)}
    assert len(found.jobs) == 3
