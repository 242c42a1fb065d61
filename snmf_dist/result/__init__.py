"""L to something to read: solutions, files, scores, pictures."""
