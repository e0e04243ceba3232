/**
 * The WebSocket to one conversation: says hello, watches the server's heartbeat, and comes back after every loss
 * without ever giving up. What the frames mean is not its business.
 */

import { CLOSE_CODES, PROTOCOL_VERSION } from "./wire.js";

/** @typedef {import("../state/types.js").ConnectionStatus} ConnectionStatus */
/** @typedef {import("../state/types.js").Frame} Frame */
/**
 * @typedef {object} Environment What a connection takes from the browser; a test passes its own.
 * @property {(url: string) => WebSocket} open
 * @property {(callback: () => void, ms: number) => any} after
 * @property {(timer: any) => void} forget
 * @property {() => number} random
 * @property {() => boolean} isOnline
 */
/**
 * @typedef {object} Wiring
 * @property {() => number|null} lastSeq the last event seen, null for a whole snapshot
 * @property {(frame: Frame) => void} onFrame
 * @property {(status: ConnectionStatus) => void} onStatus
 * @property {Environment} [environment]
 */

const HEARTBEAT_MS = 15_000;
export const SILENCE_MS = HEARTBEAT_MS * 1.5;
export const PROBE_MS = 4_000;
export const CONNECT_MS = 10_000;
const FIRST_DELAY_MS = 250;
const LAST_DELAY_MS = 10_000;
/** From this attempt on the pause no longer grows. */
const LAST_ATTEMPT = 6;
const OPEN = 1;
const NORMAL_CLOSURE = 1000;

/** Close codes after which it makes no sense to come back. @type {Readonly<Record<number, ConnectionStatus>>} */
const FINAL = {
  [CLOSE_CODES.BAD_FIRST_FRAME]: "outdated",
  [CLOSE_CODES.SIGNED_OUT]: "signed_out",
  [CLOSE_CODES.NO_SUCH_CONVERSATION]: "not_found",
  4403: "not_found",
};
/** @type {Readonly<Record<number, ConnectionStatus>>} */
const RETRIED = { [CLOSE_CODES.RESTARTING]: "restarting", [CLOSE_CODES.TOO_MANY]: "busy" };

/** @type {Environment} */
const BROWSER = {
  open: (url) => new WebSocket(url),
  after: (callback, ms) => setTimeout(callback, ms),
  forget: (timer) => clearTimeout(timer),
  random: () => Math.random(),
  isOnline: () => navigator.onLine,
};

/** One conversation's line to the server. */
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

  /** Whether a frame would reach the server as far as is known. */
  get isReady() {
    return this.#isWelcome && this.#socket?.readyState === OPEN;
  }

  /** @param {string} url */
  start(url) {
    this.#url = url;
    this.#report("connecting");
    this.#connect();
  }

  /** @param {import("./wire.js").ClientFrame} frame @returns {boolean} whether it was handed to the socket */
  send(frame) {
    if (!this.isReady) return false;
    this.#socket?.send(JSON.stringify(frame));
    return true;
  }

  /** Ask the server for what is missing: what came after the last event seen, or everything. @param {{whole: boolean}} what */
  catchUp({ whole }) {
    if (this.#isFinal) return;
    this.#wholeNext ||= whole;
    this.#report("resuming");
    this.#connect();
  }

  /** Try now, whatever the pause between attempts has grown to. */
  reconnect() {
    if (this.#isFinal || !this.#url) return;
    this.#attempt = 0;
    this.#connect();
  }

  /** The browser is back (online, visible, shown again): find out at once whether the line still stands. */
  revive() {
    if (!this.#url) return;
    if (this.#status === "signed_out") this.#isFinal = false; // somebody may have signed in again in another tab
    if (this.#isFinal) return;
    this.#attempt = 0;
    if (this.#socket?.readyState === OPEN && this.#isWelcome) this.#probe();
    else if (this.#retry !== null || this.#socket === null) this.#connect();
  }

  /** The browser says it has no network; a server on this machine may still answer, so ask before giving up. */
  suspect() {
    if (this.#isFinal || !this.#url) return;
    this.#report("offline");
    if (this.isReady) this.#probe();
  }

  /** Leave for good, and say why. @param {ConnectionStatus} status */
  leave(status) {
    this.#end(status);
  }

  /** Leave for good. */
  close() {
    this.#isFinal = true;
    this.#drop(NORMAL_CLOSURE);
  }

  #connect() {
    this.#drop();
    const socket = this.#environment.open(this.#url);
    this.#socket = socket;
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
    const hello = { type: "hello", protocol: PROTOCOL_VERSION, html: true };
    socket.send(JSON.stringify(after === null ? hello : { ...hello, after }));
  }

  /** @param {string} text */
  #receive(text) {
    const frame = /** @type {Frame} */ (JSON.parse(text));
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
    }
    this.#wiring.onFrame(frame);
    if (this.#isWelcome) this.#report(this.#isCaughtUp() ? "online" : "resuming");
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

  /** @param {number} code 0 where the line only went silent */
  #lose(code) {
    this.#drop();
    const final = FINAL[code];
    if (final) {
      this.#end(final);
      return;
    }
    this.#report(RETRIED[code] ?? this.#lostStatus());
    if (code === CLOSE_CODES.TOO_MANY) this.#attempt = Math.max(this.#attempt, LAST_ATTEMPT);
    const delay = Math.min(LAST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#attempt);
    this.#attempt = Math.min(this.#attempt + 1, LAST_ATTEMPT);
    this.#retry = this.#environment.after(() => this.#connect(), delay * (0.5 + this.#environment.random() / 2));
  }

  /** A server that said it restarts is not there for a while. @returns {ConnectionStatus} */
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

  /** A new socket follows, unless the code says otherwise: nobody leaves. */
  #drop(code = Number(CLOSE_CODES.COMING_BACK)) {
    for (const timer of [this.#watchdog, this.#retry]) this.#environment.forget(timer);
    this.#watchdog = this.#retry = null;
    this.#isWelcome = false;
    const socket = this.#socket;
    this.#socket = null;
    socket?.close(code);
  }
}
