"""A model's ``config.json`` from the Hugging Face hub, through ``huggingface_hub`` (the extra ``hub``).

The library's cache, endpoint, credentials and ``HF_HUB_OFFLINE`` apply.
"""

import importlib
from pathlib import Path

from meshwright.errors import InputError, Problem


def fetch_config(repository: str) -> bytes:
    """The bytes of ``config.json`` in the hub repository ``org/name``.

    Raises InputError where the library is not installed, or the file cannot be had (absent, gated, offline).
    """
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        rule = "a hub id needs the package huggingface_hub, which is not installed"
        suggestion = "pip install 'meshwright[hub]', or download the config.json and give its path"
        raise InputError(Problem("model", repository, rule, suggestion)) from error
    try:
        return Path(hub.hf_hub_download(repository, "config.json")).read_bytes()
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        suggestion = "check the name, your access and HF_HUB_OFFLINE, or give the path of a config.json"
        raise InputError(
            Problem("model", repository, f"its config.json cannot be had: {reason}", suggestion)
        ) from error
