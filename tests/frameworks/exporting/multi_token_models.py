"""Models whose last layers predict further tokens, as files: the zoo's with that question answered."""

import json
from pathlib import Path

from meshwright.model.load import load_config


def further_file(folder: Path, zoo: str, count: int, **changes: object) -> str:
    """The path of a file of a zoo model, by the same name, that trains so many such layers."""
    asked = {"num_nextn_predict_layers": count, "train_nextn_predict_layers": True}
    path = folder / f"{count}" / f"{zoo}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**load_config(zoo), **asked, **changes}))
    return str(path)
