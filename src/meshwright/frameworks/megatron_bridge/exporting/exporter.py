"""Export to Megatron-Bridge 0.6.2: a recipe by name, and overrides of what it returns.

``bridge/overrides.yaml`` holds the plan in the tree of Bridge's configuration, ``bridge/run.py`` calls the recipe,
merges the file and then ``KEY=VALUE`` words of its command line, ``bridge/launch.sh`` runs that under torchrun on a
node with mock data unless DATA_PATH is set, ``bridge/job.sbatch`` starts it under Slurm. Names are held against the
release's own list, the fields of its configuration classes. Sources: Megatron-Bridge 0.6.2,
``training/utils/omegaconf_utils.py``, ``training/pretrain.py``, ``recipes``.
"""

from meshwright.cluster.cluster import Cluster
from meshwright.frameworks.exporting.adapter_options import bridge_section
from meshwright.frameworks.exporting.export_result import Export, Refusal, foreign_stack_refusals
from meshwright.frameworks.exporting.plan_facts import plan_facts
from meshwright.frameworks.exporting.sequence_packing import packing_refusals
from meshwright.frameworks.exporting.target_rules import refuse_unsayable, stack_of_target
from meshwright.frameworks.exporting.uniform_plan import UniformPlan, read_uniform
from meshwright.frameworks.megatron.exporting.exporter import SELECTIVE, device_max_connections
from meshwright.frameworks.megatron.exporting.multi_token_prediction import next_token_refusals
from meshwright.frameworks.megatron_bridge.exporting.plan_to_options import plan_refusals
from meshwright.frameworks.megatron_bridge.options import TABLE
from meshwright.frameworks.nested_keys import unknown_keys
from meshwright.frameworks.option_table import nested, written_values
from meshwright.launchers.job_nodes import Job, job_for
from meshwright.launchers.launch_script import header, launch_script, sbatch_script, torchrun
from meshwright.launchers.yaml_text import yaml_documents
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.rules.stack_limits.stack_models import rows_of
from meshwright.stack.stack import Stack
from meshwright.workload.adapter import Adapter

TARGET, RELEASE = TABLE.target, TABLE.release
RUN_FIELDS = (
    *(
        "train.train_iters",
        "optimizer.lr",
        "optimizer.min_lr",
        "validation.eval_iters",
        "logger.log_interval",
    ),
    *("dataset.data_path", "tokenizer.tokenizer_type", "tokenizer.tokenizer_model"),
    *("checkpoint.save", "checkpoint.load", "checkpoint.save_interval", "checkpoint.pretrained_checkpoint"),
)
"""What ``launch.sh`` overrides with the values of a site."""
RUN = '''\
"""Runs a recipe of Megatron-Bridge with overrides.yaml beside this file, then KEY=VALUE words."""

import sys
from pathlib import Path

from megatron.bridge import recipes
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

if __name__ == "__main__":
    recipe, *words = sys.argv[1:]
    config = getattr(recipes, recipe)()
    # Some recipes name their precision: only its fields can be overridden one by one.
    config.mixed_precision = get_mixed_precision_config(config.mixed_precision)
    overrides = Path(__file__).with_name("overrides.yaml")
    process_config_with_overrides(config, str(overrides), words)
    pretrain(config, forward_step)
'''


RUN_ADAPTERS = '''\
"""Trains adapters by a recipe of Megatron-Bridge with overrides.yaml beside this file, then KEY=VALUE words."""

import sys
from pathlib import Path
from tempfile import NamedTemporaryFile

import yaml
from megatron.bridge import recipes
from megatron.bridge.peft.canonical_lora import CanonicalLoRA
from megatron.bridge.training.finetune import finetune
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

if __name__ == "__main__":
    recipe, *words = sys.argv[1:]
    config = getattr(recipes, recipe)()
    # Some recipes name their precision: only its fields can be overridden one by one.
    config.mixed_precision = get_mixed_precision_config(config.mixed_precision)
    overrides = yaml.safe_load(Path(__file__).with_name("overrides.yaml").read_text(encoding="utf-8"))
    # Adapters are an object of the configuration, which no override makes.
    adapter = overrides.pop("peft")
    adapter.pop("_target_")
    with NamedTemporaryFile("w", suffix=".yaml") as others:
        yaml.safe_dump(overrides, others)
        others.flush()
        process_config_with_overrides(config, others.name, words)
    config.peft = CanonicalLoRA(**adapter)
    finetune(config, forward_step)
'''


def export_bridge(plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> Export:
    """Return the files that run ``plan``. Raises UnsupportedError with all that Bridge cannot express."""
    bridge = stack_of_target(TARGET, stack)
    refuse_unsayable(plan, model, cluster, bridge)
    arch, uniform = model.architecture, read_uniform(plan, model)
    recipe = rows_of(arch, bridge)[0].config
    facts = plan_facts(uniform, arch, stack)
    overrides = nested(written_values(TABLE.rows, facts))
    unknown = [*unknown_keys(overrides, TABLE.names), *sorted(set(RUN_FIELDS) - TABLE.names)]
    assert not unknown, f"{TABLE.full_name} has no fields {unknown}"
    adapter = workload_of(plan).adapter
    if adapter is not None:
        overrides["peft"] = bridge_section(adapter, model)
    foreign = foreign_stack_refusals(stack, uniform.recompute, TARGET, RELEASE, selective=SELECTIVE)
    job, top = job_for(cluster, model.name, plan), header(TARGET, RELEASE, uniform.summary())
    note = header(TARGET, RELEASE, uniform.summary(), f"Overrides of {recipe}: run.py merges them.")
    return Export(
        target=TARGET,
        release=RELEASE,
        files={
            "bridge/overrides.yaml": yaml_documents(note, [overrides]),
            "bridge/run.py": f"{top}\n{RUN if adapter is None else RUN_ADAPTERS}",
            "bridge/launch.sh": launch_script(top, job, _body(uniform, recipe, cluster, job), sources=()),
            "bridge/job.sbatch": sbatch_script(top, job),
        },
        refused=(
            *foreign,
            *plan_refusals(facts),
            *([] if adapter is None else adapter_refusals(adapter)),
            *packing_refusals(uniform, "bridge"),
            *next_token_refusals(uniform, arch),
        ),
    )


_BASE = (
    "# Adapters train on a model that AutoBridge has converted from the hub.",
    "RUN_ARGS+=(\"checkpoint.pretrained_checkpoint='${PRETRAINED_DIR:?a converted checkpoint of the model}'\")",
)


def adapter_refusals(adapter: Adapter) -> list[Refusal]:
    """Return what Megatron-Bridge does with adapters in another way than the plan."""
    cut = (
        "under tp it cuts A along its rank as well, and gathers x·Aᵀ; a plan keeps what tp does not cut whole"
    )
    data = "the recipe reads pre-training data; recipes for fine-tuning bring data of their own"
    return [
        Refusal("workload.task", "lora", data),
        Refusal("workload.adapter.form", adapter.form, cut),
    ]


def _body(plan: UniformPlan, recipe: str, cluster: Cluster, job: Job) -> list[str]:
    return [
        "# Set these for your site. Without DATA_PATH the run reads mock data. The recipe reads the model's",
        "# configuration from the hub: HF_TOKEN where it is gated, or HF_HOME with a copy.",
        "RUN_ARGS=(",
        '  "train.train_iters=${TRAIN_ITERS:-100}"',
        '  "optimizer.lr=${LR:-1e-4}"',
        '  "optimizer.min_lr=${MIN_LR:-0}"',
        '  "validation.eval_iters=0"',
        '  "logger.log_interval=1"',
        ")",
        'if [[ -n "${DATA_PATH:-}" ]]; then',
        "  RUN_ARGS+=(",
        "    \"dataset.data_path='${DATA_PATH}'\"",
        '    "tokenizer.tokenizer_type=${TOKENIZER_TYPE:-HuggingFaceTokenizer}"',
        "    \"tokenizer.tokenizer_model='${TOKENIZER_MODEL:?set it with DATA_PATH}'\"",
        "  )",
        "fi",
        'if [[ -n "${CHECKPOINT_DIR:-}" ]]; then',
        "  RUN_ARGS+=(",
        "    \"checkpoint.save='${CHECKPOINT_DIR}'\"",
        "    \"checkpoint.load='${CHECKPOINT_DIR}'\"",
        '    "checkpoint.save_interval=${SAVE_INTERVAL:-1000}"',
        "  )",
        "else",
        "  RUN_ARGS+=(checkpoint.save=null checkpoint.load=null)",
        "fi",
        *(_BASE if plan.long.workload.adapter else ()),
        *device_max_connections(plan, cluster),
        "",
        torchrun(job, ['"${HERE}/run.py"', recipe, '"${RUN_ARGS[@]}"', '"$@"']),
    ]
