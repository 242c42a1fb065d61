"""Everything between what happens to rows and where they are.

A solver knows `Rows` and `Graph`, the Protocols in `rows`, and nothing else of this package. `loading` and `local`
implement them for one process (in memory, from temporary files, streamed), `cluster` on Dask.

============  ====================================================================
`rows`        the Protocols: the words of a graph that carry all distribution
`local`       rows in one process; `loading`: A in one process; `disk`: arrays in temporary files
`cluster`     rows as Dask arrays on workers, and the words that describe work on them
`tasks`       the only place where Dask tasks are made; `calls`: what a single task does
`halo`        which rows a block needs of others; `serving`, `servers`: how it gets them
`reduce`      sums in a tree of fixed shape
`buffers`     memory that is used again
`client`      the Dask client: connecting, checks, waiting; `machine`: cores, memory, threads
`plan`        the memory of a fit, before it runs
============  ====================================================================
"""
