"""Train a tokenizer on the data: byte-level byte-pair encoding.

Byte pairs (Sennrich et al., arXiv 1508.07909) over bytes (GPT-2), by the trainer of Hugging Face's ``tokenizers``:
begin with the 256 bytes and join the most frequent pair, again and again, until there are ``vocab`` tokens or no pair
occurs twice. Words are split as GPT-2 does. The same text gives the same tokenizer.

Only the first ``SAMPLE`` characters are used. For training alone, runs without a space are cut every ``RUN`` characters
and runs of space are shortened to as many: the trainer's time grows with the square of a word's length.
"""

import re
from collections.abc import Iterable, Iterator

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from meshwright.runtime.data.encoders import check_room
from meshwright.runtime.data.hugging_face_tokenizer import HuggingFaceEncoder, prepared

SAMPLE = 2**26
RUN = 256
END = "<|endoftext|>"
_LONG_WORD = re.compile(rf"(\S{{{RUN}}})(?=\S)")
_LONG_SPACE = re.compile(rf"(\s{{{RUN}}})\s+")


def recipe(vocab: int) -> str:
    """Return everything that the tokenizer depends on, except the text."""
    return f"byte pairs {vocab} {SAMPLE} {RUN} tokenizers {tokenizers.__version__}"


def learn_encoder(texts: Iterable[str], vocab: int) -> HuggingFaceEncoder:
    """Train a tokenizer of at most ``vocab`` tokens on ``texts``. Raises InputError if the vocabulary is below 257."""
    check_room(vocab)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(texts), trainer)
    end = tokenizer.token_to_id(END)
    assert end is not None
    return HuggingFaceEncoder(prepared(tokenizer), end, tokenizer.to_str(pretty=True))


def _sample(texts: Iterable[str]) -> Iterator[str]:
    left = SAMPLE
    for text in texts:
        yield _LONG_WORD.sub(r"\1\n", _LONG_SPACE.sub(r"\1", text[:left]))
        left -= len(text)
        if left <= 0:
            return
