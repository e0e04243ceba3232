/** @typedef {Record<string, string|number|boolean|string[]>} FormContent */
/** @typedef {Readonly<{action: "accept"|"decline"|"cancel", content: FormContent, questionId: string}>} FormAnswer */

/**
 * The types that the modules of the chat page share: the frames on the wire, and the page's state.
 *
 * @typedef {"new"|"connecting"|"resuming"|"online"|"slow"|"offline"|"reconnecting"|"restarting"|"busy"
 *   |"signed_out"|"other_user"|"not_found"|"outdated"} ConnectionStatus
 *
 * @typedef {Readonly<{
 *   status: ConnectionStatus,
 *   frozenAt: number|null,
 * }>} ConnectionState `frozenAt` is the time (monotonic ms) since which the connection is down and running times are unknown.
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
 *   expiresAt: number|null}>} CallForm The form with which a running call asks the person for details. `expiresAt` is in monotonic ms.
 * @typedef {Readonly<{turnId: string, toolId: string, tool: string, agent: string, form: CallForm}>} AskedForm An open form.
 *   `agent` is the sub-agent whose call shows the form, or empty for a call of this conversation.
 *
 * @typedef {Readonly<{name: string, value: string, isText: boolean}>} Argument An argument of a call as the page shows it.
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
 * }>} Call A tool call. `elapsedMs` was measured at `elapsedAt` (monotonic ms). `title` is the tool's name for people. `tail` has
 *   the last lines of its output so far. `result` is the beginning of a result with `resultLength` characters.
 *   `images` are the images in the result.
 *
 * @typedef {Readonly<{turnId: string, conversationId: string, agent: string, status: string, parentTurnId: string,
 *   parentToolId: string, elapsedMs: number, elapsedAt: number, tools: ReadonlyArray<string>, stoppingAt: number|null}>} Work The
 *   background work of a sub-agent. Its turn is in another conversation, its call in this one.
 * @typedef {Readonly<{turnId: string, call: Call}>} Question A sub-agent's question. Its turn is in another conversation.
 * @typedef {Readonly<{conversationId: string, standing: string, askedIn: ReadonlyArray<string>, toolsRunning: number,
 *   isQueued: boolean}>} OtherConversation Another conversation that is not idle. `askedIn` has the conversation of
 *   each of its open questions, and `toolsRunning` is the number of its running calls. `isQueued` is true if all its
 *   unfinished turns are still queued.
 * @typedef {Readonly<{id: string, title: string, standing: string}>} ListedConversation A conversation in a list.
 *   `title` is empty if it is unknown, and `standing` is empty if the conversation is idle.
 * @typedef {Readonly<{said: string, text: string, source: string}>} Acknowledgement A cancel word and its acknowledgement. They
 *   follow the end of the turn and are not messages.
 * @typedef {Readonly<{timeoutMs: number|null, isIdle: boolean, by: string}>} LimitChange A change of a limit. `isIdle` is
 *   true if it is the idle limit.
 * @typedef {Readonly<{agent: string, conversationId: string}>} SubAgent The agent that a call started, and its conversation.
 *
 * @typedef {import("../net/wire.js").AttachmentContent} Attachment
 * @typedef {Readonly<{kind: "user"|"agent", key: string, text: string, attachments: ReadonlyArray<Attachment>, html: string, at: string,
 *   interrupted: boolean, unstored: string|null, streaming: boolean}>} TextItem `unstored` is the part after
 *   `html` of a text whose message was never stored.
 * @typedef {Readonly<{kind: "call", key: string, toolId: string}>} CallItem
 * @typedef {Readonly<{kind: "report", key: string, text: string, html: string, status: string, subAgent: SubAgent}>} ReportItem
 * @typedef {Readonly<{kind: "thoughts", key: string, text: string, durationMs: number}>} ThoughtsItem
 * @typedef {TextItem|CallItem|ReportItem|ThoughtsItem} Item
 *
 * @typedef {Readonly<{end: number, length: number, html: string}>} Block Finished blocks of a streaming answer. They end at the
 *   code point `end`, which has the index `length` in a JS string.
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
 * }>} Turn `partialLength` counts code points, like the server's `offset` and unlike the length of a JS string.
 *   `blocks` are the rendered beginning of `partial`, and `thoughts` are the streaming thoughts. `promptChange` is the
 *   reason why the model had to read the conversation again, and `summary` is what it now reads instead of the oldest
 *   messages. `fullness` is the share of the context window that is used after the turn, from 0 to 1, or 0 if it is
 *   unknown. `finishedStep` is the last step whose message is complete. `retry` has the reason and the time (monotonic
 *   ms) of the next request to the model after a failure. `version` counts the versions of the turn's message.
 *   `replacedBy` is the id of the turn that replaced this one in the history, or empty.
 *
 * @typedef {Readonly<{clientId: string, text: string, source: "typed"|"voice", turnId: string|null, replaces?: string,
 *   attachments?: ReadonlyArray<Attachment>}>} PendingMessage A message of this page that is
 *   not in the server's log yet. `turnId` is set once the server has accepted it. `replaces` is the id of the turn whose
 *   message it replaces.
 * @typedef {Readonly<{kind: "cancel_turn"|"cancel_tool"|"set_deadline"|"decide_tool"|"answer_tool"|"continue_turn"|"resume_conversation", opId: string, turnId: string,
 *   toolId: string, extendMs: number, mode?: "now"|"after_step"|"queued", decision?: "approve"|"deny", remember?: boolean, reason?: string,
 *   answer?: FormAnswer}>} Operation A request of this page that has no `op_result` yet.
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
 * @typedef {Readonly<{now: number, wall: number}>} Clock The values of `performance.now()` and `Date.now()` at the same moment.
 *
 * @typedef {import("../net/wire.js").ServerFrame} Frame
 * @typedef {import("../net/wire.js").SnapshotFrame} EarlierMessages A frame with the messages before those that are shown.
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
