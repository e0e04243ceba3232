/** What goes on beyond this conversation's own log: how conversations stand, the latest, what sub-agents ask (`overview`). */

import { isAsked } from "./approval.js";
import { withWork, workFrom } from "./background.js";
import { callFromQuestion } from "./calls.js";
import { isTurnOver } from "./status.js";

/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./types.js").Clock} Clock */
/** @typedef {import("./types.js").Question} Question */
/** @typedef {import("./types.js").State} State */

/** @param {State} state @param {import("../net/wire.js").OverviewFrame} frame @param {Clock} clock @returns {State} */
export function withOverview(state, frame, clock) {
  const otherConversations = frame.conversations.map((wire) => ({
    conversationId: wire.conversation_id,
    standing: wire.standing,
    askedIn: wire.asked_in,
    toolsRunning: wire.tools_running,
    isQueued: wire.is_queued,
  }));
  const questions = frame.questions.map((wire) => questionFrom(wire, state, clock));
  const { latest: last } = frame;
  const latest = last ? { conversationId: last.conversation_id, title: last.title } : null;
  const background = (frame.background ?? []).map((wire) => workFrom(wire, state, clock));
  const known = { ...state, otherConversations, latest, questions, background, listEditedAt: frame.edited_at ?? null };
  return withWork(known);
}

/** What a list of conversations has to show. @param {State} state @returns {Array<import("./types.js").ListedConversation>} */
export function listedConversations({ otherConversations, latest }) {
  const listed = otherConversations.map(({ conversationId, standing }) => ({
    id: conversationId,
    title: "",
    standing,
  }));
  if (!latest) return listed;
  const place = listed.find(({ id }) => id === latest.conversationId);
  if (!place) return [...listed, { id: latest.conversationId, title: latest.title, standing: "" }];
  return listed.map((each) => (each === place ? { ...each, title: latest.title } : each));
}

/** What was asked for on this page and is not answered yet stays, unless it is asked anew: its tool has changed. @param {import("../net/wire.js").SubAgentQuestion} wire @param {State} state @param {Clock} clock @returns {Question} */
function questionFrom(wire, state, clock) {
  const call = callFromQuestion({ ...wire, sub_agent: wire }, 0, clock);
  const turnId = wire.turn_id;
  const known = state.questions.find((question) => isOf(question, turnId, call.toolId))?.call;
  const isSame = known?.approval?.requestedAt === call.approval?.requestedAt;
  const kept =
    known && isSame ? { isDeciding: known.isDeciding, stoppingAt: known.stoppingAt, approval: known.approval } : {};
  return { turnId, call: { ...call, ...kept } };
}

/** @param {Question} question @param {string} turnId @param {string} toolId */
const isOf = (question, turnId, toolId) => question.turnId === turnId && question.call.toolId === toolId;

/**
 * @param {ReadonlyArray<Question>} questions
 * @param {{turnId: string, toolId: string}} which
 * @param {(call: Call) => Call} change
 * @returns {ReadonlyArray<Question>}
 */
export const changeQuestion = (questions, { turnId, toolId }, change) =>
  questions.map((question) =>
    isOf(question, turnId, toolId) ? { ...question, call: change(question.call) } : question,
  );

/** The questions that can be answered on this page, in the order in which they stand there. @param {State} state @returns {Array<string>} */
export function openQuestions({ turns, questions }) {
  const own = turns.flatMap((turn) =>
    isTurnOver(turn.status) ? [] : turn.items.flatMap((item) => (item.kind === "call" ? askedKey(turn, item) : [])),
  );
  return [
    ...own,
    ...questions.filter(({ call }) => isAsked(call)).map(({ turnId, call }) => `${turnId} ${call.toolId}`),
  ];
}

/** The call of an open question. @param {State} state @param {string} key its turn and its call @returns {Call|null} */
export function askedCall({ turns, questions }, key) {
  for (const turn of turns) {
    const call = Object.values(turn.calls).find(({ toolId }) => `${turn.id} ${toolId}` === key);
    if (call) return call;
  }
  return questions.find(({ turnId, call }) => `${turnId} ${call.toolId}` === key)?.call ?? null;
}

/** @param {import("./types.js").Turn} turn @param {import("./types.js").CallItem} item */
function askedKey(turn, { toolId }) {
  const call = turn.calls[toolId];
  return call && isAsked(call) ? [`${turn.id} ${toolId}`] : [];
}

/**
 * How many decisions other conversations wait for: without those that this page shows.
 * @param {State} state
 * @param {string} here the id of this conversation
 */
export function questionsElsewhere({ otherConversations, questions }, here) {
  const shown = new Set([here, ...questions.map(({ call }) => call.subAgent?.conversationId)]);
  return otherConversations.flatMap(({ askedIn }) => askedIn).filter((place) => !shown.has(place)).length;
}
