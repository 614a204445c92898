"""Print probe jobs: the files, the prediction of each, the next step."""

from typing import Any

from rich.markup import escape

from meshwright.present.console import console, plain_table
from meshwright.units import format_bytes, format_seconds


def render_probes(data: dict[str, Any], folder: str | None) -> None:
    """Print probe jobs in their JSON form; without a folder the files themselves."""
    if folder is None:
        for name, text in data["files"].items():
            print(f"# ==== {name} ====\n{text}", flush=True)
        return
    out = console()
    table = plain_table("job", "step (predicted)", "memory (predicted)")
    for job in data["jobs"]:
        table.add_row(job["name"], format_seconds(job["step_time_s"]), format_bytes(job["memory_bytes"]))
    out.print(table)
    if data["remark"]:
        out.print(f"\n{escape(data['remark'])}")
    print(
        f"\n{len(data['files'])} files in {folder}; {folder}/README.md says what to run and what to do with the logs."
    )
