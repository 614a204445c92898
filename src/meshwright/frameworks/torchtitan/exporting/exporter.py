"""Export to torchtitan 0.3.0: a configuration function by name, dotted options, a subcommand.

There is no file format: ``torchtitan/args.sh`` holds the command line, ``torchtitan/launch.sh`` runs it under
torchrun on a node, ``torchtitan/job.sbatch`` starts that under Slurm. The defaults read the small data set
and the tokenizer of a checkout. Option names are held against the release's own list.
"""

from meshwright.cluster.cluster import Cluster
from meshwright.frameworks.exporting.export_result import Export, foreign_stack_refusals
from meshwright.frameworks.exporting.plan_facts import plan_facts
from meshwright.frameworks.exporting.sequence_packing import packing_refusals
from meshwright.frameworks.exporting.target_rules import refuse_unsayable, stack_of_target
from meshwright.frameworks.exporting.uniform_plan import UniformPlan, read_uniform
from meshwright.frameworks.option_names import Option, assert_known, bash_array
from meshwright.frameworks.option_table import written_options
from meshwright.frameworks.torchtitan.exporting.plan_to_options import local_batch, plan_refusals
from meshwright.frameworks.torchtitan.options import CONFIG, MODULE, TABLE
from meshwright.launchers.job_nodes import Job, job_for
from meshwright.launchers.launch_script import header, launch_script, sbatch_script, torchrun
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.rules.stack_limits.stack_models import rows_of
from meshwright.stack.stack import Stack

TARGET, RELEASE = TABLE.target, TABLE.release
SELECTIVE = "every second matmul and attention kept"
"""What the target recomputes or keeps under selective recomputation."""
RUN_OPTIONS = ("--training.steps", "--hf_assets_path", "--dataloader.dataset")


def export_torchtitan(plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> Export:
    """Return the scripts that run ``plan``. Raises UnsupportedError with all that torchtitan cannot express."""
    titan = stack_of_target(TARGET, stack)
    refuse_unsayable(plan, model, cluster, titan)
    uniform = read_uniform(plan, model)
    rows = rows_of(model.architecture, titan)
    shipped = next(row for row in rows if plan.workload.precision in row.precisions)
    facts = {"layout.ep": 1} | plan_facts(uniform, model.architecture, titan)
    facts["local_batch"] = local_batch(facts)
    named: list[Option] = [(MODULE, shipped.module), (CONFIG, shipped.config)]
    options = [*named, *written_options(TABLE.rows, facts)]
    subcommand = f"activation-checkpoint:{uniform.recompute}"
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
        refused=(*foreign, *plan_refusals(facts), *packing_refusals(uniform, "torchtitan")),
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
