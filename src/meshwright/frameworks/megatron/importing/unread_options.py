"""Megatron's options that change the step's time or memory and that a plan has no word for, and what is lost."""

from collections.abc import Mapping

from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.imported_file import UnmappedOption
from meshwright.frameworks.megatron.exporting.optimizer_options import OPTIMIZERS
from meshwright.frameworks.megatron.importing.options_to_plan import CONTEXT_OF, RECOMPUTES
from meshwright.frameworks.megatron.options import CONTEXT, METHOD, MODULES, OPTIMIZER, RECOMPUTED_LAYERS

WHY: Mapping[str, str] = {
    "--fine-grained-activation-offloading": "a plan offloads whole layers, and this single operators of them: "
    "not priced, less memory than predicted",
    "--cpu-offloading": "a plan offloads passes that wait for others, and this layers within one pass: "
    "not priced, less memory than predicted",
    "--distribute-saved-activations": "saved activations are counted whole on every tp rank",
    "--tp-comm-overlap": "overlap of tp is not priced: a shorter step than predicted",
    "--delay-wgrad-compute": "delayed weight gradients are not priced",
    "--cuda-graph-impl": "graphs are not priced: less host time than predicted",
    "--enable-cuda-graph": "graphs are not priced: less host time than predicted",
    "--external-cuda-graph": "graphs are not priced: less host time than predicted",
    "--outer-dp-sharding-strategy": "a short plan shards states over dp_shard alone",
    "--hybrid-context-parallel": "context parallelism is the same for all sequences",
    "--rampup-batch-size": "the plan has the full batch",
    "--step-batch-size-schedule": "the plan has the full batch",
    "--mtp-use-repeated-layer": "further tokens have a layer each: more parameters than the one that is repeated",
    "--mtp-detach-heads": "the losses of further tokens train the main model too: a longer step than the run's",
    "--moe-layer-recompute": "recomputation of the expert layer by an older option",
    "--hybrid-layer-pattern": "the layers are those of the model's own configuration",
    "--hybrid-override-pattern": "the layers are those of the model's own configuration",
    "--nccl-ub": "registered buffers are not priced",
    "--use-sharp": "reduction in the network is not priced",
    "--standalone-embedding-stage": "the embedding is a part of the first stage",
    "--tensor-parallel-num-weight-shards": "weights are sharded over tp alone: more memory than the run's",
    "--expert-tensor-parallel-num-weight-shards": "experts are sharded over etp alone: more memory than the run's",
    "--encoder-tensor-model-parallel-size": "an encoder is no part of a plan",
    "--encoder-pipeline-model-parallel-size": "an encoder is no part of a plan",
}


def unread_options(options: Mapping[str, GivenOption]) -> tuple[UnmappedOption, ...]:
    """All options of the file that a plan can not say."""
    found = [
        UnmappedOption(name, " ".join(given.values), WHY[name])
        for name, given in options.items()
        if name in WHY
    ]
    found += _values(options, CONTEXT, tuple(CONTEXT_OF), "is no form of context parallelism here")
    kinds = options.get(CONTEXT)
    if kinds and len(kinds.values) > 1:
        why = "all layers have the form of the first one"
        found.append(UnmappedOption(kinds.name, " ".join(kinds.values), why))
    found += _values(options, OPTIMIZER, tuple(OPTIMIZERS.values()), "states are counted as AdamW's")
    found += _values(options, MODULES, RECOMPUTES, "this operator is kept, not run again")
    return tuple(found + _checkpoints(options))


def _values(
    options: Mapping[str, GivenOption], name: str, known: tuple[str, ...], why: str
) -> list[UnmappedOption]:
    given = options.get(name)
    return [UnmappedOption(name, value, why) for value in given.values if value not in known] if given else []


def _checkpoints(options: Mapping[str, GivenOption]) -> list[UnmappedOption]:
    """Full recomputation by groups of layers."""
    method, number = options.get(METHOD), options.get(RECOMPUTED_LAYERS)
    if not method or not number or not number.values:
        return []
    if method.values[:1] == ("uniform",) and number.values[0] != "1":
        why = "keeps one input for so many layers; read as one per layer"
        return [UnmappedOption(number.name, number.values[0], why)]
    return []
