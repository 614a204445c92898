"""Export to Hugging Face Accelerate 1.15.0: a configuration file and a launcher.

``accelerate/config.yaml`` holds what Accelerate reads, ``accelerate/launch.sh`` runs ``accelerate launch`` with it on a
node, ``accelerate/job.sbatch`` starts that under Slurm. Accelerate ignores keys below the top that it does not know,
so they are held against the release's own list, ``frameworks/accelerate/accelerate-1.15.0.txt``: fields of its
``ClusterConfig`` and what the parser of ``accelerate launch`` takes from its sections.
"""

import json
from collections.abc import Iterator, Mapping

from meshwright.cluster.cluster import Cluster
from meshwright.errors import UnsupportedError
from meshwright.frameworks.accelerate.exporting.adapter_script import (
    SCRIPT,
    library_refusals,
    script_problems,
)
from meshwright.frameworks.accelerate.options import TABLE
from meshwright.frameworks.exporting.adapter_options import script_variables
from meshwright.frameworks.exporting.export_result import Export, Refusal, foreign_stack_refusals
from meshwright.frameworks.exporting.hugging_face_script import (
    LAYERS,
    RUN_OPTIONS,
    script_lines,
    script_refusals,
    trainer_options,
)
from meshwright.frameworks.exporting.plan_facts import plan_facts
from meshwright.frameworks.exporting.target_rules import refuse_unsayable, stack_of_target
from meshwright.frameworks.exporting.uniform_plan import UniformPlan, read_uniform
from meshwright.frameworks.nested_keys import unknown_keys
from meshwright.frameworks.option_names import Option, assert_known
from meshwright.frameworks.option_table import nested, written_values
from meshwright.launchers.job_nodes import Job, job_for
from meshwright.launchers.launch_script import header, launch_script, sbatch_script
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.stack.stack import Stack

TARGET, RELEASE = TABLE.target, TABLE.release
LAUNCH_OPTIONS = (
    "--config_file",
    "--num_machines",
    "--main_process_ip",
    "--main_process_port",
    "--rdzv_backend",
    "--machine_rank",
)
EACH_BATCH = '{"gradient_accumulation_kwargs": {"sync_each_batch": true}}'
"""Gradients are reduced, and so sharded, after every micro-batch; else FSDP2 keeps them whole until the last."""


def export_accelerate(plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> Export:
    """Return the files that run ``plan``. Raises UnsupportedError with all that Accelerate cannot express."""
    refuse_unsayable(plan, model, cluster, stack_of_target(TARGET, stack))
    uniform = read_uniform(plan, model)
    adapter = workload_of(plan).adapter
    problems = [] if adapter is None else list(script_problems(adapter, uniform))
    if problems:
        raise UnsupportedError(problems)
    job = job_for(cluster, model.name, plan)
    facts = plan_facts(uniform, model.architecture, stack) | {"nodes": job.nodes}
    config, options = nested(written_values(TABLE.rows, facts)), _options(uniform)
    assert not list(unknown_keys(config, TABLE.names))
    run: list[Option] = [(name,) for name in (*LAUNCH_OPTIONS, *RUN_OPTIONS)]
    assert_known([*options, *run], TARGET, RELEASE)
    top = header(TARGET, RELEASE, uniform.summary())
    variables = None if adapter is None else script_variables(adapter, model)
    body = [*_remarks(uniform), *script_lines(uniform, options, variables), _start(job)]
    foreign = foreign_stack_refusals(stack, uniform.recompute, TARGET, RELEASE, selective=LAYERS)
    return Export(
        target=TARGET,
        release=RELEASE,
        files={
            "accelerate/config.yaml": "\n".join([top, *_yaml(config), ""]),
            "accelerate/launch.sh": launch_script(top, job, body, sources=()),
            "accelerate/job.sbatch": sbatch_script(top, job, '"$@"'),
            **({} if adapter is None else {"accelerate/train.py": f"{top}\n{SCRIPT}"}),
        },
        refused=(
            *foreign,
            *([] if adapter is None else library_refusals(adapter)),
            *_state_refusals(uniform),
            *script_refusals(uniform),
        ),
    )


def _state_refusals(plan: UniformPlan) -> list[Refusal]:
    if plan.sharding != "zero2":
        return []
    why = "parameters rest sharded too and are gathered in every micro-batch (reshard_after_forward false)"
    return [Refusal("sharding", "zero2", why)]


def _options(plan: UniformPlan) -> list[Option]:
    """FSDP recomputes by its own configuration; without it the training script does."""
    options = trainer_options(plan)
    if plan.recompute == "full" and plan.sharding == "none":
        options.append(("--gradient_checkpointing", "true"))
    if plan.sharding != "none" and plan.micro_batches > 1:
        options.append(("--accelerator_config", EACH_BATCH))
    return options


def _remarks(plan: UniformPlan) -> list[str]:
    if plan.tp == 1:
        return []
    return [f"# The script loads its model cut over tp = {plan.tp} (transformers' DistributedConfig)."]


def _yaml(config: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Lines of YAML. Text is quoted: Accelerate's reader takes a bare NO for false."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{indent}{key}: {json.dumps(value)}"


def _meeting(job: Job) -> list[str]:
    """Rendezvous of several nodes: in any order, or with a fixed rank each."""
    if job.nodes == 1:
        return []
    return ["--rdzv_backend c10d"] if job.host_order is None else ['--machine_rank "${NODE_RANK}"']


def _start(job: Job) -> str:
    """``accelerate launch`` on one node of the job; the nodes meet at the first one."""
    words = [
        "exec accelerate launch",
        '--config_file "${HERE}/config.yaml"',
        '--num_machines "${NNODES}"',
        '--main_process_ip "${MASTER_ADDR}"',
        '--main_process_port "${MASTER_PORT}"',
        *_meeting(job),
        '"${TRAIN_SCRIPT}"',
        '"${TRAINER_ARGS[@]}"',
        '"${RUN_ARGS[@]}"',
        '"$@"',
    ]
    return " \\\n  ".join(words)
