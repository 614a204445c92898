"""Restrict a process to the files of Python and of this package, without a network.

Names in questions are checked before (``questions.py``); this holds if a check was forgotten. Python reports what it
does to audit hooks (PEP 578), which cannot be removed.
"""

import os
import sys
from pathlib import Path
from typing import Any

import meshwright

OPENED = "open"
SYSTEM_FILES = ("/usr/lib", "/usr/share", "/dev", "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo")
REFUSED = (
    *(
        "socket.connect",
        "socket.bind",
        "socket.sendto",
        "socket.getaddrinfo",
        "subprocess.Popen",
        "os.system",
    ),
    *("os.exec", "os.posix_spawn", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.rmtree"),
)


def restrict() -> None:
    """Refuse other files and the network with PermissionError."""
    here = os.path.realpath(os.getcwd())
    imported = [path for path in sys.path if path and os.path.realpath(path) != here]
    own = (sys.prefix, sys.base_prefix, str(Path(meshwright.__file__).parent))
    folders = {*own, *imported, *SYSTEM_FILES}
    allowed = tuple(os.path.realpath(folder) for folder in folders)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == OPENED and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not any(path == folder or path.startswith(folder + os.sep) for folder in allowed):
                raise PermissionError(f"{path} is not read here")
        elif event in REFUSED:
            raise PermissionError(f"{event} is not done here")

    sys.addaudithook(hook)
