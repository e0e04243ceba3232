/** One turn as the page knows it: its texts, its calls and what happens to them, each change a new value. */

import { callFromWire } from "./calls.js";
import { CLOSED, isCallOver } from "./status.js";
import { reportFrom } from "./sub_agents.js";

/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./types.js").Clock} Clock */
/** @typedef {import("./types.js").Item} Item */
/** @typedef {import("./types.js").TextItem} TextItem */
/** @typedef {import("./types.js").Turn} Turn */
/** @typedef {import("../net/wire.js").AttachmentContent} Attachment */
/** @typedef {import("../net/wire.js").StoredMessage} StoredMessage */
/** @typedef {import("../net/wire.js").TextContent} TextContent */
/** @typedef {import("../net/wire.js").ToolUseContent} ToolUseContent */

/** @typedef {Readonly<Pick<StoredMessage, "role"|"content"|"html"> & {at?: string, interrupted?: boolean, step?: number}>} Message */

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

/** The files of what a person has said in a turn. @param {Turn|undefined} turn @returns {ReadonlyArray<Attachment>} */
export function attachmentsOf(turn) {
  const said = turn?.items.find((item) => item.kind === "user");
  return said?.kind === "user" ? said.attachments : [];
}

/**
 * Add a message's text and its calls, in the order of its blocks. Messages that only carry results add nothing:
 * results arrive with their calls.
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
  const hasFiles = message.content.some(isAttachment);
  if ((text.trim() || hasFiles) && !(isUser && isShown(turn, text))) {
    next = { ...next, items: [...next.items, textItem(isUser ? "user" : "agent", key, text, message)] };
  }
  for (const block of message.content) {
    if (block.type !== "tool_use" || next.calls[block.id]) continue;
    const { id, name, title, input } = block;
    next = addCall(next, callFromWire({ tool_id: id, tool_name: name, tool_title: title, input }, clock));
  }
  return next;
}

/** Nothing is streaming. */
const NO_TEXT = { partial: "", partialLength: 0, blocks: [] };

/** The message of a step takes the place of its streamed text. @param {Turn} turn @param {number} [step] @returns {Turn} */
function withoutPartial(turn, step = 0) {
  const finishedStep = Math.max(turn.finishedStep, step);
  return { ...turn, ...NO_TEXT, finishedStep, needsResync: false };
}

/** Add what sub-agents have reported, each once. @param {Turn} turn @param {ReadonlyArray<import("../net/wire.js").SubAgentReport>} wires @returns {Turn} */
export function addReports(turn, wires) {
  const reports = new Map(wires.map((wire) => [`r${wire.turn_id}`, reportFrom(wire)]));
  for (const item of turn.items) reports.delete(item.key);
  return reports.size ? { ...turn, items: [...turn.items, ...reports.values()] } : turn;
}

/** Add the answer to a cancel word. @param {Turn} turn @param {import("../net/wire.js").AnsweredCancelWord} wire @returns {Turn} */
export function addAcknowledgement(turn, { said, text, source }) {
  return { ...turn, acknowledgements: [...turn.acknowledgements, { said, text, source }] };
}

/** Whether a user's text is in the turn already: `turn_start` and `message` may both bring it. @param {Turn} turn @param {string} text */
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

/** Add a call, or replace what is known of it as long as it has not ended. @param {Turn} turn @param {Call} call @returns {Turn} */
export function addCall(turn, call) {
  const known = turn.calls[call.toolId];
  if (known && isCallOver(known.status)) return turn;
  const items = known
    ? turn.items
    : [...turn.items, { kind: /** @type {const} */ ("call"), key: `c${call.toolId}`, toolId: call.toolId }];
  return {
    ...turn,
    items,
    calls: { ...turn.calls, [call.toolId]: { ...call, ...keptOf(call, known) } },
  };
}

/** What a call keeps when news of it come as a whole. @param {Call} call @param {Call|undefined} known */
const keptOf = (call, known) => ({
  stoppingAt: call.stoppingAt ?? known?.stoppingAt ?? null,
  approval: call.approval ?? known?.approval ?? null,
  title: call.title || (known?.title ?? ""),
});

/** @param {Turn} turn @param {string|undefined} toolId @param {(call: Call) => Call} change @returns {Turn} */
export function updateCall(turn, toolId, change) {
  const call = toolId === undefined ? undefined : turn.calls[toolId];
  if (!call || toolId === undefined) return turn;
  const changed = change(call);
  return changed === call ? turn : { ...turn, calls: { ...turn.calls, [toolId]: changed } };
}

/** No call outlives its turn on the page. @param {Turn} turn @returns {Turn} */
export const closeOpenCalls = (turn) =>
  changeOpenCalls(keepPartial(turn), (call) => ({ ...call, status: CLOSED, stoppingAt: null }));

/** A turn that is being ended ends its calls. @param {Turn} turn @param {number} now @returns {Turn} */
export const stopOpenCalls = (turn, now) =>
  changeOpenCalls(turn, (call) => ({ ...call, stoppingAt: call.stoppingAt ?? now }));

/** @param {Turn} turn @param {(call: Call) => Call} change @returns {Turn} */
function changeOpenCalls(turn, change) {
  const calls = Object.entries(turn.calls).map(([id, call]) => [id, isCallOver(call.status) ? call : change(call)]);
  return { ...turn, calls: Object.fromEntries(calls) };
}

/** Text that no finished message replaced stays as it was shown, marked as cut off (H2). @param {Turn} turn @returns {Turn} */
function keepPartial(turn) {
  if (!turn.partial.trim()) return turn;
  const html = turn.blocks.map((block) => block.html).join("");
  const cut = textItem("agent", `p${turn.items.length}`, turn.partial, { interrupted: true, html });
  const item = { ...cut, unstored: turn.partial.slice(renderedLength(turn)) };
  return { ...turn, items: [...turn.items, item], ...NO_TEXT };
}

/**
 * Put a piece of streamed text where it belongs. Offsets count code points. A piece that is known already, or late (its
 * step's message is whole), is dropped. A piece beyond the end marks the turn for a resync.
 * @param {Turn} known
 * @param {Pick<import("../net/wire.js").TextDeltaFrame, "text"|"offset"|"step">} delta
 * @returns {Turn}
 */
export function addDelta(known, delta) {
  if (known.status !== "running" && known.status !== "cancelling") return known;
  if (delta.step !== undefined && delta.step <= known.finishedStep) return known;
  const turn = withoutRetry(known);
  const points = Array.from(delta.text);
  const { offset } = delta;
  if (offset === 0) return startedAnew(turn, points);
  if (offset > turn.partialLength) return turn.needsResync ? turn : { ...turn, needsResync: true };
  const fresh = points.slice(turn.partialLength - offset);
  if (fresh.length === 0) return turn;
  return { ...turn, partial: turn.partial + fresh.join(""), partialLength: turn.partialLength + fresh.length };
}

/** All of the text so far; what is rendered stays if the text still begins so. @param {Turn} turn @param {ReadonlyArray<string>} points @returns {Turn} */
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

/** How much of the streaming text is rendered, in a JS string. @param {Turn} turn */
export const renderedLength = ({ blocks }) => blocks.at(-1)?.length ?? 0;

/**
 * Add finished blocks of the streaming text: each once, behind the ones before it.
 * @param {Turn} turn
 * @param {import("../net/wire.js").TextHtmlFrame} frame
 * @returns {Turn}
 */
export function addBlocks(turn, { offset, end, html }) {
  if (offset !== (turn.blocks.at(-1)?.end ?? 0) || end <= offset || end > turn.partialLength) return turn;
  let length = renderedLength(turn);
  for (let left = end - offset; left > 0; left -= 1) length += (turn.partial.codePointAt(length) ?? 0) > 0xffff ? 2 : 1;
  return { ...turn, blocks: [...turn.blocks, { end, length, html }] };
}

/** What went wrong, and when it is tried again. @param {Turn} turn @param {Readonly<{code: string, message: string, reason?: string, wait_ms?: number|null}>} told @param {number} saidAt monotonic ms @returns {Turn} */
export function withNotice(turn, told, saidAt) {
  const { code, message, reason, wait_ms: wait } = told;
  const retry = wait == null ? null : { reason: reason ?? "", at: saidAt + wait };
  return { ...turn, errorCode: code, errorMessage: message, retry };
}

/** The note that a request is repeated is over with the answer, and with the turn. @param {Turn} turn @returns {Turn} */
export function withoutRetry(turn) {
  return turn.errorCode === "retrying" ? { ...turn, errorCode: "", errorMessage: "", retry: null } : turn;
}

/** @param {ReadonlyArray<Turn>} turns @param {string|undefined} id @param {(turn: Turn) => Turn} change @returns {ReadonlyArray<Turn>} */
export function mapTurn(turns, id, change) {
  const place = turns.findLastIndex((turn) => turn.id === id); // the one that changes is one of the last
  const turn = turns[place];
  const changed = turn && change(turn);
  if (!changed || changed === turn) return turns;
  const copy = turns.slice();
  copy[place] = changed;
  return copy;
}

/**
 * The turns that a new form of a message has replaced: that message's own and all behind it. Where it is not shown, all that
 * are shown stand behind it.
 * @param {ReadonlyArray<Turn>} turns @param {string} from @param {string} by @returns {ReadonlyArray<Turn>}
 */
export function replaced(turns, from, by) {
  const first = turns.findIndex(({ id }) => id === from);
  return turns.map((turn, place) =>
    place < first || turn.id === by || turn.replacedBy ? turn : { ...turn, replacedBy: by },
  );
}

/** What a turn has cost, in and out. @param {Readonly<Record<string, number>>} [usage] */
export const tokensOf = (usage = {}) => (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
