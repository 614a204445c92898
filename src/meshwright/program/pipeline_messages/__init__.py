"""Messages between pipeline ranks: their insertion, their order and freedom from deadlock."""
