"""Rules on models with an encoder: the workload gives its inputs, and plans keep it with what reads its result.

Every decoder layer of T5 reads the result of the text encoder, so that all layers are on one pipeline rank and in one
layout. A vision encoder makes rows of the decoder's input: it is on the first stage, with the embedding.
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.model.encoder import TextEncoder, VisionEncoder
from meshwright.plans.forms.long import NOT_YET
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.workload.images import Images
from meshwright.workload.workload import Workload

TOKENS, IMAGES = "workload.encoder_tokens", "workload.images"
NO_CONTEXT = f"an encoder whose sequences are cut over cp {NOT_YET}"
NO_STAGES = "every decoder layer reads the text encoder's result, on one pipeline rank"
NO_VOCABULARY = f"an encoder with a vocabulary over all pipeline ranks {NOT_YET}"
NO_OFFLOAD = f"an encoder with activations on hosts {NOT_YET}"
ONE_LAYOUT = "a text encoder, whose result every decoder layer reads,"


def encoder_inputs(case: RuleInput) -> Iterator[Problem]:
    """Require inputs for the model's encoder, and only those; refuse tasks and optimizers that it does not train in."""
    if case.workload is not None:
        yield from encoder_problems(case.workload, case.arch)


def encoder_problems(workload: Workload, arch: Architecture) -> Iterator[Problem]:
    """Yield conflicts of a workload with a model's encoder, or with its absence, whatever the plan."""
    encoder, tokens, images = arch.encoder, workload.encoder_tokens, workload.images
    if isinstance(encoder, TextEncoder) and tokens is None:
        rule = f"{arch.name} has a text encoder, and its tokens for each sequence are not given"
        yield Problem(TOKENS, None, rule, "encoder_tokens: 512, or --encoder-tokens 512")
    if tokens is not None and not isinstance(encoder, TextEncoder):
        yield Problem(TOKENS, tokens, "the model has no text encoder", "leave it out")
    if isinstance(encoder, VisionEncoder) and images is None:
        rule = f"{arch.name} has a vision encoder, and the images of a sequence are not given"
        tokens = encoder.merged * max(1, min(workload.seq_len // 2, 1024 // encoder.merged))
        hint = f"images: {{per_sequence: 1, tokens: {tokens}}}, or --images 1x{tokens}"
        yield Problem(IMAGES, None, rule, hint)
    if images is not None and isinstance(encoder, VisionEncoder):
        yield from _merged_images(images, encoder, workload.seq_len)
    elif images is not None:
        yield Problem(IMAGES, str(images), "the model has no vision encoder", "leave it out")
    if encoder is not None:
        yield from _not_trained(workload)


def _merged_images(images: Images, encoder: VisionEncoder, seq_len: int) -> Iterator[Problem]:
    """Require images of whole merged rows, and a text behind them."""
    merged, tokens = encoder.merged, images.tokens
    if tokens % merged:
        rule = (
            f"tokens % merge² = {tokens} % {merged} = {tokens % merged} ≠ 0: {merged} patches become one row"
        )
        yield Problem(f"{IMAGES}.tokens", tokens, rule, f"tokens: {max(1, round(tokens / merged)) * merged}")
        return
    rows = images.patches // merged
    if rows >= seq_len:
        rule = (
            f"per_sequence·tokens / merge² = {images.per_sequence}·{tokens} / {merged} = {rows} rows leave no text in "
            f"seq_len = {seq_len}"
        )
        yield Problem(IMAGES, str(images), rule, f"seq_len: {2 * rows}, or fewer images")


def _not_trained(workload: Workload) -> Iterator[Problem]:
    """Yield what of a workload this release does not do with an encoder."""
    documents, optimizer = workload.documents, workload.optimizer
    if documents is not None:
        rule = f"a model with an encoder and packed documents {NOT_YET}"
        yield Problem("workload.documents", str(documents), rule, "leave documents out")
    if workload.task == "lora":
        rule = f"a model with an encoder and adapters {NOT_YET}"
        yield Problem("workload.task", workload.task, rule, "task: sft")
    if optimizer.forward_only:
        rule = f"a model with an encoder and {optimizer.name} {NOT_YET}"
        yield Problem("workload.optimizer", optimizer.name, rule, "optimizer: adamw")


def encoder_under_layout(case: RuleInput) -> Iterator[Problem]:
    """Refuse cp, stages behind a text encoder, a spread vocabulary, and activations on hosts."""
    if case.arch.encoder is None:
        return
    cp, pp, choice, offload = case.grid.cp, case.pp, case.plan.choice, case.plan.offload
    if cp > 1:
        yield Problem("layout.cp", cp, f"{NO_CONTEXT}: cp = {cp} must be 1", "cp: 1")
    if pp > 1 and isinstance(case.arch.encoder, TextEncoder):
        yield Problem("layout.pp", pp, f"{NO_STAGES}: pp = {pp} must be 1", "pp: 1")
    if choice.vocabulary is not None:
        hint = f"schedule: {choice.name}"
        yield Problem("pipeline.schedule.vocabulary", choice.vocabulary, NO_VOCABULARY, hint)
    if offload is not None and offload.rule.share:
        yield Problem("offload.activations", offload.activations, NO_OFFLOAD, "take offload out")


def encoder_widths(arch: Architecture) -> dict[str, int]:
    """Return the widths of a vision encoder that tp must divide, by name; a text encoder has the decoder's."""
    encoder = arch.encoder
    if not isinstance(encoder, VisionEncoder):
        return {}
    return {"vision heads": encoder.heads, "vision ffn": encoder.intermediate}


def encoder_rows(workload: Workload, arch: Architecture) -> dict[str, tuple[int, int]]:
    """Return rows that sequence parallelism cuts over tp, by key: their number, and the rows that stay together."""
    encoder, tokens, images = arch.encoder, workload.encoder_tokens, workload.images
    if isinstance(encoder, TextEncoder) and tokens is not None:
        return {TOKENS: (tokens, 1)}
    if isinstance(encoder, VisionEncoder) and images is not None:
        return {IMAGES: (images.patches, encoder.merged)}
    return {}


def uncut_rows(case: RuleInput) -> Iterator[Problem]:
    """Require that tp cuts the encoder's rows into equal parts of whole merged rows, with sequence parallelism."""
    workload, tp = case.workload, case.grid.tp
    if workload is None or not case.layout.sequence_parallel:
        return
    for field, (rows, together) in encoder_rows(workload, case.arch).items():
        unit = tp * together
        if rows % unit:
            names = "per_sequence·tokens % (tp·merge²)" if together > 1 else "encoder_tokens % tp"
            value = str(workload.images) if together > 1 else rows
            hint = (
                f"encoder_tokens: {-(-rows // tp) * tp}" if together == 1 else f"tokens: a multiple of {unit}"
            )
            rule = f"with sequence_parallel {names} = {rows} % {unit} = {rows % unit} ≠ 0"
            yield Problem(field, value, rule, f"{hint}, or sequence_parallel: false")


ENCODER_RULES: tuple[Rule, ...] = (encoder_inputs, encoder_under_layout, uncut_rows)
