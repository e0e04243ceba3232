/** Creates and updates the page's state of turns, with their texts and calls. Every change creates a new object. */

import { callFromWire } from "./calls.js";
import { visible } from "./hidden_characters.js";
import { CLOSED, isCallOver } from "./status.js";

/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./types.js").Clock} Clock */
/** @typedef {import("./types.js").Item} Item */
/** @typedef {import("./types.js").ReportItem} ReportItem */
/** @typedef {import("./types.js").TextItem} TextItem */
/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("../net/wire.js").AttachmentContent} Attachment */
/** @typedef {import("../net/wire.js").StoredMessage} StoredMessage */
/** @typedef {import("../net/wire.js").TextContent} TextContent */
/** @typedef {import("../net/wire.js").ToolUseContent} ToolUseContent */

/** @typedef {Readonly<Pick<StoredMessage, "role"|"content"|"html"> & {at?: string, interrupted?: boolean, step?: number, thoughts?: import("../net/wire.js").Thoughts|null}>} Message */

/** @param {string} id @param {Clock} clock @param {string} [status] @returns {Turn} */
export function newTurn(id, clock, status = "running") {
  return {
    id,
    status,
    isBegun: status !== "queued",
    items: [],
    calls: {},
    partial: "",
    partialLength: 0,
    blocks: [],
    thoughts: "",
    thoughtsLength: 0,
    finishedStep: 0,
    needsResync: false,
    elapsedMs: 0,
    elapsedAt: clock.now,
    timeoutMs: null,
    endedBy: null,
    errorCode: "",
    durationMs: null,
    tokens: 0,
    errorMessage: "",
    repairs: 0,
    promptChange: "",
    summary: "",
    fullness: 0,
    stoppingAt: null,
    endsAfterStep: false,
    retry: null,
    source: "",
    agent: "",
    version: 1,
    replacedBy: "",
    acknowledgements: [],
  };
}

/** @param {string} text @param {string} [at] @param {ReadonlyArray<Attachment>|null} [attachments] @returns {Message} */
export const userMessage = (text, at, attachments = null) => ({
  role: "user",
  content: [...(attachments ?? []), { type: "text", text }],
  at,
});

/** Return the files of a person's message in a turn. @param {Turn|undefined} turn @returns {ReadonlyArray<Attachment>} */
export function attachmentsOf(turn) {
  const message = turn?.items.find((item) => item.kind === "user");
  return message?.kind === "user" ? message.attachments : [];
}

/**
 * Add a message's text and its calls, in the order of its blocks. Messages that contain only results add nothing,
 * because results arrive with their calls.
 * @param {Turn} turn
 * @param {Message} message
 * @param {string} key
 * @param {Clock} [clock]
 * @returns {Turn}
 */
export function addMessage(turn, message, key, clock = { now: 0, wall: 0 }) {
  const texts = message.content.filter((block) => block.type === "text");
  const text = texts.map((block) => (block.sub_agent ? "" : block.text)).join("");
  const isUser = message.role === "user";
  const reports = texts.flatMap((block) => block.sub_agent ?? []);
  let next = isUser ? addReports(turn, reports) : withoutPartial(turn, message.step);
  if (message.thoughts) next = { ...next, items: [...next.items, thoughtsItem(message.thoughts, key)] };
  const hasFiles = message.content.some(isAttachment);
  if ((text.trim() || hasFiles) && !(isUser && isShown(turn, text))) {
    next = { ...next, items: [...next.items, textItem(isUser ? "user" : "agent", key, text, message)] };
  }
  for (const block of message.content) {
    if (block.type !== "tool_use" || next.calls[block.id]) continue;
    const { id, name, title } = block;
    next = addCall(
      next,
      callFromWire({ tool_id: id, tool_name: name, tool_title: title, arguments: block.arguments }, clock),
    );
  }
  return next;
}

/** The fields of a turn without streaming text. */
const NO_TEXT = { partial: "", partialLength: 0, blocks: [], thoughts: "", thoughtsLength: 0 };

/** @param {import("../net/wire.js").Thoughts} wire @param {string} key @returns {import("./types.js").ThoughtsItem} */
const thoughtsItem = ({ text, duration_ms: durationMs }, key) => ({
  kind: "thoughts",
  key: `t${key}`,
  text,
  durationMs,
});

/**
 * Remove the streamed text of a step, because its message replaces it.
 * @param {Turn} turn
 * @param {number} [step]
 * @returns {Turn}
 */
function withoutPartial(turn, step = 0) {
  const finishedStep = Math.max(turn.finishedStep, step);
  return { ...turn, ...NO_TEXT, finishedStep, needsResync: false };
}

/** Add the reports of sub-agents, each only once. @param {Turn} turn @param {ReadonlyArray<import("../net/wire.js").SubAgentReport>} wires @returns {Turn} */
export function addReports(turn, wires) {
  const reports = new Map(wires.map((wire) => [`r${wire.turn_id}`, reportFrom(wire)]));
  for (const item of turn.items) reports.delete(item.key);
  return reports.size ? { ...turn, items: [...turn.items, ...reports.values()] } : turn;
}

/** @param {import("../net/wire.js").SubAgentReport} wire @returns {ReportItem} */
function reportFrom(wire) {
  return {
    kind: "report",
    key: `r${wire.turn_id}`,
    text: wire.text,
    html: wire.html ?? "",
    status: wire.status,
    subAgent: { agent: visible(wire.agent), conversationId: wire.conversation_id },
  };
}

/**
 * Add the acknowledgement of a cancel word.
 * @param {Turn} turn
 * @param {import("../net/wire.js").AnsweredCancelWord} wire
 * @returns {Turn}
 */
export function addAcknowledgement(turn, { said, text, source }) {
  return { ...turn, acknowledgements: [...turn.acknowledgements, { said, text, source }] };
}

/**
 * Return whether the turn already contains the user's text. Both `turn_start` and `message` may contain it.
 * @param {Turn} turn
 * @param {string} text
 */
const isShown = (turn, text) => turn.items.some((item) => item.kind === "user" && item.text.trim() === text.trim());

/** @param {Message["content"][number]} block @returns {block is Attachment} */
const isAttachment = (block) => block.type === "image" || block.type === "document";

/** @param {"user"|"agent"} kind @param {string} key @param {string} text @param {Partial<Message>} message @returns {TextItem} */
function textItem(kind, key, text, message) {
  return {
    kind,
    key,
    text: text.trim() ? text : "",
    attachments: (message.content ?? []).filter(isAttachment),
    html: (kind === "agent" && message.html) || "",
    at: message.at ?? "",
    interrupted: message.interrupted ?? false,
    unstored: null,
    streaming: false,
  };
}

/** Add a call to a turn, or replace it unless it has ended. @param {Turn} turn @param {Call} call @returns {Turn} */
export function addCall(turn, call) {
  const before = turn.calls[call.toolId];
  if (before && isCallOver(before.status)) return turn;
  const items = before
    ? turn.items
    : [...turn.items, { kind: /** @type {const} */ ("call"), key: `c${call.toolId}`, toolId: call.toolId }];
  return {
    ...turn,
    items,
    calls: { ...turn.calls, [call.toolId]: { ...call, ...keptOf(call, before) } },
  };
}

/** Return the fields that a call keeps when it is replaced. @param {Call} call @param {Call|undefined} before */
const keptOf = (call, before) => ({
  stoppingAt: call.stoppingAt ?? before?.stoppingAt ?? null,
  approval: call.approval ?? before?.approval ?? null,
  title: call.title || (before?.title ?? ""),
});

/** @param {Turn} turn @param {string|undefined} toolId @param {(call: Call) => Call} change @returns {Turn} */
export function updateCall(turn, toolId, change) {
  const call = toolId === undefined ? undefined : turn.calls[toolId];
  if (!call || toolId === undefined) return turn;
  const changed = change(call);
  return changed === call ? turn : { ...turn, calls: { ...turn.calls, [toolId]: changed } };
}

/** Close all open calls of an ended turn, and keep its streamed text. @param {Turn} turn @returns {Turn} */
export const closeOpenCalls = (turn) =>
  changeOpenCalls(keepPartial(turn), (call) => ({ ...call, status: CLOSED, stoppingAt: null }));

/** Mark the calls of a stopping turn as stopping. @param {Turn} turn @param {number} now @returns {Turn} */
export const stopOpenCalls = (turn, now) =>
  changeOpenCalls(turn, (call) => ({ ...call, stoppingAt: call.stoppingAt ?? now }));

/** @param {Turn} turn @param {(call: Call) => Call} change @returns {Turn} */
function changeOpenCalls(turn, change) {
  const calls = Object.entries(turn.calls).map(([id, call]) => [id, isCallOver(call.status) ? call : change(call)]);
  return { ...turn, calls: Object.fromEntries(calls) };
}

/**
 * Turn streamed text without a complete message into an item that is marked as cut off (H2).
 * @param {Turn} turn
 * @returns {Turn}
 */
function keepPartial(turn) {
  if (!turn.partial.trim()) return turn.thoughts ? { ...turn, ...NO_TEXT } : turn;
  const html = turn.blocks.map((block) => block.html).join("");
  const cut = textItem("agent", `p${turn.items.length}`, turn.partial, { interrupted: true, html });
  const item = { ...cut, unstored: turn.partial.slice(renderedLength(turn)) };
  return { ...turn, items: [...turn.items, item], ...NO_TEXT };
}

/**
 * Insert a piece of streamed text. Offsets count code points. A repeated piece is dropped, and so is a late one whose
 * message is complete. A piece beyond the end of the text marks the turn for a resync.
 * @param {Turn} before
 * @param {Pick<import("../net/wire.js").TextDeltaFrame, "text"|"offset"|"step">} delta
 * @returns {Turn}
 */
export function addDelta(before, delta) {
  if (before.status !== "running" && before.status !== "cancelling") return before;
  if (delta.step !== undefined && delta.step <= before.finishedStep) return before;
  const turn = withoutRetry(before);
  const points = Array.from(delta.text);
  const { offset } = delta;
  if (offset === 0) return startedAnew(turn, points);
  if (offset > turn.partialLength) return turn.needsResync ? turn : { ...turn, needsResync: true };
  const newPoints = points.slice(turn.partialLength - offset);
  if (newPoints.length === 0) return turn;
  return { ...turn, partial: turn.partial + newPoints.join(""), partialLength: turn.partialLength + newPoints.length };
}

/**
 * Insert a piece of the streamed thoughts. Lost pieces cannot be requested, so an ellipsis replaces them until the
 * message arrives.
 * @param {Turn} before
 * @param {Pick<import("../net/wire.js").ThoughtDeltaFrame, "text"|"offset"|"step">} delta
 * @returns {Turn}
 */
export function addThoughts(before, { text, offset, step }) {
  if (before.status !== "running" || step <= before.finishedStep) return before;
  const turn = withoutRetry(before);
  const points = Array.from(text);
  const end = offset + points.length;
  if (offset === 0) return { ...turn, thoughts: text, thoughtsLength: end };
  if (offset > turn.thoughtsLength) return { ...turn, thoughts: `${turn.thoughts}… ${text}`, thoughtsLength: end };
  const newText = points.slice(turn.thoughtsLength - offset).join("");
  return newText ? { ...turn, thoughts: turn.thoughts + newText, thoughtsLength: end } : turn;
}

/**
 * Set the whole text so far. The rendered blocks are kept if the text still begins with them.
 * @param {Turn} turn
 * @param {ReadonlyArray<string>} points
 * @returns {Turn}
 */
function startedAnew(turn, points) {
  const partial = points.join("");
  const isKept = partial.startsWith(turn.partial.slice(0, renderedLength(turn)));
  return {
    ...turn,
    partial,
    partialLength: points.length,
    blocks: isKept ? turn.blocks : [],
    needsResync: false,
  };
}

/** Return the length of the rendered part of the streaming text, as the length of a JS string. @param {Turn} turn */
export const renderedLength = ({ blocks }) => blocks.at(-1)?.length ?? 0;

/**
 * Add finished blocks of the streaming text. Blocks that are repeated or out of order are ignored.
 * @param {Turn} turn
 * @param {import("../net/wire.js").TextHtmlFrame} frame
 * @returns {Turn}
 */
export function addBlocks(turn, { offset, end, html }) {
  if (offset !== (turn.blocks.at(-1)?.end ?? 0) || end <= offset || end > turn.partialLength) return turn;
  let length = renderedLength(turn);
  for (let remaining = end - offset; remaining > 0; remaining -= 1)
    length += (turn.partial.codePointAt(length) ?? 0) > 0xffff ? 2 : 1;
  return { ...turn, blocks: [...turn.blocks, { end, length, html }] };
}

/**
 * Return the turn with a notice, and with the reason and time of the next retry if the notice announces one.
 * @param {Turn} turn
 * @param {Readonly<{code: string, message: string, reason?: string, wait_ms?: number|null}>} notice
 * @param {number} saidAt monotonic ms
 * @returns {Turn}
 */
export function withNotice(turn, notice, saidAt) {
  const { code, message, reason, wait_ms: wait } = notice;
  const retry = wait == null ? null : { reason: reason ?? "", at: saidAt + wait };
  return { ...turn, errorCode: code, errorMessage: message, retry };
}

/**
 * Remove the notice of a retry, because the answer or the end of the turn has arrived.
 * @param {Turn} turn
 * @returns {Turn}
 */
export function withoutRetry(turn) {
  return turn.errorCode === "retrying" ? { ...turn, errorCode: "", errorMessage: "", retry: null } : turn;
}

/** @param {ReadonlyArray<Turn>} turns @param {string|undefined} id @param {(turn: Turn) => Turn} change @returns {ReadonlyArray<Turn>} */
export function mapTurn(turns, id, change) {
  const place = turns.findLastIndex((turn) => turn.id === id); // searched from the end, because a changed turn is usually one of the last
  const turn = turns[place];
  const changed = turn && change(turn);
  if (!changed || changed === turn) return turns;
  const copy = turns.slice();
  copy[place] = changed;
  return copy;
}

/**
 * Mark the turns that an edited message replaces: the turn of the original message and all later ones. If that turn is
 * not shown, all shown turns are later ones.
 * @param {ReadonlyArray<Turn>} turns @param {string} from @param {string} by @returns {ReadonlyArray<Turn>}
 */
export function replaced(turns, from, by) {
  const first = turns.findIndex(({ id }) => id === from);
  return turns.map((turn, place) =>
    place < first || turn.id === by || turn.replacedBy ? turn : { ...turn, replacedBy: by },
  );
}

/**
 * Return the share of the model's context window that is used after the last step of a turn, from 0 to 1. It is 0 if it
 * is unknown.
 * @param {Readonly<Record<string, number>>} [usage]
 */
export const fullnessOf = (usage = {}) =>
  usage.context_window ? Math.min((usage.context_tokens ?? 0) / usage.context_window, 1) : 0;

/** Return the number of input and output tokens of a turn. @param {Readonly<Record<string, number>>} [usage] */
export const tokensOf = (usage = {}) => (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
