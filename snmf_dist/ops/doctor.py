"""A look at every process of a cluster before work starts: what is wrong or doubtful, and what to do about it."""

import ipaddress
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from snmf_dist import storage
from snmf_dist.engine.asking import LOADS_WITHIN, Answer, ask_scheduler, ask_workers, result_of
from snmf_dist.engine.waiting import worker_addresses
from snmf_dist.ops.facts import process_facts, remove_left_files, try_store, worker_facts

OK, WARNING, WRONG = "ok", "warning", "wrong"
LEAST_MEMORY = 512 << 20  # bytes; a worker with numba and Zarr loaded takes about 300 MB
LEAST_SPILL = 1 << 30
SKEW = 2.0  # seconds
SLOW = 30e6  # bytes a second
TEST_BYTES = 8 << 20  # bytes


class Finding(NamedTuple):
    """One line of the table."""

    state: str
    what: str
    found: str
    next_move: str = ""


def examine(client: Any = None, *, store: str | None = None, options: storage.Options = None) -> list[Finding]:
    """Look at this process and, if there is a client, at every process of its cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        The cluster.
    store : str, optional
        Folder or URL that all of them are to work in.
    options : mapping, optional
        Passed to fsspec for URLs.

    Returns
    -------
    list of Finding
        What is wrong comes first.

    Examples
    --------
    >>> import tempfile
    >>> {finding.state for finding in examine(store=tempfile.mkdtemp())} <= {"ok", "warning"}
    True
    """
    here = process_facts()
    versions = here["versions"]
    found = [Finding(OK, "this process", ", ".join(f"{name} {value}" for name, value in versions.items()))]
    if store is not None:
        found += _store_findings("this process", store, Answer(try_store(store, options)))
        found += _left_findings(store, options)
    if client is not None:
        found += _scheduler_findings(client, here)
        found += _worker_findings(client, here, store, options)
    return sorted(found, key=lambda one: [WRONG, WARNING, OK].index(one.state))


def _scheduler_findings(client: Any, here: Mapping[str, Any]) -> Iterator[Finding]:
    address = client.scheduler.address
    answer = ask_scheduler(client, os.getpid)  # one that is frozen is named at once
    sent = time.time()
    if not answer.problem:
        answer = ask_scheduler(client, process_facts, within=LOADS_WITHIN)
    if answer.problem:
        yield Finding(WRONG, f"scheduler {address}", answer.problem, _install(answer.problem))
        return
    name = f"scheduler {address}"
    yield from _version_findings(name, here, answer.value)
    yield from _clock_findings(name, answer.value, sent, time.time())
    yield from _port_findings(name, answer.value["listens"], encrypted=address.startswith("tls://"))


def _worker_findings(
    client: Any, here: Mapping[str, Any], store: str | None, options: storage.Options
) -> Iterator[Finding]:
    addresses = worker_addresses(client)
    if not addresses:
        yield Finding(WRONG, "workers", "there are none", "start some with `dask worker ADDRESS --nthreads 2`")
    answers = ask_workers(client, dict.fromkeys(addresses, ()), os.getpid)  # names the frozen ones at once
    awake = [address for address in addresses if not answers[address].problem]
    sent = time.time()
    answers |= ask_workers(client, dict.fromkeys(awake, ()), worker_facts, within=LOADS_WITHIN)
    received = time.time()
    alive = []
    for address, answer in answers.items():
        name = f"worker {address}"
        if answer.problem:
            yield Finding(WRONG, name, answer.problem, _install(answer.problem))
            continue
        alive.append(address)
        yield from _version_findings(name, here, answer.value)
        yield from _memory_findings(name, answer.value)
        yield from _clock_findings(name, answer.value, sent, received)
        yield from _port_findings(name, answer.value["listens"], encrypted=address.startswith("tls://"))
    if store is not None:
        places = dict.fromkeys(alive, (store, options))
        for address, tried in ask_workers(client, places, try_store, within=LOADS_WITHIN).items():
            yield from _store_findings(f"worker {address}", store, tried)
    yield from _bandwidth_findings(client, alive)


def _version_findings(name: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[Finding]:
    ours, theirs = here["versions"], there["versions"]
    differ = [f"{one} {theirs[one]} (here {ours[one]})" for one in ours if theirs[one] != ours[one]]
    if differ:
        yield Finding(WRONG, name, f"other versions: {', '.join(differ)}", "install the same environment on both")
    else:
        yield Finding(OK, name, f"the same versions, on {there['host']}")


def _memory_findings(name: str, facts: Mapping[str, Any]) -> Iterator[Finding]:
    limit, threads = facts["limit"], facts["threads"]
    free = facts["spill_free"]
    if not limit:
        yield Finding(WARNING, name, "no memory limit", "start it with --memory-limit, so that it can spill")
    elif limit < LEAST_MEMORY:
        move = f"start it with --memory-limit {LEAST_MEMORY >> 20}MiB or more, and fewer workers if need be"
        yield Finding(WRONG, name, f"a memory limit of {limit / 2**20:.0f} MiB, too little to work in", move)
    else:
        yield Finding(OK, name, f"memory limit {limit / 2**30:.1f} GiB, {threads} threads")
    if limit and limit > facts["memory"]:
        text = f"a memory limit of {limit / 2**30:.1f} GiB where {facts['memory'] / 2**30:.1f} GiB may be used"
        yield Finding(WRONG, name, text, "lower --memory-limit below what its machine, job or pod may use")
    if free < LEAST_SPILL:
        move = "start it with --local-directory on a larger disk"
        yield Finding(WARNING, name, f"{free / 2**20:.0f} MiB free to spill to in {facts['spill']}", move)
    else:
        yield Finding(OK, name, f"spills to {facts['spill']}, {free / 2**30:.0f} GiB free")
    if facts["blas_threads"] > 1:
        move = "start it with a nanny, or with OMP_NUM_THREADS=1"
        yield Finding(WARNING, name, f"{facts['blas_threads']} BLAS threads a task; answers may differ", move)
    if not facts["nanny"]:
        yield Finding(WARNING, name, "no nanny: it is not started again when it dies", "leave --no-nanny out")


def _clock_findings(name: str, facts: Mapping[str, Any], sent: float, received: float) -> Iterator[Finding]:
    skew = max(sent - facts["time"], facts["time"] - received, 0.0)
    if skew > SKEW:
        yield Finding(WARNING, name, f"its clock is {skew:.0f} s off this one's", "run a time service there")


def _port_findings(name: str, listens: list[str], *, encrypted: bool) -> Iterator[Finding]:
    public = [one for one in listens if not _is_loopback(one.rpartition(":")[0])]
    if not public:
        yield Finding(OK, name, f"listens on loopback only ({'TLS' if encrypted else 'no TLS'})")
        return
    text = f"listens on {', '.join(public)} ({'TLS; dashboards are not encrypted' if encrypted else 'no TLS'})"
    move = "whoever reaches it can run code there: use TLS (deploy/local/tls), a firewall, or --host 127.0.0.1"
    yield Finding(OK if encrypted else WARNING, name, text, "" if encrypted else move)


def _store_findings(name: str, store: str, answer: Answer) -> Iterator[Finding]:
    problem = answer.problem or answer.value
    if problem:
        yield Finding(
            WRONG, name, f"{store}: {problem}", "put it on storage that all of them share, or give a URL"
        )
    else:
        yield Finding(OK, name, f"{store}: writes, renames and lists")


def _left_findings(store: str, options: storage.Options) -> Iterator[Finding]:
    with suppress(Exception):  # what cannot be listed has been said
        if left := remove_left_files(store, options):
            yield Finding(OK, "this process", f"{store}: what a killed doctor left was removed (files: {left})")


def _bandwidth_findings(client: Any, addresses: list[str]) -> Iterator[Finding]:
    """Send some megabytes from each worker to the next, one after the other."""
    for one, other in zip(addresses, addresses[1:] + addresses[:1], strict=True):
        if one == other:
            return
        name = f"{one} to {other}"
        payload = client.submit(os.urandom, TEST_BYTES, workers=[one], pure=False)
        made = result_of(client.submit(len, payload, workers=[one], pure=False))
        began = time.perf_counter()
        sent = result_of(client.submit(len, payload, workers=[other], pure=False))
        speed = TEST_BYTES / (time.perf_counter() - began)
        if made.problem or sent.problem:
            yield Finding(
                WRONG, name, made.problem or sent.problem, "see that workers can reach each other's ports"
            )
        elif speed < SLOW:
            yield Finding(WARNING, name, f"{speed / 1e6:.0f} MB/s", "look at the network between the two")
        else:
            yield Finding(OK, name, f"{speed / 1e6:.0f} MB/s or more")


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _install(problem: str) -> str:
    if "not installed" in problem:
        return "install the same environment there"
    return "it may be frozen or cut off: look at its log, and start it again"
