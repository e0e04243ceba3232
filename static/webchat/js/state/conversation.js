/** One open conversation: holds its state, feeds the reducer, and carries what the person asks for to the server. */

import { Backoff } from "../net/backoff.js";
import { Connection } from "../net/connection.js";
import { fetchEarlier } from "../net/fetch_earlier.js";
import { disagreement, GRACE_MS } from "./heartbeat.js";
import { activeTurn, INITIAL_STATE, reduce } from "./reducer.js";
import { isStopUnderWay } from "./status.js";

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
  /** When what a failing server has not answered goes out again. */
  #again = new Backoff(() => this.#sendAgain());

  /** @param {string} url @param {(before: State, after: State) => void} onChange @param {(text: string) => void} onRefused */
  constructor(url, onChange, onRefused) {
    this.#onChange = onChange;
    this.#onRefused = onRefused;
    this.#connection = new Connection({
      url,
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

  /** @param {string} text @returns {boolean} whether the text was taken */
  send(text) {
    if (new TextEncoder().encode(JSON.stringify(text)).length > MAX_TEXT_BYTES) {
      this.#apply({ type: "local_notice", level: "error", key: "message_too_long" });
      return false;
    }
    const clientId = crypto.randomUUID();
    this.#apply({ type: "local_message", clientId, text });
    this.#connection.send({ type: "message", client_id: clientId, text });
    return true;
  }

  /** Cancel the turn that is at work (C2); asking twice is one request, until the first has had its time. */
  cancelTurn() {
    const turn = activeTurn(this.#state);
    const { frozenAt } = this.#state.connection;
    if (!turn || isStopUnderWay(turn, { now: performance.now(), frozenAt })) return;
    this.#cancel({ kind: "cancel_turn", turnId: turn.id });
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

  /** @param {string} turnId @param {string} toolId @param {import("../view/approval_form.js").Decision} decided */
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

  /** What has no answer yet is asked again under its id, at once. @param {{kind: Operation["kind"], turnId: string, toolId?: string}} wanted */
  #cancel(wanted) {
    const asked = this.#asked(wanted);
    if (asked) this.#connection.send(operationFrame(asked));
    else this.#ask(wanted);
  }

  /** @param {{kind: Operation["kind"], turnId: string, toolId?: string}} wanted */
  #asked({ kind, turnId, toolId = "" }) {
    return this.#state.operations.find(
      (known) => known.kind === kind && known.turnId === turnId && known.toolId === toolId,
    );
  }

  /** @param {Partial<Operation> & {kind: Operation["kind"], turnId: string}} wanted */
  #ask(wanted) {
    const operation = { toolId: "", extendMs: 0, ...wanted, opId: crypto.randomUUID() };
    this.#apply({ type: "local_operation", operation });
    this.#connection.send(operationFrame(operation));
  }

  /** @param {Frame} frame */
  #receive(frame) {
    const before = this.#state;
    this.#apply(frame);
    if (frame.type === "welcome") this.#sendAgain();
    if (frame.type === "error") this.#giveBack(before, frame);
    if (frame.type === "error" && frame.code === "server_error") this.#again.plan();
    if (frame.type === "op_result" || frame.type === "message_result") this.#again.reset();
    if (frame.type === "heartbeat") this.#compare(frame);
    if (this.#state.gap) this.#fillGap();
    for (const turn of this.#state.turns) {
      const known = before.turns.find((earlier) => earlier.id === turn.id);
      if (turn.needsResync && !known?.needsResync) this.#askForText(turn);
    }
  }

  /** What has no answer yet goes out again; the server knows a repeated id (same turn, same answer). */
  #sendAgain() {
    for (const { clientId, text, turnId } of this.#state.pendingMessages) {
      if (turnId === null) this.#connection.send({ type: "message", client_id: clientId, text });
    }
    for (const operation of this.#state.operations) this.#connection.send(operationFrame(operation));
    const turn = activeTurn(this.#state);
    if (turn?.needsResync) this.#askForText(turn);
  }

  /** @param {Turn} turn */
  #askForText(turn) {
    this.#connection.send({ type: "resync", turn_id: turn.id });
  }

  /** A refused message goes back to who wrote it. @param {State} before @param {import("../net/wire.js").ProblemFrame} frame */
  #giveBack(before, frame) {
    const isRefused = (/** @type {State} */ { pendingMessages }) =>
      pendingMessages.every(({ clientId }) => clientId !== frame.client_id);
    const refused = before.pendingMessages.find((message) => message.clientId === frame.client_id);
    if (refused && isRefused(this.#state)) this.#onRefused(refused.text);
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
    if (this.#state !== before) this.#onChange(before, this.#state);
  }
}

/** @param {Operation} operation @returns {import("../net/wire.js").ClientFrame} */
function operationFrame({ kind, opId, turnId, toolId, extendMs, decision = "deny", remember, reason = "" }) {
  const turn = { op_id: opId, turn_id: turnId };
  const call = { ...turn, tool_id: toolId };
  switch (kind) {
    case "resume_conversation":
      return { type: kind, op_id: opId };
    case "cancel_turn":
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
