"""For those who run a cluster: one small job with a known answer, and a look at every process of it."""
