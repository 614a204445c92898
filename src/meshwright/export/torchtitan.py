"""Export to torchtitan 0.3.0: a configuration function by name, dotted options, a subcommand.

There is no file format: ``torchtitan/args.sh`` holds the command line, ``torchtitan/launch.sh`` runs it under
torchrun on a node, ``torchtitan/job.sbatch`` starts that under Slurm. The defaults read the small data set
and the tokenizer of a checkout. Option names are held against the release's own list.
"""

from meshwright.cluster.graph import Cluster
from meshwright.errors import Problem
from meshwright.export.launch import Job, header, job_for, launch_script, sbatch_script, torchrun
from meshwright.export.option_list import Option, assert_known, bash_array
from meshwright.export.packing import packing_refusals
from meshwright.export.result import Export, foreign_stack_refusals
from meshwright.export.torchtitan_limits import plan_problems
from meshwright.export.torchtitan_models import find_model
from meshwright.export.torchtitan_plan import checkpointing, plan_options, plan_refusals
from meshwright.export.uniform import UniformPlan, read_uniform, unsupported_error
from meshwright.model.graph import ModelGraph
from meshwright.plan.long import LongPlan
from meshwright.stack.stack import Stack

TARGET, RELEASE = "torchtitan", "0.3.0"
SELECTIVE = "every second matmul and attention kept"
"""What the target recomputes or keeps under selective recomputation."""
RUN_OPTIONS = ("--training.steps", "--hf_assets_path", "--dataloader.dataset")


def export_torchtitan(plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> Export:
    """The scripts that run ``plan``. Raises UnsupportedError with all that torchtitan cannot say."""
    uniform = read_uniform(plan, model, cluster)
    shipped = find_model(model.architecture, plan.workload.precision)
    if isinstance(shipped, Problem):
        raise unsupported_error(plan, [shipped, *uniform.problems, *plan_problems(uniform, None)])
    problems = [*uniform.problems, *plan_problems(uniform, shipped)]
    if problems:
        raise unsupported_error(plan, problems)
    options = plan_options(uniform, shipped)
    subcommand = checkpointing(uniform)
    run: list[Option] = [(name,) for name in (*RUN_OPTIONS, subcommand)]
    assert_known([*options, *run], TARGET, RELEASE)
    foreign = foreign_stack_refusals(stack, uniform.recompute, TARGET, RELEASE, selective=SELECTIVE)
    job = job_for(cluster, model.name, plan)
    return Export(
        target=TARGET,
        release=RELEASE,
        files={
            "torchtitan/args.sh": _args(uniform, options, subcommand),
            "torchtitan/launch.sh": launch_script(_top(uniform), job, _body(job)),
            "torchtitan/job.sbatch": sbatch_script(_top(uniform), job),
        },
        refused=(*foreign, *plan_refusals(uniform), *packing_refusals(uniform, "torchtitan")),
    )


def _top(plan: UniformPlan, *remarks: str) -> str:
    return header(TARGET, RELEASE, plan.summary(), *remarks)


def _args(plan: UniformPlan, options: list[Option], subcommand: str) -> str:
    arrays = [bash_array("TORCHTITAN_ARGS", options), bash_array("TORCHTITAN_SUBCOMMANDS", [(subcommand,)])]
    return "\n".join([_top(plan, "shellcheck shell=bash"), *arrays, ""])


def _body(job: Job) -> list[str]:
    return [
        "# Set these for your site. The defaults lie in a checkout of torchtitan at v0.3.0.",
        'cd -- "${TORCHTITAN_DIR:-.}"',
        "RUN_ARGS=(",
        '  --training.steps "${TRAIN_STEPS:-100}"',
        '  --hf_assets_path "${HF_ASSETS_PATH:-./tests/assets/tokenizer}"',
        '  --dataloader.dataset "${DATASET:-c4_test}"',
        ")",
        "",
        torchrun(
            job,
            [
                "-m torchtitan.train",
                '"${TORCHTITAN_ARGS[@]}"',
                '"${RUN_ARGS[@]}"',
                '"$@"',
                '"${TORCHTITAN_SUBCOMMANDS[@]}"',
            ],
        ),
    ]
