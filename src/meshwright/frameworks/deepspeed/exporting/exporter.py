"""Export to DeepSpeed 0.19.8 with a Hugging Face model: a configuration file and a launcher.

``deepspeed/ds_config.json`` holds what DeepSpeed reads, ``deepspeed/launch.sh`` starts a training script with it under
torchrun on a node, ``deepspeed/job.sbatch`` starts that under Slurm. Keys are held against the release's own list,
``frameworks/deepspeed/deepspeed-0.19.8.txt``: fields of its typed sections, and the names that the rest of
``runtime/config.py`` asks for, since DeepSpeed itself takes any key at the top.
"""

import json

from meshwright.cluster.cluster import Cluster
from meshwright.frameworks.deepspeed.options import TABLE
from meshwright.frameworks.exporting.export_result import Export, foreign_stack_refusals
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
from meshwright.launchers.launch_script import header, launch_script, sbatch_script, torchrun
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.stack.stack import Stack

TARGET, RELEASE = TABLE.target, TABLE.release


def export_deepspeed(plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> Export:
    """Return the files that run ``plan``. Raises UnsupportedError with all that DeepSpeed cannot express."""
    refuse_unsayable(plan, model, cluster, stack_of_target(TARGET, stack))
    uniform = read_uniform(plan, model)
    facts, options = plan_facts(uniform, model.architecture, stack), _options(uniform)
    config = nested(written_values(TABLE.rows, facts))
    assert not list(unknown_keys(config, TABLE.names))
    run: list[Option] = [(name,) for name in ("--deepspeed", *RUN_OPTIONS)]
    assert_known([*options, *run], TARGET, RELEASE)
    top, job = header(TARGET, RELEASE, uniform.summary()), job_for(cluster, model.name, plan)
    body = [*script_lines(uniform, options), _start(job)]
    foreign = foreign_stack_refusals(stack, uniform.recompute, TARGET, RELEASE, selective=LAYERS)
    return Export(
        target=TARGET,
        release=RELEASE,
        files={
            "deepspeed/ds_config.json": json.dumps(config, indent=2) + "\n",
            "deepspeed/launch.sh": launch_script(top, job, body, sources=()),
            "deepspeed/job.sbatch": sbatch_script(top, job, '"$@"'),
        },
        refused=(*foreign, *script_refusals(uniform)),
    )


def _options(plan: UniformPlan) -> list[Option]:
    """TrainingArguments refuse a precision that is not the file's."""
    precision = plan.long.workload.precision
    options = [*trainer_options(plan), (f"--{precision}", "true")]
    if plan.recompute == "full":
        options.append(("--gradient_checkpointing", "true"))
    return options


def _start(job: Job) -> str:
    words = ['"${TRAIN_SCRIPT}"', '--deepspeed "${HERE}/ds_config.json"']
    return torchrun(job, [*words, '"${TRAINER_ARGS[@]}"', '"${RUN_ARGS[@]}"', '"$@"'])
