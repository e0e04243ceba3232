"""The threads that attachments are parsed in, and those for their storage: one that hangs keeps nothing else waiting."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# As many files are parsed at once, in memory and in workers, as there are threads.
_parsing = ThreadPoolExecutor(max_workers=2, thread_name_prefix="attachment parsing")
_storage = ThreadPoolExecutor(max_workers=8, thread_name_prefix="attachment storage")


async def in_parsing_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run what parses a file in one of the few threads for that."""
    return await _run(_parsing, partial(function, *args, **kwargs))


async def in_storage_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run what waits for the storage in one of the threads for that."""
    return await _run(_storage, partial(function, *args, **kwargs))


async def _run(threads: ThreadPoolExecutor, work: Callable[[], R]) -> R:
    in_language = copy_context().run  # of who asks
    return await asyncio.get_running_loop().run_in_executor(threads, in_language, work)
