"""Export of a plan to the frameworks that people already use."""
