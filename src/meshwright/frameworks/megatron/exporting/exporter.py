"""Export to Megatron-LM: arguments of ``pretrain_gpt.py`` for megatron-core 0.19.2.

``megatron/args.sh`` holds model and plan, one option a line; ``megatron/launch.sh`` runs them under torchrun
on a node with mock data unless DATA_PATH is set; ``megatron/job.sbatch`` starts it under Slurm. Option names
are held against the release's own list. Source: megatron-core 0.19.2, ``megatron/training/arguments.py``.
"""

from meshwright.cluster.cluster import Cluster
from meshwright.frameworks.exporting.export_result import Export, foreign_stack_refusals
from meshwright.frameworks.exporting.plan_facts import plan_facts
from meshwright.frameworks.exporting.sequence_packing import packing_refusals
from meshwright.frameworks.exporting.target_rules import refuse_unsayable, stack_of_target
from meshwright.frameworks.exporting.uniform_plan import UniformPlan, read_uniform
from meshwright.frameworks.megatron.exporting.model_options import family_refusals, model_options
from meshwright.frameworks.megatron.exporting.multi_token_prediction import next_token_refusals
from meshwright.frameworks.megatron.exporting.plan_to_options import STRATEGIES, plan_refusals
from meshwright.frameworks.megatron.options import PLAN, TABLE, VOCAB
from meshwright.frameworks.option_names import Option, assert_known, bash_array
from meshwright.frameworks.option_table import written_options
from meshwright.launchers.job_nodes import Job, job_for
from meshwright.launchers.launch_script import header, launch_script, sbatch_script, torchrun
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.stack.stack import Stack

TARGET, RELEASE = TABLE.target, TABLE.release
SELECTIVE = "core_attn"
"""What the target recomputes or keeps under selective recomputation."""
RUN_OPTIONS = (
    *("--mock-data", "--tokenizer-type", VOCAB, "--data-path", "--tokenizer-model", "--split"),
    *("--train-iters", "--lr", "--eval-iters", "--log-interval", "--log-throughput"),
    *("--save", "--load", "--save-interval"),
)


def export_megatron(plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> Export:
    """Return the scripts that run ``plan``. Raises UnsupportedError with all that Megatron cannot express."""
    refuse_unsayable(plan, model, cluster, stack_of_target(TARGET, stack))
    arch, uniform = model.architecture, read_uniform(plan, model)
    facts = plan_facts(uniform, arch, stack)
    options = [*model_options(arch, facts), *written_options(PLAN, facts)]
    run: list[Option] = [(name,) for name in RUN_OPTIONS]
    assert_known([*options, *run], TARGET, RELEASE)
    foreign = foreign_stack_refusals(stack, uniform.recompute, TARGET, RELEASE, selective=SELECTIVE)
    job = job_for(cluster, model.name, plan)
    return Export(
        target=TARGET,
        release=RELEASE,
        files={
            "megatron/args.sh": _args(uniform, options),
            "megatron/launch.sh": launch_script(_top(uniform), job, _body(uniform, model, cluster, job)),
            "megatron/job.sbatch": sbatch_script(_top(uniform), job),
        },
        refused=(
            *foreign,
            *plan_refusals(facts),
            *packing_refusals(uniform, "megatron"),
            *family_refusals(arch),
            *next_token_refusals(uniform, arch),
        ),
    )


def _top(plan: UniformPlan, *remarks: str) -> str:
    return header(TARGET, RELEASE, plan.summary(), *remarks)


def _args(plan: UniformPlan, options: list[Option]) -> str:
    top = _top(
        plan,
        "Rotary scaling for long contexts is no part of a plan: add it where a checkpoint has it.",
        "shellcheck shell=bash",
    )
    return f"{top}\n{bash_array('MEGATRON_ARGS', options)}\n"


def device_max_connections(plan: UniformPlan, cluster: Cluster) -> list[str]:
    """CUDA_DEVICE_MAX_CONNECTIONS: 1 for tp or cp before Blackwell (which brought fp4), never for FSDP."""
    if plan.sharding in STRATEGIES:
        return ["unset CUDA_DEVICE_MAX_CONNECTIONS"]
    older = "fp4" not in cluster.pool.device.peak_flops
    return ["export CUDA_DEVICE_MAX_CONNECTIONS=1"] if older and plan.tp * plan.cp > 1 else []


def _body(plan: UniformPlan, model: ModelGraph, cluster: Cluster, job: Job) -> list[str]:
    vocab = model.architecture.vocab
    return [
        "# Set these for your site. Without DATA_PATH the run reads mock data.",
        'MEGATRON_DIR="${MEGATRON_DIR:-.}"  # a checkout of Megatron-LM at core_v0.19.2',
        "DATA_ARGS=(",
        "  --mock-data",
        "  --tokenizer-type NullTokenizer",
        f"  --vocab-size {vocab}",
        ")",
        'if [[ -n "${DATA_PATH:-}" ]]; then',
        "  DATA_ARGS=(",
        '    --data-path "${DATA_PATH}"',
        "    --split 100,0,0",
        '    --tokenizer-type "${TOKENIZER_TYPE:-HuggingFaceTokenizer}"',
        '    --tokenizer-model "${TOKENIZER_MODEL:?set it with DATA_PATH}"',
        "  )",
        "fi",
        "RUN_ARGS=(",
        '  --train-iters "${TRAIN_ITERS:-100}"',
        '  --lr "${LR:-1e-4}"',
        "  --eval-iters 0",
        "  --log-interval 1",
        "  --log-throughput",
        ")",
        'if [[ -n "${CHECKPOINT_DIR:-}" ]]; then',
        "  RUN_ARGS+=(",
        '    --save "${CHECKPOINT_DIR}"',
        '    --load "${CHECKPOINT_DIR}"',
        '    --save-interval "${SAVE_INTERVAL:-1000}"',
        "  )",
        "fi",
        *device_max_connections(plan, cluster),
        "",
        torchrun(
            job,
            [
                '"${MEGATRON_DIR}/pretrain_gpt.py"',
                '"${MEGATRON_ARGS[@]}"',
                '"${DATA_ARGS[@]}"',
                '"${RUN_ARGS[@]}"',
                '"$@"',
            ],
        ),
    ]
