/** The microphone: types or sends what is said, and speaks the answer to a spoken cancel word (C8). */

import { browserStorage } from "../state/storage.js";
import { EchoFilter, RestartPolicy } from "../state/voice.js";
import { setText } from "./dom.js";
import { VoiceLock } from "./voice_lock.js";

/**
 * @typedef {Readonly<{
 *   button: HTMLButtonElement,
 *   note: HTMLElement,
 *   sends: HTMLInputElement,
 *   i18n: import("./i18n.js").I18n,
 *   announcer: import("./announcer.js").Announcer,
 *   onSaid: (text: string) => void,
 *   onDictated: (text: string) => void,
 *   signal: AbortSignal,
 * }>} VoiceParts `onSaid` gets each final transcript, never a partial one, and `onDictated` gets it instead unless the checkbox `sends` is ticked.
 */

/** The used parts of the Web Speech API, which TypeScript's library lacks.
 * @typedef {Readonly<{isFinal: boolean, 0: Readonly<{transcript: string}>}>} SpeechResult
 * @typedef {Event & Readonly<{resultIndex: number, results: ArrayLike<SpeechResult>}>} SpeechResultEvent
 * @typedef {EventTarget & {lang: string, continuous: boolean, interimResults: boolean, start(): void, stop(): void, abort(): void}} Recogniser
 */

const STORAGE_KEY = "webchat-voice";
const TOLD_KEY = "webchat-voice-told";
const SENDS_KEY = "webchat-voice-sends";
const EARCONS = { listening: 660, off: 440, heard: 880 }; // Hz
const EARCON_SECONDS = 0.08;
/** Errors after which the microphone cannot restart automatically. */
const FINAL_ERRORS = new Set(["not-allowed", "service-not-allowed", "audio-capture", "language-not-supported"]);
const ERRORS = new Set([...FINAL_ERRORS, "network", "no-speech", "phrases-not-supported"]);

/** @typedef {"off"|"listening"|"hearing"} VoiceState */

/** One microphone button. It is hidden without speech recognition, or if the chat is read-only. */
export class Voice {
  #parts;
  #echo = new EchoFilter();
  /** The current utterance. Without a reference, Chromium drops its end event. @type {SpeechSynthesisUtterance|null} */
  #utterance = null;
  #restarts = new RestartPolicy();
  /** @type {Recogniser|null} */
  #recogniser = null;
  /** @type {VoiceState} */
  #state = "off";
  #timer = 0;
  /** Resume when the page is visible, unless the microphone was turned off elsewhere. @type {(() => void)|null} */
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
    // The focus stays in the message field, where the next Enter sends and does not turn the microphone off.
    parts.button.addEventListener("mousedown", (event) => event.preventDefault(), { signal: parts.signal });
    parts.sends.addEventListener("change", () => this.#choose(), { signal: parts.signal });
    parts.signal.addEventListener("abort", () => {
      this.#drop();
      this.#lock.release();
    });
    document.addEventListener("visibilitychange", () => this.#look(), { signal: parts.signal });
    if (isEmbedded(parts.button)) return;
    this.#comeBack = () => void this.#turnOnIfAllowed();
    this.#look();
  }

  /** Listen only while visible, because speech in front of another page is not meant for this one. */
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

  /** A hidden tab may get its event after the newly visible tab. */
  #waitForOthers() {
    this.#lock.wait(() => {
      if (browserStorage.getItem(STORAGE_KEY) === "on") this.#turnOn();
    });
  }

  get isOn() {
    return this.#state !== "off";
  }

  /** Stop listening and forget that the microphone was on. @returns {boolean} whether it was on */
  turnOff() {
    const wasOn = this.isOn;
    browserStorage.removeItem(STORAGE_KEY);
    if (wasOn) this.#rest("");
    return wasOn;
  }

  /** Remember whether to send what is said, or to type it. */
  #choose() {
    const { sends } = this.#parts;
    if (sends.checked) browserStorage.setItem(SENDS_KEY, "yes");
    else browserStorage.removeItem(SENDS_KEY);
    this.#tell(this.#privacy);
  }

  get #privacy() {
    const { i18n, sends } = this.#parts;
    return i18n.text(sends.checked ? "voice_privacy_sent" : "voice_privacy_typed");
  }

  /** Speak a text if the microphone is on. @param {string} text */
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

  /** An interrupted utterance reports its end later. @param {SpeechSynthesisUtterance} utterance @returns {boolean} whether it is the current utterance */
  #spoken(utterance) {
    if (utterance !== this.#utterance) return false;
    this.#utterance = null;
    this.#echo.end(performance.now());
    return true;
  }

  /** Stop speaking, because something was stopped. */
  hush() {
    window.speechSynthesis?.cancel();
    this.#utterance = null;
    this.#echo.end(performance.now());
  }

  /** Open the microphone automatically only if the person has already allowed it. */
  async #turnOnIfAllowed() {
    try {
      const name = /** @type {PermissionName} */ ("microphone");
      const { state } = await navigator.permissions.query({ name });
      if (state !== "granted" || this.isOn || this.#parts.signal.aborted) return;
      this.#comeBack = () => this.#waitForOthers();
      this.#look();
    } catch {
      // A browser that does not support this permission query asks when the person presses the button.
    }
  }

  #press() {
    this.#lock.take();
    this.#turnOn({ isPressed: true });
  }

  /** Show the privacy note every time the microphone starts automatically. @param {{isPressed?: boolean}} [how] */
  #turnOn({ isPressed = false } = {}) {
    const { sends } = this.#parts;
    this.#comeBack = null;
    sends.checked = browserStorage.getItem(SENDS_KEY) === "yes";
    browserStorage.setItem(STORAGE_KEY, "on");
    this.#restarts.reset();
    this.#tell(isPressed && browserStorage.getItem(TOLD_KEY) ? "" : this.#privacy);
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
    // A released recogniser still reports the end of speech.
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
    const { i18n, sends, onSaid, onDictated } = this.#parts;
    for (const result of Array.from(results).slice(resultIndex)) {
      const text = result[0].transcript.trim();
      if (!text || this.#echo.isEcho(text, performance.now())) continue;
      if (!result.isFinal) {
        this.#write(`${text}…`);
        continue;
      }
      this.#earcon("heard");
      this.#tell(i18n.text("voice_heard", { text }));
      this.hush();
      if (sends.checked) onSaid(text);
      else onDictated(text);
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
    const { button, i18n, sends } = this.#parts;
    this.#state = state;
    if (sends.parentElement) sends.parentElement.hidden = state === "off";
    const label = i18n.text(`voice_${state}`);
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(state !== "off"));
    button.setAttribute("aria-label", label);
    button.title = label;
  }

  /** @param {string} text */
  #tell(text) {
    this.#write(text);
    if (text) this.#parts.announcer.say({ text, urgent: false });
  }

  /** Show interim words without an announcement, because they may still change. @param {string} text */
  #write(text) {
    setText(this.#parts.note, text);
    this.#parts.note.hidden = text === "";
  }

  /** @param {keyof typeof EARCONS} name */
  #earcon(name) {
    // Browsers block sound and log a warning before the person interacts with the page.
    if (typeof AudioContext === "undefined" || navigator.userActivation?.hasBeenActive === false) return;
    this.#audio ??= new AudioContext();
    const tone = new OscillatorNode(this.#audio, { frequency: EARCONS[name] });
    const volume = new GainNode(this.#audio, { gain: 0.05 });
    tone.connect(volume).connect(this.#audio.destination);
    tone.start();
    tone.stop(this.#audio.currentTime + EARCON_SECONDS);
  }
}

/** Return whether the person must press the button each time. @param {Element} button */
const isEmbedded = (button) => button.getRootNode() !== document || window.parent !== window;

/** @returns {(new () => Recogniser)|undefined} */
function recogniserClass() {
  const global = /** @type {any} */ (window);
  return global.SpeechRecognition ?? global.webkitSpeechRecognition;
}

/** Use the browser's language, which may differ from the page's. */
function newRecogniser() {
  const recogniser = new /** @type {new () => Recogniser} */ (recogniserClass())();
  recogniser.lang = navigator.language;
  recogniser.continuous = true;
  recogniser.interimResults = true;
  return recogniser;
}
