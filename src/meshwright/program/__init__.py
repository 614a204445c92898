"""The Program: a plan lowered to rank sets, states and action lists, which all readers share."""
