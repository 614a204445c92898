"""Plans, parsing and golden files that the tests of export/ share.

Running this file rewrites the golden files: ``python tests/frameworks/exporting/export_cases.py``.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from hypothesis import strategies as st

from meshwright import __version__
from meshwright.cluster.cluster import Cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.exporting.export_result import Export
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.check_plan import check_plan
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack

GOLDEN = Path(__file__).parent / "golden"
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b")
model = cache(load_model)
cluster = cache(load_cluster)
stack = cache(load_stack)


@dataclass(frozen=True)
class Case:
    """A plan with all that an exporter reads."""

    plan: LongPlan
    model: ModelGraph
    cluster: Cluster
    stack: Stack
    short: ShortPlan = field(repr=False)

    def to(self, target: str) -> Export:
        return TARGETS[target](self.plan, self.model, self.cluster, self.stack)

    @property
    def errors(self) -> list[str]:
        problems = check_plan(self.plan, self.model, self.cluster, self.stack)
        return [str(problem) for problem in problems if problem.severity == "error"]


def case(
    name: str = "llama-3.1-8b",
    devices: str = "h100-sxm-80gb x 16",
    stack_name: str = "megatron-core",
    *,
    workload: Mapping[str, object] | None = None,
    layout: Mapping[str, object] | None = None,
    **rest: object,
) -> Case:
    layout = dict(layout or {"dp_shard": 16})
    if "rank_order" in layout:
        layout["rank_order"] = tuple(layout["rank_order"])
    data = {
        "plan": 1,
        "model": name,
        "cluster": devices,
        "workload": {"seq_len": 8192, "global_batch": 128, **(workload or {})},
        "stack": stack_name,
        "layout": layout,
        **rest,
    }
    short = ShortPlan.model_validate(data)
    graph = model(name)
    return Case(expand(short, graph.architecture), graph, cluster(devices), stack(stack_name), short)


def problem_fields(this: Case, target: str) -> set[str]:
    """Fields of the problems that an export raises; an export that raises nothing fails."""
    with pytest.raises(UnsupportedError) as caught:
        this.to(target)
    problems = caught.value.problems
    assert all(problem.rule and problem.suggestion for problem in problems)
    return {problem.field for problem in problems}


def array(text: str, name: str) -> list[str]:
    """The words of a bash array in a script."""
    found = re.search(rf"^\s*{name}=\(\n(.*?)\n\s*\)", text, re.DOTALL | re.MULTILINE)
    assert found, f"no array {name}"
    return shlex.split(found[1])


def options(words: list[str]) -> dict[str, list[str]]:
    """Options with their values; an option that comes twice fails."""
    result: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            assert word not in result, f"{word} twice"
            result[word] = []
        else:
            list(result.values())[-1].append(word)
    return result


def megatron_options(export: Export) -> dict[str, list[str]]:
    return options(array(export.files["megatron/args.sh"], "MEGATRON_ARGS"))


def torchtitan_options(export: Export) -> dict[str, list[str]]:
    return options(array(export.files["torchtitan/args.sh"], "TORCHTITAN_ARGS"))


def degree(found: Mapping[str, list[str]], name: str) -> int:
    return int(found.get(name, ["1"])[0])


@st.composite
def short_plans(draw: st.DrawFn, models: tuple[str, ...] = MODELS) -> Case:
    """Plans over all axes. Most are legal; ``errors`` of the case says which are not."""
    name = draw(st.sampled_from(models))
    arch = model(name).architecture
    power = st.sampled_from((1, 2, 4))
    layout = {axis: draw(power) for axis in ("pp", "dp_shard", "cp", "tp")}
    layout["dp_replicate"] = draw(st.sampled_from((1, 1, 2)))
    size = layout["dp_replicate"] * layout["dp_shard"] * layout["cp"] * layout["tp"]
    if arch.moe:
        layout["ep"] = draw(st.sampled_from([d for d in (1, 2, 4, 8) if size % d == 0]))
        cut = [d for d in (1, layout["tp"]) if size % (layout["ep"] * d) == 0]
        layout["etp"] = draw(st.sampled_from(cut))
    if layout["pp"] * size > 8:
        layout["dp_shard"] *= 8 // min(8, layout["pp"] * size & -(layout["pp"] * size))
    devices = layout["pp"] * layout["dp_replicate"] * layout["dp_shard"] * layout["cp"] * layout["tp"]
    chunks = draw(st.sampled_from((1, 2))) if layout["pp"] > 1 else 1
    micro_batch = draw(st.sampled_from((1, 2)))
    rounds = layout["pp"] * draw(st.sampled_from((1, 2)))
    batch = micro_batch * rounds * layout["dp_shard"] * layout["dp_replicate"]
    return case(
        name,
        f"{draw(st.sampled_from(('h100-sxm-80gb', 'b200')))} x {devices}",
        draw(st.sampled_from(("megatron-core", "torchtitan"))),
        workload={"seq_len": 4096, "global_batch": batch},
        layout=layout,
        sharding=draw(st.sampled_from(("none", "zero1", "zero2", "zero3"))),
        gather=draw(st.sampled_from((None, "per-layer"))),
        pipeline={
            "schedule": "interleaved-1f1b" if chunks > 1 else "1f1b",
            "virtual_stages": chunks,
            "micro_batch": micro_batch,
        },
        recompute=draw(st.sampled_from(("none", "selective", "full", ("layernorm", "mlp"))))
        if arch.moe is None
        else draw(st.sampled_from(("none", "full", ("moe_act",)))),
    )


def golden_cases() -> dict[str, tuple[str, Case]]:
    """Folder → (target, case)."""
    return {
        "megatron-dense": (
            "megatron",
            case(
                "llama-3.1-70b",
                "h100-sxm-80gb x 64",
                workload={"global_batch": 512},
                layout={"pp": 4, "dp_shard": 8, "tp": 2},
                sharding="zero1",
                pipeline={"schedule": "interleaved-1f1b", "virtual_stages": 2},
                recompute="selective",
            ),
        ),
        "megatron-experts": (
            "megatron",
            case(
                "deepseek-v3",
                "b200 x 256",
                workload={"seq_len": 4096, "global_batch": 2048, "precision": "fp8"},
                layout={"pp": 8, "dp_replicate": 2, "dp_shard": 8, "tp": 2, "ep": 16},
                sharding="zero1",
                pipeline={"micro_batch": 2},
                recompute=("mla_up_proj", "moe_act"),
            ),
        ),
        "torchtitan-dense": (
            "torchtitan",
            case(
                "llama-3.1-8b",
                "h100-sxm-80gb x 16",
                "torchtitan",
                layout={"dp_replicate": 2, "dp_shard": 2, "cp": 2, "tp": 2, "context": "all-gather"},
                sharding="zero3",
                pipeline={"micro_batch": 2},
                recompute="selective",
            ),
        ),
        "torchtitan-experts": (
            "torchtitan",
            case(
                "qwen3-30b-a3b",
                "h100-sxm-80gb x 32",
                "torchtitan",
                workload={"seq_len": 4096},
                layout={"pp": 2, "dp_shard": 16, "ep": 8},
                sharding="zero3",
                pipeline={"schedule": "interleaved-1f1b", "virtual_stages": 2},
                recompute="full",
            ),
        ),
    }


def golden_text(text: str) -> str:
    """Text as golden files hold it: the same for every version of this package."""
    return text.replace(f"meshwright {__version__}", "meshwright VERSION")


if __name__ == "__main__":
    for folder, (target, this) in golden_cases().items():
        for path, text in this.to(target).files.items():
            place = GOLDEN / folder / Path(path).name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(golden_text(text), encoding="utf-8")
