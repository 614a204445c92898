"""The economy of a whole training: failures and goodput, days, money and energy, Pareto sets."""
