"""The page of capacity planning: questions with their answers, simulated trainings, published trainings, bad inputs."""
