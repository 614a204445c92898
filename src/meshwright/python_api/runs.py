"""The verbs that prove, run and measure plans, and read what runs have left, as functions."""

from collections.abc import Iterable
from pathlib import Path

from meshwright import api
from meshwright.cli.measure import measured_answer
from meshwright.cli.run import REPEATABLE, by_field, emulated_answer, options_named, refuse_other_kind
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.launch_answer import launched
from meshwright.cli.terminal.launcher_ranks import is_first
from meshwright.cli.terminal.notebook_progress import notebook_progress
from meshwright.cli.terminal.output import write_tree, write_whole
from meshwright.cli.terminal.search_answer import several
from meshwright.present.runs.converted_checkpoint import render_converted
from meshwright.present.runs.ingested_logs import render_ingest
from meshwright.present.runs.probe_jobs import render_probes
from meshwright.present.runs.training_run import render_trained
from meshwright.present.runs.verification import render_compared, render_verified
from meshwright.python_api.paths import PathLike, check_all, text_of
from meshwright.verbs.convert import ConvertRequest

UNWRITTEN = "(not written)"


def verify(plan: PathLike, *, ranks: int = 8, against: PathLike | None = None) -> Answer:
    """Prove on local processes that a plan computes what one device computes, or that two train equal models."""
    with notebook_progress() as progress:
        data = api.verify(plan, ranks=ranks, against=against, progress=progress).to_json()
    return Answer(data, render_verified if against is None else render_compared, data["equal"])


def run(
    plan: PathLike,
    *,
    steps: int | None = None,
    data: str | Iterable[str] | None = None,
    tokenizer: str | None = None,
    end_of_document: str | None = None,
    mask_document_starts: bool = False,
    cache: PathLike | None = None,
    lr: float | None = None,
    schedule: str | None = None,
    warmup: int | None = None,
    lr_floor: float | None = None,
    decay_steps: int | None = None,
    beta1: float | None = None,
    beta2: float | None = None,
    eps: float | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    seed: int | None = None,
    precision: str | None = None,
    eval_every: int | None = None,
    held_out: float | None = None,
    out: PathLike | None = None,
    checkpoint_every: int | None = None,
    checkpoint_async: bool = False,
    checkpoint_buffer: float | None = None,
    checkpoint_local: PathLike | None = None,
    keep: int | None = None,
    keep_every: int | None = None,
    inject: str | Iterable[str] | None = None,
    hash_every: int | None = None,
    hang_s: float | None = None,
    on_fault: str | None = None,
    max_restarts: int | None = None,
    listen: str | None = None,
    join: str | None = None,
    tensorboard: bool = False,
    prometheus: str | None = None,
    resume: str | None = None,
    init: str | None = None,
    export: str | None = None,
    cpu: bool = False,
    force: bool = False,
    set: Iterable[str] = (),
    emulate: bool = False,
    ranks: int | None = None,
    limit: float | None = None,
    trace: PathLike | None = None,
) -> Answer | None:
    """Train a plan, or emulate its step. Return None on launched ranks other than the first.

    ``limit`` and ``hang_s`` in seconds. Raises RunError where a rank fails.
    """
    own, starting = by_field(locals())
    settings = several(set)
    refuse_other_kind(own | starting, emulate)
    if not emulate:
        for name in ("cache", "output", "checkpoint_local"):
            if name in own:
                own[name] = Path(own[name])
        own |= {name: several(own[name]) for name in REPEATABLE if name in own}
        with options_named():
            trained = api.run(plan, options=own, settings=settings, **starting)
        return None if trained is None else Answer(trained.to_json(), render_trained)
    with notebook_progress() as progress:
        return emulated_answer(plan, settings, ranks, limit, trace, progress) if is_first() else None


def measure(
    *,
    output: PathLike | None = None,
    on: str | None = None,
    budget: float = 300.0,
    processes: int | None = None,
    collective_tests: Iterable[str] = (),
) -> Answer | None:
    """Measure this machine within ``budget`` seconds. Return None on launched ranks other than the first.

    ``collective_tests``: output of nccl-tests or rccl-tests, read instead of measuring.
    """
    tests, file = several(collective_tests), None if output is None else Path(output)
    with notebook_progress() as progress:
        return measured_answer(file, on, budget, processes, tests, progress)


def launch(
    plan: PathLike,
    run_options: Iterable[str] = (),
    *,
    on: str,
    storage: str | None = None,
    image: str | None = None,
    address: str | None = None,
    dry_run: bool = False,
    output: PathLike | None = None,
) -> Answer:
    """Start a plan's training on a cluster; ``dry_run`` only writes its files, and these only into ``output``.

    ``run_options`` are words of the command line of ``run``. Raises InfeasibleError where a file is refused or the
    cluster's program is missing, and RunError where that program fails.
    """
    return launched(locals())


def probe(plan: PathLike, *, top: int = 3, to: str | None = None, output: PathLike | None = None) -> Answer:
    """Return 20-step jobs of a plan and of plans near it, whose logs calibrate the cluster."""
    data = api.probe(plan, top=top, to=to).to_json()
    if output:
        write_tree(Path(output), data["files"])
    return Answer(data, lambda data: render_probes(data, str(output or UNWRITTEN)))


def ingest(
    logs: str | Iterable[str],
    *,
    plan: str | None = None,
    set: Iterable[str] = (),
    output: PathLike | None = None,
) -> Answer:
    """Read training logs into rows of a table of runs; ``set`` adds what a log does not say, as ``column=value``."""
    path = None if output is None else Path(output)
    check_all({"output": path})
    found = api.ingest(several(logs), plan=plan, settings=several(set))
    table = found.table(path.read_text(encoding="utf-8") if path and path.exists() else "")
    if path:
        write_whole(path, table)
    return Answer(found.to_json(), lambda data: render_ingest(data, table, text_of(path)))


def convert(
    checkpoint: PathLike,
    *,
    merge: bool = False,
    to: str | None = None,
    output: PathLike | None = None,
    model: PathLike | None = None,
    precision: str | None = None,
    trust: bool = False,
) -> Answer:
    """Write a checkpoint in the format ``to`` (dcp, megatron, meshwright), or ``merge`` its adapters into their base.

    ``model``: that of a source that does not tell it. ``trust``: run what is pickled in the source.
    """
    request = ConvertRequest(
        merge=merge, to=to, output=text_of(output), model=text_of(model), precision=precision, trust=trust
    )
    data = api.convert(checkpoint, request).to_json()
    return Answer(data, render_converted)
