"""A run whose compute is slept and whose messages carry their arrival time: the interpreter against the simulator."""
