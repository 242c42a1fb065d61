"""Questions to the processes of a cluster; each has a time-out: a frozen process is named and not waited for."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from snmf_dist.errors import WorkLost

logger = logging.getLogger(__name__)

ANSWER_WITHIN = 10.0  # seconds
LOADS_WITHIN = 60.0  # seconds for a process that is awake, and may have to load this package first
MUTE = 60.0  # seconds that the scheduler may take for one of Dask's calls that have no time-out of their own


class Answer(NamedTuple):
    """What a process answered, or why it did not."""

    value: Any = None
    problem: str = ""


def ask_worker(client: Any, address: str, f: Callable[..., Any], *args: Any) -> Answer:
    """Call `f` on one worker."""
    return ask_workers(client, {address: args}, f)[address]


def ask_workers(
    client: Any, arguments: Mapping[str, tuple[Any, ...]], f: Callable[..., Any], *, within: float | None = None
) -> dict[str, Answer]:
    """Call `f` with its arguments on workers, by address, on all at once; by default they have `ANSWER_WITHIN`."""
    calls = {
        address: _Call(client, client.run(f, *args, workers=[address], asynchronous=True), within)
        for address, args in arguments.items()
    }
    found = {address: call.end() for address, call in calls.items()}
    return {
        address: answer if answer.problem else Answer(answer.value[address]) for address, answer in found.items()
    }


def ask_scheduler(client: Any, f: Callable[..., Any], *args: Any, within: float | None = None) -> Answer:
    """Call `f` on the scheduler, which by default has `ANSWER_WITHIN` for it."""
    return _Call(client, client.run_on_scheduler(f, *args, asynchronous=True), within).end()


def limited(f: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """What a call of Dask's returns that waits for the scheduler, and would wait for a frozen one for ever.

    Raises
    ------
    WorkLost
        It has taken `MUTE` seconds.
    """
    answer: Future[Any] = Future()
    context = contextvars.copy_context()  # Dask keeps the current client there

    def call() -> None:
        try:
            answer.set_result(context.run(f, *args, **more))
        except BaseException as error:  # it belongs to the one who waits
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    for wait in (ANSWER_WITHIN, MUTE - ANSWER_WITHIN):
        try:
            return answer.result(timeout=wait)
        except TimeoutError:
            if answer.done():  # the call raised it
                raise
            logger.warning("the cluster does not answer; the run is given up after %.0f s of that", MUTE)
    raise WorkLost(
        f"the Dask cluster has not answered for {MUTE:.0f} s; see whether its scheduler is frozen or cut off, and "
        "then start the run again: it continues from its checkpoint, if it writes to out="
    )


class Notifier:
    """Tells the scheduler something now and then, without waiting for it; gives up when that does not work.

    Parameters
    ----------
    client : distributed.Client
        The client of the cluster.
    """

    def __init__(self, client: Any) -> None:
        self.client, self.works = client, True
        self.last: Any = None

    def tell(self, f: Callable[..., bool], *args: Any) -> None:
        """Call `f` on the scheduler, if the last call has been answered with True."""
        if self.last is not None and self.last.done():
            self.finish()
        if self.works and self.last is None and self.client.status == "running":
            self.last = _Call(self.client, self.client.run_on_scheduler(f, *args, asynchronous=True))

    def finish(self) -> None:
        """Wait for the answer to the last call."""
        if self.last is not None:
            self.works = self.last.end().value is True
            self.last = None


def result_of(future: Any) -> Answer:
    """What a task returns."""
    try:
        return Answer(future.result(timeout=ANSWER_WITHIN))
    except Exception as error:
        return Answer(problem=_words(error, ANSWER_WITHIN))


class _Call:
    """A question that is under way; its answer is waited for by `end`."""

    def __init__(self, client: Any, work: Any, within: float | None = None) -> None:
        self.within = ANSWER_WITHIN if within is None else within

        async def soon() -> Any:
            return await asyncio.wait_for(work, self.within)

        self.future = asyncio.run_coroutine_threadsafe(soon(), client.loop.asyncio_loop)

    def done(self) -> bool:
        return self.future.done()

    def end(self) -> Answer:
        try:
            return Answer(self.future.result(timeout=self.within + ANSWER_WITHIN))
        except Exception as error:
            self.future.cancel()
            return Answer(problem=_words(error, self.within))


def _words(error: Exception, within: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {within:.0f} s"
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed there"
    return f"{type(error).__name__}: {str(error)[:200]}"
