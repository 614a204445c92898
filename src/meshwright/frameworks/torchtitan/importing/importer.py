"""Import from torchtitan: the command line of release 0.3.0, and job files (TOML) of the releases before it.

Each format is read as a ``Job`` with the options of 0.3.0, and what these mean for a plan is said here once.
"""

from collections.abc import Iterator, Mapping

from meshwright.errors import Problem, nearest
from meshwright.frameworks.importing.command_line import CommandLine, GivenOption, whole_number
from meshwright.frameworks.importing.imported_file import (
    ALONE,
    Fact,
    ImportedFile,
    OutsideFacts,
    UnmappedOption,
    completed,
    number_in,
)
from meshwright.frameworks.importing.option_requirements import line_problems
from meshwright.frameworks.option_table import read_facts
from meshwright.frameworks.torchtitan import options as names
from meshwright.frameworks.torchtitan.importing.command_line_job import read_command_line
from meshwright.frameworks.torchtitan.importing.file_labels import in_file_words
from meshwright.frameworks.torchtitan.importing.job_file import is_job_file, read_job_file
from meshwright.frameworks.torchtitan.importing.pipeline_stages import stage_facts

PLACE = "meshwright.frameworks.torchtitan", "torchtitan-0.3.0"
"""The requirements between its options: ``torchtitan-0.3.0-requirements.csv``."""
WHY: Mapping[str, str] = {
    "--compile.enable_async_tensor_parallel": "overlap of tp is not priced: a shorter step than predicted",
    f"{names.P}pipeline_parallel_schedule_csv": "a schedule from a file",
    f"{names.P}context_parallel_load_balancer": "context parallelism is one balanced ring",
    f"{names.P}enable_fsdp_symm_mem": "symmetric memory is not priced",
}
NOT_FETCHED = "offload is priced where parameters are gathered layer by layer: less memory than predicted"
WORDS: Mapping[str, tuple[str, ...]] = {
    names.RESHARD: ("default", "always", "never"),
    names.DTYPE: ("bfloat16", "float32"),
}
"""The values of options that are words."""


def import_torchtitan(text: str, outside: OutsideFacts = ALONE) -> ImportedFile:
    """Read a torchtitan command line, or a job file of an older release."""
    job = read_job_file(text) if is_job_file(text) else read_command_line(text)
    kept, problems = job.options, job.problems
    problems += _unknown_words(kept)
    line = CommandLine(kept, problems, "the default")
    facts = {"stack": Fact("torchtitan", "torchtitan options")} | read_facts(names.TABLE.rows, line)
    facts = completed({**facts, **job.facts}, outside)
    facts |= _batch(kept, facts, problems) | _layout(kept, facts)
    facts |= _workload(kept, facts)
    facts |= stage_facts(kept, facts, problems)
    numbers = {"@pp": number_in(facts, "layout.pp"), "@experts": number_in(facts, "model.experts", 0)}
    problems += line_problems(PLACE, kept, numbers, complete=job.complete)
    lost = WHY if _fetches(facts) else {**WHY, names.OFFLOAD: NOT_FETCHED}
    unread = tuple(UnmappedOption(n, " ".join(g.values), lost[n]) for n, g in kept.items() if n in lost)
    file = ImportedFile(
        source="torchtitan",
        release=job.release,
        facts=facts,
        unread=(*unread, *job.unread),
        problems=tuple(problems),
    )
    return in_file_words(file, job.labels) if job.labels else file


def _unknown_words(options: Mapping[str, GivenOption]) -> Iterator[Problem]:
    """Yield the words that torchtitan does not know."""
    for name, known in WORDS.items():
        word = options[name].values[0] if name in options and options[name].values else known[0]
        if word not in known and options[name].known:
            yield Problem(name, word, f"must be {', '.join(known[:-1])} or {known[-1]}", nearest(word, known))


def _batch(
    options: Mapping[str, GivenOption], facts: dict[str, Fact], problems: list[Problem]
) -> dict[str, Fact]:
    """Read the batch: the local batch is one micro-batch, or several with a pipeline."""
    found: dict[str, Fact] = {}
    local = facts.pop("local_batch", None)
    piped = facts.get("layout.pp", Fact(1, "")).value > 1
    if not piped:
        return found | ({"pipeline.micro_batch": local} if local else {})
    given = options.get(names.MICRO_BATCH)
    size = whole_number(given, problems) if given else 1
    words = given.words if given else "pipeline_parallel_microbatch_size left out: 1"
    if size and local and local.value % size:
        rule = f"local batch mod micro-batch = {local.value} mod {size} = {local.value % size}, must be 0"
        problems.append(
            Problem(
                names.LOCAL_BATCH,
                local.value,
                rule,
                f"{names.LOCAL_BATCH} {-(-local.value // size) * size}",
            )
        )
    elif size and local:
        name = "flush" if "workload.global_batch" in facts else "accumulation"
        found[name] = Fact(local.value // size, local.words)
    return found | ({"pipeline.micro_batch": Fact(size, words)} if size else {})


def _layout(options: Mapping[str, GivenOption], facts: dict[str, Fact]) -> dict[str, Fact]:
    said = facts["layout.sequence_parallel"]
    found = {"layout.sequence_parallel": said._replace(words=said.words.removeprefix(names.P))}
    if "layout.dp_replicate" not in facts:
        found["layout.dp_replicate"] = Fact(1, f"{names.P}data_parallel_replicate_degree left out: 1")
    experts = facts.get("layout.ep", Fact(1, "")).value
    tp = facts.get("layout.tp", Fact(1, "")).value
    if "model.experts" in facts or experts > 1:
        found["layout.etp"] = Fact(1 if experts > 1 else tp, "1 with expert_parallel_degree, as tp without")
    if facts.get("layout.cp", Fact(1, "")).value > 1:
        found["layout.context"] = Fact("all-gather", "torch gathers keys and values")
    return found | _sharding(options, facts)


def _sharding(options: Mapping[str, GivenOption], facts: dict[str, Fact]) -> dict[str, Fact]:
    """FSDP is on where dp_shard·cp > 1, or dp_shard·cp·tp / ep > 1 for experts.

    The default reshards after the forward pass unless there is a pipeline. Parameters that stay gathered until the
    backward pass are those of zero2; under a pipeline they stay until the last micro-batch's, gathered once a step.
    """
    shard = facts.get("layout.dp_shard")
    cp, tp, ep = (facts.get(f"layout.{axis}", Fact(1, "")).value for axis in ("cp", "tp", "ep"))
    if shard and shard.value * cp == 1 and (ep == 1 or tp <= ep):
        return {"sharding": Fact("none", shard.words)}
    piped = facts.get("layout.pp", Fact(1, "")).value > 1
    given = options.get(names.RESHARD)
    policy = given.values[0] if given and given.values else "default"
    whole = policy == "always" or (policy == "default" and not piped)
    words = given.words if given else "fsdp_reshard_after_forward default"
    if not whole and not piped:
        return {"sharding": Fact("zero2", words)}
    return {"sharding": Fact("zero3", words), "gather": Fact("per-layer" if whole else "per-step", words)}


def _fetches(facts: Mapping[str, Fact]) -> bool:
    """Return true where parameters are sharded and gathered layer by layer."""
    said = [facts[name].value if name in facts else None for name in ("sharding", "gather")]
    return said == ["zero3", "per-layer"]


def _on_host(options: Mapping[str, GivenOption], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the states that FSDP keeps on the host: all of them."""
    given = options.get(names.OFFLOAD)
    if given is None or not _fetches(facts):
        return {}
    return {f"offload.{state}": Fact(1.0, given.words) for state in ("optimizer", "parameters")}


def _workload(options: Mapping[str, GivenOption], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Read the precision: the given type of parameters, unless the job multiplies in 8 bit."""
    precision = facts.get(names.PRECISION, Fact("bf16", "the default"))
    given = options.get(names.DTYPE)
    if given and given.values[:1] == ("float32",):
        precision = Fact("fp32", given.words)
    elif given and precision.value == "bf16":
        precision = Fact("bf16", given.words)
    states = options.get(names.STATES_TYPE)
    narrow = states is not None and states.values[:1] == ("bfloat16",)
    return {
        names.PRECISION: precision,
        "workload.optimizer": Fact("adamw", "the default"),
        **({"dtypes.gradient": Fact("bf16", states.words)} if states and narrow else {}),
        **_on_host(options, facts),
    }
