"""Write the page of capacity planning from its record."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markdown_table import table

from capacity_page.question_part import percent, question_part

Row = Mapping[str, Any]


def page_of(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paragraphs of the page, as Markdown."""
    yield "# Capacity planning"
    yield f"""Questions of a capacity planner, each as one command with its answer; what simulated trainings say of the
printed probabilities; and trainings whose device hours were published. Everything is predicted by version
{record["version"]} on {record["date"]}, in {record["minutes"]:.0f} minutes on a CPU; none of these trainings was run by
us. Formulas: [objectives](../docs/objectives.md). Made by `python benchmarks/capacity.py --write`, from
`capacity/*.yaml`; the figures are kept in `capacity.json`."""
    yield from _summary(record)
    yield "## Questions"
    yield """A row is the best cluster of a device family, or the nearest where none keeps the limits (in *d* of a
model). Brackets: 80 % interval. *sure*: the printed probability that the plan fits and all limits hold. *simulated*:
the share of simulated trainings in which they do. kWh of the site are an upper bound."""
    for question in record["questions"]:
        yield from question_part(question)
    yield "## Simulated trainings"
    yield from _simulation(record)
    yield "## Published trainings"
    yield from _published(record["published"])
    yield "## Wrong questions"
    yield "All end with exit code 2 before anything is searched."
    rows = [
        (row["what"], f"`{row['command']}`", row["exit_code"], row["message"]) for row in record["bad_inputs"]
    ]
    yield table(("wrong", "command", "exit code", "message"), rows).rstrip()


def compared(record: Mapping[str, Any]) -> list[tuple[str, Row]]:
    """Return all rows of all questions, rejected ones too, that were simulated, each with its question's key."""
    return [
        (question["key"], row)
        for question in record["questions"]
        for row in (*question["rows"], *question["rejected"])
        if row["simulated"] is not None
    ]


def _summary(record: Mapping[str, Any]) -> Iterator[str]:
    pairs = [row for _, row in compared(record)]
    worst = max(abs(row["simulated"] - row["sure"]) for row in pairs)
    surest = [row for q in record["questions"] if q["limits"]["sure"] for row in q["rows"] if row["meets"]]
    rejected = [row for q in record["questions"] for row in q["rejected"]]
    alone = sum(q["separate"]["questions"] for q in record["questions"])
    unlike = sum(len(q["separate"]["differences"]) for q in record["questions"])
    inside = sum(row["inside"] for row in record["published"])
    rows = [
        (
            "simulated share of a choice against its printed probability",
            "within 3 points",
            f"{100 * worst:.1f}",
        ),
        (
            "least simulated share of a choice under `--sure 0.9`",
            "at least 87 %",
            f"{min(row['simulated'] for row in surest):.1%}",
        ),
        (
            "largest simulated share of the next cheaper cluster that `--sure 0.9` rejects",
            "below 93 %",
            f"{max(row['simulated'] for row in rejected):.1%}",
        ),
        (f"figures that differ from those of {alone} separate questions", "0", str(unlike)),
        (
            "published device hours inside the 80 % interval",
            "no target: nothing is fitted to them",
            f"{inside} of {len(record['published'])}",
        ),
        ("wrong questions with exit code 2", "all", _of(record["bad_inputs"])),
    ]
    yield table(("what", "target", "found"), rows).rstrip()


def _of(rows: Sequence[Row]) -> str:
    return f"{sum(row['exit_code'] == 2 for row in rows)} of {len(rows)}"


def _simulation(record: Mapping[str, Any]) -> Iterator[str]:
    pairs = compared(record)
    errors = [100 * (row["simulated"] - row["sure"]) for _, row in pairs]
    mean = sum(map(abs, errors)) / len(errors)
    key, worst = max(pairs, key=lambda pair: abs(pair[1]["simulated"] - pair[1]["sure"]))
    yield f"""{record["trainings"]:,} trainings were simulated for each row above. Each has its own constants of the
cost model and error of the step time, its own memory, price (one of the offers) and failure rate (Gamma(n + ½)), drawn
with random numbers of the simulation's own. Its failures come one by one, throw away the work since the last checkpoint
and take a spare node or wait for a repair; restarts may fail too. The product computes the same probabilities with
equally spaced quantiles and the formula of goodput. Only the definitions are shared: the distributions of the errors,
and the response of the step time to a constant."""
    yield f"""Of {len(pairs)} rows the simulated share differs from the printed probability by {mean:.1f} points in the
mean and by {abs(worst["simulated"] - worst["sure"]) * 100:.1f} at most ({worst["cluster"]} in question {key}:
{worst["sure"]:.1%} printed, {worst["simulated"]:.1%} simulated). The standard error of a share is half a point at
most. It says that the arithmetic is right, and nothing about whether the distributions are: for that see
[accuracy](../docs/accuracy.md) and the next section."""


def _published(rows: Sequence[Row]) -> Iterator[str]:
    yield """Device hours of whole trainings. Predicted hours include failures and checkpoints at the known rate of
the device family, but no spare nodes, evaluation, runs that were thrown away or waiting for people. Brackets: 80 %
interval. *inside*: whether the published hours are in it. *MFU of the published hours*: as if steps had filled them."""
    head = (
        *("training", "tokens", "devices", "published hours", "predicted hours", "predicted / published"),
        *("inside", "fits", "predicted MFU", "MFU of the published hours", "days", "goodput"),
    )
    cells = [
        (
            row["name"],
            row["tokens"],
            f"{row['devices']:,}",
            f"{row['published_hours'] / 1e6:.2f} M",
            f"{row['predicted_hours'] / 1e6:.2f} M ({row['predicted_hours_low'] / 1e6:.2f}–"
            f"{row['predicted_hours_high'] / 1e6:.2f})",
            f"{row['ratio']:.2f}",
            "yes" if row["inside"] else "**no**",
            "yes" if row["fits"] else "no",
            percent(row["mfu"]),
            percent(row["mfu_of_published_hours"]),
            f"{row['days']:.1f}",
            percent(row["goodput"])
            + (f" (published: {row['published_goodput']})" if row["published_goodput"] else ""),
        )
        for row in rows
    ]
    yield table(head, cells).rstrip()
    for row in rows:
        sources = "; ".join(f"[{title}]({url})" for title, url in row["sources"])
        parts = {
            "Published plan": row["published_plan"],
            "Recommended": row["recommended"],
            "Assumed": row["assumed"],
            "Miss": row["miss"],
            "Sources": sources,
        }
        yield f"- **{row['name']}**. " + " ".join(f"{name}: {text}." for name, text in parts.items() if text)
