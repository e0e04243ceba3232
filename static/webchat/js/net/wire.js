/**
 * The protocol as the server has it: its constants, and the types of all frames.
 * Made by `python -m webchat.protocol` from `webchat/protocol/` and the events of `turns/core/`: change those.
 */

export const PROTOCOL_VERSION = 1;

export const CLOSE_CODES = Object.freeze({
  RESTARTING: 1012,
  COMING_BACK: 4000,
  BAD_FIRST_FRAME: 4400,
  SIGNED_OUT: 4401,
  NO_SUCH_CONVERSATION: 4404,
  TOO_MANY: 4429,
});

/** @typedef {"pending"|"awaiting_approval"|"running"|"cancelling"|"succeeded"|"failed"|"timed_out"|"cancelled"|"denied"|"expired"|"not_started"|"abandoned"|"repaired"} CallStatus */

/** @type {ReadonlyArray<string>} */
export const FINAL_CALL_STATUSES = Object.freeze([
  "succeeded",
  "failed",
  "timed_out",
  "cancelled",
  "denied",
  "expired",
  "not_started",
  "abandoned",
  "repaired",
]);

/** @typedef {"queued"|"running"|"cancelling"|"completed"|"cancelled"|"failed"|"timed_out"|"interrupted"} TurnStatus */

/** @type {ReadonlyArray<string>} */
export const FINAL_TURN_STATUSES = Object.freeze(["completed", "cancelled", "failed", "timed_out", "interrupted"]);

/** @typedef {"user"|"admin"|"parent"|"disconnect"|"timeout"|"loop"|"superseded"|"shutdown"|"error"} CancelReason */

/** @type {ReadonlyArray<string>} */
export const CANCEL_REASONS = Object.freeze([
  "user",
  "admin",
  "parent",
  "disconnect",
  "timeout",
  "loop",
  "superseded",
  "shutdown",
  "error",
]);

/** @type {ReadonlyArray<string>} */
export const MAIN_ARGUMENTS = Object.freeze(["command", "url", "path", "query", "task", "message", "seconds"]);

/** @type {ReadonlyArray<string>} */
export const EVENTS_AFTER_END = Object.freeze(["cancel_acknowledged", "history_repaired", "tool_settled"]);

/**
 * A cancel word and the answer to it.
 *
 * @typedef {Readonly<{text: string, said: string, source: "typed"|"voice"}>} AnsweredCancelWord
 */

/**
 * A file that a person has attached, or an image that a call has shown: `tool_use_id`. An image has its size in pixels.
 *
 * @typedef {Readonly<{type: "image"|"document", attachment_id: string, name: string, media_type: string, size: number, width?: number, height?: number, tool_use_id?: string}>} AttachmentContent
 */

/**
 * A sub-agent that works for this conversation while nothing there waits for it. `parent_turn_id` and `parent_tool_id` name the call of this conversation that has led to it.
 *
 * @typedef {Readonly<{turn_id: string, conversation_id: string, agent: string, status: "queued"|"running"|"cancelling", parent_turn_id: string, parent_tool_id: string, elapsed_ms: number, tools: ReadonlyArray<RunningTool>}>} BackgroundWork
 */

/**
 * Another conversation that is not at rest; `asked_in` names the conversation of each of its open questions. `tools_running` counts its calls at work; `is_queued` = no turn of those that wait has begun.
 *
 * @typedef {Readonly<{conversation_id: string, standing: "asking"|"parked"|"working"|"interrupted", asked_in: ReadonlyArray<string>, tools_running: number, is_queued: boolean}>} BusyConversation
 */

/**
 * A call; one that is over has its result, and all that `tool_result` says.
 *
 * @typedef {Readonly<{tool_id: string, tool_name: string, status: "pending"|"awaiting_approval"|"running"|"cancelling"|"succeeded"|"failed"|"timed_out"|"cancelled"|"denied"|"expired"|"not_started"|"abandoned"|"repaired", elapsed_ms: number, timeout_ms: number|null, timeout_source: string, idle_timeout_ms: number|null, waits_for: WaitsFor|null, turn_id: string, tool_title: string, tool_server: string, allowed_earlier_by: string, input: unknown, step: number, position: number, cancellable: boolean, interruptible: boolean, concurrency: string, expected_ms: number|null, asked_timeout_ms: number|null, limit_changes: ReadonlyArray<LimitChange>, approval: Question|null, message: string|null, progress: number|null, total: number|null, tail: string|null, sub_agent: SubAgentTurn|null, result?: string, result_length?: number, images?: ReadonlyArray<AttachmentContent>, is_error?: boolean, error_type?: string|null, limit_reached?: "total"|"idle"|"turn"|"approval"|null, duration_ms?: number|null, ended_by?: EndedBy|null, disposition?: string, late?: Late|null}>} Call
 */

/**
 * A call that runs now, or waits.
 *
 * @typedef {Readonly<{tool_id: string, tool_name: string, status: "pending"|"awaiting_approval"|"running"|"cancelling"|"succeeded"|"failed"|"timed_out"|"cancelled"|"denied"|"expired"|"not_started"|"abandoned"|"repaired", elapsed_ms: number, timeout_ms: number|null, timeout_source: string, idle_timeout_ms: number|null, waits_for: WaitsFor|null}>} CurrentTool
 */

/**
 * Who or what has ended a call or a turn; `by` is a name, empty for the system.
 *
 * @typedef {Readonly<{reason: string, source: string, by: string}>} EndedBy
 */

/**
 * A turn that is over; `notice` is the last thing that people were told in it.
 *
 * @typedef {Readonly<{turn_id: string, number: number, version: number, replaced_by: string|null, agent: string, status: "queued"|"running"|"cancelling"|"completed"|"cancelled"|"failed"|"timed_out"|"interrupted", started: boolean, user_message: string, attachments: ReadonlyArray<AttachmentContent>, source: string, ended_by: EndedBy|null, ended_by_reason: string, ended_by_source: string, error_code: string|null, error_message: string|null, duration_ms: number|null, usage: Readonly<Record<string, any>>, acknowledgements: ReadonlyArray<AnsweredCancelWord>, notice: Notice|null}>} EndedTurn
 */

/**
 * How the work of a call ended that had been given up.
 *
 * @typedef {Readonly<{kind: string, after_ms: number|null}>} Late
 */

/**
 * The conversation in which something has happened last.
 *
 * @typedef {Readonly<{conversation_id: string, title: string}>} LatestConversation
 */

/**
 * Another limit that a running call got; `is_idle`: the one of its silence.
 *
 * @typedef {Readonly<{timeout_ms: number|null, is_idle: boolean, changed_by: string}>} LimitChange
 */

/**
 * A turn that is not over, with its calls and the text so far of its unfinished message. `ends_after_step`: a cancel was accepted that lets the step at work end, and no other begins.
 *
 * @typedef {Readonly<{turn_id: string, conversation_id: string, agent: string, started_at: string|null, elapsed_ms: number, status: "queued"|"running"|"cancelling"|"completed"|"cancelled"|"failed"|"timed_out"|"interrupted", tool_call_count: number, current_tools: ReadonlyArray<CurrentTool>, parent_turn_id: string|null, owner: string|null, user_message: string, attachments: ReadonlyArray<AttachmentContent>, source: string, client_id: string|null, number: number, version: number, turn_timeout_ms: number|null, calls: ReadonlyArray<Call>, partial_text: string, notice: Notice|null, ends_after_step: boolean}>} LiveTurn
 */

/**
 * What people were told in a turn: an `error` event without its number.
 *
 * @typedef {Readonly<{code: string, message: string, reason?: string, wait_ms?: number}>} Notice
 */

/**
 * Since when no turn begins, and why.
 *
 * @typedef {Readonly<{at: string, reason: string}>} Parked
 */

/**
 * A question about a call, and how it was decided; `decision` null = nobody has decided.
 *
 * @typedef {Readonly<{rule: "once_per_conversation"|"always", requested_at: string, expires_at: string|null, expires_in_ms: number|null, can_remember: boolean, host: string, description: string, question: string, decision: string|null, decided_at: string|null, by: string, reason: string, remember: boolean}>} Question
 */

/**
 * One thing that was put right; `tool_id` is empty where it was a message.
 *
 * @typedef {Readonly<{tool_id: string, kind: string, cause: string}>} RepairedCall
 */

/**
 * A tool that runs now.
 *
 * @typedef {Readonly<{tool_name: string, tool_title: string}>} RunningTool
 */

/**
 * A finished message at its place; `html` is sanitised, and added where it is sent.
 *
 * @typedef {Readonly<{id: number, turn_id: string, position: number, step: number, role: "user"|"assistant", content: ReadonlyArray<TextContent|AttachmentContent|ToolUseContent>, interrupted: boolean, at: string, html?: string}>} StoredMessage
 */

/**
 * What a sub-agent asks that works for this conversation; `parent_tool_id` is the call that has set it to work.
 *
 * @typedef {Readonly<{rule: "once_per_conversation"|"always", requested_at: string, expires_at: string|null, expires_in_ms: number|null, can_remember: boolean, host: string, description: string, question: string, decision: string|null, decided_at: string|null, by: string, reason: string, remember: boolean, turn_id: string, conversation_id: string, agent: string, parent_turn_id: string, parent_tool_id: string, tool_id: string, tool_name: string, tool_title: string, tool_server: string, input: unknown}>} SubAgentQuestion
 */

/**
 * What the turn of a sub-agent has come to. `html` is sanitised, and added where it is sent to a page.
 *
 * @typedef {Readonly<{turn_id: string, conversation_id: string, agent: string, status: string, text: string, html?: string}>} SubAgentReport
 */

/**
 * The turn of a sub-agent that a call has set to work; nobody waits for a detached one.
 *
 * @typedef {Readonly<{turn_id: string, conversation_id: string, agent: string, status: "queued"|"running"|"cancelling"|"completed"|"cancelled"|"failed"|"timed_out"|"interrupted", is_detached: boolean}>} SubAgentTurn
 */

/**
 * Something said in words; `sub_agent`: the report that the words pass on.
 *
 * @typedef {Readonly<{type: "text", text: string, sub_agent?: SubAgentReport}>} TextContent
 */

/**
 * A tool call that a model asked for. `is_complete` is false where it was cut off, `title` the tool's word for people.
 *
 * @typedef {Readonly<{type: "tool_use", id: string, name: string, title?: string, input: unknown, is_complete?: boolean}>} ToolUseContent
 */

/**
 * `call`: until the call `tool_id` has ended. `scope`: its conversation runs as many calls as it may. `slot`: so does the server.
 *
 * @typedef {Readonly<{kind: "call"|"slot"|"scope", tool_id: string, tool_name: string}>} WaitsFor
 */

/**
 * The first frame; `after` is the last event that the client has seen. With `html`, streaming answers come rendered, too.
 *
 * @typedef {Readonly<{type: "hello", protocol: number, after?: number|null, html?: boolean}>} HelloFrame
 */

/**
 * What the user typed or said; a spoken text that is not final is ignored (C8). `attachments` are ids of files. With `replaces`, it takes the place of that turn's message: this turn and all behind it leave the history.
 *
 * @typedef {Readonly<{type: "message", attachments?: ReadonlyArray<string>, client_id: string, text: string, source?: "typed"|"voice", is_final?: boolean, replaces?: string|null}>} MessageFrame
 */

/**
 * Cancel a turn, at once or when its running step has ended. The answer comes once the request is stored (C2). What is queued behind it ends with it. With the mode `queued` only this turn ends, and only while it has not begun.
 *
 * @typedef {Readonly<{type: "cancel_turn", op_id: string, mode?: "now"|"after_step"|"queued", reason?: string, turn_id: string}>} CancelTurnFrame
 */

/**
 * Cancel one tool call; the turn goes on (C3).
 *
 * @typedef {Readonly<{type: "cancel_tool", op_id: string, reason?: string, turn_id: string, tool_id: string}>} CancelToolFrame
 */

/**
 * Give a running call another limit, up to the ceiling: `timeout_ms` in all, or `extend_ms` more. Give exactly one of them (T9).
 *
 * @typedef {Readonly<{type: "set_deadline", op_id: string, timeout_ms?: number|null, extend_ms?: number|null, turn_id: string, tool_id: string}>} SetDeadlineFrame
 */

/**
 * Let a call run that waits for a person, or refuse it with a reason that the agent reads. A call is decided once (D2, D4).
 *
 * @typedef {Readonly<{type: "decide_tool", op_id: string, decision: "approve"|"deny", remember?: "conversation"|null, reason?: string, turn_id: string, tool_id: string}>} DecideToolFrame
 */

/**
 * Let the agent go on after its last turn, which was interrupted: begins a new turn, once (H4).
 *
 * @typedef {Readonly<{type: "continue_turn", op_id: string, turn_id: string}>} ContinueTurnFrame
 */

/**
 * Let a parked conversation go on (H4).
 *
 * @typedef {Readonly<{type: "resume_conversation", op_id: string}>} ResumeConversationFrame
 */

/**
 * Ask for the whole text so far of a running turn: a gap in `offset` was seen.
 *
 * @typedef {Readonly<{type: "resync", turn_id: string}>} ResyncFrame
 */

/**
 * Ask for a `heartbeat`.
 *
 * @typedef {Readonly<{type: "ping"}>} PingFrame
 */

/** @typedef {HelloFrame|MessageFrame|CancelTurnFrame|CancelToolFrame|SetDeadlineFrame|DecideToolFrame|ContinueTurnFrame|ResumeConversationFrame|ResyncFrame|PingFrame} ClientFrame */

/**
 * The answer to `hello`: what the log has, and who the server takes you for.
 *
 * @typedef {Readonly<{type: "welcome", protocol?: number, server_version: string, last_seq: number, user: string}>} WelcomeFrame
 */

/**
 * The whole conversation: after `hello` without `after`, or when the log no longer reaches back to it.
 *
 * @typedef {Readonly<{type: "snapshot", seq: number, messages: ReadonlyArray<StoredMessage>, calls: ReadonlyArray<Call>, turns: ReadonlyArray<EndedTurn>, active_turns: ReadonlyArray<LiveTurn>, has_earlier: boolean, parked: Parked|null}>} SnapshotFrame
 */

/**
 * One for every `message`: its turn; or, `cancelled`, the turn that it ended as a cancel word.
 *
 * @typedef {Readonly<{type: "message_result", client_id: string, turn_id: string, cancelled: boolean}>} MessageResultFrame
 */

/**
 * One for every `op_id`; the same one for a repeated `op_id`.
 *
 * @typedef {Readonly<{type: "op_result", op_id: string, outcome: "accepted"|"already_finished"|"not_found"|"denied"|"not_cancellable"}>} OpResultFrame
 */

/**
 * Every 15 s, and as the answer to `ping`: the log's last event and the turns that are not over.
 *
 * @typedef {Readonly<{type: "heartbeat", last_seq: number, active: ReadonlyArray<string>}>} HeartbeatFrame
 */

/**
 * What goes on elsewhere, whole: soon after each `welcome`, and whenever it has changed. Until then the last one stands. `conversations`: your other conversations that are not at rest. Their `standing` is `asking`, `parked`, `working` or `interrupted`. `asked_in` names the conversation of each of their open questions. `tools_running` counts the calls at work, `is_queued` says that no turn has begun yet. `questions`: what sub-agents ask that work for this conversation; decide with `decide_tool`, the `turn_id` and the `tool_id` of the question. `latest`: the `conversation_id` and `title` of your conversation in which something has happened last, this one included. If you do not know it, or know another title, list your conversations again. List them again also when `edited_at` has changed: it is when you last renamed, pinned or deleted one. `background`: the sub-agents that work for this conversation while nothing here waits for them; `cancel_turn` with their `turn_id` ends one.
 *
 * @typedef {Readonly<{type: "overview", conversations: ReadonlyArray<BusyConversation>, questions: ReadonlyArray<SubAgentQuestion>, latest?: LatestConversation|null, edited_at?: string|null, background?: ReadonlyArray<BackgroundWork>}>} OverviewFrame
 */

/**
 * Your frame had no effect: why, and which frame it was where that is known.
 *
 * @typedef {Readonly<{type: "error", code: string, message: string, client_id?: string|null, op_id?: string|null}>} ProblemFrame
 */

/**
 * A piece of the streaming answer, counted in code points; not in the log. `offset` 0 replaces what you have. One that comes after the `message` of its `step` is late: ignore it.
 *
 * @typedef {Readonly<{type: "text_delta", turn_id: string, at?: string, text: string, offset: number, step?: number}>} TextDeltaFrame
 */

/**
 * Finished blocks of the streaming answer, rendered: its characters from `offset` up to `end`. Not in the log. It comes if `hello` had `html`. It comes after its text, each block after the one before, and again after a `resync`. The `message` that follows takes the place of all of it.
 *
 * @typedef {Readonly<{type: "text_html", turn_id: string, offset: number, end: number, html: string}>} TextHtmlFrame
 */

/** @typedef {WelcomeFrame|SnapshotFrame|MessageResultFrame|OpResultFrame|HeartbeatFrame|OverviewFrame|ProblemFrame|TextDeltaFrame|TextHtmlFrame} AnswerFrame */

/**
 * A message was taken and waits for its turn. With `replaces`, it takes the place of that turn's message, as this `version` of it. That turn and all behind it leave the history.
 *
 * @typedef {Readonly<{type: "turn_queued", seq: number, turn_id: string, at: string, user_message: string, client_id: string|null, source: string, replaces?: string|null, version?: number, attachments?: ReadonlyArray<AttachmentContent>|null}>} TurnQueuedEvent
 */

/**
 * A turn begins to run; `reports` are those of sub-agents that its agent gets with the message.
 *
 * @typedef {Readonly<{type: "turn_start", seq: number, turn_id: string, at: string, user_message: string, client_id: string|null, agent: string, parent_turn_id: string|null, turn_timeout_ms: number|null, source: string, reports: ReadonlyArray<SubAgentReport>, attachments?: ReadonlyArray<AttachmentContent>|null}>} TurnStartEvent
 */

/**
 * A finished message; `html` is sanitised, and added where it is sent. One that is `interrupted` was cut off.
 *
 * @typedef {Readonly<{type: "message", seq: number, turn_id: string, at: string, id: number, step: number, interrupted: boolean, role: "user"|"assistant", content: ReadonlyArray<TextContent|AttachmentContent|ToolUseContent>, html: string}>} MessageEvent
 */

/**
 * A cancel was accepted that lets the step at work end: no other begins. A snapshot's live turn has `ends_after_step`.
 *
 * @typedef {Readonly<{type: "turn_ends_after_step", seq: number, turn_id: string, at: string, reason: string, source: string, by: string|null}>} TurnEndsAfterStepEvent
 */

/**
 * The turn is being ended before its time; `turn_end` follows. `descendants` turns of sub-agents end with it.
 *
 * @typedef {Readonly<{type: "turn_abort", seq: number, turn_id: string, at: string, reason: string, source: string, by: string|null, descendants?: number}>} TurnAbortEvent
 */

/**
 * The turn is over; no event of it follows.
 *
 * @typedef {Readonly<{type: "turn_end", seq: number, turn_id: string, at: string, status: "completed"|"cancelled"|"failed"|"timed_out"|"interrupted", duration_ms: number|null, usage: Readonly<Record<string, any>>, error_code: string|null}>} TurnEndEvent
 */

/**
 * Comes after the `turn_end` of what a cancel word has ended: `said` is the word, `text` the answer to it. It is shown in the conversation and is no message: no model reads it. A snapshot has it with its turn.
 *
 * @typedef {Readonly<{type: "cancel_acknowledged", seq: number, turn_id: string, at: string, text: string, said: string, source: "typed"|"voice"}>} CancelAcknowledgedEvent
 */

/**
 * The history had calls without a result, or results without a call; it was put right.
 *
 * @typedef {Readonly<{type: "history_repaired", seq: number, turn_id: string, at: string, repairs: ReadonlyArray<RepairedCall>}>} HistoryRepairedEvent
 */

/**
 * Too many turns have ended with their process: no turn begins until a person lets the conversation go on.
 *
 * @typedef {Readonly<{type: "conversation_parked", seq: number, turn_id: string, at: string, reason: string}>} ConversationParkedEvent
 */

/**
 * A person has let a parked conversation go on.
 *
 * @typedef {Readonly<{type: "conversation_resumed", seq: number, turn_id: string, at: string, by: string}>} ConversationResumedEvent
 */

/**
 * Something went wrong in a turn: a stable code and a sentence. With `wait_ms` the turn tries again after that, and goes on. `reason` is the part of the sentence that says why. A snapshot has it as the `notice` of its turn. A live turn has a notice until something else happens in it. A turn that is over has the last one that did not end it.
 *
 * @typedef {Readonly<{type: "error", seq: number, turn_id: string, at: string, code: string, message: string, reason?: string, wait_ms?: number|null}>} TurnErrorEvent
 */

/**
 * A call waits for a person's decision; `input` is whole, `expires_at` null = it may take any time.
 *
 * @typedef {Readonly<{type: "tool_approval", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, tool_title?: string, tool_server?: string, input: unknown, expires_at: string|null, expires_in_ms: number|null, rule: "once_per_conversation"|"always", can_remember: boolean, host: string, description: string, question?: string, requested_at: string, position: number}>} ToolApprovalEvent
 */

/**
 * A question was decided; `remember` = it lets the tool's later calls of this conversation through, too.
 *
 * @typedef {Readonly<{type: "tool_decision", seq: number, turn_id: string, at: string, tool_id: string, decision: "approved"|"denied"|"expired", by: string, reason: string, remember: boolean}>} ToolDecisionEvent
 */

/**
 * A call has waited for half a second, and for what; again when it waits for something else. Empty names name no call. An exclusive call runs alone in its conversation: it waits for the others, and they wait for it.
 *
 * @typedef {Readonly<{type: "tool_queued", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, waits_for: WaitsFor, concurrency: string}>} ToolQueuedEvent
 */

/**
 * A tool call begins to run. `timeout_ms` null or 0 = no limit, `idle_timeout_ms` null = it may be silent for any time. `tool_title` is the tool's own word for people, `tool_server` the MCP server that it belongs to; empty = none. `allowed_earlier_by` is who had allowed the tool for the conversation before, so that nobody was asked. `expected_ms` is how long it takes as a rule; `asked_timeout_ms` what it asked for above its ceiling, 0 = no limit. Every call is `cancellable`. Where it is not `interruptible`, a cancel stops waiting for it, and its work may go on.
 *
 * @typedef {Readonly<{type: "tool_start", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, tool_title?: string, tool_server?: string, allowed_earlier_by?: string, input: unknown, timeout_ms: number|null, timeout_source: string, idle_timeout_ms: number|null, cancellable: boolean, concurrency: string, position: number, expected_ms: number|null, asked_timeout_ms: number|null, interruptible: boolean}>} ToolStartEvent
 */

/**
 * A call is alive: every 5 s, and when the tool itself says so. `tail` is the last lines of its output so far.
 *
 * @typedef {Readonly<{type: "tool_progress", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, elapsed_ms: number, status: "running", progress?: number|null, total?: number|null, message?: string|null, tail?: string|null}>} ToolProgressEvent
 */

/**
 * A running call got another limit, idle limit, or both: both as they are now.
 *
 * @typedef {Readonly<{type: "tool_deadline", seq: number, turn_id: string, at: string, tool_id: string, timeout_ms: number|null, timeout_source: string, idle_timeout_ms: number|null, changed_by: string}>} ToolDeadlineEvent
 */

/**
 * A call reached a limit of its own; its `tool_result` follows. `timeout_ms` is the one that `limit_reached` names.
 *
 * @typedef {Readonly<{type: "tool_timeout", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, timeout_ms: number|null, limit_reached: "total"|"idle"|null}>} ToolTimeoutEvent
 */

/**
 * A call is over: exactly one for every call that started. `limit_reached` is the limit that has ended it, if one did. `result` is the beginning of a result of `result_length` characters; the rest has an address of its own. `images` are what the call has shown.
 *
 * @typedef {Readonly<{type: "tool_result", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, step: number, position: number, result: string, is_error: boolean, error_type: string|null, status: string, limit_reached: "total"|"idle"|"turn"|"approval"|null, duration_ms: number|null, ended_by: EndedBy|null, disposition: string, late: Late|null, result_length: number, images: ReadonlyArray<AttachmentContent>}>} ToolResultEvent
 */

/**
 * A call that was given up, and might still have been running, has ended after all. Its result stays as it was. `kind`: `returned`, `raised`, `cancelled`, or `process_ended`, with the process that ran it. It may come after `turn_end`.
 *
 * @typedef {Readonly<{type: "tool_settled", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, status: string, kind: string, after_ms: number|null}>} ToolSettledEvent
 */

/**
 * A call has set a sub-agent to work, in a turn and a conversation of its own. A detached one is not waited for.
 *
 * @typedef {Readonly<{type: "sub_agent", seq: number, turn_id: string, at: string, tool_id: string, agent: string, child_turn_id: string, child_conversation_id: string, is_detached: boolean}>} SubAgentEvent
 */

/** @typedef {TurnQueuedEvent|TurnStartEvent|MessageEvent|TurnEndsAfterStepEvent|TurnAbortEvent|TurnEndEvent|CancelAcknowledgedEvent|HistoryRepairedEvent|ConversationParkedEvent|ConversationResumedEvent|TurnErrorEvent|ToolApprovalEvent|ToolDecisionEvent|ToolQueuedEvent|ToolStartEvent|ToolProgressEvent|ToolDeadlineEvent|ToolTimeoutEvent|ToolResultEvent|ToolSettledEvent|SubAgentEvent} EventFrame */

/** @typedef {AnswerFrame|EventFrame} ServerFrame */
/** @typedef {EventFrame["type"]} EventType */
