/** What is worth saying aloud when one state follows another: boundaries only, never a clock or a piece of text. */

import { isAsked } from "../state/approval.js";
import { questionsElsewhere } from "../state/overview.js";
import { elapsedOf, isCallOver, isTurnOver, SLOW_AFTER_MS, tierOf, VERY_SLOW_AFTER_MS } from "../state/status.js";
import { endingLabel, outcomeLabel, toolLabel } from "./labels.js";

/** @typedef {import("../state/types.js").Call} Call */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {import("./i18n.js").I18n} I18n */
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
  if (after.notice && after.notice.id !== before.notice?.id) {
    spoken.push({ text: i18n.text(after.notice.key, after.notice.params), urgent: after.notice.level === "error" });
  }
  return spoken;
}

/** What was said and does not hold any more: a notice goes with its reason. @param {State} before @param {State} after @param {I18n} i18n @returns {Array<string>} */
export function withdrawnTexts({ notice }, after, i18n) {
  return notice && notice.id !== after.notice?.id ? [i18n.text(notice.key, notice.params)] : [];
}

/** What sub-agents ask on this page is urgent, too; what another conversation asks can wait a moment. @param {State} before @param {State} after @param {I18n} i18n @returns {Array<Announcement>} */
function elsewhereAnnouncements(before, after, i18n) {
  if (before.questions === after.questions && before.otherConversations === after.otherConversations) return [];
  const known = new Set(before.questions.map(({ turnId, call }) => `${turnId} ${call.toolId}`));
  const asked = after.questions
    .filter(({ turnId, call }) => isAsked(call) && !known.has(`${turnId} ${call.toolId}`))
    .map(({ call }) => {
      const text = i18n.text("say_asked_by", { tool: toolLabel(call), agent: call.subAgent?.agent ?? "" });
      return { text, urgent: true };
    });
  const isMore = asked.length === 0 && questionsElsewhere(after, "") > questionsElsewhere(before, "");
  return isMore ? [{ text: i18n.text("say_asked_elsewhere"), urgent: false }] : asked;
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

/** What is to be said aloud: the answers to spoken words that came with this change. @param {State} before @param {State} after @returns {Array<string>} */
export function spokenAnswers(before, after) {
  if (before.phase !== "ready") return [];
  return changedTurns(before, after).flatMap(([earlier, turn]) =>
    answerAnnouncements(earlier, turn).map(({ text }) => text),
  );
}

/** The turns that are not what they were, each with what it was. @param {State} before @param {State} after @returns {Array<[Turn|undefined, Turn]>} */
function changedTurns(before, after) {
  if (before.turns === after.turns) return [];
  // Mostly one of the last has changed or come, and all others stand where they stood.
  const moved = after.turns.filter((turn, place) => before.turns[place] !== turn);
  const ids = new Set(moved.map(({ id }) => id));
  const known = new Map(before.turns.flatMap((turn) => (ids.has(turn.id) ? [[turn.id, turn]] : [])));
  return moved.flatMap((turn) => {
    const earlier = known.get(turn.id);
    return earlier === turn ? [] : [/** @type {[Turn|undefined, Turn]} */ ([earlier, turn])];
  });
}

/** The answer to a spoken word is heard. That to a typed one says what the end of the turn has said. @param {Turn|undefined} before @param {Turn} after @returns {Array<Announcement>} */
function answerAnnouncements(before, after) {
  if (!before) return [];
  const fresh = after.acknowledgements.slice(before.acknowledgements.length);
  return fresh.filter(({ source }) => source === "voice").map(({ text }) => ({ text, urgent: false }));
}

/** That a person is asked is urgent: nothing goes on without an answer. @param {Turn|undefined} before @param {Turn} after @param {I18n} i18n @returns {Array<Announcement>} */
function questionAnnouncements(before, after, i18n) {
  return Object.values(after.calls)
    .filter((call) => {
      const earlier = before?.calls[call.toolId];
      return isAsked(call) && !(earlier && isAsked(earlier));
    })
    .map((call) => ({ text: i18n.text("say_asked", { tool: toolLabel(call) }), urgent: true }));
}

/** Of a turn that is being ended only that is worth saying. @param {Turn|undefined} before @param {Turn} after @param {I18n} i18n @param {string} viewer @returns {Array<Announcement>} */
function callAnnouncements(before, after, i18n, viewer) {
  if (isTurnOver(after.status) || after.stoppingAt !== null) return [];
  const ended = Object.values(after.calls).filter((call) => {
    const earlier = before?.calls[call.toolId];
    return isCallOver(call.status) && earlier !== undefined && !isCallOver(earlier.status);
  });
  if (ended.length === 0) return [];
  if (ended.length > 1) return [{ text: i18n.count("say_calls_ended", ended.length), urgent: false }];
  const call = /** @type {Call} */ (ended[0]);
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

/** Says once per call that it has become slow, and once that it has become very slow. */
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
