"""Everyday questions: the recommended plan, the fastest one by prediction, and a published recipe.

    python benchmarks/everyday.py            prints the page
    python benchmarks/everyday.py --write    also writes it to benchmarks/everyday.md

The questions and recipes are in ``benchmarks/everyday/questions.yaml``. Needs nothing but this package.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml

import meshwright
from meshwright.errors import InputError
from meshwright.explanation.plan_comparison import compare_plans
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve
from meshwright.present.plan_answers.layout_text import layout_words, pipeline_words
from meshwright.result import Report
from meshwright.units import GIB, format_seconds
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest, answer
from meshwright.verbs.predict.predict_plan import predicted

HERE = Path(__file__).parent
QUESTIONS = HERE / "everyday" / "questions.yaml"
PAGE = HERE / "everyday.md"


@dataclass(frozen=True)
class Row:
    """A question with its answer; ``recipe`` is its plan with the prediction, or the rule that it breaks."""

    asked: dict[str, Any]
    found: PlanAnswer
    recipe: tuple[Resolved, Report] | str


def header_of(asked: dict[str, Any]) -> ShortPlan:
    """The question as a plan without choices."""
    workload = {name: asked[name] for name in ("seq_len", "global_batch")}
    return ShortPlan.model_validate(
        {"plan": 1, "model": asked["model"], "cluster": asked["cluster"], "workload": workload}
    )


def recipe_of(asked: dict[str, Any]) -> Resolved:
    """The published recipe as a plan, with the distributed optimizer, and data parallelism over the other devices."""
    layout, devices = dict(asked["layout"]), int(asked["cluster"].rpartition(" ")[2])
    ranks = layout.get("tp", 1) * layout.get("pp", 1) * layout.get("cp", 1)
    chunks = asked.get("virtual_stages", 1)
    data = header_of(asked).model_dump() | {
        "layout": layout | {"dp_shard": devices // ranks},
        "pipeline": {
            "schedule": "interleaved-1f1b" if chunks > 1 else "1f1b",
            "virtual_stages": chunks,
            "micro_batch": asked["micro_batch"],
        },
        "sharding": "zero1",
        "recompute": asked.get("recompute", "none"),
    }
    return resolve(ShortPlan.model_validate(data))


def row_of(asked: dict[str, Any]) -> Row:
    """Search, and predict the recipe."""
    found = answer(PlanRequest(header_of(asked), top=1))
    try:
        recipe = recipe_of(asked)
    except InputError as error:
        return Row(asked, found, "; ".join(problem.rule for problem in error.problems))
    return Row(asked, found, (recipe, predicted(recipe)))


def words_of(plan: ShortPlan) -> str:
    """A plan in a few words."""
    data = plan.to_data()
    recompute = data["recompute"] if isinstance(data["recompute"], str) else ",".join(data["recompute"])
    words = [layout_words(data["layout"]), pipeline_words(data["pipeline"])]
    words += [f"micro-batch {data['pipeline']['micro_batch']}", data["sharding"]]
    return ", ".join([*words, *([f"recompute {recompute}"] if recompute != "none" else [])])


def line_of(row: Row) -> str:
    """A line of the table."""
    asked, first, fastest = row.asked, row.found.proposals[0], row.found.fastest
    assert first.regret is not None
    question = (
        f"{asked['model']}, {asked['cluster']}, {asked['seq_len']:,} tokens, batch {asked['global_batch']:,}"
    )
    cells = [
        question,
        words_of(first.plan),
        *_figures(first.report),
        f"{first.regret.p80:.1%}",
        "the same" if fastest.plan == first.plan else words_of(fastest.plan),
        format_seconds(fastest.report.step_time_s),
    ]
    if isinstance(row.recipe, str):
        cells += [f"illegal: {row.recipe}", "", ""]
    else:
        recipe, report = row.recipe
        assert recipe.short is not None
        fits = "" if report.fits else ", does not fit"
        cells += [words_of(recipe.short) + fits, *_figures(report)]
    return f"| {' | '.join(cells)} |"


def _figures(report: Report) -> tuple[str, str]:
    return format_seconds(report.step_time_s), f"{report.memory_bytes['total'] / GIB:.1f}"


def reason_of(row: Row) -> str:
    """Where recommended plan and recipe differ."""
    asked = row.asked
    name = f"**{asked['model']}, {asked['cluster']}, {asked['seq_len']:,} tokens** (`{asked['recipe']}`)"
    if isinstance(row.recipe, str):
        return f"- {name}. The recipe is illegal: {row.recipe}."
    recipe, report = row.recipe
    first = resolve(row.found.proposals[0].plan)
    if first.short == recipe.short:
        return f"- {name}. The recipe is what is recommended."
    held = "" if report.fits else " The recipe does not fit by our ledger."
    return f"- {name}.{held} {' '.join(compare_plans(recipe, first, 'recommended').summary)}"


def page(rows: Sequence[Row]) -> Iterator[str]:
    """The page, as Markdown."""
    yield "# Everyday questions\n"
    yield f"""For questions that people ask: the plan that `meshwright plan` recommends, the fastest one by prediction,
and a published recipe for that model and about that size. All times and bytes are predicted, by version
{meshwright.__version__} on {date.today().isoformat()}; nobody has run our plans. Regret: by how much the recommended
plan may take longer than the best one, in 80 % of the draws of the predictions' errors
([search](../docs/search.md#the-recommended-plan)). Recipes are those of Megatron-Bridge at commit 067f987df, with data
parallelism over the devices that they leave. Made by `python benchmarks/everyday.py --write`.
"""
    yield "| question | recommended | step | GiB | regret | fastest | step | recipe | step | GiB |"
    yield "| --- | --- | --: | --: | --: | --- | --: | --- | --: | --: |"
    yield from map(line_of, rows)
    yield "\n## Differences from the recipes\n"
    yield "The other plan is the recommended one.\n"
    yield from map(reason_of, rows)


def main(options: Sequence[str]) -> None:
    """Print the page, and write it where asked."""
    asked = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    text = "\n".join(page([row_of(one) for one in asked])) + "\n"
    print(text)
    if "--write" in options:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
