/** An open conversation: its state, which the reducer changes, and the person's requests to the server. */

import { fetchEarlier } from "../net/api.js";
import { Backoff } from "../net/backoff.js";
import { Connection } from "../net/connection.js";
import { isServersFault } from "./operations.js";
import { activeTurn, INITIAL_STATE, isBusy, reduce } from "./reducer.js";
import { isStopUnderWay, isTurnOver } from "./status.js";
import { attachmentsOf } from "./turns.js";

/** @typedef {import("./storage.js").Outbox} Outbox */
/** @typedef {import("./types.js").Attachment} Attachment */
/** @typedef {import("./types.js").Frame} Frame */
/** @typedef {import("./types.js").LocalEvent} LocalEvent */
/** @typedef {import("./types.js").Operation} Operation */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Turn} Turn */

/** Below 64 KiB, the protocol's limit for a frame, because the frame also contains other fields. */
const MAX_TEXT_BYTES = 60_000;
/**
 * A heartbeat may arrive before the last events, so only a difference that lasts this long means that events were lost.
 */
export const GRACE_MS = 1_500;

/** The model of a chat. It calls `onChange` with every new state. */
export class Conversation {
  /** @type {State} */
  #state = INITIAL_STATE;
  #onChange;
  #onRefused;
  #connection;
  /**
   * The last event before the last gap. If a resume from there did not help, a whole snapshot is requested.
   * @type {number|null}
   */
  #gapAt = null;
  #outbox;
  /**
   * The messages to return to the composer, by the id of the operation that withdraws them from the queue.
   * @type {Map<string, {text: string, attachments: ReadonlyArray<Attachment>}>}
   */
  #withdrawn = new Map();
  /** Sends unanswered requests again, some time after an error of the server. */
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

  /** Open the connection to the server. @param {string} url */
  connect(url) {
    this.#connection.start(url);
  }

  /** Start with an empty state, because the conversation does not exist on the server yet. */
  begin() {
    this.#apply({ type: "local_new" });
  }

  /** Show why the connection cannot be opened yet. @param {"reconnecting"|"signed_out"} status */
  wait(status) {
    this.#apply({ type: "local_connection", status });
  }

  /**
   * Return the unsent messages to the composer, because the server refused to create the conversation.
   * @param {string} problem
   */
  refuse(problem) {
    const { pendingMessages } = this.#state;
    this.begin();
    this.#apply({ type: "local_refused", problem });
    for (const { text, attachments = [] } of pendingMessages) this.#onRefused(text, attachments);
  }

  /** Load the messages that were not sent before the page was reloaded. */
  restore() {
    for (const message of this.#outbox.read()) this.#apply({ type: "local_message", ...message });
  }

  /** Whether there are messages that the server has not confirmed. */
  get hasUnsent() {
    return this.#state.pendingMessages.some(({ turnId }) => turnId === null);
  }

  /** Return whether a message with this text has been sent but is not in the log yet. @param {string} text */
  isPending(text) {
    return this.#state.pendingMessages.some((message) => message.text === text);
  }

  /** @param {string} text @param {"typed"|"voice"} [source] @param {string} [replaces] the turn whose message it replaces @param {ReadonlyArray<Attachment>} [attachments] @returns {boolean} whether the text was accepted */
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

  /**
   * Cancel the active turn (C2), or the background work if no turn is active. A cancel that is repeated soon sends no
   * second request.
   * @param {"now"|"after_step"} [mode]
   */
  cancelTurn(mode = "now") {
    const turn = activeTurn(this.#state);
    const targets = turn ? [{ ...turn, turnId: turn.id }] : mode === "now" ? this.#state.background : [];
    for (const each of targets) this.#stop(each, mode);
  }

  /** Cancel the turn of a sub-agent in the background. @param {string} turnId */
  stopWork(turnId) {
    const work = this.#state.background.find((item) => item.turnId === turnId);
    if (work) this.#stop(work, "now");
  }

  /** @param {{turnId: string, stoppingAt: number|null}} target @param {"now"|"after_step"} mode */
  #stop(target, mode) {
    const { frozenAt } = this.#state.connection;
    if (isStopUnderWay(target, { now: performance.now(), frozenAt })) return;
    this.#cancel({ kind: "cancel_turn", turnId: target.turnId, mode });
  }

  /**
   * Withdraw a message from the queue, unless its turn has begun. If `text` is passed, it is then returned to the
   * composer.
   * @param {string} turnId
   * @param {string|null} [text]
   */
  withdraw(turnId, text = null) {
    if (this.#pendingOperation({ kind: "cancel_turn", turnId, mode: "queued" })) return;
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

  /** Continue an interrupted turn in a new one. A repeated click sends no second request. @param {string} turnId */
  continueTurn(turnId) {
    this.#askOnce({ kind: "continue_turn", turnId });
  }

  /** Resume a parked conversation. */
  resume() {
    this.#askOnce({ kind: "resume_conversation", turnId: "" });
  }

  /** @param {string} turnId @param {string} toolId @param {import("../view/question_panel.js").Decision} decided */
  decide(turnId, toolId, decided) {
    this.#ask({ kind: "decide_tool", turnId, toolId, ...decided });
  }

  /** @param {string} turnId @param {string} toolId @param {import("./types.js").FormAnswer} answer */
  answer(turnId, toolId, answer) {
    this.#ask({ kind: "answer_tool", turnId, toolId, answer });
  }

  /**
   * Load the messages before the first one.
   * @param {string} url
   * @returns {Promise<number>} the number of loaded messages
   */
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

  /** @param {{kind: Operation["kind"], turnId: string}} operation */
  #askOnce(operation) {
    if (!this.#pendingOperation(operation)) this.#ask(operation);
  }

  /**
   * Send a cancel. If the same cancel is still unanswered, send it again with the same id.
   * @param {{kind: Operation["kind"], turnId: string, toolId?: string, mode?: Operation["mode"]}} operation
   */
  #cancel(operation) {
    const pending = this.#pendingOperation(operation);
    if (pending) this.#connection.send(operationFrame(pending));
    else this.#ask(operation);
  }

  /** @param {{kind: Operation["kind"], turnId: string, toolId?: string, mode?: Operation["mode"]}} wanted */
  #pendingOperation({ kind, turnId, toolId = "", mode }) {
    return this.#state.operations.find(
      (request) =>
        request.kind === kind && request.turnId === turnId && request.toolId === toolId && request.mode === mode,
    );
  }

  /** @param {Partial<Operation> & {kind: Operation["kind"], turnId: string}} fields @returns {string} the id of the operation */
  #ask(fields) {
    const operation = { toolId: "", extendMs: 0, ...fields, opId: newId() };
    this.#apply({ type: "local_operation", operation });
    this.#connection.send(operationFrame(operation));
    return operation.opId;
  }

  /**
   * Return a message to the composer if it was withdrawn successfully.
   * @param {import("../net/wire.js").OpResultFrame} frame
   */
  #giveBackWithdrawn({ op_id: opId, outcome }) {
    const message = this.#withdrawn.get(opId);
    this.#withdrawn.delete(opId);
    if (message && outcome === "accepted") this.#onRefused(message.text, message.attachments);
  }

  /** @param {Frame} frame */
  #receive(frame) {
    const before = this.#state;
    this.#apply(frame);
    if (frame.type === "welcome" && this.#isOtherUser(frame.user)) this.#connection.leave("other_user");
    else if (frame.type === "welcome") this.#sendAgain();
    if (frame.type === "error") this.#giveBack(before, frame);
    if (frame.type === "error" && isServersFault(frame.code)) this.#again.plan();
    if (frame.type === "op_result" || frame.type === "message_result") this.#again.reset();
    if (frame.type === "op_result") this.#giveBackWithdrawn(frame);
    if (frame.type === "heartbeat") this.#compare(frame);
    if (this.#state.gap) this.#fillGap();
    for (const turn of this.#state.turns) {
      const isAsked = () => before.turns.find(({ id }) => id === turn.id)?.needsResync;
      if (turn.needsResync && !isAsked()) this.#askForText(turn);
    }
  }

  /** Send all unanswered requests again. The server recognises repeated ids, so none of them takes effect twice. */
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

  /**
   * Return a refused message to the composer.
   * @param {State} before
   * @param {import("../net/wire.js").ProblemFrame} frame
   */
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

  /**
   * Return whether the unsent messages belong to another user, who must not become their sender.
   * @param {string} user
   */
  #isOtherUser(user) {
    return this.#outbox.user !== "" && this.#outbox.user !== user;
  }
}

/** Create a unique id. `crypto.randomUUID` does not exist on pages that are loaded over HTTP from another machine. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the messages that the server has not confirmed. @param {State} state */
const unsent = ({ pendingMessages }) =>
  pendingMessages.flatMap(({ turnId, ...message }) => (turnId === null ? message : []));

/** @param {import("./storage.js").Kept} message @returns {import("../net/wire.js").MessageFrame} */
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
  answer,
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
    case "answer_tool":
      return {
        type: kind,
        ...call,
        action: answer?.action ?? "cancel",
        content: answer?.content ?? {},
        question_id: answer?.questionId ?? "",
      };
    case "decide_tool":
      return { type: kind, ...call, decision, remember: remember ? "conversation" : null, reason };
  }
}

/**
 * Compare the server's heartbeat with the page's state. The result is "behind" if events are missing. It is "different"
 * if a turn that the page considers active has ended, so that only a whole snapshot helps.
 * @param {import("./types.js").State} state
 * @param {import("../net/wire.js").HeartbeatFrame} heartbeat
 * @returns {"behind"|"different"|null}
 */
export function disagreement(state, heartbeat) {
  if (state.lastSeq === null) return null;
  if (Number(heartbeat.last_seq ?? 0) > state.lastSeq) return "behind";
  if (Number(heartbeat.last_seq ?? 0) < state.lastSeq || !Array.isArray(heartbeat.active)) return null;
  const active = new Set(heartbeat.active.map(String));
  const lost = state.turns.some((turn) => !isTurnOver(turn.status) && turn.status !== "queued" && !active.has(turn.id));
  return lost ? "different" : null;
}
