"""Open the data of a run: from the options to the batches of every step."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from meshwright.errors import InputError, Problem
from meshwright.runtime.data.batches import Batches, HeldOutBatches, TrainingBatches
from meshwright.runtime.data.corpus import Corpus, open_corpus
from meshwright.runtime.data.encoder_input import EncoderInput
from meshwright.runtime.data.encoders import BYTES, ByteEncoder, Encoder, check_room
from meshwright.runtime.data.epoch_order import EpochOrder, evenly_spaced
from meshwright.runtime.data.hugging_face_tokenizer import FILE, load_encoder
from meshwright.runtime.data.input_files import DataFile, find_files
from meshwright.runtime.data.sequence_windows import Windows
from meshwright.runtime.data.synthetic_data import HELD_OUT, SyntheticBatches
from meshwright.runtime.data.tokenised_cache import Tokenised, content_digests, tokenised
from meshwright.runtime.training.options import TrainingOptions
from meshwright.workload.packed_documents import Documents

SYNTHETIC_EVALUATION_BATCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DataNeeds:
    """A plan's requirements on its data. ``model_folder`` is the folder that the model was read from, if any.

    ``documents``: attention is confined to these documents of a sequence. ``encoder`` is the size of what an encoder
    reads; None: the model has none.
    """

    vocab: int
    seq_len: int
    global_batch: int
    model_folder: Path | None = None
    documents: Documents | None = None
    encoder: EncoderInput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Batches for training and for evaluation, with facts about them.

    ``evaluation_batches`` is the number of ``held_out`` batches in one evaluation. ``identity`` holds everything that
    the batches depend on: a run resumed with another identity is not the same run. ``facts`` are for people.
    ``tokenizer`` is the run's ``tokenizer.json``, None if there is none. ``remarks`` are printed before a run.
    """

    training: Batches
    held_out: Batches
    evaluation_batches: int
    identity: Mapping[str, object]
    facts: Mapping[str, object]
    tokenizer: Path | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Source:
    """Tokens of files, and facts about them."""

    corpus: Corpus
    digest: str
    end_of_document: int | None
    facts: Mapping[str, object]
    tokenizer: Path | None


def open_data(options: TrainingOptions, needs: DataNeeds) -> TrainingData:
    """Open the data that ``options`` name.

    May take long when texts are tokenised for the first time. Raises InputError.
    """
    if not options.data:
        return _synthetic(options, needs)
    if needs.encoder is not None and needs.encoder.elements:
        rule = "images are made up in this release, and files of data have none"
        raise InputError(Problem("data", list(options.data), rule, "leave data out"))
    source = _source(options, needs)
    source.corpus.check_vocabulary(needs.vocab)
    requirements: list[tuple[str, object]] = (
        [("mask_document_starts", True)] if options.mask_document_starts else []
    )
    requirements += [("workload.documents", str(needs.documents))] if needs.documents else []
    if requirements and source.end_of_document is None:
        rule, hint = "which token ends a document is not known", "name its id with end_of_document"
        raise InputError(Problem(name, value, rule, hint) for name, value in requirements)
    return _of_files(source, options, needs)


def default_cache() -> Path:
    """Return the default folder of tokenised data. Raises InputError if the user has no home folder."""
    try:
        return Path.home() / ".cache" / "meshwright" / "tokens"
    except RuntimeError as error:
        raise InputError(Problem("cache", None, str(error), "name a folder")) from None


def _synthetic(options: TrainingOptions, needs: DataNeeds) -> TrainingData:
    size = {"vocab": needs.vocab, "seq_len": needs.seq_len, "global_batch": needs.global_batch}
    training = SyntheticBatches(**size, seed=options.seed, documents=needs.documents, encoder=needs.encoder)
    packed = {"documents": str(needs.documents)} if needs.documents else {}
    facts = {"source": "synthetic", "least_loss": training.least_loss, "tokens_used": training.tokens_used}
    return TrainingData(
        training=training,
        held_out=replace(training, stream=HELD_OUT),
        evaluation_batches=SYNTHETIC_EVALUATION_BATCHES,
        identity={
            "data": "synthetic",
            "seed": options.seed,
            "noise": training.noise,
            **size,
            **packed,
            **(needs.encoder.identity if needs.encoder else {}),
        },
        facts=facts,
    )


def _source(options: TrainingOptions, needs: DataNeeds) -> _Source:
    """Open the tokens of the text files, then the token shards, each in the order of the options."""
    files = find_files(options.data)
    texts = [file for file in files if not file.ready]
    ready = [file for file in files if file.ready]
    made = _tokenised(texts, options, needs) if texts else None
    shards = made.shards if made else ()
    names = ["text as its tokenizer encodes it"] * len(shards) + [str(file.path) for file in ready]
    corpus = open_corpus([*shards, *ready], names)
    digests = [*([made.folder.name] if made else []), *content_digests(ready)]
    return _Source(
        corpus=corpus,
        digest=hashlib.sha256("\n".join(digests).encode()).hexdigest(),
        end_of_document=made.manifest.end_of_document if made else _given_end(options, needs.vocab),
        facts={
            "source": "files",
            "files": len(files),
            "documents": made.manifest.documents if made and not ready else None,
            "encoder": made.manifest.encoder if made else None,
        },
        tokenizer=made.tokenizer if made else None,
    )


def _tokenised(texts: Sequence[DataFile], options: TrainingOptions, needs: DataNeeds) -> Tokenised:
    encoder = _encoder(options, needs)
    if options.end_of_document and (encoder is None or isinstance(encoder, ByteEncoder)):
        rule = "this tokenizer has an end-of-document token of its own"
        raise InputError(Problem("end_of_document", options.end_of_document, rule, "leave it out"))
    return tokenised(texts, encoder, needs.vocab, options.cache or default_cache())


def _encoder(options: TrainingOptions, needs: DataNeeds) -> Encoder | None:
    """Return the requested encoder, else the model's own, else None."""
    if options.tokenizer == BYTES:
        check_room(needs.vocab)
        return ByteEncoder()
    if options.tokenizer is not None:
        return load_encoder(options.tokenizer, options.end_of_document)
    if needs.model_folder is not None and (needs.model_folder / FILE).is_file():
        return load_encoder(needs.model_folder, options.end_of_document)
    return None


def _given_end(options: TrainingOptions, vocab: int) -> int | None:
    """Return the end-of-document id of token shards, if one is given."""
    text = options.end_of_document
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) >= vocab:
        rule = f"the data are tokens already: must be an id from 0 to {vocab - 1}"
        raise InputError(Problem("end_of_document", text, rule, "e.g. 0"))
    return int(text)


def _of_files(source: _Source, options: TrainingOptions, needs: DataNeeds) -> TrainingData:
    end = source.end_of_document
    windows = Windows(
        source.corpus,
        needs.seq_len,
        fill=end or 0,
        unpredicted=end if options.mask_document_starts else None,
        parted=end if needs.documents else None,
        encoder_tokens=needs.encoder.tokens if needs.encoder else 0,
    )
    held = evenly_spaced(windows.count, _held_out(windows, options))
    trained = np.delete(np.arange(windows.count), held)
    held_out = HeldOutBatches(windows, held, needs.global_batch)
    return TrainingData(
        training=TrainingBatches(windows, EpochOrder(trained, options.seed), needs.global_batch),
        held_out=held_out,
        evaluation_batches=held_out.count,
        identity={
            "data": source.digest,
            "seed": options.seed,
            "seq_len": needs.seq_len,
            "global_batch": needs.global_batch,
            "held_out_windows": len(held),
            "mask_document_starts": options.mask_document_starts,
            "end_of_document": end,
            **({"documents": "apart"} if needs.documents else {}),
            **(needs.encoder.identity if needs.encoder else {}),
        },
        facts={
            **source.facts,
            "tokens": source.corpus.tokens,
            "windows": len(trained),
            "held_out_windows": len(held),
            "epochs": options.steps * needs.global_batch / len(trained),
        },
        tokenizer=source.tokenizer,
        remarks=() if len(trained) >= needs.global_batch else (_too_few(source, len(trained), needs),),
    )


def _too_few(source: _Source, windows: int, needs: DataNeeds) -> str:
    """Return the remark for data so few that a single step reads them more than once."""
    many = "1 sequence" if windows == 1 else f"{windows} sequences"
    return (
        f"The data are few: {source.corpus.tokens} tokens, {many} of {needs.seq_len} tokens to train on, and every "
        f"step takes {needs.global_batch}."
    )


def _held_out(windows: Windows, options: TrainingOptions) -> int:
    """Return the number of held-out windows. Raises InputError if that leaves too few for training or evaluation."""
    if windows.corpus.tokens < windows.least_tokens:
        behind = f" behind {windows.encoder_tokens} of the encoder" if windows.encoder_tokens else ""
        rule = f"hold {windows.corpus.tokens} tokens; a token and one that follows it{behind} are the least"
        raise InputError(Problem("data", list(options.data), rule, "name more data"))
    held = round(options.held_out * windows.count)
    if held == windows.count or (options.evaluate_every and not held):
        rule = f"{options.held_out:g} of {windows.count} sequences is {held}: none is left for "
        rule += "training" if held else "evaluation"
        raise InputError(
            Problem("held_out", options.held_out, rule, "name more data, or take a smaller seq_len")
        )
    return held
