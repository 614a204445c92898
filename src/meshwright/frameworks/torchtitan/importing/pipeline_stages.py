"""torchtitan's pipeline: its schedule by our name, and the stages it writes out or cuts by itself.

Without a list of modules torchtitan spreads layers + w₁ + w₂ evenly over the stages, the first stages taking what is
left over; the embedding stands for w₁ layers of the first stage and the head for w₂ of the last (1 each unless set).
There is one stage per rank for single-stage schedules and two for the others, or as many as
``pipeline_parallel_layers_per_stage`` makes. Source: torchtitan 0.3.0, ``distributed/pipeline_parallel.py``.
"""

from collections.abc import Mapping

from meshwright.errors import Problem, nearest
from meshwright.frameworks.importing.command_line import GivenOption, whole_number
from meshwright.frameworks.importing.imported_file import Fact, Stage
from meshwright.frameworks.torchtitan.exporting.plan_to_options import MULTI_STAGE
from meshwright.frameworks.torchtitan.exporting.plan_to_options import SCHEDULES as NAMES
from meshwright.frameworks.torchtitan.options import MODULES, PP, SCHEDULE, P

SCHEDULES = {name.lower(): ours for ours, name in NAMES.items()}
DEFAULT = "1f1b"
Options = Mapping[str, GivenOption]


def stage_facts(options: Options, facts: Mapping[str, Fact], problems: list[Problem]) -> dict[str, Fact]:
    """Schedule, virtual stages and stages, where there is a pipeline."""
    pp = facts.get("layout.pp", Fact(1, "")).value
    if pp == 1:
        return {}
    schedule = _schedule(options, problems)
    modules = options.get(MODULES)
    if schedule is None:
        return {}
    found = {"pipeline.schedule": schedule}
    stages = _written(modules) if modules else _cut(options, facts, schedule.value, pp, problems)
    if stages:
        words = modules.name if modules else "torchtitan's own split"
        found["stages"] = Fact(stages, words)
        if len(stages) % pp:
            rule = f"{len(stages)} stages mod pp {pp} = {len(stages) % pp}, must be 0"
            problems.append(
                Problem(words, len(stages), rule, f"{max(1, round(len(stages) / pp)) * pp} stages")
            )
    return found


def _schedule(options: Options, problems: list[Problem]) -> Fact | None:
    given = options.get(SCHEDULE)
    if given is None or not given.values:
        return Fact(DEFAULT, "pipeline_parallel_schedule left out: 1F1B")
    name = SCHEDULES.get(given.values[0].lower())
    if name is None:
        rule = "is no schedule that a plan has a word for"
        problems.append(Problem(given.name, given.values[0], rule, nearest(given.values[0], NAMES.values())))
        return None
    return Fact(name, given.words)


def _written(modules: GivenOption) -> tuple[Stage, ...]:
    """Return the stages of a list of module names, with commas between the names of one stage."""
    stages = [set(value.split(",")) for value in modules.values]
    return tuple(
        Stage(
            "tok_embeddings" in names,
            sum(name.startswith("layers.") for name in names),
            bool({"lm_head", "output"} & names),
        )
        for names in stages
    )


def _cut(
    options: Options, facts: Mapping[str, Fact], schedule: str, pp: int, problems: list[Problem]
) -> tuple[Stage, ...]:
    layers = facts.get("model.layers")
    if layers is None:
        return ()
    first, last = (_weight(options, name, problems) for name in ("first", "last"))
    effective = layers.value + first + last
    each = options.get(f"{P}pipeline_parallel_layers_per_stage")
    size = whole_number(each, problems) if each else None
    stages = -(-effective // size) if size else pp * (2 if schedule in MULTI_STAGE else 1)
    base, extra = divmod(effective, stages)
    if base < max(1, first, last):
        rule = f"{layers.value} layers leave a stage of {stages} empty"
        problems.append(Problem(PP, pp, rule, f"{PP} {max(1, pp // 2)}"))
        return ()
    counts = [base + (stage < extra) for stage in range(stages)]
    counts[0] -= first
    counts[-1] -= last
    return tuple(Stage(i == 0, count, i == stages - 1) for i, count in enumerate(counts))


def _weight(options: Options, end: str, problems: list[Problem]) -> int:
    given = options.get(f"{P}pipeline_parallel_{end}_stage_less_layers")
    if given is None or given.values[:1] == ("0",):
        return 1 if given is None else 0
    return whole_number(given, problems) or 0
