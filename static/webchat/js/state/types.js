/**
 * The shapes that the modules of the chat page share: frames on the wire, and the state they are reduced to.
 * Types only; nothing here runs.
 *
 * @typedef {"connecting"|"resuming"|"online"|"slow"|"offline"|"reconnecting"|"restarting"|"busy"
 *   |"signed_out"|"not_found"|"outdated"} ConnectionStatus
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
 *   canRemember: boolean,
 *   host: string,
 *   description: string,
 *   expiresAt: number|null,
 *   decision: string,
 *   by: string,
 *   reason: string,
 *   remember: boolean,
 * }>} Approval What people are asked about a call; `expiresAt` in monotonic ms, `decision` empty while nobody has decided.
 *
 * @typedef {Readonly<{
 *   toolId: string,
 *   name: string,
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
 *   result: string|null,
 *   isError: boolean,
 *   errorType: string,
 *   durationMs: number|null,
 *   endedBy: EndedBy|null,
 *   stoppingAt: number|null,
 *   expectedMs: number|null,
 *   late: Readonly<{kind: string, afterMs: number|null}>|null,
 *   approval: Approval|null,
 *   isDeciding: boolean,
 *   limitChange: LimitChange|null,
 *   subAgent: SubAgent|null,
 * }>} Call One tool call. `elapsedMs` was true at `elapsedAt` (monotonic ms).
 *
 * @typedef {Readonly<{turnId: string, call: Call}>} Question What a sub-agent asks; its turn is one of another conversation.
 * @typedef {Readonly<{conversationId: string, standing: string, askedIn: ReadonlyArray<string>}>} OtherConversation How another
 *   conversation stands that is not at rest, and the conversation of each of its open questions.
 * @typedef {Readonly<{id: string, title: string, standing: string}>} ListedConversation What a list shows of a conversation;
 *   empty = not said, at rest.
 * @typedef {Readonly<{said: string, text: string, source: string}>} Acknowledgement A cancel word and the answer to it, which came
 *   after the end of its turn and are no messages.
 * @typedef {Readonly<{timeoutMs: number|null, isIdle: boolean, by: string}>} LimitChange The limit that was moved last; `isIdle`:
 *   the one of its silence alone.
 * @typedef {Readonly<{agent: string, conversationId: string}>} SubAgent Who was set to work by a call, and where.
 *
 * @typedef {Readonly<{kind: "user"|"agent", key: string, text: string, html: string, at: string,
 *   interrupted: boolean, streaming: boolean}>} TextItem
 * @typedef {Readonly<{kind: "call", key: string, toolId: string}>} CallItem
 * @typedef {Readonly<{kind: "report", key: string, text: string, html: string, status: string, subAgent: SubAgent}>} ReportItem
 * @typedef {TextItem|CallItem|ReportItem} Item
 *
 * @typedef {Readonly<{
 *   id: string,
 *   status: string,
 *   isBegun: boolean,
 *   items: ReadonlyArray<Item>,
 *   calls: Readonly<Record<string, Call>>,
 *   partial: string,
 *   partialLength: number,
 *   needsResync: boolean,
 *   elapsedMs: number,
 *   elapsedAt: number,
 *   timeoutMs: number|null,
 *   endedBy: EndedBy|null,
 *   errorCode: string,
 *   errorMessage: string,
 *   repairs: number,
 *   stoppingAt: number|null,
 *   retry: Readonly<{reason: string, at: number}>|null,
 *   source: string,
 *   acknowledgements: ReadonlyArray<Acknowledgement>,
 * }>} Turn `partialLength` counts code points, as the server's `offset` does; a JS string's length does not. `retry`: why
 *   and when (monotonic ms) the model is asked again.
 *
 * @typedef {Readonly<{clientId: string, text: string, turnId: string|null}>} PendingMessage Typed here, not yet seen in
 *   the server's log; `turnId` once the server has taken it.
 * @typedef {Readonly<{kind: "cancel_turn"|"cancel_tool"|"set_deadline"|"decide_tool"|"continue_turn"|"resume_conversation", opId: string, turnId: string,
 *   toolId: string, extendMs: number, decision?: "approve"|"deny", remember?: boolean, reason?: string}>} Operation Asked for here, not yet answered with `op_result`.
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
 *   questions: ReadonlyArray<Question>,
 *   connection: ConnectionState,
 *   skewMs: number|null,
 * }>} State `skewMs` is the smallest seen difference of this clock and the server's, transport included.
 *
 * @typedef {Readonly<{now: number, wall: number}>} Clock `performance.now()` and `Date.now()` of one moment.
 *
 * @typedef {import("../net/wire.js").ServerFrame} Frame
 * @typedef {import("../net/wire.js").SnapshotFrame} EarlierMessages The same shape, for the messages before those shown.
 * @typedef {{type: "local_message", clientId: string, text: string}
 *   | {type: "local_operation", operation: Operation}
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
