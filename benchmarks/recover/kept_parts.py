"""Keep the result of every part of a page, that of recovery or another one, so that a second call resumes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parents[2] / ".cache" / "recover"


def kept(name: str, make: Callable[[], Any], folder: Path = KEPT) -> Any:
    """Return the result of a part, made now or by an earlier call."""
    path = folder / f"{name}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(make()), encoding="utf-8")
        print(f"done: {name}", file=sys.stderr, flush=True)
    return json.loads(path.read_text(encoding="utf-8"))
