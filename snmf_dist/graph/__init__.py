"""Points and edges to a similarity graph A on disk."""
