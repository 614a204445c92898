"""A plan that a search calls legal for a framework passes its check and can be exported, and no other plan can.

What is exported comes back from the file with the configuration as the same plan with the same prediction.
"""

import random
from dataclasses import replace
from math import prod

import pytest
from small_questions import Asked, as_set, choices_of, is_worth_searching, raw_choice, raw_parts, short_plan

from meshwright.api import import_file
from meshwright.cli.terminal.output import write_tree
from meshwright.cluster.load import load_cluster
from meshwright.errors import UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.short import ShortPlan, WorkloadSpec
from meshwright.plans.overrides import overrides_between
from meshwright.plans.resolve import resolve_with
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.setting import Setting
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.search.space.variants import all_variants, usual_variants
from meshwright.stack.load import load_stack
from meshwright.verbs.import_ import ImportRequest
from meshwright.verbs.predict.predict_plan import estimated
from meshwright.workload.workload import Workload

STACKS = {
    "megatron": "megatron-core",
    "bridge": "megatron-bridge",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "accelerate": "accelerate",
}
MODELS = (
    *("llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v3", "mixtral-8x7b", "gemma-2-9b"),
    *("qwen2.5-7b", "bloom-176b", "gpt-3-175b"),
)
TOGETHER = (
    ("pp", "tp", "cp", "dp_replicate", "dp_shard", "sequence_parallel"),
    ("sharding", "gather"),
    ("schedule", "virtual_stages"),
    *(("micro_batch",), ("recompute",), ("context",), ("order",), ("ep",), ("etp",)),
)
"""Choices that are taken from another plan together."""
QUESTIONS = 6
PLANS = 60
LARGEST = 100_000
EXPORTED = 12
CONFIGURATIONS = {
    "megatron": "megatron/args.sh",
    "bridge": "bridge/overrides.yaml",
    "torchtitan": "torchtitan/args.sh",
    "deepspeed": "deepspeed/ds_config.json",
    "accelerate": "accelerate/config.yaml",
}
"""The files that carry the configuration."""


def question(target, seed):
    """A random question whose raw space is small, with the variants that are looked at."""
    rng = random.Random(f"{target} {seed}")
    for _ in range(300):
        model, devices = load_model(rng.choice(MODELS)), rng.choice((4, 8, 16))
        seq_len, batch = rng.choice((64, 96, 4096)), rng.choice((4, 8, 24))
        if seq_len > model.architecture.max_positions:
            continue
        cluster, stack = f"h100-sxm-80gb x {devices}", STACKS[target]
        spec = WorkloadSpec(seq_len=seq_len, global_batch=batch)
        header = ShortPlan(plan=1, model=model.name, cluster=cluster, workload=spec, stack=stack)
        workload = Workload(seq_len=seq_len, global_batch=batch)
        asked = Asked(Setting(model, load_cluster(cluster), workload, load_stack(stack)), header)
        for variants in (all_variants(asked.setting, {}), usual_variants(asked.setting, {})):
            if prod(map(len, raw_parts(asked.setting, variants))) <= LARGEST:
                return rng, asked, variants
    raise AssertionError(f"no small question for {target}")


def drawn(rng, legal, asked, variants):
    """Plans of the space, the same with some choices of another plan, and plans of the whole raw space."""
    parts = raw_parts(asked.setting, variants)
    for _ in range(PLANS):
        other = raw_choice(tuple(map(rng.choice, parts)), variants)
        yield other
        if legal:
            yield rng.choice(legal)
            one, names = rng.choice(legal), rng.choice(TOGETHER)
            yield one | {name: other[name] for name in names}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(QUESTIONS))
@pytest.mark.parametrize("target", TARGETS)
def test_legal_in_the_search_is_legal_in_the_check_and_can_be_exported(target, seed):
    rng, asked, variants = question(target, seed)
    setting = asked.setting
    legal = choices_of(enumerate_space(setting, variants=variants))
    space, counted = as_set(legal), [0, 0]
    for choice in drawn(rng, legal, asked, variants):
        if not is_worth_searching(choice, setting, variants):
            continue
        (key,) = as_set([choice])
        long = expand(short_plan(choice, asked), setting.model.architecture)
        problems = check_plan(long, setting.model, setting.cluster, setting.stack)
        errors = [str(problem) for problem in problems if problem.severity == "error"]
        assert (key in space) == (not errors), (choice, errors)
        if errors:
            with pytest.raises(UnsupportedError):
                TARGETS[target](long, setting.model, setting.cluster, setting.stack)
        else:
            assert TARGETS[target](long, setting.model, setting.cluster, setting.stack).files
        counted[key in space] += 1
    assert counted[1] >= 5 or not legal
    assert sum(counted)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(QUESTIONS))
@pytest.mark.parametrize("target", TARGETS)
def test_the_files_of_a_plan_are_read_back_as_the_same_plan_with_the_same_prediction(target, seed, tmp_path):
    rng, asked, variants = question(target, seed)
    setting = asked.setting
    legal = choices_of(enumerate_space(setting, variants=variants))
    for choice in rng.sample(legal, min(EXPORTED, len(legal))):
        short = short_plan(choice, asked)
        long = expand(short, setting.model.architecture)
        export = TARGETS[target](long, setting.model, setting.cluster, setting.stack)
        write_tree(tmp_path, export.files)
        wanted = ImportRequest(model=short.model, on=short.cluster)
        found = import_file(tmp_path / CONFIGURATIONS[target], wanted)
        assert not [str(problem) for problem in found.problems if problem.field != "recompute"]
        read = found.plan if isinstance(found.plan, ShortPlan) else shorten(found.plan)
        assert read is not None
        assert overrides_between(read, short) == ()
        # a stack's fact that the export names as not written is that of the files
        unsaid = {r.key.partition(".")[2]: False for r in export.refused if r.key.startswith("stack.")}
        written = resolve_with(short, setting.model, setting.cluster, replace(setting.stack, **unsaid))
        again = resolve_with(read, found.model, found.cluster, found.stack)
        now, before = estimated(again), estimated(written)
        assert sum(now.parts.values()) == pytest.approx(sum(before.parts.values()), rel=1e-9)
        assert now.ledgers == before.ledgers
