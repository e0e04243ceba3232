/** @typedef {Record<string, string|number|boolean|string[]>} FormContent */
/** @typedef {Readonly<{action: "accept"|"decline"|"cancel", content: FormContent, questionId: string}>} FormAnswer */

/**
 * The types that the modules of the chat page share: frames on the wire, and the state made from them.
 *
 * @typedef {"new"|"connecting"|"resuming"|"online"|"slow"|"offline"|"reconnecting"|"restarting"|"busy"
 *   |"signed_out"|"other_user"|"not_found"|"outdated"} ConnectionStatus
 *
 * @typedef {Readonly<{
 *   status: ConnectionStatus,
 *   frozenAt: number|null,
 * }>} ConnectionState `frozenAt` is the time (monotonic ms) since which running times are unknown.
 *
 * @typedef {Readonly<{
 *   reason: string,
 *   source: string,
 *   by: string,
 * }>} EndedBy Who or what ended a call or a turn. A string is empty if the server did not send it.
 *
 * @typedef {Readonly<{
 *   requestedAt: string,
 *   canRemember: boolean,
 *   host: string,
 *   description: string,
 *   question: string,
 *   expiresAt: number|null,
 *   decision: string,
 *   by: string,
 *   reason: string,
 *   remember: boolean,
 * }>} Approval The question about a call, with the tool's own `question` if it has one. `expiresAt` is in monotonic
 *   ms, `decision` is empty until a person decides.
 *
 * @typedef {import("../net/wire.js").FormField} FormField
 * @typedef {Readonly<{questionId: string, server: string, message: string, fields: ReadonlyArray<FormField>,
 *   expiresAt: number|null}>} CallForm What a running call asks the person. `expiresAt` is in monotonic ms.
 * @typedef {Readonly<{turnId: string, toolId: string, tool: string, agent: string, form: CallForm}>} AskedForm An open form.
 *   `agent` is the sub-agent whose call asks, empty = a call of this conversation.
 *
 * @typedef {Readonly<{name: string, value: string, isText: boolean}>} Argument One argument of a call as it is shown.
 *
 * @typedef {Readonly<{
 *   toolId: string,
 *   name: string,
 *   title: string,
 *   server: string,
 *   arguments: ReadonlyArray<Argument>,
 *   status: string,
 *   elapsedMs: number,
 *   elapsedAt: number,
 *   timeoutMs: number|null,
 *   timeoutSource: string,
 *   idleTimeoutMs: number|null,
 *   waitsFor: Readonly<{kind: string, tool: string, isAlone: boolean}>|null,
 *   limitReached: string,
 *   interruptible: boolean,
 *   progress: number|null,
 *   total: number|null,
 *   message: string,
 *   tail: string,
 *   result: string|null,
 *   resultLength: number,
 *   images: ReadonlyArray<Attachment>,
 *   isError: boolean,
 *   errorType: string,
 *   durationMs: number|null,
 *   endedBy: EndedBy|null,
 *   stoppingAt: number|null,
 *   expectedMs: number|null,
 *   effects: string,
 *   late: Readonly<{kind: string, afterMs: number|null}>|null,
 *   approval: Approval|null,
 *   form: CallForm|null,
 *   allowedEarlierBy: string,
 *   isDeciding: boolean,
 *   limitChanges: ReadonlyArray<LimitChange>,
 *   subAgent: SubAgent|null,
 *   work?: Work|null,
 * }>} Call One tool call. `elapsedMs` was measured at `elapsedAt` (monotonic ms). `title` is the tool's name for people. `tail` is
 *   the last lines of its output so far. `result` is the beginning of a result of `resultLength` characters.
 *   `images` are the images in its result.
 *
 * @typedef {Readonly<{turnId: string, conversationId: string, agent: string, status: string, parentTurnId: string,
 *   parentToolId: string, elapsedMs: number, elapsedAt: number, tools: ReadonlyArray<string>, stoppingAt: number|null}>} Work The
 *   background work of a sub-agent. Its turn is in another conversation, its call in this one.
 * @typedef {Readonly<{turnId: string, call: Call}>} Question A sub-agent's question. Its turn is in another conversation.
 * @typedef {Readonly<{conversationId: string, standing: string, askedIn: ReadonlyArray<string>, toolsRunning: number,
 *   isQueued: boolean}>} OtherConversation Another conversation that is not idle. `askedIn` has the conversation of
 *   each of its open questions, `toolsRunning` the number of its running calls. `isQueued`: none of its turns has begun.
 * @typedef {Readonly<{id: string, title: string, standing: string}>} ListedConversation A conversation in a list;
 *   empty = unknown title, idle.
 * @typedef {Readonly<{said: string, text: string, source: string}>} Acknowledgement A cancel word and the answer to it. They came
 *   after the end of the turn and are not messages.
 * @typedef {Readonly<{timeoutMs: number|null, isIdle: boolean, by: string}>} LimitChange A changed limit; `isIdle`: the idle
 *   limit.
 * @typedef {Readonly<{agent: string, conversationId: string}>} SubAgent The agent that a call started, and its conversation.
 *
 * @typedef {import("../net/wire.js").AttachmentContent} Attachment
 * @typedef {Readonly<{kind: "user"|"agent", key: string, text: string, attachments: ReadonlyArray<Attachment>, html: string, at: string,
 *   interrupted: boolean, unstored: string|null, streaming: boolean}>} TextItem `unstored`: for a text that was lost before its
 *   message was stored, the part after its `html`.
 * @typedef {Readonly<{kind: "call", key: string, toolId: string}>} CallItem
 * @typedef {Readonly<{kind: "report", key: string, text: string, html: string, status: string, subAgent: SubAgent}>} ReportItem
 * @typedef {Readonly<{kind: "thoughts", key: string, text: string, durationMs: number}>} ThoughtsItem
 * @typedef {TextItem|CallItem|ReportItem|ThoughtsItem} Item
 *
 * @typedef {Readonly<{end: number, length: number, html: string}>} Block Finished blocks of a streaming answer. They end at the code
 *   point `end`, which is `length` in a JS string.
 * @typedef {Readonly<{
 *   id: string,
 *   status: string,
 *   isBegun: boolean,
 *   items: ReadonlyArray<Item>,
 *   calls: Readonly<Record<string, Call>>,
 *   partial: string,
 *   partialLength: number,
 *   blocks: ReadonlyArray<Block>,
 *   thoughts: string,
 *   thoughtsLength: number,
 *   finishedStep: number,
 *   needsResync: boolean,
 *   elapsedMs: number,
 *   elapsedAt: number,
 *   timeoutMs: number|null,
 *   endedBy: EndedBy|null,
 *   errorCode: string,
 *   errorMessage: string,
 *   durationMs: number|null,
 *   tokens: number,
 *   repairs: number,
 *   promptChange: string,
 *   summary: string,
 *   fullness: number,
 *   stoppingAt: number|null,
 *   endsAfterStep: boolean,
 *   retry: Readonly<{reason: string, at: number}>|null,
 *   source: string,
 *   agent: string,
 *   version: number,
 *   replacedBy: string,
 *   acknowledgements: ReadonlyArray<Acknowledgement>,
 * }>} Turn `partialLength` counts code points, as the server's `offset` does; a JS string's length does not.
 *   `blocks`: the rendered beginning of `partial`. `thoughts`: the streaming thoughts. `promptChange`: why the model had to
 *   read the conversation again. `summary`: what it reads since then instead of the oldest messages. `fullness`: how much of
 *   its context window is used after the turn, from 0 to 1; 0 = unknown.
 *   `finishedStep`: the last step whose message is complete. `retry`: why
 *   and when (monotonic ms) the model request is repeated. `version` counts the versions of its message. `replacedBy` is the
 *   turn that replaced it in the history, empty = none.
 *
 * @typedef {Readonly<{clientId: string, text: string, source: "typed"|"voice", turnId: string|null, replaces?: string,
 *   attachments?: ReadonlyArray<Attachment>}>} PendingMessage Typed here, not yet seen in
 *   the server's log; `turnId` after the server accepted it; `replaces`: the turn whose message it edits.
 * @typedef {Readonly<{kind: "cancel_turn"|"cancel_tool"|"set_deadline"|"decide_tool"|"answer_tool"|"continue_turn"|"resume_conversation", opId: string, turnId: string,
 *   toolId: string, extendMs: number, mode?: "now"|"after_step"|"queued", decision?: "approve"|"deny", remember?: boolean, reason?: string,
 *   answer?: FormAnswer}>} Operation Requested here, not yet answered with `op_result`.
 * @typedef {Readonly<{id: number, level: "info"|"error", key: string, params: Readonly<Record<string, string>>}>} Notice
 *
 * @typedef {Readonly<{
 *   phase: "loading"|"ready",
 *   lastSeq: number|null,
 *   gap: boolean,
 *   viewer: string,
 *   turns: ReadonlyArray<Turn>,
 *   pendingMessages: ReadonlyArray<PendingMessage>,
 *   operations: ReadonlyArray<Operation>,
 *   notice: Notice|null,
 *   hasEarlier: boolean,
 *   earliest: number|null,
 *   numbers: Readonly<Record<string, number>>,
 *   isLoadingEarlier: boolean,
 *   parked: boolean,
 *   otherConversations: ReadonlyArray<OtherConversation>,
 *   latest: Readonly<{conversationId: string, title: string}>|null,
 *   listEditedAt: string|null|undefined,
 *   questions: ReadonlyArray<Question>,
 *   forms: ReadonlyArray<AskedForm>,
 *   background: ReadonlyArray<Work>,
 *   connection: ConnectionState,
 *   skewMs: number|null,
 * }>} State `skewMs` is the smallest observed difference between this clock and the server's, including transport.
 *
 * @typedef {Readonly<{now: number, wall: number}>} Clock `performance.now()` and `Date.now()` at the same time.
 *
 * @typedef {import("../net/wire.js").ServerFrame} Frame
 * @typedef {import("../net/wire.js").SnapshotFrame} EarlierMessages The same shape, for the messages before those shown.
 * @typedef {{type: "local_message", clientId: string, text: string, source: "typed"|"voice", replaces?: string,
 *     attachments?: ReadonlyArray<Attachment>}
 *   | {type: "local_operation", operation: Operation}
 *   | {type: "local_new"}
 *   | {type: "local_refused", problem: string}
 *   | {type: "local_connection", status: ConnectionStatus}
 *   | {type: "local_notice", level: "info"|"error", key: string, params?: Record<string, string>}
 *   | {type: "local_notice_closed"}
 *   | {type: "local_earlier_asked"}
 *   | {type: "local_earlier_failed"}
 *   | {type: "local_earlier", before: number, frame: EarlierMessages}} LocalEvent
 *
 * @typedef {Readonly<Record<string, string>>} Texts
 */

export {};
