/**
 * The WebSocket of a conversation. It sends `hello`, watches the server's heartbeat, and reconnects after every loss
 * without ever giving up. It interprets no frames except `welcome`.
 */

import { pauseAfter } from "./backoff.js";
import { CLOSE_CODES, PROTOCOL_VERSION } from "./wire.js";

/** @typedef {import("../state/types.js").ConnectionStatus} ConnectionStatus */
/** @typedef {import("../state/types.js").Frame} Frame */
/**
 * @typedef {object} Environment The functions of the browser that a connection uses. Tests pass their own.
 * @property {(url: string) => WebSocket} open
 * @property {(callback: () => void, ms: number) => any} after
 * @property {(timer: any) => void} forget
 * @property {() => number} random
 * @property {() => boolean} isOnline
 */
/**
 * @typedef {object} Wiring
 * @property {() => number|null} lastSeq returns the number of the last event seen, or null to request a snapshot
 * @property {(frame: Frame) => void} onFrame
 * @property {(status: ConnectionStatus) => void} onStatus
 * @property {Environment} [environment]
 */

const HEARTBEAT_MS = 15_000;
export const SILENCE_MS = HEARTBEAT_MS * 1.5;
export const PROBE_MS = 4_000;
export const CONNECT_MS = 10_000;
const FIRST_DELAY_MS = 250;
/** The pauses stop growing at this attempt. */
const LAST_ATTEMPT = 6;
const OPEN = 1;
const NORMAL_CLOSURE = 1000;
const UTF8 = new TextEncoder();

/** Close codes after which reconnecting is useless. @type {Readonly<Record<number, ConnectionStatus>>} */
const FINAL = {
  [CLOSE_CODES.BAD_FIRST_FRAME]: "outdated",
  [CLOSE_CODES.SIGNED_OUT]: "signed_out",
  [CLOSE_CODES.NO_SUCH_CONVERSATION]: "not_found",
};
/** @type {Readonly<Record<number, ConnectionStatus>>} */
const RETRIED = {
  [CLOSE_CODES.RESTARTING]: "restarting",
  [CLOSE_CODES.RESTARTING_TOO]: "restarting",
  [CLOSE_CODES.TOO_MANY]: "busy",
};

/** @type {Environment} */
const BROWSER = {
  open: (url) => new WebSocket(url),
  after: (callback, ms) => setTimeout(callback, ms),
  forget: (timer) => clearTimeout(timer),
  random: () => Math.random(),
  isOnline: () => navigator.onLine,
};

/** The connection of a conversation to the server. */
export class Connection {
  #wiring;
  #url = "";
  #environment;
  /** @type {WebSocket|null} */
  #socket = null;
  #attempt = 0;
  #isFinal = false;
  #isWelcome = false;
  #wholeNext = false;
  #target = 0;
  #received = 0;
  #acknowledged = 0;
  /** The number of bytes after which the server expects the next ack. */
  #ackBytes = Number.POSITIVE_INFINITY;
  /** @type {ConnectionStatus|null} */
  #status = null;
  /** @type {any} */
  #watchdog = null;
  /** @type {any} */
  #retry = null;

  /** @param {Wiring} wiring */
  constructor(wiring) {
    this.#wiring = wiring;
    this.#environment = wiring.environment ?? BROWSER;
  }

  /** Whether the socket is open and the server has sent `welcome`. */
  get isReady() {
    return this.#isWelcome && this.#socket?.readyState === OPEN;
  }

  /** @param {string} url */
  start(url) {
    this.#url = url;
    this.#report("connecting");
    this.#connect();
  }

  /** @param {import("./wire.js").ClientFrame} frame @returns {boolean} whether the frame was passed to the socket */
  send(frame) {
    if (!this.isReady) return false;
    this.#socket?.send(JSON.stringify(frame));
    return true;
  }

  /** Request the events after the last one seen, or a whole snapshot. @param {{whole: boolean}} what */
  catchUp({ whole }) {
    if (this.#isFinal) return;
    this.#wholeNext ||= whole;
    this.#report("resuming");
    this.#connect();
  }

  /** Connect immediately, without waiting for the end of the current pause. */
  reconnect() {
    if (this.#isFinal || !this.#url) return;
    this.#attempt = 0;
    this.#connect();
  }

  /** Check the connection immediately, because the browser is online again or the page is visible again. */
  revive() {
    if (!this.#url) return;
    if (this.#status === "signed_out") this.#isFinal = false; // the user may have signed in again in another tab
    if (this.#isFinal) return;
    this.#attempt = 0;
    if (this.#socket?.readyState === OPEN && this.#isWelcome) this.#probe();
    else if (this.#retry !== null || this.#socket === null) this.#connect();
  }

  /** Check the connection after the browser went offline, because a server on this machine may still be reachable. */
  suspect() {
    if (this.#isFinal || !this.#url) return;
    this.#report("offline");
    if (this.isReady) this.#probe();
  }

  /** Disconnect permanently, and report a status. @param {ConnectionStatus} status */
  leave(status) {
    this.#end(status);
  }

  /** Disconnect permanently. */
  close() {
    this.#isFinal = true;
    this.#drop(NORMAL_CLOSURE);
  }

  #connect() {
    this.#drop();
    const socket = this.#environment.open(this.#url);
    this.#socket = socket;
    this.#received = this.#acknowledged = 0;
    const isCurrent = () => this.#socket === socket;
    socket.onopen = () => {
      if (isCurrent()) this.#sayHello(socket);
    };
    socket.onmessage = (message) => {
      if (isCurrent()) this.#receive(message.data);
    };
    socket.onclose = (closing) => {
      if (isCurrent()) this.#lose(closing.code);
    };
    this.#watch(CONNECT_MS, () => this.#lose(0));
  }

  /** @param {WebSocket} socket */
  #sayHello(socket) {
    const after = this.#wholeNext ? null : this.#wiring.lastSeq();
    const hello = { type: "hello", protocol: PROTOCOL_VERSION, html: true, acks: true };
    socket.send(JSON.stringify(after === null ? hello : { ...hello, after }));
  }

  /** @param {string} text */
  #receive(text) {
    const frame = /** @type {Frame} */ (JSON.parse(text));
    this.#received += UTF8.encode(text).length;
    this.#watch(SILENCE_MS, () => this.#doubt());
    if (frame.type === "welcome") {
      if (frame.protocol !== PROTOCOL_VERSION) {
        this.#end("outdated");
        return;
      }
      this.#isWelcome = true;
      this.#wholeNext = false;
      this.#attempt = 0;
      this.#target = Number(frame.last_seq ?? 0);
      this.#ackBytes = Number(frame.ack_bytes ?? Number.POSITIVE_INFINITY);
    }
    this.#wiring.onFrame(frame);
    this.#acknowledge();
    if (this.#isWelcome) this.#report(this.#isCaughtUp() ? "online" : "resuming");
  }

  /** Acknowledge the received bytes if an ack is due, so that the server does not send faster than the page reads. */
  #acknowledge() {
    if (this.#received - this.#acknowledged < this.#ackBytes) return;
    if (this.send({ type: "ack", seq: this.#wiring.lastSeq() ?? 0, received: this.#received })) {
      this.#acknowledged = this.#received;
    }
  }

  #isCaughtUp() {
    const seen = this.#wiring.lastSeq();
    return seen !== null && seen >= this.#target;
  }

  /** @param {ConnectionStatus} status */
  #report(status) {
    if (this.#status === status) return;
    this.#status = status;
    this.#wiring.onStatus(status);
  }

  #doubt() {
    this.#report("slow");
    this.#probe();
  }

  #probe() {
    this.send({ type: "ping" });
    this.#watch(PROBE_MS, () => this.#lose(0));
  }

  /** @param {number} ms @param {() => void} onSilence */
  #watch(ms, onSilence) {
    this.#environment.forget(this.#watchdog);
    this.#watchdog = this.#environment.after(onSilence, ms);
  }

  /** @param {number} code the close code, or 0 if nothing arrived for too long */
  #lose(code) {
    this.#drop();
    const final = FINAL[code];
    if (final) {
      this.#end(final);
      return;
    }
    this.#report(RETRIED[code] ?? this.#lostStatus());
    if (code === CLOSE_CODES.TOO_MANY) this.#attempt = Math.max(this.#attempt, LAST_ATTEMPT);
    const pause = pauseAfter(this.#attempt, FIRST_DELAY_MS, this.#environment.random());
    this.#attempt = Math.min(this.#attempt + 1, LAST_ATTEMPT);
    this.#retry = this.#environment.after(() => this.#connect(), pause);
  }

  /**
   * Return the status after a loss. A restart of the server is shown until the connection works again.
   * @returns {ConnectionStatus}
   */
  #lostStatus() {
    if (!this.#environment.isOnline()) return "offline";
    return this.#status === "restarting" ? "restarting" : "reconnecting";
  }

  /** @param {ConnectionStatus} status */
  #end(status) {
    this.#isFinal = true;
    this.#drop(NORMAL_CLOSURE);
    this.#report(status);
  }

  /** Close the socket with a code that tells the server whether the page will reconnect. */
  #drop(code = Number(CLOSE_CODES.COMING_BACK)) {
    for (const timer of [this.#watchdog, this.#retry]) this.#environment.forget(timer);
    this.#watchdog = this.#retry = null;
    this.#isWelcome = false;
    const socket = this.#socket;
    this.#socket = null;
    socket?.close(code);
  }
}
