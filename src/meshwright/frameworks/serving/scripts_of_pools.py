"""Shell text that starts a pool's servers: one script for each pool, run once for each replica on each of its nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from meshwright.errors import Problem, UnsupportedError
from meshwright.frameworks.exporting.export_result import Export, Refusal
from meshwright.frameworks.option_names import Option, assert_known, bash_array
from meshwright.frameworks.serving.engine_facts import EngineFacts, engine_facts
from meshwright.frameworks.serving.export_limits import serving_export_problems
from meshwright.frameworks.serving.settings_of_pools import (
    PoolSettings,
    checkpoint_format,
    settings_of_pools,
)
from meshwright.launchers.launch_script import header
from meshwright.model.zoo_names import zoo_name, zoo_repositories
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.stack.serving.serving_stack import NamedEngine

ROUTER_PORT = 8080


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """A plan that an engine runs, the engine's facts, and the settings of all pools."""

    facts: EngineFacts
    resolved: ResolvedServing
    pools: tuple[PoolSettings, ...]

    @property
    def nodes(self) -> int:
        """Nodes that have a replica."""
        return max(place.node + place.nodes for pool in self.pools for place in pool.places)

    @property
    def servers(self) -> int:
        """Replicas of all pools."""
        return sum(len(pool.places) for pool in self.pools)

    def top(self, *remarks: str) -> str:
        """Return the comment at the top of a file."""
        plan = self.resolved.plan
        summary = f"{plan.model} on {plan.cluster}"
        return header(self.facts.name, self.facts.release, summary, *remarks)


def engine_plan(target: str, resolved: ResolvedServing) -> EnginePlan:
    """Return what the commands of ``target`` are written from. Raise UnsupportedError with all it cannot run."""
    problems: list[Problem] = serving_export_problems(target, resolved)
    if problems:
        raise UnsupportedError(problems)
    return EnginePlan(engine_facts(target), resolved, tuple(settings_of_pools(target, resolved)))


def serving_export(plan: EnginePlan, files: Mapping[str, str], remarks: Iterable[Refusal] = ()) -> Export:
    """Return the files of an export with what they leave unsaid."""
    return Export(
        target=plan.facts.name,
        release=plan.facts.release,
        files=files,
        refused=(*_foreign_stack(plan), *_of_sequences(plan), *_of_checkpoints(plan), *remarks),
    )


def pool_script(
    plan: EnginePlan,
    settings: PoolSettings,
    arguments: Sequence[Option],
    body: Sequence[str],
    *,
    each_node: bool,
) -> str:
    """Return the script of a pool: ``ARGS`` has the options that all servers share, ``body`` starts one.

    ``each_node``: it runs on every node of a replica, not on the first alone.
    """
    lines = [
        "#!/usr/bin/env bash",
        plan.top(*_remarks(settings, each_node=each_node)),
        "set -euo pipefail",
        _model_line(plan, settings),
        'REPLICA="${REPLICA:-0}"',
        f'PORT="$((${{PORT:-{settings.port}}} + REPLICA))"',
        *_device_lines(settings),
        *(_node_lines(settings) if each_node else []),
        "",
        bash_array("ARGS", arguments),
        *body,
    ]
    return "\n".join([*lines, ""])


def command(*words: str) -> str:
    """Return a command that replaces the shell, one word or pair of words a line."""
    return " \\\n  ".join(["exec " + words[0], *words[1:], '"$@"'])


def router_script(plan: EnginePlan, body: Sequence[str]) -> str:
    """Return the script of a router; its body has the hosts of all nodes in ``NODES``."""
    hosts = "localhost" if plan.nodes == 1 else ""
    default = f":-{hosts}" if hosts else f":?names of the {plan.nodes} nodes in order, separated by spaces"
    lines = [
        "#!/usr/bin/env bash",
        plan.top("Run it when all servers answer. HOSTS: names of the nodes, in the order of README.md."),
        "set -euo pipefail",
        f'read -r -a NODES <<<"${{HOSTS{default}}}"',
        f'PORT="${{PORT:-{ROUTER_PORT}}}"',
        "",
        *body,
    ]
    return "\n".join([*lines, ""])


@dataclass(frozen=True, slots=True)
class Router:
    """A router in front of several servers: its package and release, its command, and the options that are used.

    ``pairs`` is the option for pools that hand caches over.
    """

    package: str
    release: str
    command: str
    options: tuple[str, ...]
    pairs: str

    def body(self, plan: EnginePlan, port_of: Callable[[PoolSettings, int], str]) -> list[str]:
        """Return the lines that start it; ``port_of`` adds a port to the address of a pool's replica."""
        lines = ["ARGS=("]
        if all(pool.role == "serve" for pool in plan.pools):
            lines.append(
                "  --worker-urls " + " ".join(f'"{url}"' for pool in plan.pools for url in urls(pool))
            )
        else:
            lines.append(f"  {self.pairs}")
            for pool in plan.pools:
                lines += [f'  --{pool.role} "{url}"{port_of(pool, n)}' for n, url in enumerate(urls(pool))]
        return [*lines, ")", command(self.command, "--host 0.0.0.0", '--port "${PORT}"', '"${ARGS[@]}"')]


def engine_files(
    plan: EnginePlan,
    folder: str,
    script: Callable[[EnginePlan, PoolSettings], str],
    router: Router,
    port_of: Callable[[PoolSettings, int], str] = lambda pool, replica: "",
) -> dict[str, str]:
    """Return the scripts of all pools, of a router if there are several servers, and README.md."""
    files = {f"{folder}/{script_name(pool)}": script(plan, pool) for pool in plan.pools}
    further: list[str] = []
    if plan.servers > 1:
        assert_known(((name,) for name in router.options), router.package, router.release)
        files[f"{folder}/router.sh"] = router_script(plan, router.body(plan, port_of))
        name = f"{router.package} {router.release}"
        further = [f"Then `bash router.sh` where {name} is installed: it takes the requests."]
    files[f"{folder}/README.md"] = readme(plan, further, each_node=True)
    return files


def urls(settings: PoolSettings) -> list[str]:
    """Return the address of each replica's server, as shell text with the array ``NODES``."""
    return [
        f"http://${{NODES[{place.node}]}}:{settings.port + replica}"
        for replica, place in enumerate(settings.places)
    ]


def readme(plan: EnginePlan, further: Sequence[str] = (), *, each_node: bool) -> str:
    """Return the page that says what to start on each node, or on the first node of each replica."""
    rows = [
        f"| {place.node + rank} | `{_environment(pool, replica, rank, each_node=each_node)}bash "
        f"{script_name(pool)}` | {pool.port + replica} |"
        for pool in plan.pools
        for replica, place in enumerate(pool.places)
        for rank in range(place.nodes if each_node else 1)
    ]
    rows.sort(key=lambda row: int(row.split("|")[1]))
    lines = [
        f"# {plan.resolved.plan.model} with {plan.facts.full_name}",
        "",
        "Start every server on its node; nodes are numbered from 0.",
        "",
        "| node | command | port |",
        "|---|---|---|",
        *rows,
        *(["", *further] if further else []),
    ]
    return "\n".join([*lines, ""])


def script_name(settings: PoolSettings, ending: str = "sh") -> str:
    """Return the name of a pool's file."""
    return f"pool-{settings.pool.name}.{ending}"


def _environment(settings: PoolSettings, replica: int, rank: int, *, each_node: bool) -> str:
    words = f"REPLICA={replica} "
    if settings.nodes > 1 and each_node:
        words += f"NODE_RANK={rank} HEAD_ADDR=node-{settings.places[replica].node} "
    return words


def _remarks(settings: PoolSettings, *, each_node: bool) -> list[str]:
    pool, layout = settings.pool, settings.layout
    degrees = ", ".join(
        f"{name} {getattr(layout, name)}" for name in ("attention_dp", "tp", "pp", "cp", "ep", "etp")
    )
    return [
        f"Pool {pool.name} does {pool.does}: {pool.replicas} x {pool.devices_of_replica} devices; {degrees}.",
        f"Run it for each REPLICA, 0 to {pool.replicas - 1}"
        + (
            f", on {'each' if each_node else 'the first'} of its {settings.nodes} nodes."
            if settings.nodes > 1
            else "."
        ),
    ]


def _model_line(plan: EnginePlan, settings: PoolSettings) -> str:
    repository = repository_of(plan.resolved.plan.model)
    found = checkpoint_format(settings.pool, plan.resolved.model.architecture, plan.facts)
    if found is not None:
        return f'MODEL="${{MODEL:?a checkpoint of {repository or plan.resolved.model.name} in {found}}}"'
    if repository is None:
        return f'MODEL="${{MODEL:?a checkpoint of {plan.resolved.model.name}}}"'
    return f'MODEL="${{MODEL:-{repository}}}"'


def repository_of(model: str) -> str | None:
    """Return the hub repository of a model that a plan names; None for a file or a model without one."""
    named = zoo_name(model)
    if "/" in model and named is not None:
        return model
    return next((repository for name, repository in zoo_repositories() if name == named), None)


def _device_lines(settings: PoolSettings) -> list[str]:
    """Return the lines that choose the devices of a replica which takes a part of its node."""
    count = settings.pool.devices_of_replica
    if count >= settings.node_devices:
        return []
    first = " ".join(str(place.first_device) for place in settings.places)
    return [
        "# First device of each replica on its node.",
        f"FIRST_DEVICES=({first})",
        'FIRST="${FIRST_DEVICES[REPLICA]}"',
        f'CUDA_VISIBLE_DEVICES="${{CUDA_VISIBLE_DEVICES:-$(seq -s, "${{FIRST}}" "$((FIRST + {count - 1}))")}}"',
        "export CUDA_VISIBLE_DEVICES",
    ]


def _node_lines(settings: PoolSettings) -> list[str]:
    if settings.nodes == 1:
        return []
    return [
        'NODE_RANK="${NODE_RANK:?the number of this node in its replica, from 0}"',
        'HEAD_ADDR="${HEAD_ADDR:?the address of the first node of the replica}"',
    ]


def _foreign_stack(plan: EnginePlan) -> list[Refusal]:
    said = NamedEngine.of(plan.resolved.plan.stack)
    if said.name == plan.facts.name and (not said.release or _same_release(said.release, plan.facts.release)):
        return []
    why = f"the files run on {plan.facts.full_name}; figures for another stack do not carry over"
    return [Refusal("stack", plan.resolved.plan.stack, why)]


def _same_release(said: str, release: str) -> bool:
    """Return whether a number names a release, or begins it."""
    return f"{release}.".startswith(f"{said}.")


def _of_sequences(plan: EnginePlan) -> list[Refusal]:
    found = []
    for settings in plan.pools:
        given, ranks = settings.pool.batching.max_sequences, settings.layout.attention_dp
        written = settings.sequences * ranks
        if given is None:
            why = f"written as {written}: requests of mean lengths that the cache has room for"
            found.append(Refusal(f"pools.{settings.pool.name}.batching.max_sequences", "absent", why))
        elif given != written:
            why = f"written as {settings.sequences} for each of {ranks} attention_dp ranks"
            found.append(Refusal(f"pools.{settings.pool.name}.batching.max_sequences", str(given), why))
    return found


def _of_checkpoints(plan: EnginePlan) -> list[Refusal]:
    arch = plan.resolved.model.architecture
    return [
        Refusal(
            f"pools.{settings.pool.name}.quantise.weights",
            found,
            f"{plan.facts.name} reads it from a checkpoint: set MODEL to one",
        )
        for settings in plan.pools
        if (found := checkpoint_format(settings.pool, arch, plan.facts)) is not None
    ]
