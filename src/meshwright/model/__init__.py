"""The model noun: from a configuration file to a graph of operators with exact shapes."""
