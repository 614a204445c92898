"""Import from Hugging Face Accelerate: its files as facts of a plan, its own rules, and options without a
counterpart."""
