"""A result or a study as one HTML page that needs nothing else."""
