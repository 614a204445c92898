"""Estimate the memory that processes can still use on this host: Linux's estimate, within the limit of a control group.

``MemAvailable`` (proc(5)) is what is available without swapping; ``memory.max`` of cgroup v2 and
``memory.limit_in_bytes`` of v1 bound it inside a container. The group's current use is ignored, since it includes
reclaimable caches: the result is never too low for a host without other work.
"""

import re
from collections.abc import Iterator
from pathlib import Path

FACTS = Path("/proc/meminfo")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def free_host_bytes() -> int | None:
    """Return the free bytes; None if the system does not report them."""
    return min(_readable(), default=None)


def _readable() -> Iterator[int]:
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _text(FACTS), flags=re.MULTILINE)
    if found:
        yield int(found[1]) * 1024
    for path in LIMITS:
        text = _text(path).strip()
        if text.isdigit():
            yield int(text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
