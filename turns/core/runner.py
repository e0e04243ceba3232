"""Runs one turn: streams answers and passes their tool calls to the executor, until an answer has no calls."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from governance import (
    ApprovalRule,
    Approver,
    CallStatus,
    Cancellation,
    CancellationToken,
    CancelReason,
    DeadlineChange,
    Decision,
    ErrorType,
    Host,
    KeepImage,
    LateSettlement,
    LiveCall,
    LoopAction,
    LoopDetector,
    Observer,
    ScopeKind,
    StillMine,
    ToolCall,
    ToolExecutor,
    ToolOutcome,
    always_mine,
)
from turns.core.answering import Answering, WithFiles, without_files
from turns.core.chat_model import (
    AS_USUAL,
    ChatModel,
    ChatRequest,
    ChatSettings,
    Notice,
    StreamLimits,
    ToolSpec,
)
from turns.core.exceptions import ChatModelError, Fenced
from turns.core.fitting import Fitting
from turns.core.messages import AttachmentBlock, Message, TextBlock, ToolResultBlock
from turns.core.ports import Answer, ClaimedTurn, TurnJournal
from turns.core.prompt_changes import PromptHead
from turns.core.texts import STEP_LIMIT, STEP_REPEATED, TIME_IS_UP
from turns.core.tracing import UNTRACED, Traced, describe_turn, step_span
from turns.core.turn_limits import TokenBudget, TurnClock, TurnMetadata
from turns.core.turns import PendingTimeout, TurnEnding, TurnStatus, ending_of, only_waits

logger = logging.getLogger(__name__)

REPORT_REQUEST = (
    f"{TIME_IS_UP} Your time is up and no tool can be called any more. Report now, in this one answer, to whom you work "
    "for: what you have done, what you have found, and what is missing."
)

REPEAT_PAUSE = 1.0  # seconds before a broken-off answer is requested again; increases each time
_REPEATS = 3  # maximum retries of an answer that breaks off repeatedly
_SHORTER = 3  # maximum consecutive requests, each about half as long, after the provider has rejected one as too long
_COMPLETED = TurnEnding(status=TurnStatus.COMPLETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnConfig:
    """The configuration of a turn: chat model, tools, instructions and workspace.

    `allowed` contains the names of the tools that may be called; if it is None, all may be called. At most
    `max_parallel` calls run concurrently. An answer may request up to `most_calls` calls. If `report_grace` is above 0,
    a turn whose time is up has that many seconds to report its results so far. `approval` is the minimum rule for every
    tool (D1). The person sees the `notices` at the start. `with_files` adds the files to a history. `depth` is the
    number of agents above the agent of this turn. `keep_image` stores an image that a call shows. `still_mine` checks
    that no other process has taken over the turn. `traced` contains data for the turn's spans. With `repeats_steps`, an
    answer that broke off is dropped and requested again; none of its calls has run.
    """

    chat_model: ChatModel
    tools: tuple[ToolSpec, ...]
    instructions: str = ""
    limits: StreamLimits | None = None
    settings: ChatSettings = AS_USUAL
    workspace: Path | None = None
    make_workspace: Callable[[], Awaitable[object]] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    allowed: Container[str] | None = None
    max_parallel: int | None = None
    report_grace: float = 0.0
    most_calls: int = 100
    approval: ApprovalRule = ApprovalRule.NEVER
    notices: tuple[Notice, ...] = ()
    with_files: WithFiles = without_files
    keep_image: KeepImage | None = None
    still_mine: StillMine = always_mine
    depth: int = 0
    traced: Traced = UNTRACED
    repeats_steps: bool = False


class TurnRunner:
    """Runs one turn from its claim to its ending. A cancel of `token` cancels the turn. Once the turn is fenced, the
    runner writes nothing.
    """

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
        # The error that ends the turn, set while its calls are still being ended.
        self.failure: BaseException | None = None
        self._after_step: Cancellation | None = None
        self._cut_off = 0  # number of consecutive answers that broke off
        self._too_long = 0  # number of consecutive requests that were too long
        self._work = CancellationToken(token)  # cancels calls and answers, but not the report
        self.scope = str(turn.conversation_id)  # the conversation as governance sees it
        self._turn_id = str(turn.id)
        self._answering = Answering(
            config.chat_model,
            journal,
            turn_id=self._turn_id,
            on_usage=self._budget.take,
            with_files=config.with_files,
            most_calls=config.most_calls,
        )
        self._observer = StepObserver(
            journal,
            loops,
            token=self._work,
            halt=token.cancel,
            is_voice=turn.kind is ScopeKind.VOICE,
        )
        self._host = self._make_host()
        self._fitting = Fitting(
            config.chat_model,
            journal,
            instructions=config.instructions,
            tools=config.tools,
            settings=config.settings,
            limits=config.limits,
            turn_id=self._turn_id,
            ask=self._ask_aside,
            tokens_left=lambda: self._budget.left,
        )

    @property
    def usage(self) -> dict[str, int]:
        """The tokens that the turn has used so far, and how full its context window is."""
        return {**self._budget.usage, **self._fitting.usage}

    @property
    def outcomes(self) -> Mapping[str, ToolOutcome]:
        """The outcomes of the last step's calls so far, by id, whether stored or not."""
        return self._observer.outcomes

    @property
    def answer(self) -> Answer | None:
        """The last answer if it has not been stored yet; it is then stored with the turn's end."""
        return self._journal.answer

    def find_call(self, tool_id: str) -> LiveCall | None:
        """Return the waiting or running call with this id."""
        return self._calls.get(tool_id)

    @property
    def is_waiting(self) -> bool:
        """Whether the turn only waits for a person or for another turn, and so needs no slot."""
        return only_waits(
            (
                CallStatus.AWAITING_APPROVAL if _is_asking(call) else call.status,
                call.tool is not None and call.tool.only_waits,
            )
            for call in self._calls.values()
            if not call.status.is_terminal
        )

    @property
    def waiting_calls(self) -> list[LiveCall]:
        """The calls whose questions people can see and have not decided yet."""
        return [call for call in self._calls.values() if _is_asking(call)]

    def set_timeout(self, call: LiveCall, change: PendingTimeout) -> None:
        """Set or extend the limit of a call. The limit of a waiting call applies from its start. A call without a limit
        is not extended.
        """
        if change.timeout_ms is not None:
            self._executor.set_deadline(call, change.timeout_ms / 1000, by=change.by)
        elif call.timeout is not None:
            timeout = call.timeout + (change.extend_ms or 0) / 1000
            self._executor.set_deadline(call, timeout, by=change.by)

    def cancel_after_step(self, cancellation: Cancellation) -> None:
        self._after_step = self._after_step or cancellation

    async def run(self) -> TurnEnding:
        """Run the turn and return its ending, which the caller stores.

        Raises:
            Fenced: the turn has another owner.
        """
        describe_turn(self.turn, self._config.traced, token=self._work)
        try:
            prompt = await self._journal.prompt(self._head())
            messages = prompt.with_note()
            self._fitting.begin(prompt)
            for notice in self._config.notices:
                await self._journal.notify(notice)
            conversing = self._converse(messages)
            ending = await self._answering.work(conversing) or self._ended_by_token()
            if ending.status is TurnStatus.TIMED_OUT and not self.token.is_cancelled:
                await self._answering.work(self._report(messages))
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
        """Whether the turn's calls and answers are being ended, except for a report."""
        return self._work.is_cancelled

    def request_report(self) -> None:
        """End the running work because the turn's time is up, and request a report if there is time for one."""
        timed_out = Cancellation(reason=CancelReason.TIMEOUT)
        (self._work if self._config.report_grace > 0 else self.token).cancel(timed_out)

    def _head(self) -> PromptHead:
        config = self._config
        return PromptHead.of(config.traced.chat_model, config.instructions, config.tools)

    def _make_host(self) -> Host:
        return Host(
            observer=self._observer,
            workspace=self._config.workspace,
            make_workspace=self._config.make_workspace,
            metadata=TurnMetadata(self._config.metadata, clock=self.clock),
            allowed=self._config.allowed,
            max_parallel=self._config.max_parallel,
            approver=StepApprover(self._journal, clock=self.clock),
            approval=self._config.approval,
            keep_image=self._config.keep_image,
            still_mine=self._config.still_mine,
            user_id=self.turn.user_id,
            agent=self.turn.agent,
            depth=self._config.depth,
        )

    async def _converse(self, messages: list[Message]) -> TurnEnding:
        while (cancellation := self._work.cancellation or self._after_step) is None:
            if self.steps >= self.turn.step_limit:
                return _step_limit_reached(self.turn.step_limit)
            await self._share_usage()
            if self._budget.is_used_up:
                return self._budget.ending()
            self.steps += 1
            with step_span(self.steps):
                ending = await self._take_step(messages)
            if ending is not None:
                return ending
        return ending_of(cancellation)

    async def _request(
        self, messages: Sequence[Message], *, token: CancellationToken
    ) -> ChatRequest:
        """Return the request for the next answer, with the messages that fit into the context window."""
        await self._fitting.fit(messages, token=token)
        prompt, unchanged_from = self._fitting.apply(messages)
        return ChatRequest(
            instructions=self._config.instructions,
            messages=tuple(prompt),
            tools=self._config.tools,
            max_tokens=self._budget.left,
            limits=self._config.limits,
            settings=self._config.settings,
            unchanged_from=unchanged_from,
        )

    async def _take_step(self, messages: list[Message]) -> TurnEnding | None:
        """Request one answer and run its calls. Return the turn's ending, or None if the turn continues."""
        request = await self._request(messages, token=self._work)
        if self._budget.is_used_up:  # a summary may have used the remaining tokens
            return self._budget.ending()
        repeats = self._config.repeats_steps and self._cut_off < _REPEATS
        try:
            reply = await self._answering.ask(
                request, step=self.steps, token=self._work, drops_cut_off=repeats
            )
        except ChatModelError as error:
            if error.is_too_long and await self._make_shorter(messages, token=self._work):
                return None
            if not repeats or not error.cut_off:
                raise
            await self._wait_to_repeat(error)
            return None
        self._cut_off = self._too_long = 0
        if reply is None:
            return self._ended_by_token()
        self._fitting.measure([*messages, reply.message(turn_id=self._turn_id)])
        if not reply.has_calls:
            return self._budget.ending() if self._budget.has_cut_off(reply) else _COMPLETED
        calls = reply.calls(scope=self.scope)
        message = reply.message(calls, turn_id=self._turn_id)
        await self._journal.save_reply(self.steps, message, calls, usage=self.usage)
        await self._share_usage()  # so that the limits of sub-agents that start now include it
        messages.extend((message, await self._call_tools(calls)))
        return None

    async def _ask_aside(self, request: ChatRequest) -> str:
        """Return the answer to a request for a summary. While the turn reports, return an empty string, because there
        is little time.
        """
        return await self._answering.ask_aside(request, step=self.steps, token=self._work)

    async def _make_shorter(self, messages: Sequence[Message], *, token: CancellationToken) -> bool:
        """Leave out more of the prompt, so that the rejected request of the step can be repeated. Return False if that
        is not possible.
        """
        self._too_long += 1
        if self._too_long > _SHORTER:
            return False
        if not await self._fitting.shrink(messages, token=token):
            return False
        self.steps -= 1
        return True

    async def _wait_to_repeat(self, error: ChatModelError) -> None:
        """Notify the person that an answer was dropped, and wait before the next step requests it again."""
        self._cut_off += 1
        wait = REPEAT_PAUSE * self._cut_off
        message = STEP_REPEATED % {"reason": error.cut_off, "wait": f"{wait:g}"}
        await self._journal.notify(
            Notice(code="retrying", message=message, wait=wait, reason=error.cut_off)
        )
        with self._work.watched() as cancelled:
            await asyncio.wait({cancelled}, timeout=wait)

    def _ended_by_token(self) -> TurnEnding:
        """Return the ending of a cancelled turn. Cancelling the turn itself takes precedence over cancelling its
        work, because the turn may have been cancelled while the report was being written.
        """
        cancellation = self.token.cancellation or self._work.cancellation
        return ending_of(cancellation or Cancellation(reason=CancelReason.ERROR))

    async def _share_usage(self) -> None:
        """Store the number of tokens used by this turn, and read that of the other turns of its family."""
        if self._budget.family_limit is not None:
            self._budget.others = await self._journal.share_usage(self.usage)

    async def _report(self, messages: Sequence[Message]) -> None:
        """Request a report of the results so far, as text only and in bounded time."""
        await self._share_usage()
        timed_out = Cancellation(reason=CancelReason.TIMEOUT)
        timer = asyncio.get_running_loop().call_later(
            self._config.report_grace, self.token.cancel, timed_out
        )
        text = self._answering.cut_off
        before = (*messages, text) if text else messages
        try:
            while not self._budget.is_used_up and not await self._has_reported(before):
                pass
        except ChatModelError:
            logger.warning(
                "A chat model gave no report", extra={"turn_id": str(self.turn.id)}, exc_info=True
            )
        finally:
            timer.cancel()

    async def _has_reported(self, messages: Sequence[Message]) -> bool:
        """Request a report. Return False if the prompt was too long and has been shortened."""
        self.steps += 1
        question = Message(role="user", content=(TextBlock(text=REPORT_REQUEST),))
        request = await self._request(messages, token=self.token)
        request = replace(request, messages=(*request.messages, question), may_call=False)
        try:
            with step_span(self.steps):
                await self._answering.ask(request, step=self.steps, token=self.token, is_last=True)
        except ChatModelError as error:
            if error.is_too_long and await self._make_shorter(messages, token=self.token):
                return False
            raise
        return True

    async def _call_tools(self, calls: Sequence[ToolCall]) -> Message:
        """Run the calls of a step concurrently; return their results in call order (P1)."""
        self._observer.begin_step(self.steps)
        self._calls = {call.id: self._executor.prepare(call, token=self._work) for call in calls}
        try:
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
        """Wait for every call. If one could not be recorded, end the others and then raise its error."""
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
            await asyncio.wait(
                tasks
            )  # quick, because a cancelled executor does not wait for bodies
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


def _is_asking(call: LiveCall) -> bool:
    """Return whether people can see an open question of the call, before it runs or while its body shows a form."""
    return call.question is not None and call.question.is_open


_CANCELLED = (ErrorType.CANCELLED, ErrorType.NOT_STARTED)


def in_voice(outcome: ToolOutcome) -> ToolOutcome:
    """Return the outcome for a voice turn. The result of a cancelled call becomes JSON, which models do not mistake for
    a failure to retry (C8).
    """
    if outcome.error_type not in _CANCELLED or outcome.ended_by is None:
        return outcome
    result = {
        "ok": False,
        "cancelled": True,
        "disposition": outcome.disposition.value,
        "error": {"message": outcome.result},
    }
    return replace(outcome, result=json.dumps(result, ensure_ascii=False))


class StepApprover:
    """Passes the questions of a step to the journal, and pauses the turn's clock while one is open."""

    def __init__(self, journal: Approver, *, clock: TurnClock) -> None:
        self._journal = journal
        self._clock = clock

    async def ask(self, call: LiveCall) -> Decision | None:
        """Ask the question, and pause the clock unless an earlier decision answers it."""
        earlier = await self._journal.ask(call)
        if earlier is None:
            self._clock.pause()
        return earlier

    async def conclude(self, call: LiveCall, decision: Decision) -> Decision:
        """Resume the clock, and return the effective decision."""
        self._clock.resume()
        return await self._journal.conclude(call, decision)


class StepObserver:
    """Reports the calls of the steps to the journal, and adds the loop detector's warnings to their results (A4).

    `outcomes` are the outcomes of the last step's calls, by id. Once `token` is cancelled, no warnings are added.
    `halt` cancels the turn.
    """

    def __init__(
        self,
        journal: TurnJournal,
        loops: LoopDetector,
        *,
        token: CancellationToken,
        halt: Callable[[Cancellation], object],
        is_voice: bool = False,
    ) -> None:
        self.outcomes: dict[str, ToolOutcome] = {}
        self._journal: Observer = journal
        self._loops = loops
        self._step = 0
        self._token = token
        self._halt = halt
        self._is_voice = is_voice

    def begin_step(self, step: int) -> None:
        """Observe the calls of this step from now on."""
        self._step = step
        self.outcomes = {}

    async def call_queued(self, call: LiveCall) -> None:
        with suppress(Fenced):  # the turn has ended, so there is nothing to report
            await self._journal.call_queued(call)

    async def call_started(self, call: LiveCall) -> None:
        await self._journal.call_started(call)

    async def call_progressed(self, call: LiveCall) -> None:
        with suppress(Fenced):
            await self._journal.call_progressed(call)

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        with suppress(Fenced):
            await self._journal.deadline_moved(call, change)

    async def call_cancelling(self, call: LiveCall) -> None:
        with suppress(Fenced):
            await self._journal.call_cancelling(call)

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        judged = self._judge(call, outcome)
        outcome = self.outcomes[call.id] = in_voice(judged) if self._is_voice else judged
        await self._journal.call_ended(call, outcome)

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        await self._journal.call_settled_late(call, late)

    def _judge(self, call: LiveCall, outcome: ToolOutcome) -> ToolOutcome:
        if self._token.is_cancelled or _was_stopped(outcome):
            return outcome
        if call.tool is not None and call.tool.loop_exempt:
            return outcome
        verdict = self._loops.observe(
            call.call.tool_name,
            call.call.input,
            outcome.result,
            is_error=outcome.is_error,
            step=self._step,
        )
        if verdict.action is LoopAction.HALT:
            self._halt(Cancellation(reason=CancelReason.LOOP, note=verdict.text))
        return (
            replace(outcome, result=f"{outcome.result}\n{verdict.text}")
            if verdict.text
            else outcome
        )


def _was_stopped(outcome: ToolOutcome) -> bool:
    """Return whether the call was ended from outside: by a person, a parent turn or the server."""
    by = outcome.ended_by
    return by is not None and not by.reason.row.is_avoidable
