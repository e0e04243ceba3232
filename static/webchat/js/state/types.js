/**
 * The shapes that the modules of the chat page share: frames on the wire, and the state they are reduced to.
 * Types only; nothing here runs.
 *
 * @typedef {"new"|"connecting"|"resuming"|"online"|"slow"|"offline"|"reconnecting"|"restarting"|"busy"
 *   |"signed_out"|"other_user"|"not_found"|"outdated"} ConnectionStatus
 *
 * @typedef {Readonly<{
 *   status: ConnectionStatus,
 *   frozenAt: number|null,
 * }>} ConnectionState `frozenAt` is the moment (monotonic ms) since when running clocks are not known any more.
 *
 * @typedef {Readonly<{
 *   reason: string,
 *   source: string,
 *   by: string,
 * }>} EndedBy Who or what ended a call or a turn; empty strings where the server did not say.
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
 * }>} Approval What people are asked about a call, with the tool's own `question` if it has one. `expiresAt` is in monotonic
 *   ms, `decision` is empty while nobody has decided.
 *
 * @typedef {Readonly<{
 *   toolId: string,
 *   name: string,
 *   title: string,
 *   server: string,
 *   input: unknown,
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
 *   late: Readonly<{kind: string, afterMs: number|null}>|null,
 *   approval: Approval|null,
 *   allowedEarlierBy: string,
 *   isDeciding: boolean,
 *   limitChanges: ReadonlyArray<LimitChange>,
 *   subAgent: SubAgent|null,
 *   work?: Work|null,
 * }>} Call One tool call. `elapsedMs` was true at `elapsedAt` (monotonic ms). `title` is its author's word for people. `tail` is
 *   the last lines of its output so far. `result` is the beginning of a result of `resultLength` characters.
 *   `images` is what it has shown.
 *
 * @typedef {Readonly<{turnId: string, conversationId: string, agent: string, status: string, parentTurnId: string,
 *   parentToolId: string, elapsedMs: number, elapsedAt: number, tools: ReadonlyArray<string>, stoppingAt: number|null}>} Work What a
 *   sub-agent does while nothing here waits for it. Its turn is one of another conversation, the call is one of this.
 * @typedef {Readonly<{turnId: string, call: Call}>} Question What a sub-agent asks; its turn is one of another conversation.
 * @typedef {Readonly<{conversationId: string, standing: string, askedIn: ReadonlyArray<string>, toolsRunning: number,
 *   isQueued: boolean}>} OtherConversation How another conversation stands that is not at rest. `askedIn` has the
 *   conversation of each of its open questions, `toolsRunning` its calls at work. `isQueued`: none of its turns has begun.
 * @typedef {Readonly<{id: string, title: string, standing: string}>} ListedConversation What a list shows of a conversation;
 *   empty = not said, at rest.
 * @typedef {Readonly<{said: string, text: string, source: string}>} Acknowledgement A cancel word and the answer to it. They came
 *   after the end of its turn and are no messages.
 * @typedef {Readonly<{timeoutMs: number|null, isIdle: boolean, by: string}>} LimitChange A limit that was moved; `isIdle`: the one
 *   of its silence alone.
 * @typedef {Readonly<{agent: string, conversationId: string}>} SubAgent Who was set to work by a call, and where.
 *
 * @typedef {import("../net/wire.js").AttachmentContent} Attachment
 * @typedef {Readonly<{kind: "user"|"agent", key: string, text: string, attachments: ReadonlyArray<Attachment>, html: string, at: string,
 *   interrupted: boolean, unstored: string|null, streaming: boolean}>} TextItem `unstored`: of a text that was lost before its
 *   message was stored, what comes behind its `html`.
 * @typedef {Readonly<{kind: "call", key: string, toolId: string}>} CallItem
 * @typedef {Readonly<{kind: "report", key: string, text: string, html: string, status: string, subAgent: SubAgent}>} ReportItem
 * @typedef {TextItem|CallItem|ReportItem} Item
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
 *   stoppingAt: number|null,
 *   endsAfterStep: boolean,
 *   retry: Readonly<{reason: string, at: number}>|null,
 *   source: string,
 *   agent: string,
 *   version: number,
 *   replacedBy: string,
 *   acknowledgements: ReadonlyArray<Acknowledgement>,
 * }>} Turn `partialLength` counts code points, as the server's `offset` does; a JS string's length does not.
 *   `blocks`: the beginning of `partial`, rendered.
 *   `finishedStep`: the last step whose message is whole. `retry`: why
 *   and when (monotonic ms) the model is asked again. `version` counts the forms of its message. `replacedBy` is the turn that has
 *   taken it out of the history, empty = none.
 *
 * @typedef {Readonly<{clientId: string, text: string, source: "typed"|"voice", turnId: string|null, replaces?: string,
 *   attachments?: ReadonlyArray<Attachment>}>} PendingMessage Typed here, not yet seen in
 *   the server's log; `turnId` once the server has taken it; `replaces`: the turn whose message it is a new form of.
 * @typedef {Readonly<{kind: "cancel_turn"|"cancel_tool"|"set_deadline"|"decide_tool"|"continue_turn"|"resume_conversation", opId: string, turnId: string,
 *   toolId: string, extendMs: number, mode?: "now"|"after_step"|"queued", decision?: "approve"|"deny", remember?: boolean, reason?: string}>} Operation Asked for here, not yet answered with `op_result`.
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
 *   background: ReadonlyArray<Work>,
 *   connection: ConnectionState,
 *   skewMs: number|null,
 * }>} State `skewMs` is the smallest seen difference of this clock and the server's, transport included.
 *
 * @typedef {Readonly<{now: number, wall: number}>} Clock `performance.now()` and `Date.now()` of one moment.
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
