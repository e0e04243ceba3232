"""Retries: a request that failed before the model said anything is repeated, a few times, and the person is told."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import SystemRandom

from turns.chat_models.failures import RETRYING_IN, ProviderFailure, span
from turns.core.chat_model import ChatDelta, Notice, Usage

logger = logging.getLogger(__name__)

RETRYING = "retrying"
_FIRST_WAIT = 1.0
_SPREAD = 0.25  # so that conversations that failed together do not come back together
_random = SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often to repeat a request and how long to wait at most before it; seconds."""

    retries: int = 3
    max_wait: float = 60.0
    first_wait: float = _FIRST_WAIT

    def wait_before_retry(self, failure: ProviderFailure, *, failed: int) -> float | None:
        """Return how long to wait after the `failed`-th failure; None to give up.

        Where the provider says when to come back, nobody comes earlier, which would only make the wait longer. Or the
        request is given up. "At once" is no answer to that: the retries would be used up in a moment.
        """
        if not failure.is_temporary or failed > self.retries:
            return None
        asked = failure.retry_after or 0.0
        if asked > self.max_wait:
            return None
        wait = max(asked, self.first_wait * 2.0 ** (failed - 1))
        return min(self.max_wait, wait * (1 + _SPREAD * _random.random()))


async def with_retries(
    attempt: Callable[[], AsyncGenerator[ChatDelta, None]],
    policy: RetryPolicy,
    *,
    chat_model: str,
) -> AsyncGenerator[ChatDelta, None]:
    """Stream an attempt, and the next one if it failed before it said anything. Cancelling ends a wait at once.

    What failed attempts have cost is counted with the next one.

    Raises:
        ProviderFailure: the last attempt failed, or one that had begun to answer.
    """
    failed = 0
    cost = Usage()
    while True:
        has_begun = False
        cost_before = cost
        try:
            async with aclosing(attempt()) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Usage):
                        delta = cost = cost_before + delta
                    else:
                        has_begun = True
                    yield delta
        except ProviderFailure as failure:
            failed += 1
            wait = None if has_begun else policy.wait_before_retry(failure, failed=failed)
            facts = {"chat_model": chat_model, "code": failure.code, "attempt": failed}
            logger.warning("A request to a chat model failed", extra=facts)
            if wait is None:
                raise
            reason = failure.retry_reason
            notice = Notice(
                code=RETRYING, message=_sentence(reason, wait), wait=wait, reason=reason
            )
        else:
            return
        yield notice
        await asyncio.sleep(wait)


def _sentence(reason: str, wait: float) -> str:
    return RETRYING_IN % {"reason": reason, "wait": span(wait)}
