"""Export to Megatron-Bridge 0.6.2: a recipe by name, and overrides of what it returns.

``bridge/overrides.yaml`` holds the plan in the tree of Bridge's configuration, ``bridge/run.py`` calls the recipe,
merges the file and then ``KEY=VALUE`` words of its command line, ``bridge/launch.sh`` runs that under torchrun on a
node with mock data unless DATA_PATH is set, ``bridge/job.sbatch`` starts it under Slurm. Names are held against the
release's own list, the fields of its configuration classes. Sources: Megatron-Bridge 0.6.2,
``training/utils/omegaconf_utils.py``, ``training/pretrain.py``, ``recipes``.
"""

from dataclasses import replace

from meshwright.cluster.graph import Cluster
from meshwright.errors import Problem
from meshwright.export.bridge_limits import plan_problems, plan_refusals
from meshwright.export.bridge_plan import bridge_overrides
from meshwright.export.bridge_recipes import BridgeModel, bridge_models, model_with_recipe
from meshwright.export.launch import Job, header, job_for, launch_script, sbatch_script, torchrun
from meshwright.export.launchers.yaml_text import yaml_documents
from meshwright.export.megatron import SELECTIVE, connections
from meshwright.export.megatron_next_tokens import next_token_refusals
from meshwright.export.nested_keys import unknown_keys
from meshwright.export.option_list import option_names
from meshwright.export.packing import packing_refusals
from meshwright.export.result import Export, foreign_stack_refusals
from meshwright.export.uniform import UniformPlan, read_uniform, unsupported_error
from meshwright.model.architecture import Architecture
from meshwright.model.blocks import build_graph
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_model
from meshwright.model.next_tokens import without_next_tokens
from meshwright.plan.long import LongPlan
from meshwright.stack.stack import Stack

TARGET, RELEASE = "megatron-bridge", "0.6.2"
RUN_FIELDS = (
    *(
        "train.train_iters",
        "optimizer.lr",
        "optimizer.min_lr",
        "validation.eval_iters",
        "logger.log_interval",
    ),
    *("dataset.data_path", "tokenizer.tokenizer_type", "tokenizer.tokenizer_model"),
    *("checkpoint.save", "checkpoint.load", "checkpoint.save_interval"),
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


def export_bridge(plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> Export:
    """The files that run ``plan``. Raises UnsupportedError with all that Bridge cannot say."""
    arch, uniform = model.architecture, read_uniform(plan, model, cluster, next_tokens=True)
    known = _with_recipe(model)
    if isinstance(known, Problem):
        raise unsupported_error(plan, [known, *uniform.problems, *plan_problems(uniform, arch, None)])
    problems = [*uniform.problems, *plan_problems(uniform, arch, known)]
    if problems:
        raise unsupported_error(plan, problems)
    overrides = bridge_overrides(uniform, arch, stack)
    unknown = [*unknown_keys(overrides, option_names(TARGET, RELEASE)), *_unknown_fields()]
    assert not unknown, f"{TARGET} {RELEASE} has no fields {unknown}"
    foreign = foreign_stack_refusals(stack, uniform.recompute, TARGET, RELEASE, selective=SELECTIVE)
    job, top = job_for(cluster, model.name, plan), header(TARGET, RELEASE, uniform.summary())
    note = header(TARGET, RELEASE, uniform.summary(), f"Overrides of {known.recipe}: run.py merges them.")
    return Export(
        target=TARGET,
        release=RELEASE,
        files={
            "bridge/overrides.yaml": yaml_documents(note, [overrides]),
            "bridge/run.py": f"{top}\n{RUN}",
            "bridge/launch.sh": launch_script(top, job, _body(uniform, known, cluster, job), sources=()),
            "bridge/job.sbatch": sbatch_script(top, job),
        },
        refused=(
            *foreign,
            *plan_refusals(uniform, arch, stack),
            *packing_refusals(uniform, "bridge"),
            *next_token_refusals(uniform, arch),
        ),
    )


def _with_recipe(model: ModelGraph) -> BridgeModel | Problem:
    """The main model's row; one that only has the name of ours is another than the recipe's, by any name ours is ours.

    Layers for further tokens are the plan's: they override the recipe's.
    """
    main = without_next_tokens(model.architecture)
    known = model_with_recipe(main.name)
    if isinstance(known, Problem):
        return next((row for row in bridge_models() if _makes(row, main)), known)
    parameters, recipes = build_graph(main).parameters, load_model(main.name).parameters
    if recipes != parameters:
        rule = f"{known.recipe} trains a model of {recipes} parameters"
        return Problem("model", parameters, rule, f"model: {main.name} from the zoo")
    return known


def _makes(row: BridgeModel, main: Architecture) -> bool:
    """Whether the row's recipe trains this very model, whatever its file is called."""
    return bool(row.recipe) and _nameless(load_model(row.model).architecture) == _nameless(main)


def _nameless(arch: Architecture) -> Architecture:
    return replace(arch, name="", source="", assumed=(), left_out=())


def _unknown_fields() -> list[str]:
    return sorted(set(RUN_FIELDS) - option_names(TARGET, RELEASE))


def _body(plan: UniformPlan, known: BridgeModel, cluster: Cluster, job: Job) -> list[str]:
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
        *connections(plan, cluster),
        "",
        torchrun(job, ['"${HERE}/run.py"', known.recipe, '"${RUN_ARGS[@]}"', '"$@"']),
    ]
