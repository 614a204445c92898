"""Time of exchanges between replicas: of one exchange, of a round of steps, and as rows of a Report."""
