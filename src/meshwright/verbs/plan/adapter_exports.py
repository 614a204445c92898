"""Say at once which export targets cannot train the adapters of a question."""

from collections.abc import Iterator
from dataclasses import replace

from meshwright.errors import Problem
from meshwright.frameworks.exporting.adapter_options import adapter_problems
from meshwright.plans.rules.adapters import stack_problems
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.verbs.plan.proposal import Proposal

STACK_OF_TARGET = {
    "megatron": "megatron-core",
    "bridge": "megatron-bridge",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
}


def with_export_remark(one: Proposal, setting: Setting) -> Proposal:
    """Return the proposal with a remark on the export targets that cannot take its adapters."""
    if setting.workload.task != "lora":
        return one
    if setting.workload.adapter is None:
        hint = "--adapter '{rank: 32}' has others"
        return _remarked(one, f"no export takes adapters of fused matrices and routers: {hint}")
    refused = {
        target: problem.rule
        for target, name in STACK_OF_TARGET.items()
        if (problem := next(_problems(setting, name), None)) is not None
    }
    reasons = "; ".join(f"{target}: {rule}" for target, rule in refused.items())
    takes = [target for target in STACK_OF_TARGET if target not in refused]
    who = f"only export --to {' or '.join(takes)}" if takes else "no export"
    return _remarked(one, f"{who} takes these adapters ({reasons})")


def _remarked(one: Proposal, remark: str) -> Proposal:
    return replace(one, report=replace(one.report, remarks=(*one.report.remarks, remark)))


def _problems(setting: Setting, name: str) -> Iterator[Problem]:
    workload, stack = setting.workload, load_stack(name)
    yield from adapter_problems(workload, setting.model, name)
    if workload.adapter is not None:
        of_stack = stack_problems(workload.adapter, stack, workload.optimizer)
        yield from (problem for problem in of_stack if problem.severity == "error")
