"""Import from Megatron-LM: its files as facts of a plan, its own rules, and options without a counterpart."""
