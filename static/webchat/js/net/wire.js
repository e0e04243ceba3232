/**
 * The constants of the protocol, and the types of all frames.
 *
 * `python -m webchat.protocol` generates this module from `webchat/protocol/` and the events in `turns/core/`. Change
 * those instead.
 */

export const PROTOCOL_VERSION = 1;

export const CLOSE_CODES = Object.freeze({
  RESTARTING: 1012,
  COMING_BACK: 4000,
  RESTARTING_TOO: 4012,
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
export const MAIN_ARGUMENTS = Object.freeze(["command", "url", "path", "query", "task", "message"]);

/** @type {ReadonlyArray<string>} */
export const EVENTS_AFTER_END = Object.freeze(["cancel_acknowledged", "history_repaired", "tool_settled"]);

/**
 * A cancel word (`said`) and the answer to it.
 *
 * @typedef {Readonly<{text: string, said: string, source: "typed"|"voice"}>} AnsweredCancelWord
 */

/**
 * An argument of a call, for display. A string is unchanged (`is_text`); any other value is JSON, with every digit that the tool receives.
 *
 * @typedef {Readonly<{name: string, value: string, is_text: boolean}>} Argument
 */

/**
 * A file that a person has attached, or an image that the call `tool_use_id` has shown. Images include their size in pixels.
 *
 * @typedef {Readonly<{type: "image"|"document", attachment_id: string, name: string, media_type: string, size: number, width?: number, height?: number, tool_use_id?: string}>} AttachmentContent
 */

/**
 * A detached sub-agent of this conversation; the conversation does not wait for it. `parent_turn_id` and `parent_tool_id` name the call of this conversation that led to it.
 *
 * @typedef {Readonly<{turn_id: string, conversation_id: string, agent: string, status: "queued"|"running"|"cancelling", parent_turn_id: string, parent_tool_id: string, elapsed_ms: number, tools: ReadonlyArray<RunningTool>}>} BackgroundWork
 */

/**
 * Another conversation that is not idle. `asked_in` has the ids of the conversations that ask its open questions. `tools_running` is the number of its running calls. `is_queued` is true if all its unfinished turns are still queued.
 *
 * @typedef {Readonly<{conversation_id: string, standing: "asking"|"parked"|"working"|"interrupted", asked_in: ReadonlyArray<string>, tools_running: number, is_queued: boolean}>} BusyConversation
 */

/**
 * A call; if it has ended, it includes its result and all fields of `tool_result`.
 *
 * @typedef {Readonly<{tool_id: string, tool_name: string, status: "pending"|"awaiting_approval"|"running"|"cancelling"|"succeeded"|"failed"|"timed_out"|"cancelled"|"denied"|"expired"|"not_started"|"abandoned"|"repaired", elapsed_ms: number, timeout_ms: number|null, timeout_source: string, idle_timeout_ms: number|null, waits_for: WaitsFor|null, turn_id: string, tool_title: string, tool_server: string, allowed_earlier_by: string, input: unknown, arguments: ReadonlyArray<Argument>, step: number, position: number, cancellable: boolean, interruptible: boolean, concurrency: string, expected_ms: number|null, asked_timeout_ms: number|null, limit_changes: ReadonlyArray<LimitChange>, approval: Question|null, form?: CallForm|null, message: string|null, progress: number|null, total: number|null, tail: string|null, sub_agent: SubAgentTurn|null, result?: string, result_length?: number, images?: ReadonlyArray<AttachmentContent>, is_error?: boolean, error_type?: string|null, limit_reached?: "total"|"idle"|"turn"|"approval"|null, duration_ms?: number|null, ended_by?: EndedBy|null, disposition?: string, effects?: "none"|"possible"|"cut", late?: Late|null}>} Call
 */

/**
 * A form that a running call shows the person, as its MCP server words it. If `expires_at` is null, there is no time limit.
 *
 * @typedef {Readonly<{question_id: string, tool_title: string, tool_server: string, form: Form, requested_at: string, expires_at: string|null, expires_in_ms: number|null}>} CallForm
 */

/**
 * A call that is running or waiting.
 *
 * @typedef {Readonly<{tool_id: string, tool_name: string, status: "pending"|"awaiting_approval"|"running"|"cancelling"|"succeeded"|"failed"|"timed_out"|"cancelled"|"denied"|"expired"|"not_started"|"abandoned"|"repaired", elapsed_ms: number, timeout_ms: number|null, timeout_source: string, idle_timeout_ms: number|null, waits_for: WaitsFor|null}>} CurrentTool
 */

/**
 * Why a call or a turn ended. `by` is the name of the person who ended it, or empty if the system did.
 *
 * @typedef {Readonly<{reason: string, source: string, by: string}>} EndedBy
 */

/**
 * A turn that has ended; `notice` is the last notice that it showed. In `usage`, `context_tokens` is the number of tokens of the `context_window` that its last step used.
 *
 * @typedef {Readonly<{turn_id: string, number: number, version: number, replaced_by: string|null, agent: string, status: "queued"|"running"|"cancelling"|"completed"|"cancelled"|"failed"|"timed_out"|"interrupted", started: boolean, user_message: string, attachments: ReadonlyArray<AttachmentContent>, source: string, ended_by: EndedBy|null, ended_by_reason: string, ended_by_source: string, error_code: string|null, error_message: string|null, prompt_change: string|null, summary: string, duration_ms: number|null, usage: Readonly<Record<string, any>>, acknowledgements: ReadonlyArray<AnsweredCancelWord>, notice: Notice|null}>} EndedTurn
 */

/**
 * A form: a message, and the fields to fill in. Without fields, the person only accepts or declines it.
 *
 * @typedef {Readonly<{message: string, fields: ReadonlyArray<FormField>}>} Form
 */

/**
 * A field of a form. `minimum` and `maximum` limit a number, the length of a string or the number of choices.
 *
 * @typedef {Readonly<{name: string, title: string, description: string, kind: "text"|"number"|"integer"|"boolean"|"choice"|"choices", required: boolean, format: ""|"email"|"uri"|"date"|"date-time", default: unknown, options: ReadonlyArray<FormOption>, minimum: number|null, maximum: number|null}>} FormField
 */

/**
 * A value that a choice field offers.
 *
 * @typedef {Readonly<{value: string, title: string}>} FormOption
 */

/**
 * The end of the body of an abandoned call: its `kind`, and the time since the call's result (`after_ms`).
 *
 * @typedef {Readonly<{kind: string, after_ms: number|null}>} Late
 */

/**
 * The id and title of the conversation with the latest activity.
 *
 * @typedef {Readonly<{conversation_id: string, title: string}>} LatestConversation
 */

/**
 * A change to a running call's limit: to its idle limit if `is_idle`, otherwise to its total limit.
 *
 * @typedef {Readonly<{timeout_ms: number|null, is_idle: boolean, changed_by: string}>} LimitChange
 */

/**
 * A turn that has not ended, with its calls. `partial_text` is the text of its unfinished message so far. If `ends_after_step` is true, a cancel was accepted that ends the turn after the current step. `usage` covers its steps so far.
 *
 * @typedef {Readonly<{turn_id: string, conversation_id: string, agent: string, started_at: string|null, elapsed_ms: number, status: "queued"|"running"|"cancelling"|"completed"|"cancelled"|"failed"|"timed_out"|"interrupted", tool_call_count: number, current_tools: ReadonlyArray<CurrentTool>, parent_turn_id: string|null, owner: string|null, user_message: string, attachments: ReadonlyArray<AttachmentContent>, source: string, client_id: string|null, number: number, version: number, turn_timeout_ms: number|null, calls: ReadonlyArray<Call>, partial_text: string, notice: Notice|null, prompt_change: string|null, summary: string, ends_after_step: boolean, usage: Readonly<Record<string, any>>}>} LiveTurn
 */

/**
 * A notice in a turn: an `error` event without its number.
 *
 * @typedef {Readonly<{code: string, message: string, reason?: string, wait_ms?: number}>} Notice
 */

/**
 * The time at which the conversation was parked, and the reason.
 *
 * @typedef {Readonly<{at: string, reason: string}>} Parked
 */

/**
 * A question about a call, and its decision. `decision` is null until a person decides or the question ends.
 *
 * @typedef {Readonly<{rule: "once_per_conversation"|"always", requested_at: string, expires_at: string|null, expires_in_ms: number|null, can_remember: boolean, host: string, description: string, question: string, decision: string|null, decided_at: string|null, by: string, reason: string, remember: boolean}>} Question
 */

/**
 * One repair; `tool_id` is empty if a message was repaired.
 *
 * @typedef {Readonly<{tool_id: string, kind: string, cause: string}>} RepairedCall
 */

/**
 * A tool that a detached sub-agent is running.
 *
 * @typedef {Readonly<{tool_name: string, tool_title: string}>} RunningTool
 */

/**
 * A finished message at its position; `html` is sanitised, and added when the message is sent. `thoughts` are the model's reasoning before it.
 *
 * @typedef {Readonly<{id: number, turn_id: string, position: number, step: number, role: "user"|"assistant", content: ReadonlyArray<TextContent|AttachmentContent|ToolUseContent>, interrupted: boolean, at: string, thoughts?: Thoughts|null, html?: string}>} StoredMessage
 */

/**
 * A form of a sub-agent that works for this conversation; `parent_tool_id` is the call that started the sub-agent.
 *
 * @typedef {Readonly<{question_id: string, tool_title: string, tool_server: string, form: Form, requested_at: string, expires_at: string|null, expires_in_ms: number|null, turn_id: string, conversation_id: string, agent: string, parent_turn_id: string, parent_tool_id: string, tool_id: string, tool_name: string}>} SubAgentForm
 */

/**
 * A question of a sub-agent that works for this conversation. `parent_tool_id` is the call that started the sub-agent. `arguments` is the `input` for display.
 *
 * @typedef {Readonly<{rule: "once_per_conversation"|"always", requested_at: string, expires_at: string|null, expires_in_ms: number|null, can_remember: boolean, host: string, description: string, question: string, decision: string|null, decided_at: string|null, by: string, reason: string, remember: boolean, turn_id: string, conversation_id: string, agent: string, parent_turn_id: string, parent_tool_id: string, tool_id: string, tool_name: string, tool_title: string, tool_server: string, input: unknown, arguments: ReadonlyArray<Argument>}>} SubAgentQuestion
 */

/**
 * The result of a sub-agent's turn. `html` is sanitised, and added when it is sent to a page.
 *
 * @typedef {Readonly<{turn_id: string, conversation_id: string, agent: string, status: string, text: string, html?: string}>} SubAgentReport
 */

/**
 * The turn of a sub-agent that a call started. `is_detached` is true if the call does not wait for it.
 *
 * @typedef {Readonly<{turn_id: string, conversation_id: string, agent: string, status: "queued"|"running"|"cancelling"|"completed"|"cancelled"|"failed"|"timed_out"|"interrupted", is_detached: boolean}>} SubAgentTurn
 */

/**
 * Text; `sub_agent` is the report that it contains, if any.
 *
 * @typedef {Readonly<{type: "text", text: string, sub_agent?: SubAgentReport}>} TextContent
 */

/**
 * The model's reasoning before its answer, to the extent that the provider reveals it, and how long the reasoning took.
 *
 * @typedef {Readonly<{text: string, duration_ms: number}>} Thoughts
 */

/**
 * A tool call in a model's answer. `is_complete` is false if it was cut off; `title` is the tool's display name. `arguments` is the `input` for display, added when the message is sent.
 *
 * @typedef {Readonly<{type: "tool_use", id: string, name: string, title?: string, input: unknown, arguments?: ReadonlyArray<Argument>, is_complete?: boolean}>} ToolUseContent
 */

/**
 * The reason that a call waits. With the kind `call`, it waits for the end of the call `tool_id`. With `scope`, it waits for a free slot in its conversation, which has reached its limit of simultaneous calls. With `slot`, it waits for a free slot of the server, which has reached its own limit.
 *
 * @typedef {Readonly<{kind: "call"|"slot"|"scope", tool_id: string, tool_name: string}>} WaitsFor
 */

/**
 * The first frame on a socket. `after` is the number of the last event that the client has seen. With `html`, streaming answers are also sent as HTML. With `acks`, the client sends an `ack` each time it has received another `ack_bytes` bytes (the number in `welcome`), so that the server never sends faster than the client reads.
 *
 * @typedef {Readonly<{type: "hello", protocol: number, after?: number|null, html?: boolean, acks?: boolean}>} HelloFrame
 */

/**
 * A typed or spoken message of the user. Spoken text that is not final is ignored (C8). `attachments` are the ids of uploaded files. `replaces` is the id of the turn whose message this one replaces. That turn and all later ones are removed from the history.
 *
 * @typedef {Readonly<{type: "message", attachments?: ReadonlyArray<string>, client_id: string, text: string, source?: "typed"|"voice", is_final?: boolean, replaces?: string|null}>} MessageFrame
 */

/**
 * Cancel a turn, immediately or after its current step. The server replies as soon as the request is stored (C2). Messages that are queued behind the turn are cancelled too. With the mode `queued`, only this turn is cancelled, and only if it has not started.
 *
 * @typedef {Readonly<{type: "cancel_turn", op_id: string, mode?: "now"|"after_step"|"queued", reason?: string, turn_id: string}>} CancelTurnFrame
 */

/**
 * Cancel one tool call. The turn continues (C3).
 *
 * @typedef {Readonly<{type: "cancel_tool", op_id: string, reason?: string, turn_id: string, tool_id: string}>} CancelToolFrame
 */

/**
 * Change the limit of a waiting or running call, up to the ceiling (T9). Send either `timeout_ms` (the new limit) or `extend_ms` (additional time), but not both.
 *
 * @typedef {Readonly<{type: "set_deadline", op_id: string, timeout_ms?: number|null, extend_ms?: number|null, turn_id: string, tool_id: string}>} SetDeadlineFrame
 */

/**
 * Allow a call that waits for approval to run, or deny it with a reason that the agent will read. Only the first decision takes effect (D2, D4).
 *
 * @typedef {Readonly<{type: "decide_tool", op_id: string, decision: "approve"|"deny", remember?: "conversation"|null, reason?: string, turn_id: string, tool_id: string}>} DecideToolFrame
 */

/**
 * Answer the form of a running call (`tool_question`). `accept` sends the answers in `content`, keyed by the names of the form's fields. `decline` means that the person does not want to answer, and `cancel` dismisses the form. If the answers do not fit the form, the server refuses them with `invalid_answer`, and the form stays open. A form can be answered only once. Without `question_id`, the answer is for the open form of the call.
 *
 * @typedef {Readonly<{type: "answer_tool", op_id: string, action: "accept"|"decline"|"cancel", content?: Readonly<Record<string, any>>, question_id?: string, turn_id: string, tool_id: string}>} AnswerToolFrame
 */

/**
 * Continue the conversation's last turn in a new turn, if the last one was interrupted. A repeated request does not start a second new turn (H4).
 *
 * @typedef {Readonly<{type: "continue_turn", op_id: string, turn_id: string}>} ContinueTurnFrame
 */

/**
 * Resume a parked conversation, so that its turns start again (H4).
 *
 * @typedef {Readonly<{type: "resume_conversation", op_id: string}>} ResumeConversationFrame
 */

/**
 * Request the whole text so far of a running turn, because an `offset` showed a gap.
 *
 * @typedef {Readonly<{type: "resync", turn_id: string}>} ResyncFrame
 */

/**
 * Request a `heartbeat`.
 *
 * @typedef {Readonly<{type: "ping"}>} PingFrame
 */

/**
 * Acknowledge the last event and the total number of bytes received on this socket. The server does not reply to it.
 *
 * @typedef {Readonly<{type: "ack", seq: number, received: number}>} AckFrame
 */

/** @typedef {HelloFrame|MessageFrame|CancelTurnFrame|CancelToolFrame|SetDeadlineFrame|DecideToolFrame|AnswerToolFrame|ContinueTurnFrame|ResumeConversationFrame|ResyncFrame|PingFrame|AckFrame} ClientFrame */

/**
 * The reply to `hello`. `last_seq` is the number of the log's last event, and `user` is your user name. If you announced `acks`, send an `ack` each time you have received another `ack_bytes` bytes.
 *
 * @typedef {Readonly<{type: "welcome", protocol?: number, server_version: string, last_seq: number, user: string, ack_bytes?: number|null}>} WelcomeFrame
 */

/**
 * The conversation up to the event `seq`. It is sent after a `hello` without `after`, or if the log no longer reaches back to `after`. If `has_earlier` is true, `messages` does not begin with the first message; request earlier ones over HTTP.
 *
 * @typedef {Readonly<{type: "snapshot", seq: number, messages: ReadonlyArray<StoredMessage>, calls: ReadonlyArray<Call>, turns: ReadonlyArray<EndedTurn>, active_turns: ReadonlyArray<LiveTurn>, has_earlier: boolean, parked: Parked|null}>} SnapshotFrame
 */

/**
 * The reply to a `message`, with its turn. If it was a cancel word, `cancelled` is true, and this is the cancelled turn.
 *
 * @typedef {Readonly<{type: "message_result", client_id: string, turn_id: string, cancelled: boolean}>} MessageResultFrame
 */

/**
 * The reply to a frame with an `op_id`. A frame with a repeated `op_id` gets the same reply.
 *
 * @typedef {Readonly<{type: "op_result", op_id: string, outcome: "accepted"|"already_finished"|"not_found"|"denied"|"not_cancellable"}>} OpResultFrame
 */

/**
 * A sign that the connection works, sent every 15 seconds and in reply to `ping`. It contains the number of the last event and the ids of the turns that have not ended.
 *
 * @typedef {Readonly<{type: "heartbeat", last_seq: number, active: ReadonlyArray<string>}>} HeartbeatFrame
 */

/**
 * All activity outside this conversation, sent soon after each `welcome` and whenever it has changed. Each frame replaces the previous one. `conversations` lists your other conversations that are not idle. Their `standing` is `asking`, `parked`, `working` or `interrupted`. `asked_in` has the ids of the conversations that ask their open questions, one for each question. `tools_running` is the number of their running calls, and `is_queued` is true if all their unfinished turns are still queued. `questions` lists the open questions of sub-agents that work for this conversation. Decide one with `decide_tool` and the `turn_id` and `tool_id` of the question. `latest` is the conversation with the latest activity, which may be this one. If your list of conversations lacks it or shows another title, request the list again. Also request the list again when `edited_at` changes, which is the last time that you renamed, pinned or deleted a conversation. `background` lists the detached sub-agents of this conversation. Cancel one with `cancel_turn` and its `turn_id`. `forms` lists the open forms of sub-agents' running calls. Answer one with `answer_tool`.
 *
 * @typedef {Readonly<{type: "overview", conversations: ReadonlyArray<BusyConversation>, questions: ReadonlyArray<SubAgentQuestion>, latest?: LatestConversation|null, edited_at?: string|null, background?: ReadonlyArray<BackgroundWork>, forms?: ReadonlyArray<SubAgentForm>}>} OverviewFrame
 */

/**
 * The server did not accept your frame. `code` and `message` say why, and `client_id` or `op_id` is that of the frame, if it had one. After `server_error` or `unavailable`, it is unknown whether the frame took effect.
 *
 * @typedef {Readonly<{type: "error", code: string, message: string, client_id?: string|null, op_id?: string|null}>} ProblemFrame
 */

/**
 * A piece of the streaming answer; `offset` is its position in code points. The log does not contain such pieces. A piece with `offset` 0 replaces the text that you have. Ignore a piece that arrives after the `message` of its `step`, because the message contains it.
 *
 * @typedef {Readonly<{type: "text_delta", turn_id: string, at?: string, text: string, offset: number, step?: number}>} TextDeltaFrame
 */

/**
 * Finished blocks of the streaming answer as HTML. They cover its characters from `offset` up to, but not including, `end`. This frame is not in the log, and is sent only if `hello` had `html`. It follows the text of its blocks, and is repeated after a `resync`. Blocks arrive in order. The `message` that completes the answer replaces all of them.
 *
 * @typedef {Readonly<{type: "text_html", turn_id: string, offset: number, end: number, html: string}>} TextHtmlFrame
 */

/**
 * A piece of the model's reasoning; `offset` is its position in code points. The log does not contain such pieces. A piece with `offset` 0 replaces the reasoning that you have. The `message` of its `step` contains the whole reasoning. Pieces are not repeated, so a client that connects later receives only later pieces.
 *
 * @typedef {Readonly<{type: "thought_delta", turn_id: string, at?: string, text: string, offset: number, step: number}>} ThoughtDeltaFrame
 */

/** @typedef {WelcomeFrame|SnapshotFrame|MessageResultFrame|OpResultFrame|HeartbeatFrame|OverviewFrame|ProblemFrame|TextDeltaFrame|TextHtmlFrame|ThoughtDeltaFrame} AnswerFrame */

/**
 * A message was accepted and its turn is queued. With `replaces`, the message is a new `version` of the message of that turn. The replaced turn and all later ones are dropped from the history.
 *
 * @typedef {Readonly<{type: "turn_queued", seq: number, turn_id: string, at: string, user_message: string, client_id: string|null, source: string, replaces?: string|null, version?: number, attachments?: ReadonlyArray<AttachmentContent>|null}>} TurnQueuedEvent
 */

/**
 * A turn starts; `reports` are the sub-agents' reports that its agent receives with the message.
 *
 * @typedef {Readonly<{type: "turn_start", seq: number, turn_id: string, at: string, user_message: string, client_id: string|null, agent: string, parent_turn_id: string|null, turn_timeout_ms: number|null, source: string, reports: ReadonlyArray<SubAgentReport>, attachments?: ReadonlyArray<AttachmentContent>|null}>} TurnStartEvent
 */

/**
 * A finished message; `html` is sanitised, and added when the message is sent. An `interrupted` message was cut off. `thoughts` are the model's reasoning before it. A message with calls has the `usage` of its turn so far, in the same form as in an `EndedTurn`.
 *
 * @typedef {Readonly<{type: "message", seq: number, turn_id: string, at: string, id: number, step: number, interrupted: boolean, role: "user"|"assistant", content: ReadonlyArray<TextContent|AttachmentContent|ToolUseContent>, thoughts?: Thoughts|null, usage?: Readonly<Record<string, any>>|null, html: string}>} MessageEvent
 */

/**
 * A cancel was accepted that ends the turn after the current step. In a snapshot, `ends_after_step` of the live turn is then true.
 *
 * @typedef {Readonly<{type: "turn_ends_after_step", seq: number, turn_id: string, at: string, reason: string, source: string, by: string|null}>} TurnEndsAfterStepEvent
 */

/**
 * The turn is being ended early; `turn_end` follows. `descendants` is the number of sub-agents' turns that end with it.
 *
 * @typedef {Readonly<{type: "turn_abort", seq: number, turn_id: string, at: string, reason: string, source: string, by: string|null, descendants?: number}>} TurnAbortEvent
 */

/**
 * The turn has ended. `usage` is the same as in an `EndedTurn`.
 *
 * @typedef {Readonly<{type: "turn_end", seq: number, turn_id: string, at: string, status: "completed"|"cancelled"|"failed"|"timed_out"|"interrupted", duration_ms: number|null, usage: Readonly<Record<string, any>>, error_code: string|null}>} TurnEndEvent
 */

/**
 * The answer to a cancel word, sent after the `turn_end` of the turn that the word ended. `said` is the word, `text` the answer. The conversation shows both, but they are not messages, and no model reads them. A snapshot lists them in the `acknowledgements` of the turn.
 *
 * @typedef {Readonly<{type: "cancel_acknowledged", seq: number, turn_id: string, at: string, text: string, said: string, source: "typed"|"voice"}>} CancelAcknowledgedEvent
 */

/**
 * The history had calls without a result, or results without a call, and was repaired.
 *
 * @typedef {Readonly<{type: "history_repaired", seq: number, turn_id: string, at: string, repairs: ReadonlyArray<RepairedCall>}>} HistoryRepairedEvent
 */

/**
 * The model reads the whole conversation again in this turn, because content that it had read before has changed. With the reasons `clear`, `summary` and `cut`, the model no longer reads some old results or messages, because they do not fit into its context window. The conversation still contains them. `summary` is the text that the model reads instead of the oldest messages. In a snapshot, the turn's `prompt_change` is the reason, and its `summary` is this text.
 *
 * @typedef {Readonly<{type: "prompt_changed", seq: number, turn_id: string, at: string, reason: "agent"|"tools"|"edit"|"repair"|"prune"|"clear"|"summary"|"cut", summary?: string}>} PromptChangedEvent
 */

/**
 * Too many turns died with their process, so no turn starts until a person resumes the conversation.
 *
 * @typedef {Readonly<{type: "conversation_parked", seq: number, turn_id: string, at: string, reason: string}>} ConversationParkedEvent
 */

/**
 * A person has resumed a parked conversation.
 *
 * @typedef {Readonly<{type: "conversation_resumed", seq: number, turn_id: string, at: string, by: string}>} ConversationResumedEvent
 */

/**
 * An error in a turn, with a stable code and a sentence. With `wait_ms`, the request to the chat model is repeated after that time, and the turn continues. `reason` is the part of the sentence that gives the reason. A snapshot shows the event as the turn's `notice`. A live turn keeps it until the turn's next event. An ended turn without an `error_code` shows its last `error` without `wait_ms`.
 *
 * @typedef {Readonly<{type: "error", seq: number, turn_id: string, at: string, code: string, message: string, reason?: string, wait_ms?: number|null}>} TurnErrorEvent
 */

/**
 * A call waits for a person's decision. The `input` is complete. If `expires_at` is null, there is no time limit. `arguments` is the `input` for display; here and in `tool_start`, it is added when the event is sent.
 *
 * @typedef {Readonly<{type: "tool_approval", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, tool_title?: string, tool_server?: string, input: unknown, expires_at: string|null, expires_in_ms: number|null, rule: "once_per_conversation"|"always", can_remember: boolean, host: string, description: string, question?: string, requested_at: string, position: number, arguments: ReadonlyArray<Argument>}>} ToolApprovalEvent
 */

/**
 * A question was decided. If `remember` is true, the tool's later calls in this conversation are allowed too.
 *
 * @typedef {Readonly<{type: "tool_decision", seq: number, turn_id: string, at: string, tool_id: string, decision: "approved"|"denied"|"expired", by: string, reason: string, remember: boolean}>} ToolDecisionEvent
 */

/**
 * A running call asks the person to fill in a form; until then, its clocks are paused. Answer with `answer_tool`. The texts of the `form` come from the MCP server `tool_server`, so do not trust them.
 *
 * @typedef {Readonly<{type: "tool_question", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, tool_title: string, tool_server: string, question_id: string, form: Form, requested_at: string, expires_at: string|null, expires_in_ms: number|null}>} ToolQuestionEvent
 */

/**
 * A form of a running call was closed: a person accepted or declined it, or neither happened (`cancel`). `by` is empty if no person closed it. The event does not contain the answers.
 *
 * @typedef {Readonly<{type: "tool_answer", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, question_id: string, action: "accept"|"decline"|"cancel", by: string}>} ToolAnswerEvent
 */

/**
 * A call has waited for half a second; `waits_for` is the reason. The event is sent again when the reason changes. In `waits_for`, `tool_id` and `tool_name` are empty unless the call waits for another call. An exclusive call runs alone in its conversation: it waits for the others, and they wait for it.
 *
 * @typedef {Readonly<{type: "tool_queued", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, waits_for: WaitsFor, concurrency: string}>} ToolQueuedEvent
 */

/**
 * A tool call starts. If `timeout_ms` is null or 0, the call has no total limit; if `idle_timeout_ms` is null, it has no idle limit. `tool_title` is the tool's display name, and `tool_server` is its MCP server; either may be empty. `allowed_earlier_by` is the person who had already allowed the tool for the conversation, so that no question was necessary. `expected_ms` is the usual duration of the tool. If the ceiling capped the limit that the call requested, `asked_timeout_ms` is the requested limit; 0 means that the call requested no limit. Every call is `cancellable`. If a call is not `interruptible`, a cancel only ends the wait for it, and its work may continue.
 *
 * @typedef {Readonly<{type: "tool_start", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, tool_title: string, tool_server: string, allowed_earlier_by: string, input: unknown, timeout_ms: number|null, timeout_source: string, idle_timeout_ms: number|null, cancellable: boolean, concurrency: string, position: number, expected_ms: number|null, asked_timeout_ms: number|null, interruptible: boolean, arguments: ReadonlyArray<Argument>}>} ToolStartEvent
 */

/**
 * A sign that a call is alive, sent every 5 s and when the tool reports progress. `tail` contains the last lines of the call's output so far.
 *
 * @typedef {Readonly<{type: "tool_progress", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, elapsed_ms: number, status: "running", progress?: number|null, total?: number|null, message?: string|null, tail?: string|null}>} ToolProgressEvent
 */

/**
 * The total limit of a running call, its idle limit, or both were changed. The event contains both current values.
 *
 * @typedef {Readonly<{type: "tool_deadline", seq: number, turn_id: string, at: string, tool_id: string, timeout_ms: number|null, timeout_source: string, idle_timeout_ms: number|null, changed_by: string}>} ToolDeadlineEvent
 */

/**
 * A call reached one of its own limits; its `tool_result` follows. `timeout_ms` is the limit that `limit_reached` names.
 *
 * @typedef {Readonly<{type: "tool_timeout", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, timeout_ms: number|null, limit_reached: "total"|"idle"|null}>} ToolTimeoutEvent
 */

/**
 * A call has ended. The event is sent exactly once for each call, even if the call never started. `limit_reached` is the limit that ended it, if any. `timeout_source` is the source of its total limit; `hint` and `argument` mean that the agent requested it. `result` is the beginning of a result of `result_length` characters; the full result has its own address. `images` are the images that the call has shown. `effects` is `none` if the call never started, or if its tool has no side effects. It is `possible` if the tool has side effects, or if the call is not known to have ended. It is `cut` if the tool has side effects and the call was ended in the middle of them.
 *
 * @typedef {Readonly<{type: "tool_result", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, step: number, position: number, result: string, is_error: boolean, error_type: string|null, status: "pending"|"awaiting_approval"|"running"|"cancelling"|"succeeded"|"failed"|"timed_out"|"cancelled"|"denied"|"expired"|"not_started"|"abandoned"|"repaired", limit_reached: "total"|"idle"|"turn"|"approval"|null, duration_ms: number|null, ended_by: EndedBy|null, disposition: string, effects: "none"|"possible"|"cut", late: Late|null, result_length: number, images: ReadonlyArray<AttachmentContent>, timeout_source: string}>} ToolResultEvent
 */

/**
 * The body of a call has ended after the call was abandoned. The call's result does not change. `kind` says how the body ended: it `returned`, `raised` or was `cancelled`, or it ended with its process (`process_ended`). This event can follow `turn_end`.
 *
 * @typedef {Readonly<{type: "tool_settled", seq: number, turn_id: string, at: string, tool_id: string, tool_name: string, status: string, kind: string, after_ms: number|null}>} ToolSettledEvent
 */

/**
 * A call has started a sub-agent, in a separate turn and conversation. The call does not wait for a detached sub-agent.
 *
 * @typedef {Readonly<{type: "sub_agent", seq: number, turn_id: string, at: string, tool_id: string, agent: string, child_turn_id: string, child_conversation_id: string, is_detached: boolean}>} SubAgentEvent
 */

/** @typedef {TurnQueuedEvent|TurnStartEvent|MessageEvent|TurnEndsAfterStepEvent|TurnAbortEvent|TurnEndEvent|CancelAcknowledgedEvent|HistoryRepairedEvent|PromptChangedEvent|ConversationParkedEvent|ConversationResumedEvent|TurnErrorEvent|ToolApprovalEvent|ToolDecisionEvent|ToolQuestionEvent|ToolAnswerEvent|ToolQueuedEvent|ToolStartEvent|ToolProgressEvent|ToolDeadlineEvent|ToolTimeoutEvent|ToolResultEvent|ToolSettledEvent|SubAgentEvent} EventFrame */

/** @typedef {AnswerFrame|EventFrame} ServerFrame */
/** @typedef {EventFrame["type"]} EventType */
