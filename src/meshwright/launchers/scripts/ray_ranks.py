"""Start a command on the nodes of a Ray cluster, a process for every rank, and supervise the processes.

    python ray_ranks.py --nodes 2 --processes 8 --gpus 8 --max-restarts 3 -- bash launch.sh

An actor on each node holds its devices and starts the processes there, with the variables of torchrun: RANK,
WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, NNODES, MASTER_ADDR, MASTER_PORT and RDZV_ID. The first process
that fails is named and the others are ended; then all start again, as often as is allowed. A signal ends the processes
in order. Ray 2.50 or later; without a cluster it starts one on this machine. Needs nothing else, so that it runs from a
ConfigMap. Ends with the exit code of the process that failed; a rank that was killed counts as 1.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import ray
from ray.exceptions import GetTimeoutError, RayActorError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

READY_S = 600.0
"""Seconds that the nodes of a cluster may take to appear."""
POLL_S = 0.5
GRACE_S = 60.0
"""Seconds from SIGTERM to SIGKILL: a run saves in between."""
WRONG_INPUT = 2
"""The exit code of a command that would be refused again."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Node:
    """The processes of one node, by their local ranks."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def address(self) -> tuple[str, int]:
        """Return the node's address and a port that is free now."""
        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    def start(self, command: list[str], environments: list[dict[str, str]]) -> None:
        """Start a process for each environment."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        self.processes = [subprocess.Popen(command, env={**own, **more}) for more in environments]

    def codes(self) -> list[int | None]:
        """Return the exit codes of the processes; None while one runs."""
        return [process.poll() for process in self.processes]

    def signal(self, number: int) -> None:
        """Send a signal to the processes that run."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)


class Stop:
    """The first signal that this program received, or None."""

    number: int | None = None

    def __call__(self, number: int, frame: object) -> None:
        """Note a signal."""
        self.number = self.number or number


def main() -> int:
    """Run the command until it succeeds, is refused, or has failed too often."""
    wanted = parser().parse_args()
    command = wanted.command[1:] if wanted.command[:1] == ["--"] else wanted.command
    ray.init(log_to_driver=True)
    stop = Stop()
    for number in SIGNALS:
        signal.signal(number, stop)
    for attempt in range(wanted.max_restarts + 1):
        code, reason = attempted(wanted, command, stop)
        if code == 0 or stop.number is not None:
            return code
        last = code == WRONG_INPUT or attempt == wanted.max_restarts
        print(f"{reason}; {'not started again' if last else 'all start again'}", file=sys.stderr, flush=True)
        if last:
            break
    return code if code > 0 else 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description="Start a command on the nodes of a Ray cluster.")
    for name, default in {"nodes": 1, "processes": 1, "gpus": 0, "max-restarts": 0}.items():
        made.add_argument(f"--{name}", type=int, default=default)
    made.add_argument("command", nargs=argparse.REMAINDER)
    return made


def attempted(wanted: argparse.Namespace, command: list[str], stop: Stop) -> tuple[int, str]:
    """Start all processes once; return the exit code of the job and who failed."""
    bundle = {"CPU": 1.0} | ({"GPU": float(wanted.gpus)} if wanted.gpus else {})
    group = placement_group([bundle] * wanted.nodes, strategy="STRICT_SPREAD" if wanted.nodes > 1 else "PACK")
    nodes: list[ray.actor.ActorHandle] = []
    try:
        ray.get(group.ready(), timeout=READY_S)
        for index in range(wanted.nodes):
            place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
            options = {"num_cpus": 1, "num_gpus": wanted.gpus, "scheduling_strategy": place}
            nodes.append(ray.remote(Node).options(**options).remote())
        address, port = ray.get(nodes[0].address.remote())
        for index, node in enumerate(nodes):
            environments = environments_of(index, wanted, address, port)
            ray.get(node.start.remote(command, environments))
        return supervised(nodes, wanted.processes, stop)
    except GetTimeoutError:
        return 1, f"{wanted.nodes} nodes with {bundle} did not appear among {ray.cluster_resources()}"
    except RayActorError as lost:
        return 1, f"a node is lost ({lost})"
    finally:
        end(nodes)
        remove_placement_group(group)


def end(nodes: list) -> None:
    """Kill what still runs on the nodes that are left, and their actors."""
    for node in nodes:
        with suppress(RayActorError, GetTimeoutError):
            ray.get(node.signal.remote(signal.SIGKILL), timeout=GRACE_S)
        ray.kill(node)


def environments_of(index: int, wanted: argparse.Namespace, address: str, port: int) -> list[dict[str, str]]:
    """Return the variables of each process of a node."""
    shared = {
        "NODE_RANK": index,
        "NNODES": wanted.nodes,
        "WORLD_SIZE": wanted.nodes * wanted.processes,
        "LOCAL_WORLD_SIZE": wanted.processes,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "RDZV_ID": ray.get_runtime_context().get_job_id(),
    }
    own = [
        {"RANK": index * wanted.processes + local, "LOCAL_RANK": local} for local in range(wanted.processes)
    ]
    return [{name: str(value) for name, value in {**shared, **one}.items()} for one in own]


def supervised(nodes: list, processes: int, stop: Stop) -> tuple[int, str]:
    """Watch the processes until all have ended; end the others where one has failed or a signal arrived."""
    failed, ending_since = (0, ""), None
    while True:
        codes = [code for node in ray.get([node.codes.remote() for node in nodes]) for code in node]
        bad = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
        if bad and ending_since is None:
            rank = bad[0]
            failed = codes[rank], f"rank {rank} on node {rank // processes} ended with {codes[rank]}"
        if None not in codes:
            return failed
        if (bad or stop.number is not None) and ending_since is None:
            ending_since = time.monotonic()
            ray.get([node.signal.remote(signal.SIGTERM) for node in nodes])
        if ending_since is not None and time.monotonic() - ending_since > GRACE_S:
            ray.get([node.signal.remote(signal.SIGKILL) for node in nodes])
        time.sleep(POLL_S)


if __name__ == "__main__":
    sys.exit(main())
