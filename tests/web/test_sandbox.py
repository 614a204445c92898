"""A restricted process opens its own files and no others, and reaches no network."""

import subprocess
import sys

PROBE = """
import socket, subprocess
from importlib.resources import files
from meshwright.web.sandbox import restrict

restrict()
assert files("meshwright.model").joinpath("zoo", "llama-3.2-1b.json").read_bytes()
attempts = {
    "file": lambda: open("/etc/passwd"),
    "folder": lambda: open("own.txt"),
    "environment": lambda: open("/proc/self/environ"),
    "network": lambda: socket.create_connection(("127.0.0.1", 9)),
    "process": lambda: subprocess.run(["true"]),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except PermissionError:
        print(name)
"""


def test_only_own_files_are_opened(tmp_path):
    (tmp_path / "own.txt").write_text("mine", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["file", "folder", "environment", "network", "process"]
