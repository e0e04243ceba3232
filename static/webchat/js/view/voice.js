/** The microphone: it inserts or sends spoken words, and speaks the acknowledgement of a spoken cancel word (C8). */

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
 * }>} VoiceParts `onSaid` is called with each final transcript if the checkbox `sends` is ticked, and otherwise `onDictated`
 *   is. Neither gets partial transcripts.
 */

/** The types of the Web Speech API that are used here. TypeScript's library lacks them.
 * @typedef {Readonly<{isFinal: boolean, 0: Readonly<{transcript: string}>}>} SpeechResult
 * @typedef {Event & Readonly<{resultIndex: number, results: ArrayLike<SpeechResult>}>} SpeechResultEvent
 * @typedef {EventTarget & {lang: string, continuous: boolean, interimResults: boolean, start(): void, stop(): void, abort(): void}} Recogniser
 */

const STORAGE_KEY = "webchat-voice";
const TOLD_KEY = "webchat-voice-told";
const SENDS_KEY = "webchat-voice-sends";
const EARCONS = { listening: 660, off: 440, heard: 880 }; // Hz
const EARCON_SECONDS = 0.08;
/** The errors after which the microphone is not restarted automatically. */
const FINAL_ERRORS = new Set(["not-allowed", "service-not-allowed", "audio-capture", "language-not-supported"]);
const ERRORS = new Set([...FINAL_ERRORS, "network", "no-speech", "phrases-not-supported"]);

/** @typedef {"off"|"listening"|"hearing"} VoiceState */

/**
 * The microphone button of a chat. It is hidden if the browser has no speech recognition, or if the chat is read-only.
 */
export class Voice {
  #parts;
  #echo = new EchoFilter();
  /**
   * The current utterance. Without this reference, Chromium would not fire its end event.
   * @type {SpeechSynthesisUtterance|null}
   */
  #utterance = null;
  #restarts = new RestartPolicy();
  /** @type {Recogniser|null} */
  #recogniser = null;
  /** @type {VoiceState} */
  #state = "off";
  #timer = 0;
  /**
   * Turns the microphone on again when the page is visible, unless it was turned off in another tab meanwhile.
   * @type {(() => void)|null}
   */
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
    // The focus stays in the message field, so that the next Enter sends the message and does not turn the microphone
    // off.
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

  /** Listen only while the page is visible, because words in front of another page are not meant for this one. */
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

  /** Turn the microphone on once no other tab uses it. A tab that is hidden may release it after this one is shown. */
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

  /** Store whether spoken words are sent, or inserted into the message field. */
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

  /**
   * Handle the end of an utterance, unless another one has interrupted it.
   * @param {SpeechSynthesisUtterance} utterance
   * @returns {boolean} whether it is the current utterance
   */
  #spoken(utterance) {
    if (utterance !== this.#utterance) return false;
    this.#utterance = null;
    this.#echo.end(performance.now());
    return true;
  }

  /** Stop speaking, because the person says something or the microphone is turned off. */
  hush() {
    window.speechSynthesis?.cancel();
    this.#utterance = null;
    this.#echo.end(performance.now());
  }

  /** Turn the microphone on automatically, but only if the person has already allowed its use. */
  async #turnOnIfAllowed() {
    try {
      const name = /** @type {PermissionName} */ ("microphone");
      const { state } = await navigator.permissions.query({ name });
      if (state !== "granted" || this.isOn || this.#parts.signal.aborted) return;
      this.#comeBack = () => this.#waitForOthers();
      this.#look();
    } catch {
      // A browser that does not support this query asks for permission when the person presses the button.
    }
  }

  #press() {
    this.#lock.take();
    this.#turnOn({ isPressed: true });
  }

  /**
   * Turn the microphone on. If it starts automatically, or for the first time, show the privacy note.
   * @param {{isPressed?: boolean}} [how]
   */
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
    // A recogniser that was stopped may still report the end of speech.
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

  /**
   * Show a text without an announcement. For interim words this is enough, because they may still change.
   * @param {string} text
   */
  #write(text) {
    setText(this.#parts.note, text);
    this.#parts.note.hidden = text === "";
  }

  /** @param {keyof typeof EARCONS} name */
  #earcon(name) {
    // Before the person interacts with the page, browsers block sound and log a warning.
    if (typeof AudioContext === "undefined" || navigator.userActivation?.hasBeenActive === false) return;
    this.#audio ??= new AudioContext();
    const tone = new OscillatorNode(this.#audio, { frequency: EARCONS[name] });
    const volume = new GainNode(this.#audio, { gain: 0.05 });
    tone.connect(volume).connect(this.#audio.destination);
    tone.start();
    tone.stop(this.#audio.currentTime + EARCON_SECONDS);
  }
}

/**
 * Return whether the chat is embedded in another page, so that the microphone never turns on automatically.
 * @param {Element} button
 */
const isEmbedded = (button) => button.getRootNode() !== document || window.parent !== window;

/** @returns {(new () => Recogniser)|undefined} */
function recogniserClass() {
  const global = /** @type {any} */ (window);
  return global.SpeechRecognition ?? global.webkitSpeechRecognition;
}

/** Return a recogniser for the browser's language, which may differ from the page's. */
function newRecogniser() {
  const recogniser = new /** @type {new () => Recogniser} */ (recogniserClass())();
  recogniser.lang = navigator.language;
  recogniser.continuous = true;
  recogniser.interimResults = true;
  return recogniser;
}
