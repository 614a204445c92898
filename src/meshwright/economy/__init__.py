"""What a whole training comes to: failures and goodput, days, money and energy, and which answers are worth it."""
