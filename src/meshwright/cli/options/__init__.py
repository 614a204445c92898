"""Arguments and options of the commands, one type for each."""
