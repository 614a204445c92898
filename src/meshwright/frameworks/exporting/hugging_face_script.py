"""The part of a launch script that names a training script on Hugging Face's classes and tells it its numbers.

Configurations of DeepSpeed and Accelerate leave micro-batch, accumulation, sequence length and recomputation to the
training script. They are written as options of ``transformers.TrainingArguments``, which run_clm.py of transformers
and the scripts of TRL read, and as environment variables for scripts of another kind. Source of the names:
transformers 5.23.0, ``training_args.py``. ``--gradient_checkpointing`` recomputes every decoder layer.
"""

from collections.abc import Mapping, Sequence

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.exporting.sequence_packing import packing_refusals
from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.frameworks.option_names import Option, bash_array

OPTIMIZERS = {"adamw": "adamw_torch", "sgd": "sgd"}
LENGTH_OPTIONS = {"pretrain": "--block_size", "sft": "--max_length", "lora": "--block_size"}
"""What run_clm.py, TRL's sft.py and our script of adapters call the sequence length."""
RUN_OPTIONS = ("--max_steps", "--learning_rate", "--output_dir")
LAYERS = "whole decoder layers"
"""What transformers recomputes."""


def trainer_options(plan: UniformPlan) -> list[Option]:
    """Batch and optimizer of the plan in the words of TrainingArguments."""
    return [
        ("--per_device_train_batch_size", str(plan.micro_batch)),
        ("--gradient_accumulation_steps", str(plan.micro_batches)),
        ("--optim", OPTIMIZERS[plan.long.workload.optimizer_in_full.name]),
    ]


def script_refusals(plan: UniformPlan) -> list[Refusal]:
    """Return the keys that the training script decides, or that transformers' tensor parallelism leaves whole."""
    refusals = packing_refusals(plan, "script")
    if plan.long.workload.task == "sft":
        why = "the training script decides what is trained: give TRAIN_SCRIPT one for fine-tuning"
        refusals.append(Refusal("workload.task", "sft", why))
    if plan.tp > 1:
        why = "transformers' plan cuts decoder layers; an untied embedding table stays whole on every tp rank"
        refusals.append(Refusal("layout.tp", str(plan.tp), why))
    return refusals


OWN_SCRIPT = (
    "# The training script is yours: one that reads Hugging Face's TrainingArguments, as run_clm.py of",
    "# transformers and the scripts of TRL do. Its model and data come behind: bash launch.sh --config_name …",
    'TRAIN_SCRIPT="${TRAIN_SCRIPT:?a script that reads transformers.TrainingArguments}"',
)
ADAPTER_SCRIPT = (
    "# train.py trains adapters with PEFT: bash launch.sh --model NAME --data TEXTS.jsonl. A script of your own",
    "# that reads transformers.TrainingArguments finds the adapters in the variables.",
    'TRAIN_SCRIPT="${TRAIN_SCRIPT:-${HERE}/train.py}"',
)


def script_lines(
    plan: UniformPlan, options: Sequence[Option], adapter: Mapping[str, str] | None = None
) -> list[str]:
    """Shell lines: the script, the numbers of the plan, and what a site chooses; ``adapter`` are its variables."""
    work = plan.long.workload
    return [
        *(OWN_SCRIPT if adapter is None else ADAPTER_SCRIPT),
        "# What the configuration has no key for; a script of another kind finds it in these variables.",
        f"export MICRO_BATCH={plan.micro_batch} ACCUMULATION={plan.micro_batches}",
        f"export SEQ_LEN={work.seq_len} GLOBAL_BATCH={work.global_batch} RECOMPUTE={plan.recompute}",
        *([] if adapter is None else ["export " + " ".join(f"{k}={v}" for k, v in adapter.items())]),
        bash_array("TRAINER_ARGS", options),
        "RUN_ARGS=(",
        f'  "${{SEQ_LEN_OPTION:-{LENGTH_OPTIONS[work.task]}}}" "${{SEQ_LEN}}"',
        '  --max_steps "${TRAIN_STEPS:-100}"',
        '  --learning_rate "${LR:-1e-4}"',
        '  --output_dir "${OUTPUT_DIR:-output}"',
        ")",
        "",
    ]
