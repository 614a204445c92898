"""The training script of exported adapters: PEFT's LoRA in transformers' Trainer, a quantised base by bitsandbytes.

It reads the variables of the launcher (``frameworks/exporting/adapter_options.py``) and the options that the launcher
passes. Sources: PEFT's ``LoraConfig``; transformers 5.23.0, ``BitsAndBytesConfig``. Under FSDP the elements of a 4-bit
base are stored as bf16 so that they can be sharded (``bnb_4bit_quant_storage``).
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.workload.adapter import FIELD, Adapter

SCRIPT = '''\
"""Trains adapters on the texts of a JSONL file (a field "text"): --model NAME --data FILE, and TrainingArguments."""

import os
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class Options:
    model: str = field(metadata={"help": "name on the hub, or a folder"})
    data: str = field(metadata={"help": "a JSONL file of texts"})
    block_size: int = 1024


def quantised(base: str) -> BitsAndBytesConfig | None:
    if base == "nf4":
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
            bnb_4bit_quant_storage=torch.bfloat16,
        )
    return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0) if base == "int8" else None


def main() -> None:
    options, training = HfArgumentParser((Options, TrainingArguments)).parse_args_into_dataclasses()
    config = quantised(os.environ["ADAPTER_BASE"])
    model = AutoModelForCausalLM.from_pretrained(
        options.model,
        dtype=torch.bfloat16,
        quantization_config=config,
        device_map={"": int(os.environ.get("LOCAL_RANK", 0))} if config else None,
    )
    if training.gradient_checkpointing:
        model.enable_input_require_grads()
    adapter = LoraConfig(
        r=int(os.environ["ADAPTER_RANK"]),
        lora_alpha=float(os.environ["ADAPTER_ALPHA"]),
        target_modules=os.environ["ADAPTER_TARGETS"].split(","),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, adapter)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    texts = load_dataset("json", data_files=options.data, split="train")
    rows = texts.map(
        lambda row: tokenizer(row["text"], truncation=True, max_length=options.block_size),
        remove_columns=texts.column_names,
    )
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    Trainer(model=model, args=training, train_dataset=rows, data_collator=collator).train()
    model.save_pretrained(training.output_dir)


if __name__ == "__main__":
    main()
'''


def script_problems(adapter: Adapter, plan: UniformPlan) -> Iterator[Problem]:
    """Yield layouts that the script does not train adapters under."""
    if plan.tp > 1:
        rule = "the script trains adapters without transformers' tensor parallelism"
        yield Problem("layout.tp", plan.tp, rule, "tp: 1")
    if plan.cp > 1:
        rule = "the script trains adapters on whole sequences"
        yield Problem("layout.cp", plan.cp, rule, "cp: 1")
    if adapter.base == "int8" and plan.sharding != "none":
        rule = "FSDP shards 4-bit matrices of bitsandbytes, and no 8-bit ones"
        yield Problem(f"{FIELD}.base", "int8", rule, "base: nf4, or sharding: none")


def library_refusals(adapter: Adapter) -> list[Refusal]:
    """Return what libraries do in another way than the plan."""
    if adapter.base != "int8":
        return []
    why = "bitsandbytes multiplies in int8; a plan dequantises a matrix and multiplies in 16 bits"
    return [Refusal(f"{FIELD}.base", "int8", why)]
