"""Facts about a rank's device and host."""

import os
import re
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import torch

from meshwright.measurement.rank_session import Session
from meshwright.measurement.results import Machine

CPU_FACTS = Path("/proc/cpuinfo")


class DeviceFacts(NamedTuple):
    """One rank's device: its name, its memory (a CPU's is the host's) and its host."""

    name: str
    memory_bytes: int
    host: str


def host_name() -> str:
    """Return the name of this host, without its domain."""
    return socket.gethostname().split(".")[0] or "localhost"


def machine_of(session: Session) -> Machine:
    """Return the machine as all ranks see it."""
    facts = [_facts(fact) for fact in session.gathered(tuple(device_facts(session.device, session.host)))]
    kind = session.device.type
    hosts = [fact.host for fact in facts]
    on_host = {host: hosts.count(host) for host in hosts}
    return Machine(
        device_kind="cuda" if kind == "cuda" else "cpu",
        device_names=tuple(fact.name for fact in facts),
        hosts=tuple(hosts),
        memory_bytes=tuple(
            fact.memory_bytes if kind == "cuda" else fact.memory_bytes // on_host[fact.host] for fact in facts
        ),
        threads_per_device=torch.get_num_threads(),
        backend=torch.distributed.get_backend(),
        torch=torch.__version__,
        date=datetime.now(UTC).date().isoformat(),
    )


def device_facts(device: torch.device, host: str) -> DeviceFacts:
    """Return the facts of this rank's device."""
    if device.type == "cuda":
        return DeviceFacts(
            torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device).total_memory, host
        )
    return DeviceFacts(cpu_name(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), host)


def cpu_name() -> str:
    """Return the processor's name on Linux; ``CPU`` elsewhere."""
    try:
        text = CPU_FACTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "CPU"
    found = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    return found[1].strip() if found else "CPU"


def own_core(hosts: Sequence[str], host: str) -> bool:
    """Return whether every process of a host can have a core of its own."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores >= hosts.count(host)


def _facts(value: object) -> DeviceFacts:
    assert isinstance(value, tuple)
    return DeviceFacts(*value)
