"""The stack noun: facts about the software that runs a plan."""
