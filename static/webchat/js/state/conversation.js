/** One open conversation: holds its state, feeds the reducer, and carries what the person asks for to the server. */

import { Backoff } from "../net/backoff.js";
import { Connection } from "../net/connection.js";
import { fetchEarlier } from "../net/fetch_earlier.js";
import { disagreement, GRACE_MS } from "./heartbeat.js";
import { activeTurn, INITIAL_STATE, isBusy, reduce } from "./reducer.js";
import { isStopUnderWay } from "./status.js";
import { attachmentsOf } from "./turns.js";

/** @typedef {import("./outbox.js").Outbox} Outbox */
/** @typedef {import("./types.js").Attachment} Attachment */
/** @typedef {import("./types.js").Frame} Frame */
/** @typedef {import("./types.js").LocalEvent} LocalEvent */
/** @typedef {import("./types.js").Operation} Operation */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Turn} Turn */

/** The protocol's limit for one frame is 64 KiB; the rest of the frame needs some of it. */
const MAX_TEXT_BYTES = 60_000;

/** The page's model: `onChange` is told of every new state. */
export class Conversation {
  /** @type {State} */
  #state = INITIAL_STATE;
  #onChange;
  #onRefused;
  #connection;
  /** Where a gap was last seen: if asking from there did not help, only a whole snapshot does. @type {number|null} */
  #gapAt = null;
  #outbox;
  /** The texts that are wanted back, by the operation that takes them out of the queue. @type {Map<string, {text: string, attachments: ReadonlyArray<Attachment>}>} */
  #withdrawn = new Map();
  /** When what a failing server has not answered goes out again. */
  #again = new Backoff(() => this.#sendAgain());

  /** @param {(before: State, after: State) => void} onChange @param {(text: string, attachments: ReadonlyArray<Attachment>) => void} onRefused @param {Outbox} outbox */
  constructor(onChange, onRefused, outbox) {
    this.#onChange = onChange;
    this.#onRefused = onRefused;
    this.#outbox = outbox;
    this.#connection = new Connection({
      lastSeq: () => (this.#state.phase === "ready" ? this.#state.lastSeq : null),
      onFrame: (frame) => this.#receive(frame),
      onStatus: (status) => this.#apply({ type: "local_connection", status }),
    });
  }

  get state() {
    return this.#state;
  }

  get connection() {
    return this.#connection;
  }

  /** Open the line to the server. @param {string} url */
  connect(url) {
    this.#connection.start(url);
  }

  /** There is no conversation on the server yet, and nothing to wait for. */
  begin() {
    this.#apply({ type: "local_new" });
  }

  /** The line cannot be opened yet. @param {"reconnecting"|"signed_out"} status */
  wait(status) {
    this.#apply({ type: "local_connection", status });
  }

  /** The server wants no such conversation: what was written for it goes back. @param {string} problem */
  refuse(problem) {
    const { pendingMessages } = this.#state;
    this.begin();
    this.#apply({ type: "local_refused", problem });
    for (const { text, attachments = [] } of pendingMessages) this.#onRefused(text, attachments);
  }

  /** Take over what was promised before the page was loaded anew. */
  restore() {
    for (const kept of this.#outbox.read()) this.#apply({ type: "local_message", ...kept });
  }

  /** Whether something was promised that the server does not have yet. */
  get hasUnsent() {
    return this.#state.pendingMessages.some(({ turnId }) => turnId === null);
  }

  /** Whether this text is on its way: the server has not made a turn of it yet. @param {string} text */
  isPending(text) {
    return this.#state.pendingMessages.some((message) => message.text === text);
  }

  /** @param {string} text @param {"typed"|"voice"} [source] @param {string} [replaces] the turn whose message it is a new form of @param {ReadonlyArray<Attachment>} [attachments] @returns {boolean} whether the text was taken */
  send(text, source = "typed", replaces, attachments = []) {
    if (replaces && isBusy(this.#state)) {
      this.#apply({ type: "local_notice", level: "info", key: "edit_busy" });
      return false;
    }
    if (new TextEncoder().encode(JSON.stringify(text)).length > MAX_TEXT_BYTES) {
      this.#apply({ type: "local_notice", level: "error", key: "message_too_long" });
      return false;
    }
    const clientId = newId();
    const files = attachments.length ? { attachments } : {};
    const message = { clientId, text, source, ...(replaces ? { replaces } : {}), ...files };
    this.#apply({ type: "local_message", ...message });
    this.#connection.send(messageFrame(message));
    return true;
  }

  /** Cancel the turn that is at work (C2), without one what works in the background. Asking twice is one request, until the first has had its time. @param {"now"|"after_step"} [mode] */
  cancelTurn(mode = "now") {
    const turn = activeTurn(this.#state);
    const meant = turn ? [{ ...turn, turnId: turn.id }] : mode === "now" ? this.#state.background : [];
    for (const each of meant) this.#stop(each, mode);
  }

  /** Cancel the turn of a sub-agent that works in the background. @param {string} turnId */
  stopWork(turnId) {
    const work = this.#state.background.find((known) => known.turnId === turnId);
    if (work) this.#stop(work, "now");
  }

  /** @param {{turnId: string, stoppingAt: number|null}} meant @param {"now"|"after_step"} mode */
  #stop(meant, mode) {
    const { frozenAt } = this.#state.connection;
    if (isStopUnderWay(meant, { now: performance.now(), frozenAt })) return;
    this.#cancel({ kind: "cancel_turn", turnId: meant.turnId, mode });
  }

  /** Take a message out of the queue, unless its turn has begun; `text` is given back once it is out. @param {string} turnId @param {string|null} [text] */
  withdraw(turnId, text = null) {
    if (this.#asked({ kind: "cancel_turn", turnId, mode: "queued" })) return;
    const opId = this.#ask({ kind: "cancel_turn", turnId, mode: "queued" });
    const turn = this.#state.turns.find(({ id }) => id === turnId);
    if (text !== null) this.#withdrawn.set(opId, { text, attachments: attachmentsOf(turn) });
  }

  /** @param {string} turnId @param {string} toolId */
  cancelTool(turnId, toolId) {
    this.#cancel({ kind: "cancel_tool", turnId, toolId });
  }

  /** @param {string} turnId @param {string} toolId @param {number} extendMs */
  extend(turnId, toolId, extendMs) {
    this.#ask({ kind: "set_deadline", turnId, toolId, extendMs });
  }

  /** Let the agent go on after a turn that was interrupted; asking twice is one request. @param {string} turnId */
  continueTurn(turnId) {
    this.#askOnce({ kind: "continue_turn", turnId });
  }

  /** Let a parked conversation go on. */
  resume() {
    this.#askOnce({ kind: "resume_conversation", turnId: "" });
  }

  /** @param {string} turnId @param {string} toolId @param {import("../view/question_panel.js").Decision} decided */
  decide(turnId, toolId, decided) {
    this.#ask({ kind: "decide_tool", turnId, toolId, ...decided });
  }

  /** Ask for the messages before the first one. @param {string} url @returns {Promise<number>} how many came */
  async showEarlier(url) {
    const { earliest: before, hasEarlier, isLoadingEarlier } = this.#state;
    if (before === null || !hasEarlier || isLoadingEarlier) return 0;
    this.#apply({ type: "local_earlier_asked" });
    try {
      const frame = await fetchEarlier(url, before);
      this.#apply({ type: "local_earlier", before, frame });
      return frame.messages.length;
    } catch {
      this.#apply({ type: "local_earlier_failed" });
      return 0;
    }
  }

  dismissNotice() {
    this.#apply({ type: "local_notice_closed" });
  }

  /** @param {{kind: Operation["kind"], turnId: string}} wanted */
  #askOnce(wanted) {
    if (!this.#asked(wanted)) this.#ask(wanted);
  }

  /** What has no answer yet is asked again under its id, at once. @param {{kind: Operation["kind"], turnId: string, toolId?: string, mode?: Operation["mode"]}} wanted */
  #cancel(wanted) {
    const asked = this.#asked(wanted);
    if (asked) this.#connection.send(operationFrame(asked));
    else this.#ask(wanted);
  }

  /** @param {{kind: Operation["kind"], turnId: string, toolId?: string, mode?: Operation["mode"]}} wanted */
  #asked({ kind, turnId, toolId = "", mode }) {
    return this.#state.operations.find(
      (known) => known.kind === kind && known.turnId === turnId && known.toolId === toolId && known.mode === mode,
    );
  }

  /** @param {Partial<Operation> & {kind: Operation["kind"], turnId: string}} wanted @returns {string} the id of the operation */
  #ask(wanted) {
    const operation = { toolId: "", extendMs: 0, ...wanted, opId: newId() };
    this.#apply({ type: "local_operation", operation });
    this.#connection.send(operationFrame(operation));
    return operation.opId;
  }

  /** A message that is out of the queue goes back to whoever wants to edit it. @param {import("../net/wire.js").OpResultFrame} frame */
  #giveBackWithdrawn({ op_id: opId, outcome }) {
    const wanted = this.#withdrawn.get(opId);
    this.#withdrawn.delete(opId);
    if (wanted && outcome === "accepted") this.#onRefused(wanted.text, wanted.attachments);
  }

  /** @param {Frame} frame */
  #receive(frame) {
    const before = this.#state;
    this.#apply(frame);
    if (frame.type === "welcome" && this.#isSomebodyElse(frame.user)) this.#connection.leave("other_user");
    else if (frame.type === "welcome") this.#sendAgain();
    if (frame.type === "error") this.#giveBack(before, frame);
    if (frame.type === "error" && frame.code === "server_error") this.#again.plan();
    if (frame.type === "op_result" || frame.type === "message_result") this.#again.reset();
    if (frame.type === "op_result") this.#giveBackWithdrawn(frame);
    if (frame.type === "heartbeat") this.#compare(frame);
    if (this.#state.gap) this.#fillGap();
    for (const turn of this.#state.turns) {
      const isAsked = () => before.turns.find(({ id }) => id === turn.id)?.needsResync;
      if (turn.needsResync && !isAsked()) this.#askForText(turn);
    }
  }

  /** What has no answer yet goes out again; the server knows a repeated id (same turn, same answer). */
  #sendAgain() {
    for (const message of unsent(this.#state)) this.#connection.send(messageFrame(message));
    for (const operation of this.#state.operations) this.#connection.send(operationFrame(operation));
    const turn = activeTurn(this.#state);
    if (turn?.needsResync) this.#askForText(turn);
  }

  /** @param {Turn} turn */
  #askForText(turn) {
    this.#connection.send({ type: "resync", turn_id: turn.id });
  }

  /** A refused message goes back to whoever wrote it. @param {State} before @param {import("../net/wire.js").ProblemFrame} frame */
  #giveBack(before, frame) {
    const isRefused = (/** @type {State} */ { pendingMessages }) =>
      pendingMessages.every(({ clientId }) => clientId !== frame.client_id);
    const refused = before.pendingMessages.find((message) => message.clientId === frame.client_id);
    if (refused && isRefused(this.#state)) this.#onRefused(refused.text, refused.attachments ?? []);
  }

  #fillGap() {
    const { lastSeq } = this.#state;
    const whole = this.#gapAt === lastSeq;
    this.#gapAt = lastSeq;
    this.#connection.catchUp({ whole });
  }

  /** @param {import("../net/wire.js").HeartbeatFrame} heartbeat */
  #compare(heartbeat) {
    if (disagreement(this.#state, heartbeat) === null) return;
    setTimeout(() => {
      const still = disagreement(this.#state, heartbeat);
      if (still !== null && this.#connection.isReady) this.#connection.catchUp({ whole: still === "different" });
    }, GRACE_MS);
  }

  /** @param {Frame|LocalEvent} event */
  #apply(event) {
    const before = this.#state;
    this.#state = reduce(before, event, { now: performance.now(), wall: Date.now() });
    if (this.#state === before) return;
    if (this.#state.pendingMessages !== before.pendingMessages) this.#outbox.write(unsent(this.#state));
    this.#onChange(before, this.#state);
  }

  /** Nothing of one user is ever sent under another. @param {string} user */
  #isSomebodyElse(user) {
    return this.#outbox.user !== "" && this.#outbox.user !== user;
  }
}

/** An id that nobody else makes. `crypto.randomUUID` would do, but a plain http:// address of a local network has none. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What the server has not confirmed. @param {State} state */
const unsent = ({ pendingMessages }) =>
  pendingMessages.flatMap(({ turnId, ...message }) => (turnId === null ? message : []));

/** @param {import("./outbox.js").Kept} message @returns {import("../net/wire.js").MessageFrame} */
const messageFrame = ({ clientId, text, source, replaces, attachments }) => ({
  type: "message",
  client_id: clientId,
  text,
  source,
  ...(replaces ? { replaces } : {}),
  ...(attachments ? { attachments: attachments.map(({ attachment_id: id }) => id) } : {}),
});

/** @param {Operation} operation @returns {import("../net/wire.js").ClientFrame} */
function operationFrame({
  kind,
  opId,
  turnId,
  toolId,
  extendMs,
  mode = "now",
  decision = "deny",
  remember,
  reason = "",
}) {
  const turn = { op_id: opId, turn_id: turnId };
  const call = { ...turn, tool_id: toolId };
  switch (kind) {
    case "resume_conversation":
      return { type: kind, op_id: opId };
    case "cancel_turn":
      return { type: kind, ...turn, mode };
    case "continue_turn":
      return { type: kind, ...turn };
    case "cancel_tool":
      return { type: kind, ...call };
    case "set_deadline":
      return { type: kind, ...call, extend_ms: extendMs };
    case "decide_tool":
      return { type: kind, ...call, decision, remember: remember ? "conversation" : null, reason };
  }
}
