"""Encoders from a ``tokenizer.json``, read by Hugging Face's ``tokenizers``.

The file's begin and end tokens, truncation and padding are switched off: a document is the tokens of its text and the
end-of-document token. The name of a special token inside a text is encoded as ordinary text, so no document can end
itself.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import Tokenizer

from meshwright.errors import InputError, Problem
from meshwright.runtime.data.end_of_document_token import end_of_document
from meshwright.runtime.data.input_files import unreadable

FILE = "tokenizer.json"
MAX_BYTES = 2**28


@dataclass(frozen=True)
class HuggingFaceEncoder:
    """A Hugging Face tokenizer, and the token that ends a document."""

    tokenizer: Tokenizer
    end_of_document: int
    saved: str

    @cached_property
    def vocab(self) -> int:
        """One more than the largest id."""
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def identity(self) -> str:
        """The library's release, the file's digest and the end-of-document id."""
        digest = hashlib.sha256(self.saved.encode()).hexdigest()
        return f"tokenizers {tokenizers.__version__} {digest} {self.end_of_document}"

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Return the ids of each text."""
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.uint32) for encoding in encodings]


def load_encoder(path: str | Path, end: str | None = None) -> HuggingFaceEncoder:
    """Load the encoder of a ``tokenizer.json`` or of the folder that holds one.

    ``end`` names the token that ends a document, if the files do not. Raises InputError.
    """
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    text = _read(file)
    tokenizer = _parsed(text, file)
    return HuggingFaceEncoder(tokenizer, end_of_document(tokenizer, file, end), text)


def prepared(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer, set to encode the whole text and nothing else."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _read(file: Path) -> str:
    try:
        with open(file, "rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError(unreadable(file, error, "tokenizer")) from None
    if len(raw) > MAX_BYTES:
        raise _no_tokenizer(file, f"more than {MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _no_tokenizer(file, f"byte {error.start} is not UTF-8") from None


def _no_tokenizer(file: Path, reason: str) -> InputError:
    return InputError(Problem("tokenizer", str(file), f"is no tokenizer: {reason}", f"name a {FILE}"))


def _parsed(text: str, file: Path) -> Tokenizer:
    try:
        tokenizer = prepared(Tokenizer.from_str(text))
    except Exception as error:  # the library raises Exception itself
        raise _no_tokenizer(file, str(error)[:120]) from None
    if not tokenizer.get_vocab():
        raise _no_tokenizer(file, "it has no tokens")
    return tokenizer
