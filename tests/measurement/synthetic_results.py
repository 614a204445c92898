"""Results with times of a test's choosing, for everything that reads them and never ran."""

from meshwright.measurement.rank_groups import pair_rounds
from meshwright.measurement.results import Group, KernelTime, Machine, Results


def hosts_of(nodes, devices):
    return tuple(f"host{node}" for node in range(nodes) for _ in range(devices))


def machine(hosts, name="NVIDIA H100 80GB HBM3", kind="cuda"):
    return Machine(
        device_kind=kind,
        device_names=(name,) * len(hosts),
        hosts=tuple(hosts),
        memory_bytes=(84_929_000_000,) * len(hosts),
        threads_per_device=8,
        backend="nccl",
        torch="2.13.0",
        date="2026-11-21",
    )


def results(hosts, kernels=(), groups=(), collectives=(), **of_machine):
    return Results(
        machine=machine(hosts, **of_machine),
        kernels=tuple(kernels),
        groups=tuple(groups),
        collectives=tuple(collectives),
        budget_s=60.0,
        took_s=61.5,
    )


def product(seconds, shape=(1024, 1024, 1024), spread=0.0):
    """A matrix product that took so long on each rank."""
    return KernelTime(
        kind="matmul",
        dtype="bf16",
        shape=shape,
        flops=2.0 * shape[0] * shape[1] * shape[2],
        moved_bytes=1e6,
        seconds=tuple(seconds),
        spread_s=tuple(spread * s for s in seconds),
        repeats=10,
    )


def collective(group, seconds, kind="send-recv", size=2**26):
    return group.took(kind, size, seconds, repeats=20)


def pairs(hosts, seconds_of, scope="host pair", most=1000):
    """Results with every pair of the scope; ``seconds_of(names)`` of a set of hosts, or of a pair's name."""
    groups = [g for played in pair_rounds(hosts, most) if played.scope == scope for g in played.groups]
    times = [collective(g, seconds_of(_key(g, hosts, scope))) for g in groups]
    return results(hosts, groups=groups, collectives=times)


def _key(group, hosts, scope):
    return frozenset(hosts[r] for r in group.ranks) if scope == "host pair" else group.name


def inside(hosts):
    """A group for every host."""
    return [
        Group(
            name=f"inside {host}",
            scope="node",
            ranks=tuple(r for r, name in enumerate(hosts) if name == host),
            nodes=1,
            local=hosts.count(host),
        )
        for host in dict.fromkeys(hosts)
    ]
