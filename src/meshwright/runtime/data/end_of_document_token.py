"""Find the token that ends a document: the requested one, the one in the tokenizer's files, or a usual name.

Next to a ``tokenizer.json``, ``tokenizer_config.json`` has ``eos_token`` (text, or an object with it as ``content``),
and ``config.json`` has ``eos_token_id`` (a number or a list, of which the first is taken), as ``transformers`` writes
them. The usual names are those of released models; the first one in the tokenizer's vocabulary is taken.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer

from meshwright.errors import InputError, Problem, nearest
from meshwright.plans.files.yaml_text import MAX_BYTES

USUAL_NAMES = (
    "<|endoftext|>",  # GPT-2 and its relatives, Qwen, our trained tokenizers
    "<|end_of_text|>",  # Llama 3
    "<｜end▁of▁sentence｜>",  # DeepSeek
    "</s>",  # Llama 2, Mistral
    "<eos>",  # Gemma
    "<|return|>",  # gpt-oss
    "[EOS]",
)


def end_of_document(tokenizer: Tokenizer, file: Path, name: str | None) -> int:
    """Return the id that ends a document; ``name`` is the requested token. Raises InputError."""
    if name is not None:
        found = tokenizer.token_to_id(name)
        if found is None:
            near = nearest(name, tokenizer.get_vocab())
            raise InputError(Problem("end_of_document", name, f"{file} has no such token", near))
        return found
    configured = _configured_end(tokenizer, file.parent)
    usual = [i for i in map(tokenizer.token_to_id, USUAL_NAMES) if i is not None]
    if configured is None and not usual:
        rule = "does not say which token ends a document"
        raise InputError(Problem("tokenizer", str(file), rule, "name it with end_of_document"))
    return usual[0] if configured is None else configured


def _configured_end(tokenizer: Tokenizer, folder: Path) -> int | None:
    token = _field(folder / "tokenizer_config.json", "eos_token")
    name = token.get("content") if isinstance(token, dict) else token
    found = tokenizer.token_to_id(name) if isinstance(name, str) else None
    if found is not None:
        return found
    number = _field(folder / "config.json", "eos_token_id")
    first = number[0] if isinstance(number, list) and number else number
    if not isinstance(first, int) or not 0 <= first < 2**32 or tokenizer.id_to_token(first) is None:
        return None
    return first


def _field(path: Path, key: str) -> object:
    """Return a field of a JSON file; None if the file or field is missing or the file is not JSON."""
    try:
        with open(path, "rb") as stream:
            data = json.loads(stream.read(MAX_BYTES * 64))
    except (OSError, ValueError, RecursionError):
        return None
    return data.get(key) if isinstance(data, dict) else None
