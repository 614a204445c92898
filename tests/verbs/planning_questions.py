"""Questions and plan files that the tests of the verbs share."""

from functools import cache

from meshwright.plans.forms.short import ShortPlan, WorkloadSpec
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer

PLAN = """\
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 16
workload: {seq_len: 4096, global_batch: 64}
stack: generic
layout: {pp: 2, dp_shard: 4, tp: 2}
sharding: zero1
"""

TWO_LAYOUTS = """plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 16
stack: meshwright
workload: {seq_len: 4096, global_batch: 64}
layouts:
  wide:
    grid: {dp_shard: 4, tp: 2}
    order: [tp, cp, dp_shard, dp_replicate, pp]
    states: {optimizer: [dp_shard, cp]}
  sharded:
    grid: {dp_shard: 8}
    order: [tp, cp, dp_shard, dp_replicate, pp]
    states: {optimizer: [dp_shard, cp], gradient: [dp_shard, cp], parameter: [dp_shard, cp]}
layers:
  embed: {layout: wide}
  0..19: {layout: wide}
  20..31: {layout: sharded, recompute: full}
  head: {layout: sharded}
pipeline: {placement: [0, 1], micro_batch: 1, schedule: {name: 1f1b}}
"""


def header(model: str, cluster: str, *, seq_len: int = 2048, batch: int = 32, stack: str = "megatron-core"):
    """What is asked of the planner, without a choice."""
    workload = WorkloadSpec(seq_len=seq_len, global_batch=batch)
    return ShortPlan(plan=1, model=model, cluster=cluster, workload=workload, stack=stack)


@cache
def planned(
    model: str,
    cluster: str,
    *keep: str,
    top: int = 5,
    schedules: str | None = None,
    recommend: str = "robust",
    **options,
):
    """The planner's answer, found once. A test that changes the planner asks ``planned.__wrapped__``."""
    question = header(model, cluster, **options)
    return answer(PlanRequest(question, keep, top, schedules=schedules, recommend=recommend))


def written(folder, text: str = PLAN, name: str = "plan.yaml"):
    """A plan file."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file
