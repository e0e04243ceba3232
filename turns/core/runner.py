"""Runs one turn: streams from the chat model and hands tool calls to the executor, until an answer stands."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from governance import (
    ApprovalRule,
    Cancellation,
    CancellationToken,
    CancelReason,
    Host,
    KeepImage,
    LiveCall,
    LoopDetector,
    ScopeKind,
    ToolCall,
    ToolExecutor,
    ToolOutcome,
)
from turns.core.answering import Answering, WithFiles, without_files
from turns.core.budget import TokenBudget
from turns.core.chat_model import ChatModel, ChatRequest, Notice, ToolSpec, message_of
from turns.core.clock import TurnClock, TurnFacts
from turns.core.exceptions import ChatModelError, Fenced
from turns.core.messages import AttachmentBlock, Message, TextBlock, ToolResultBlock
from turns.core.ports import Answer, ClaimedTurn, TurnJournal
from turns.core.prompt_markers import TIME_IS_UP
from turns.core.requests import PendingTimeout
from turns.core.slots import only_waits
from turns.core.step_approver import StepApprover
from turns.core.step_observer import StepObserver
from turns.core.texts import STEP_LIMIT
from turns.core.tracing import UNTRACED, Traced, describe_turn, step_span
from turns.core.turns import TurnEnding, TurnStatus, ending_of

logger = logging.getLogger(__name__)

REPORT_REQUEST = (
    f"{TIME_IS_UP} Your time is up and no tool can be called any more. Report now, in this one answer, to whom you work "
    "for: what you have done, what you have found, and what is missing."
)

_COMPLETED = TurnEnding(status=TurnStatus.COMPLETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnConfig:
    """Who takes part in a turn: the chat model, its tools and instructions, the place it works in.

    `allowed` has the names of the tools that may be called, None = all; `max_parallel` calls run at once. Where
    `report_grace` is above 0, a turn whose time is up gets that many seconds to report what it has. `approval` is
    the least strict rule that holds for every tool (D1). The person is told the `notices` at the beginning. `with_files`
    adds the files to a history. `keep_image` keeps what calls show. `traced` is for its spans.
    """

    chat_model: ChatModel
    tools: tuple[ToolSpec, ...]
    instructions: str = ""
    workspace: Path | None = None
    make_workspace: Callable[[], Awaitable[object]] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    allowed: Container[str] | None = None
    max_parallel: int | None = None
    report_grace: float = 0.0
    approval: ApprovalRule = ApprovalRule.NEVER
    notices: tuple[Notice, ...] = ()
    with_files: WithFiles = without_files
    keep_image: KeepImage | None = None
    traced: Traced = UNTRACED


class TurnRunner:
    """One turn from its claim to its ending. Cancelled by its token; never writes after it was fenced."""

    def __init__(
        self,
        turn: ClaimedTurn,
        *,
        config: TurnConfig,
        executor: ToolExecutor,
        journal: TurnJournal,
        loops: LoopDetector,
        token: CancellationToken,
    ) -> None:
        self.turn = turn
        self.token = token
        self.steps = 0
        self._budget = TokenBudget(turn.token_limit, family_limit=turn.family_token_limit)
        self.clock = TurnClock(timeout=turn.turn_timeout, on_expire=self.request_report)
        self._config = config
        self._executor = executor
        self._journal = journal
        self._calls: dict[str, LiveCall] = {}
        # What ends the turn while calls are still to be ended.
        self.failure: BaseException | None = None
        self._after_step: Cancellation | None = None
        self._work = CancellationToken(parent=token)  # calls and answers, but not the report
        self.scope = str(turn.conversation_id)  # the conversation as governance sees it
        self._turn_id = str(turn.id)
        self._answering = Answering(
            config.chat_model,
            journal,
            turn_id=self._turn_id,
            on_usage=self._budget.take,
            with_files=config.with_files,
        )
        self._observer = StepObserver(
            journal,
            loops,
            token=self._work,
            halt=token.cancel,
            is_voice=turn.kind is ScopeKind.VOICE,
        )
        self._host = self._make_host()

    @property
    def usage(self) -> dict[str, int]:
        """What the turn has cost so far, in tokens."""
        return self._budget.usage

    @property
    def outcomes(self) -> Mapping[str, ToolOutcome]:
        """What the calls of the last step came to so far, by id, whether that is stored or not."""
        return self._observer.outcomes

    @property
    def answer(self) -> Answer | None:
        """What was said last, if that is not stored yet: it is stored with the turn's end."""
        return self._journal.answer

    def find_call(self, tool_id: str) -> LiveCall | None:
        """Return the call of this id if it waits or runs now."""
        return self._calls.get(tool_id)

    @property
    def is_waiting(self) -> bool:
        """Whether it only waits for a person or for another turn, which costs nothing here."""
        return only_waits(
            (call.status, call.tool is not None and call.tool.only_waits)
            for call in self._calls.values()
            if not call.status.is_terminal
        )

    @property
    def waiting_calls(self) -> list[LiveCall]:
        """The calls that wait for a person's decision, from the moment at which people can see the question."""
        return [call for call in self._calls.values() if call.question and call.question.is_open]

    def set_timeout(self, call: LiveCall, change: PendingTimeout) -> None:
        """Give a call another limit, from its start on if it waits; one without a limit has nothing to extend."""
        if change.timeout_ms is not None:
            self._executor.set_deadline(call, change.timeout_ms / 1000, by=change.by)
        elif call.timeout is not None:
            timeout = call.timeout + (change.extend_ms or 0) / 1000
            self._executor.set_deadline(call, timeout, by=change.by)

    def cancel_after_step(self, cancellation: Cancellation) -> None:
        """Let the running step end, then stop."""
        self._after_step = self._after_step or cancellation

    async def run(self) -> TurnEnding:
        """Run the turn and return how it ended; the caller stores the ending.

        Raises:
            Fenced: the turn belongs to another owner now.
        """
        describe_turn(self.turn, self._config.traced, token=self._work)
        try:
            prompt = await self._journal.prompt()
            messages = prompt.with_note()
            for notice in self._config.notices:
                await self._journal.notify(notice)
            instructions = self._config.instructions
            conversing = self._converse(messages, instructions=instructions)
            ending = await self._answering.work(conversing) or self._ended_by_token()
            if ending.status is TurnStatus.TIMED_OUT and not self.token.is_cancelled:
                await self._answering.work(self._report(messages, instructions=instructions))
                return self._ended_by_token()
            return ending  # noqa: TRY300 - one of two ways out
        except Fenced:
            self.token.cancel(Cancellation(reason=CancelReason.ERROR))
            raise
        finally:
            self._work.detach()
            self.clock.close()

    @property
    def is_ending(self) -> bool:
        """Whether the turn's work is being ended: its calls, and its answers but for a report."""
        return self._work.is_cancelled

    def request_report(self) -> None:
        """End the running work as out of time. Ask for a report if there is a grace for it."""
        timed_out = Cancellation(reason=CancelReason.TIMEOUT)
        (self._work if self._config.report_grace > 0 else self.token).cancel(timed_out)

    def _make_host(self) -> Host:
        return Host(
            observer=self._observer,
            workspace=self._config.workspace,
            make_workspace=self._config.make_workspace,
            metadata=TurnFacts(self._config.metadata, clock=self.clock),
            allowed=self._config.allowed,
            max_parallel=self._config.max_parallel,
            approver=StepApprover(self._journal, clock=self.clock),
            approval=self._config.approval,
            keep_image=self._config.keep_image,
        )

    async def _converse(self, messages: list[Message], *, instructions: str) -> TurnEnding:
        while (cancellation := self._work.cancellation or self._after_step) is None:
            if self.steps >= self.turn.step_limit:
                return _step_limit_reached(self.turn.step_limit)
            await self._share_usage()
            if self._budget.is_used_up:
                return self._budget.ending()
            self.steps += 1
            with step_span(self.steps):
                ending = await self._take_step(messages, instructions=instructions)
            if ending is not None:
                return ending
        return ending_of(cancellation)

    async def _take_step(self, messages: list[Message], *, instructions: str) -> TurnEnding | None:
        """Ask once, and run the calls of the answer. Return how the turn ends with that; None = it goes on."""
        request = ChatRequest(
            instructions=instructions,
            messages=tuple(messages),
            tools=self._config.tools,
            max_tokens=self._budget.left,
        )
        reply = await self._answering.ask(request, step=self.steps, token=self._work)
        if reply is None:
            return self._ended_by_token()
        if not reply.has_calls:
            return self._budget.ending() if self._budget.has_cut_off(reply) else _COMPLETED
        calls = reply.calls(scope=self.scope)
        message = message_of(reply.text, calls, turn_id=self._turn_id)
        await self._journal.save_reply(self.steps, message, calls)
        await self._share_usage()  # whoever is set to work now has less left
        messages.extend((message, await self._call_tools(calls)))
        return None

    def _ended_by_token(self) -> TurnEnding:
        """The turn's own cancellation counts before that of its work: it may have come during the report."""
        cancellation = self.token.cancellation or self._work.cancellation
        return ending_of(cancellation or Cancellation(reason=CancelReason.ERROR))

    async def _share_usage(self) -> None:
        """Tell what was used here, and learn what the sub-agents, and who else works for the same turn, have used."""
        if self._budget.family_limit is not None:
            self._budget.others = await self._journal.share_usage(self.usage)

    async def _report(self, messages: Sequence[Message], *, instructions: str) -> None:
        """Ask once more, without tools and for a bounded time, for what the turn has come to."""
        await self._share_usage()
        if self._budget.is_used_up:
            return
        self.steps += 1
        request = self._report_request(messages, instructions=instructions)
        timed_out = Cancellation(reason=CancelReason.TIMEOUT)
        timer = asyncio.get_running_loop().call_later(
            self._config.report_grace, self.token.cancel, timed_out
        )
        try:
            with step_span(self.steps):
                await self._answering.ask(request, step=self.steps, token=self.token, is_last=True)
        except ChatModelError:
            logger.warning(
                "A chat model gave no report", extra={"turn_id": str(self.turn.id)}, exc_info=True
            )
        finally:
            timer.cancel()

    def _report_request(self, messages: Sequence[Message], *, instructions: str) -> ChatRequest:
        said = self._answering.cut_off
        before = (*messages, said) if said else messages
        wanted = Message(role="user", content=(TextBlock(text=REPORT_REQUEST),))
        return ChatRequest(
            instructions=instructions,
            messages=(*before, wanted),
            max_tokens=self._budget.left,
        )

    async def _call_tools(self, calls: Sequence[ToolCall]) -> Message:
        """Run the calls of a step side by side; return their results in call order (P1)."""
        self._observer.begin_step(self.steps)
        self._calls = {call.id: self._executor.prepare(call, token=self._work) for call in calls}
        try:
            if len(calls) == 1:  # it needs no task to run beside
                await self._executor.execute(self._calls[calls[0].id], host=self._host)
            else:
                await self._await_all()
        finally:
            self._calls = {}
        outcomes = self._observer.outcomes
        results = [_block(call, outcomes[call.id]) for call in calls]
        images = [
            AttachmentBlock.of_result(image.to_json(), tool_use_id=call.id)
            for call in calls
            for image in outcomes[call.id].images
        ]
        return Message(role="user", content=(*results, *images), turn_id=self._turn_id)

    async def _await_all(self) -> None:
        """Wait for every call; if one could not be recorded, end the others before passing the error on."""
        tasks = [
            asyncio.create_task(
                self._executor.execute(live, host=self._host), name=f"tool call {call_id}"
            )
            for call_id, live in self._calls.items()
        ]
        try:
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if pending:
                self.failure = next((error for task in done if (error := task.exception())), None)
                self.token.cancel(Cancellation(reason=CancelReason.ERROR))
                await asyncio.wait(pending)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise
        errors = [error for task in tasks if (error := task.exception()) is not None]
        if errors:
            raise errors[0]


def _step_limit_reached(limit: int) -> TurnEnding:
    return TurnEnding(
        status=TurnStatus.FAILED,
        error_code="step_limit",
        error_message=STEP_LIMIT[limit != 1] % {"limit": limit},
    )


def _block(call: ToolCall, outcome: ToolOutcome) -> ToolResultBlock:
    return ToolResultBlock(tool_use_id=call.id, content=outcome.result, is_error=outcome.is_error)
