/** The microphone: sends what a person has said, and speaks the answer to a spoken cancel word (C8). */

import { browserStorage } from "../state/storage.js";
import { EchoFilter, RestartPolicy } from "../state/voice.js";
import { setText } from "./dom.js";
import { VoiceLock } from "./voice_lock.js";

/**
 * @typedef {Readonly<{
 *   button: HTMLButtonElement,
 *   note: HTMLElement,
 *   i18n: import("./i18n.js").I18n,
 *   announcer: import("./announcer.js").Announcer,
 *   onSaid: (text: string) => void,
 *   signal: AbortSignal,
 * }>} VoiceParts `onSaid` is told of each final transcript, never of a partial one.
 */

/** The parts of the Web Speech API that are used; its types are not in TypeScript's library.
 * @typedef {Readonly<{isFinal: boolean, 0: Readonly<{transcript: string}>}>} SpeechResult
 * @typedef {Event & Readonly<{resultIndex: number, results: ArrayLike<SpeechResult>}>} SpeechResultEvent
 * @typedef {EventTarget & {lang: string, continuous: boolean, interimResults: boolean, start(): void, stop(): void, abort(): void}} Recogniser
 */

const STORAGE_KEY = "webchat-voice";
const TOLD_KEY = "webchat-voice-told";
const EARCONS = { listening: 660, off: 440, heard: 880 }; // Hz
const EARCON_SECONDS = 0.08;
/** After these the microphone cannot go on by itself. */
const FINAL_ERRORS = new Set(["not-allowed", "service-not-allowed", "audio-capture", "language-not-supported"]);
const ERRORS = new Set([...FINAL_ERRORS, "network", "no-speech", "phrases-not-supported"]);

/** @typedef {"off"|"listening"|"hearing"} VoiceState */

/** One microphone button; hidden where the browser has no speech recognition, or nobody writes. */
export class Voice {
  #parts;
  #echo = new EchoFilter();
  /** What is said aloud now; Chromium forgets to tell the end of one that nobody holds. @type {SpeechSynthesisUtterance|null} */
  #utterance = null;
  #restarts = new RestartPolicy();
  /** @type {Recogniser|null} */
  #recogniser = null;
  /** @type {VoiceState} */
  #state = "off";
  #timer = 0;
  /** What it does once it is in sight, unless it was turned off elsewhere. @type {(() => void)|null} */
  #comeBack = null;
  #lock = new VoiceLock(() => this.isOn && this.#rest(""));
  /** @type {AudioContext|null} */
  #audio = null;

  /** @param {VoiceParts} parts */
  constructor(parts) {
    this.#parts = parts;
    if (recogniserClass() === undefined || parts.button.form?.hidden) return;
    parts.button.hidden = false;
    parts.button.addEventListener("click", () => (this.isOn ? this.turnOff() : this.#press()), {
      signal: parts.signal,
    });
    parts.signal.addEventListener("abort", () => {
      this.#drop();
      this.#lock.release();
    });
    document.addEventListener("visibilitychange", () => this.#look(), { signal: parts.signal });
    if (standsInAnotherPage(parts.button)) return;
    this.#comeBack = () => void this.#turnOnIfAllowed();
    this.#look();
  }

  /** Listen only in sight: what is said in front of another page is not for this one. */
  #look() {
    if (document.visibilityState !== "visible") {
      this.#lock.release();
      if (!this.isOn) return;
      this.#comeBack = () => this.#waitForOthers();
      this.#rest("");
      return;
    }
    if (this.isOn) return;
    if (browserStorage.getItem(STORAGE_KEY) === "on") this.#comeBack?.();
    else this.#comeBack = null;
  }

  /** A tab that goes out of sight may learn of it after the one that comes. */
  #waitForOthers() {
    this.#lock.wait(() => {
      if (browserStorage.getItem(STORAGE_KEY) === "on") this.#turnOn();
    });
  }

  get isOn() {
    return this.#state !== "off";
  }

  /** Stop listening, and forget that it was on. @returns {boolean} whether it was on */
  turnOff() {
    const wasOn = this.isOn;
    browserStorage.removeItem(STORAGE_KEY);
    if (wasOn) this.#rest("");
    return wasOn;
  }

  /** Say something aloud, if the microphone is on. @param {string} text */
  speak(text) {
    if (!this.isOn) return;
    const { i18n } = this.#parts;
    const speech = window.speechSynthesis;
    if (!speech) {
      this.#tell(i18n.text("voice_no_speech"));
      return;
    }
    speech.cancel();
    const utterance = new SpeechSynthesisUtterance(text);
    utterance.lang = i18n.language;
    this.#echo.begin(text, performance.now());
    this.#utterance = utterance;
    utterance.addEventListener("end", () => this.#spoken(utterance));
    utterance.addEventListener("error", ({ error }) => {
      if (!this.#spoken(utterance)) return;
      if (error !== "canceled" && error !== "interrupted") this.#tell(i18n.text("voice_no_speech"));
    });
    speech.speak(utterance);
  }

  /** One that gave way to another tells of its end later. @param {SpeechSynthesisUtterance} utterance @returns {boolean} whether it was the one that is said now */
  #spoken(utterance) {
    if (utterance !== this.#utterance) return false;
    this.#utterance = null;
    this.#echo.end(performance.now());
    return true;
  }

  /** Be silent: something was stopped. */
  hush() {
    window.speechSynthesis?.cancel();
    this.#utterance = null;
    this.#echo.end(performance.now());
  }

  /** A page must not open the microphone by itself unless the person has allowed it before. */
  async #turnOnIfAllowed() {
    try {
      const name = /** @type {PermissionName} */ ("microphone");
      const { state } = await navigator.permissions.query({ name });
      if (state !== "granted" || this.isOn || this.#parts.signal.aborted) return;
      this.#comeBack = () => this.#waitForOthers();
      this.#look();
    } catch {
      // A browser that does not know the permission asks when the person presses the button.
    }
  }

  #press() {
    this.#lock.take();
    this.#turnOn();
  }

  #turnOn() {
    const { i18n } = this.#parts;
    this.#comeBack = null;
    browserStorage.setItem(STORAGE_KEY, "on");
    this.#restarts.reset();
    this.#tell(browserStorage.getItem(TOLD_KEY) ? "" : i18n.text("voice_privacy"));
    browserStorage.setItem(TOLD_KEY, "yes");
    this.#earcon("listening");
    this.#show("listening");
    this.#start();
  }

  #start() {
    const { signal } = this.#parts;
    const recogniser = newRecogniser();
    this.#recogniser = recogniser;
    recogniser.addEventListener("start", () => this.#restarts.started(performance.now()), { signal });
    // One that is let go still tells of the end of speech.
    const shows = (/** @type {VoiceState} */ state) => () => recogniser === this.#recogniser && this.#show(state);
    recogniser.addEventListener("speechstart", shows("hearing"), { signal });
    recogniser.addEventListener("speechend", shows("listening"), { signal });
    recogniser.addEventListener("result", (event) => this.#heard(/** @type {SpeechResultEvent} */ (event)), { signal });
    recogniser.addEventListener("error", (event) => this.#failed(/** @type {any} */ (event).error), { signal });
    recogniser.addEventListener("end", () => this.#ended(recogniser), { signal });
    try {
      recogniser.start();
    } catch {
      this.#failed("audio-capture");
    }
  }

  /** @param {SpeechResultEvent} event */
  #heard({ resultIndex, results }) {
    if (!this.isOn) return;
    for (const result of Array.from(results).slice(resultIndex)) {
      const text = result[0].transcript.trim();
      if (!result.isFinal || !text || this.#echo.isEcho(text, performance.now())) continue;
      this.#earcon("heard");
      this.#tell(this.#parts.i18n.text("voice_heard", { text }));
      this.hush();
      this.#parts.onSaid(text);
    }
  }

  /** @param {string} error */
  #failed(error) {
    if (!this.isOn || error === "aborted") return;
    const text = this.#parts.i18n.text(ERRORS.has(error) ? `voice_error_${error}` : "voice_error_unknown");
    if (FINAL_ERRORS.has(error)) this.#rest(text);
    else this.#tell(text);
  }

  /** @param {Recogniser} recogniser */
  #ended(recogniser) {
    if (!this.isOn || recogniser !== this.#recogniser) return;
    const pause = this.#restarts.ended(performance.now());
    if (pause === null) {
      this.#rest(this.#parts.i18n.text("voice_paused"));
      return;
    }
    this.#show("listening");
    this.#timer = window.setTimeout(() => this.isOn && this.#start(), pause);
  }

  /** @param {string} why */
  #rest(why) {
    this.#drop();
    this.#earcon("off");
    this.#tell(why);
    this.#show("off");
  }

  #drop() {
    this.#state = "off";
    clearTimeout(this.#timer);
    this.#recogniser?.abort();
    this.#recogniser = null;
    this.hush();
  }

  /** @param {VoiceState} state */
  #show(state) {
    const { button, i18n } = this.#parts;
    this.#state = state;
    const label = i18n.text(`voice_${state}`);
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(state !== "off"));
    button.setAttribute("aria-label", label);
    button.title = label;
  }

  /** @param {string} text */
  #tell(text) {
    setText(this.#parts.note, text);
    this.#parts.note.hidden = text === "";
    if (text) this.#parts.announcer.say({ text, urgent: false });
  }

  /** @param {keyof typeof EARCONS} name */
  #earcon(name) {
    // Before the person has touched the page, browsers play nothing and complain.
    if (typeof AudioContext === "undefined" || navigator.userActivation?.hasBeenActive === false) return;
    this.#audio ??= new AudioContext();
    const tone = new OscillatorNode(this.#audio, { frequency: EARCONS[name] });
    const volume = new GainNode(this.#audio, { gain: 0.05 });
    tone.connect(volume).connect(this.#audio.destination);
    tone.start();
    tone.stop(this.#audio.currentTime + EARCON_SECONDS);
  }
}

/** There the person presses the button each time. @param {Element} button */
const standsInAnotherPage = (button) => button.getRootNode() !== document || window.parent !== window;

/** @returns {(new () => Recogniser)|undefined} */
function recogniserClass() {
  const known = /** @type {any} */ (window);
  return known.SpeechRecognition ?? known.webkitSpeechRecognition;
}

/** The person speaks the browser's language, which may be another one than the page's. */
function newRecogniser() {
  const made = new /** @type {new () => Recogniser} */ (recogniserClass())();
  made.lang = navigator.language;
  made.continuous = true;
  made.interimResults = true;
  return made;
}
