/** Announces events to screen readers: mostly starts and ends, but no running times and no pieces of text. */

import { isAsked } from "../state/calls.js";
import { newForms, questionsElsewhere } from "../state/overview.js";
import { elapsedOf, isCallOver, isTurnOver, SLOW_AFTER_MS, tierOf, VERY_SLOW_AFTER_MS } from "../state/status.js";
import { setText } from "./dom.js";
import { askedLabel, endingLabel, formLabel, outcomeLabel, toolLabel } from "./labels.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */
/** @typedef {import("./dom.js").View} View */

const GAP_MS = 400;
const MAX_WAITING = 3;

/** Announces one message at a time. If too many messages are waiting, the oldest ones are dropped. */
export class Announcer {
  #status;
  #alert;
  /** @type {Array<string>} */
  #waiting = [];
  #isSpeaking = false;

  /** @param {HTMLElement} status @param {HTMLElement} alert */
  constructor(status, alert) {
    this.#status = status;
    this.#alert = alert;
  }

  /** @param {Announcement} announcement */
  say({ text, urgent }) {
    if (urgent) {
      // Earlier and waiting announcements may no longer be true.
      this.#waiting = [];
      setText(this.#status, "");
      setText(this.#alert, text);
      return;
    }
    this.#waiting = [...this.#waiting, text].slice(-MAX_WAITING);
    if (!this.#isSpeaking) this.#next();
  }

  /** Remove an urgent announcement that is no longer true. */
  calm() {
    setText(this.#alert, "");
  }

  /** Remove a shown or waiting announcement that is no longer true. @param {string} text */
  takeBack(text) {
    this.#waiting = this.#waiting.filter((each) => each !== text);
    for (const region of [this.#status, this.#alert]) if (region.textContent === text) setText(region, "");
  }

  #next() {
    const text = this.#waiting.shift();
    this.#isSpeaking = text !== undefined;
    if (text === undefined) return;
    setText(this.#status, text);
    setTimeout(() => this.#next(), GAP_MS);
  }
}

/** @typedef {Readonly<{text: string, urgent: boolean}>} Announcement */

/**
 * @param {State} before
 * @param {State} after
 * @param {I18n} i18n
 * @returns {Array<Announcement>}
 */
export function announcementsOf(before, after, i18n) {
  if (before.phase !== "ready") return [];
  const spoken = changedTurns(before, after).flatMap(([earlier, turn]) =>
    turnAnnouncements(earlier, turn, i18n, after.viewer),
  );
  spoken.push(...elsewhereAnnouncements(before, after, i18n));
  for (const asked of newForms(before, after)) spoken.push({ text: formLabel(i18n, asked), urgent: true });
  if (after.notice && after.notice.id !== before.notice?.id) {
    spoken.push({ text: i18n.text(after.notice.key, after.notice.params), urgent: after.notice.level === "error" });
  }
  return spoken;
}

/**
 * Return the text of a notice that is no longer shown, so that its announcement can be removed.
 * @param {State} before
 * @param {State} after
 * @param {I18n} i18n
 * @returns {Array<string>}
 */
export function withdrawnTexts({ notice }, after, i18n) {
  return notice && notice.id !== after.notice?.id ? [i18n.text(notice.key, notice.params)] : [];
}

/**
 * Return announcements of questions outside this conversation. Questions of sub-agents that this page shows are urgent,
 * and those of other conversations are not.
 * @param {State} before
 * @param {State} after
 * @param {I18n} i18n
 * @returns {Array<Announcement>}
 */
function elsewhereAnnouncements(before, after, i18n) {
  if (before.questions === after.questions && before.otherConversations === after.otherConversations) return [];
  const keysBefore = new Set(before.questions.map(({ turnId, call }) => `${turnId} ${call.toolId}`));
  const questions = after.questions
    .filter(({ turnId, call }) => isAsked(call) && !keysBefore.has(`${turnId} ${call.toolId}`))
    .map(({ call }) => ({ text: askedLabel(i18n, call), urgent: true }));
  const isMore = questions.length === 0 && questionsElsewhere(after, "") > questionsElsewhere(before, "");
  return isMore ? [{ text: i18n.text("say_asked_elsewhere"), urgent: false }] : questions;
}

/** @param {Turn|undefined} before @param {Turn} after @param {I18n} i18n @param {string} viewer @returns {Array<Announcement>} */
function turnAnnouncements(before, after, i18n, viewer) {
  const spoken = [
    ...questionAnnouncements(before, after, i18n),
    ...callAnnouncements(before, after, i18n, viewer),
    ...answerAnnouncements(before, after),
  ];
  const wasRunning = before !== undefined && before.status !== "queued";
  if (after.retry && after.retry.at !== before?.retry?.at) spoken.push({ text: after.errorMessage, urgent: false });
  if (after.status === "running" && !wasRunning) spoken.push({ text: i18n.text("say_started"), urgent: false });
  if (!isTurnOver(after.status) || !before || isTurnOver(before.status)) return spoken;
  const ending = endingLabel(i18n, after, viewer);
  const text = ending
    ? [ending.title, ending.detail].filter(Boolean).join(": ")
    : i18n.count("say_finished", wordCount(after));
  return [...spoken, { text, urgent: after.status === "failed" }];
}

/**
 * Return the new acknowledgements of spoken cancel words, which the page speaks.
 * @param {State} before
 * @param {State} after
 * @returns {Array<string>}
 */
export function spokenAnswers(before, after) {
  if (before.phase !== "ready") return [];
  return changedTurns(before, after).flatMap(([earlier, turn]) =>
    answerAnnouncements(earlier, turn).map(({ text }) => text),
  );
}

/** Return the changed turns, each with its previous state. @param {State} before @param {State} after @returns {Array<[Turn|undefined, Turn]>} */
function changedTurns(before, after) {
  if (before.turns === after.turns) return [];
  // Usually only one of the last turns was changed or added, and all others have kept their position.
  const moved = after.turns.filter((turn, place) => before.turns[place] !== turn);
  const ids = new Set(moved.map(({ id }) => id));
  const turnsBefore = new Map(before.turns.flatMap((turn) => (ids.has(turn.id) ? [[turn.id, turn]] : [])));
  return moved.flatMap((turn) => {
    const earlier = turnsBefore.get(turn.id);
    return earlier === turn ? [] : [/** @type {[Turn|undefined, Turn]} */ ([earlier, turn])];
  });
}

/**
 * Return announcements of new acknowledgements of spoken cancel words. Those of typed ones are not announced, because
 * they repeat the end of the turn.
 * @param {Turn|undefined} before
 * @param {Turn} after
 * @returns {Array<Announcement>}
 */
function answerAnnouncements(before, after) {
  if (!before) return [];
  const answers = after.acknowledgements.slice(before.acknowledgements.length);
  return answers.filter(({ source }) => source === "voice").map(({ text }) => ({ text, urgent: false }));
}

/**
 * Return announcements of new questions. They are urgent, because nothing continues without an answer.
 * @param {Turn|undefined} before
 * @param {Turn} after
 * @param {I18n} i18n
 * @returns {Array<Announcement>}
 */
function questionAnnouncements(before, after, i18n) {
  return Object.values(after.calls)
    .filter((call) => {
      const earlier = before?.calls[call.toolId];
      return isAsked(call) && !(earlier && isAsked(earlier));
    })
    .map((call) => ({ text: askedLabel(i18n, call), urgent: true }));
}

/**
 * Return announcements of calls that have ended. A turn that is stopping announces only its own end.
 * @param {Turn|undefined} before
 * @param {Turn} after
 * @param {I18n} i18n
 * @param {string} viewer
 * @returns {Array<Announcement>}
 */
function callAnnouncements(before, after, i18n, viewer) {
  if (isTurnOver(after.status) || after.stoppingAt !== null) return [];
  const endedCalls = Object.values(after.calls).filter((call) => {
    const earlier = before?.calls[call.toolId];
    return isCallOver(call.status) && earlier !== undefined && !isCallOver(earlier.status);
  });
  if (endedCalls.length === 0) return [];
  if (endedCalls.length > 1) return [{ text: i18n.count("say_calls_ended", endedCalls.length), urgent: false }];
  const call = /** @type {Call} */ (endedCalls[0]);
  const key = call.status === "succeeded" ? "say_call_succeeded" : "say_call_ended";
  return [
    { text: i18n.text(key, { tool: toolLabel(call), outcome: outcomeLabel(i18n, call, viewer) }), urgent: false },
  ];
}

/** @param {Turn} turn */
function wordCount(turn) {
  const texts = turn.items.flatMap((item) => (item.kind === "agent" ? [item.text] : []));
  return texts.join(" ").split(/\s+/).filter(Boolean).length;
}

/** Announces once that a call has become slow, and once that it has become very slow. */
export class TierWatch {
  /** @type {Map<string, string>} */
  #tiers = new Map();

  /** @param {State} state @param {number} now @param {I18n} i18n @returns {Array<Announcement>} */
  crossings(state, now, i18n) {
    const running = state.turns.flatMap((turn) => (isTurnOver(turn.status) ? [] : runningCalls(turn)));
    const before = this.#tiers;
    this.#tiers = new Map(
      running.map(([key, call]) => [key, tierOf(elapsedOf(call, now, state.connection.frozenAt), call.expectedMs)]),
    );
    return running.flatMap(([key, call]) => {
      const tier = this.#tiers.get(key);
      if (!before.has(key) || before.get(key) === tier) return [];
      const limit = tier === "very_slow" ? VERY_SLOW_AFTER_MS : SLOW_AFTER_MS;
      const seconds = Math.round(Math.max(limit, call.expectedMs ?? 0) / 1000);
      return [{ text: i18n.text("say_slow", { tool: toolLabel(call), seconds }), urgent: false }];
    });
  }
}

/** @param {Turn} turn @returns {Array<[string, Call]>} */
const runningCalls = (turn) =>
  Object.values(turn.calls)
    .filter((call) => call.status === "running")
    .map((call) => [`${turn.id} ${call.toolId}`, call]);

const LOST_AFTER_MS = 5_000;
const LIVE = new Set(["new", "online", "slow", "resuming", "connecting"]);

/** Announces that the connection is lost if the loss lasts for some seconds, and later that it is back. */
export class LossWatch {
  #announcer;
  #isSaid = false;

  /** @param {Announcer} announcer */
  constructor(announcer) {
    this.#announcer = announcer;
  }

  /** @param {State} state @param {View} view */
  tick({ connection }, { i18n, now }) {
    const { status, frozenAt } = connection;
    const isLost = frozenAt !== null && !LIVE.has(status) && now - frozenAt > LOST_AFTER_MS;
    if (isLost && !this.#isSaid) this.#announcer.say({ text: i18n.text(`banner_${status}`), urgent: true });
    if (this.#isSaid && frozenAt === null) {
      this.#announcer.calm();
      this.#announcer.say({ text: i18n.text("say_connected"), urgent: false });
    }
    this.#isSaid = isLost || (this.#isSaid && frozenAt !== null);
  }
}
