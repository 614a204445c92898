"""The generated parts of docs/schedules.md: a table of all schedules, a part for each, places of the vocabulary.

Words and formulas come from ``schedule_texts.yaml``, figures from the verb ``schedule``, who runs a schedule from the
files of stacks and from the checks that a plan goes through.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache

from compare_placements import (
    AT_ENDS,
    PLACES,
    PlacementCase,
    compare_placements,
    head_in_layers,
)
from formulas import Names, holds, number
from markdown_table import table
from schedule_texts import Formula, More, Text, letters_of, texts

from meshwright import api
from meshwright.cluster.load import load_cluster
from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.stack_limits.meshwright import unsupported_by_runtime
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.schedule_kind import ScheduleKind
from meshwright.schedules.vocabulary import FORMS
from meshwright.stack.load import load_stack, stack_names
from meshwright.stack.stack import OWN_STACK
from meshwright.verbs.schedule.named_schedules import Scheduled
from meshwright.verbs.schedule.schedule_request import ScheduleRequest, chunk_words, usual_chunks

SMALL = ScheduleRequest(stages=4, micro_batches=8)
LARGE = ScheduleRequest(stages=8, micro_batches=32, times="1,1,1,0.1")
GENERIC = "generic"
PLAN = """
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 4
workload: {{seq_len: 4096, global_batch: 16}}
stack: {stack}
layout: {{pp: 4}}
pipeline: {{schedule: {name}, virtual_stages: {chunks}}}
"""
VOCABULARY, HIDDEN, SEQ_LEN = 128_256, 4096, 8192
HEAD = head_in_layers(VOCABULARY, HIDDEN, SEQ_LEN)
SPREAD = ("1f1b", "v-half", "zb-v")
LAYERS = 32


@cache
def played(name: str, asked: ScheduleRequest = SMALL) -> Scheduled:
    """A schedule as the verb plays it."""
    return api.schedule(name, asked)


def schedule_table() -> str:
    """All schedules beside each other at the small example."""
    head = ("schedule", "V", "bubble", "makespan", "of the work", "fullest rank holds")
    head += ("messages of `1f1b`", "parameters", "runs here")
    return table(head, (_overview(name, kind) for name, kind in SCHEDULES.items()))


def _overview(name: str, kind: ScheduleKind) -> Iterator[object]:
    figures = played(name).figures
    yield f"[`{name}`](#{name})"
    yield chunk_words(kind)
    yield f"`{texts()[name].bubble[0].text}`"
    yield f"{figures.makespan:g}"
    yield f"{figures.bubble_rate:.1%}"
    yield f"{max(figures.peak_memory):g}"
    yield _ratio(figures.p2p_volume)
    yield _ratio(figures.parameters_held)
    yield "no" if not_run(name) else "yes"


def schedule_parts() -> str:
    """A part for every schedule: what, formula, figures, picture, advice."""
    return "\n".join(_part(name, kind) for name, kind in SCHEDULES.items())


def _part(name: str, kind: ScheduleKind) -> str:
    text = texts()[name]
    words = [
        f"### {name}",
        f"{text.what} Source: {text.source}.",
        "\n".join(_formulas(text, kind)),
        _figures(name, text).rstrip(),
        f"![{played(name).title}, every pass and what each rank holds](schedules/{name}.svg)",
        "\n".join(
            (f"- **When.** {text.take}", f"- **When not.** {text.leave}", f"- **Who runs it.** {_who(name)}")
        ),
    ]
    return "\n\n".join(words) + "\n"


def _formulas(text: Text, kind: ScheduleKind) -> Iterator[str]:
    known = letters_of(text, SMALL.stages or 0, SMALL.micro_batches or 0, usual_chunks(kind))
    for title, formulas in (("Bubble", text.bubble), ("Memory", text.memory)):
        said = "; ".join(_said(formula) for formula in formulas)
        come = [number(f.text, known | {"r": Fraction(0)}) for f in formulas if _is_exact(f, known)]
        yield f"- **{title}.** {said}." + (f" In the example: {float(come[0]):g}." if come else "")
    yield f"- **Published.** {text.published}."
    if text.remark:
        yield f"- {text.remark}"


def _is_exact(formula: Formula, known: Names) -> bool:
    return formula.equals is not None and holds(formula.where, known)


def _said(formula: Formula) -> str:
    words = "" if formula.equals is not None else "at most "
    where = f" where {formula.where}" if formula.where else ""
    return f"{words}`{formula.text}`{' on rank r' if formula.of_ranks else ''}{where}"


def _figures(name: str, text: Text) -> str:
    """Figures of both examples, and of the small one with what the schedule can be told."""
    more = [(replace(SMALL, unit=m.unit, memory_limit=m.memory_limit), _told(m)) for m in text.more]
    rows = [(SMALL, None), *more, (LARGE, None)]
    head = ["P", "M", "V", "message", "makespan", "latency", "bubble"]
    head += ["fullest rank", "messages", "parameters", *(["option"] if more else [])]
    return table(head, (_row(name, asked, told) for asked, told in rows))


def _told(more: More) -> str:
    """Options in words."""
    return ", ".join(f"`--{key.replace('_', '-')} {value:g}`" for key, value in more if value is not None)


def _row(name: str, asked: ScheduleRequest, told: str | None) -> Iterator[object]:
    found = played(name, asked)
    made, figures = found.made, found.figures
    yield from (made.shape.ranks, made.shape.total, made.shape.chunks)
    yield f"{made.ticks.units().message:g}"
    yield from (f"{figures.makespan:.6g}", f"{figures.latency:.6g}")
    yield f"{figures.bubble_rate:.1%}"
    yield f"{max(figures.peak_memory):.4g}"
    yield f"{sum(figures.messages):,}"
    yield _ratio(figures.parameters_held)
    if texts()[name].more:
        yield told


def _who(name: str) -> str:
    """Stacks, our runtime, plans."""
    found = [f"`{load_stack(stack).id}`" for stack in stack_names() if _has(stack, name)]
    stacks = f"Stacks: {', '.join(found)}." if found else "Stacks: none that we have facts of."
    refused = not_run(name)
    ours = f"does not run it: {refused}" if refused else "runs it"
    search = "tries it by itself" if SCHEDULES[name].searched else f"tries it with `--schedule {name}`"
    return f"{stacks} Meshwright's own runtime {ours}. `meshwright plan` {search}, for a stack that runs it."


def _has(stack: str, name: str) -> bool:
    """Whether a stack has pipelines and this schedule; ours and the one that stands for all are not asked."""
    facts = load_stack(stack)
    return stack not in (OWN_STACK, GENERIC) and facts.pp and name in facts.schedules


@cache
def not_run(name: str) -> str | None:
    """Why our runtime does not run a small plan with the schedule; None where it does."""
    short = parse_plan(PLAN.format(stack=OWN_STACK, name=name, chunks=usual_chunks(SCHEDULES[name])))
    model, stack = load_model(short.model), load_stack(short.stack)
    plan = expand(short, model.architecture)
    found = [
        *check_plan(plan, model, load_cluster(short.cluster), stack),
        *unsupported_by_runtime(plan, model),
    ]
    return next((problem.rule for problem in found if problem.severity == "error"), None)


def vocabulary_places() -> str:
    """Every place of the vocabulary under a few schedules."""
    lead = (
        f"{LAYERS} layers on {LARGE.stages} ranks, {LARGE.micro_batches} micro-batches, messages that take no time; "
        f"{VOCABULARY:,} words, hidden size {HIDDEN:,}, sequences of {SEQ_LEN:,} tokens: the head takes as long as "
        f"{HEAD:.2f} layers. Times are in forward passes of a layer."
    )
    head = ("schedule", "vocabulary", "makespan", "utilisation", "activations", "tables", "layers of stages")
    return f"{lead}\n\n" + table(head, (row for name in SPREAD for row in _places(name)))


def vocabulary_forms() -> str:
    """The forms of a spread vocabulary."""
    rows = ((f"`{name}`", form.barriers, form.summary) for name, form in FORMS.items())
    return table(("form", "barriers", "S and T run"), rows)


def _places(name: str) -> Iterator[tuple[object, ...]]:
    kind = SCHEDULES[name]
    case = PlacementCase(
        kind=kind,
        ranks=LARGE.stages or 0,
        micro_batches=LARGE.micro_batches or 0,
        layers=LAYERS,
        head=HEAD,
        chunks=usual_chunks(kind),
    )
    places = [place for place in PLACES if place in AT_ENDS or name == "1f1b" or place != "interlaced"]
    for found in compare_placements(case, places):
        yield (
            f"`{name}`",
            found.place,
            f"{found.makespan:.6g}",
            f"{found.utilisation:.1%}",
            f"{max(found.activations):g}",
            f"{max(found.tables):g}",
            " ".join(map(str, found.layers)),
        )


def _ratio(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"
