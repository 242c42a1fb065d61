"""Many runs in one folder that can be resumed: what to run, in which order, and the table of what came out."""
