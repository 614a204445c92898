"""How much memory processes can still take on this host: Linux's own estimate, within the limit of a control group.

``MemAvailable`` (proc(5)) is what can be had without swapping; ``memory.max`` of the second version of control groups
and ``memory.limit_in_bytes`` of the first bound it inside a container. What the group uses already is not looked at,
since that includes caches that give way: the result is never too low for a host without other work.
"""

import re
from collections.abc import Iterator
from pathlib import Path

FACTS = Path("/proc/meminfo")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def free_host_bytes() -> int | None:
    """Bytes that are free; None where the system does not say."""
    return min(_known(), default=None)


def _known() -> Iterator[int]:
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
