/**
 * Handles the state that is not in this conversation's log but in `overview` frames: other conversations, the questions
 * and forms of sub-agents, and sub-agents in the background.
 */

import { callFromQuestion, formFromWire, isAsked } from "./calls.js";
import { visible, visibleTitle } from "./hidden_characters.js";
import { isCallOver, isTurnOver } from "./status.js";
import { updateCall } from "./turns.js";

/** @typedef {import("./types.js").AskedForm} AskedForm */
/** @typedef {import("./types.js").Call} Call */
/** @typedef {import("./types.js").Clock} Clock */
/** @typedef {import("./types.js").Question} Question */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Work} Work */

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
  const forms = (frame.forms ?? []).flatMap((wire) => subAgentForms(wire, clock));
  const { latest: last } = frame;
  const latest = last ? { conversationId: last.conversation_id, title: last.title } : null;
  const background = (frame.background ?? []).map((wire) => workFrom(wire, state, clock));
  const next = {
    ...state,
    otherConversations,
    latest,
    questions,
    forms,
    background,
    listEditedAt: frame.edited_at ?? null,
  };
  return withWork(next);
}

/**
 * Return a question. A decision that is pending on this page is kept, unless the question was asked again because its
 * tool has changed.
 * @param {import("../net/wire.js").SubAgentQuestion} wire
 * @param {State} state
 * @param {Clock} clock
 * @returns {Question}
 */
function questionFrom(wire, state, clock) {
  const call = callFromQuestion({ ...wire, sub_agent: wire }, 0, clock);
  const turnId = wire.turn_id;
  const callBefore = state.questions.find((question) => isOf(question, turnId, call.toolId))?.call;
  const isSame = callBefore?.approval?.requestedAt === call.approval?.requestedAt;
  const next =
    callBefore && isSame
      ? { isDeciding: callBefore.isDeciding, stoppingAt: callBefore.stoppingAt, approval: callBefore.approval }
      : {};
  return { turnId, call: { ...call, ...next } };
}

/**
 * Return the form of a sub-agent's call in an array, which is empty if there is none.
 * @param {import("../net/wire.js").SubAgentForm} wire
 * @param {Clock} clock
 * @returns {AskedForm[]}
 */
function subAgentForms(wire, clock) {
  const form = formFromWire(wire, 0, clock);
  const tool = visible(wire.tool_title || wire.tool_name);
  return form ? [{ turnId: wire.turn_id, toolId: wire.tool_id, tool, agent: visible(wire.agent), form }] : [];
}

/**
 * Return the background work of a sub-agent. Work that is marked as stopping stays marked until it has ended.
 * @param {import("../net/wire.js").BackgroundWork} wire
 * @param {State} state
 * @param {Clock} clock
 * @returns {Work}
 */
function workFrom(wire, state, clock) {
  const before = state.background.find(({ turnId }) => turnId === wire.turn_id);
  return {
    turnId: wire.turn_id,
    conversationId: wire.conversation_id,
    agent: visible(wire.agent),
    status: wire.status,
    parentTurnId: wire.parent_turn_id,
    parentToolId: wire.parent_tool_id,
    elapsedMs: wire.elapsed_ms,
    elapsedAt: clock.now,
    tools: wire.tools.map((tool) => visibleTitle(tool.tool_title || tool.tool_name)),
    stoppingAt: before?.stoppingAt ?? (wire.status === "cancelling" ? clock.now : null),
  };
}

/**
 * Set the background work of the calls that started it, so that their cards show it.
 * @param {State} state
 * @returns {State}
 */
export function withWork(state) {
  const works = new Map(state.background.map((work) => [`${work.parentTurnId} ${work.parentToolId}`, work]));
  const turns = state.turns.map((turn) =>
    Object.keys(turn.calls).reduce((changed, toolId) => {
      const work = works.get(`${turn.id} ${toolId}`) ?? null;
      return updateCall(changed, toolId, (call) => ((call.work ?? null) === work ? call : { ...call, work }));
    }, turn),
  );
  return { ...state, turns };
}

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

/** @param {Question} question @param {string} turnId @param {string} toolId */
const isOf = (question, turnId, toolId) => question.turnId === turnId && question.call.toolId === toolId;

/**
 * Mark the work that a cancel stops: the sub-agent with this turn, or all sub-agents that this turn started.
 * @param {State} state
 * @param {string|undefined} turnId
 * @param {number|null} stoppingAt the time of the cancel, or null if the work continues
 * @returns {State}
 */
export function withStopping(state, turnId, stoppingAt) {
  const isMeant = (/** @type {Work} */ work) => work.turnId === turnId || work.parentTurnId === turnId;
  if (!state.background.some(isMeant)) return state;
  const background = state.background.map((work) =>
    isMeant(work) ? { ...work, stoppingAt: stoppingAt === null ? null : (work.stoppingAt ?? stoppingAt) } : work,
  );
  return withWork({ ...state, background });
}

/**
 * Return the names of the sub-agents that have stopped as requested.
 * @param {State} before
 * @param {State} after
 * @returns {Array<string>}
 */
export function endedAgents(before, after) {
  const turnIds = new Set(after.background.map(({ turnId }) => turnId));
  const stopped = before.background.filter(({ turnId, stoppingAt }) => stoppingAt !== null && !turnIds.has(turnId));
  return stopped.map(({ agent }) => agent);
}

/**
 * Return the conversations of an overview as entries for a list.
 * @param {State} state
 * @returns {Array<import("./types.js").ListedConversation>}
 */
export function listedConversations({ otherConversations, latest }) {
  const others = otherConversations.map(({ conversationId, standing }) => ({
    id: conversationId,
    title: "",
    standing,
  }));
  if (!latest) return others;
  const place = others.find(({ id }) => id === latest.conversationId);
  if (!place) return [...others, { id: latest.conversationId, title: latest.title, standing: "" }];
  return others.map((each) => (each === place ? { ...each, title: latest.title } : each));
}

/** Return the questions that can be answered on this page, in display order. @param {State} state @returns {Array<string>} */
export function openQuestions({ turns, questions }) {
  const own = turns.flatMap((turn) =>
    isTurnOver(turn.status) ? [] : turn.items.flatMap((item) => (item.kind === "call" ? askedKey(turn, item) : [])),
  );
  return [
    ...own,
    ...questions.filter(({ call }) => isAsked(call)).map(({ turnId, call }) => `${turnId} ${call.toolId}`),
  ];
}

/** @param {import("./types.js").Turn} turn @param {import("./types.js").CallItem} item */
function askedKey(turn, { toolId }) {
  const call = turn.calls[toolId];
  return call && isAsked(call) ? [`${turn.id} ${toolId}`] : [];
}

/** Return the open forms that can be answered on this page, in display order. @param {Pick<State, "turns"|"forms">} state @returns {Array<AskedForm>} */
export function openForms({ turns, forms }) {
  const own = turns.flatMap((turn) =>
    isTurnOver(turn.status) || turn.stoppingAt !== null
      ? []
      : Object.values(turn.calls).flatMap(({ toolId, title, name, form, status, stoppingAt }) =>
          form && stoppingAt === null && !isCallOver(status)
            ? [{ turnId: turn.id, toolId, tool: title || name, agent: "", form }]
            : [],
        ),
  );
  return [...own, ...forms];
}

/** Return the forms that were not open before. @param {State} before @param {State} after @returns {Array<AskedForm>} */
export function newForms(before, after) {
  const known = new Set(openForms(before).map(({ form }) => form.questionId));
  return openForms(after).filter(({ form }) => !known.has(form.questionId));
}

/** Return the number of open questions and forms on this page. @param {State} state */
export const askedCount = (state) => openQuestions(state).length + openForms(state).length;

/**
 * Return the call of an open question.
 * @param {State} state
 * @param {string} key the ids of its turn and call
 * @returns {Call|null}
 */
export function askedCall({ turns, questions }, key) {
  for (const turn of turns) {
    const call = Object.values(turn.calls).find(({ toolId }) => `${turn.id} ${toolId}` === key);
    if (call) return call;
  }
  return questions.find(({ turnId, call }) => `${turnId} ${call.toolId}` === key)?.call ?? null;
}

/**
 * Return the number of decisions that other conversations wait for and that this page does not show.
 * @param {State} state
 * @param {string} here the id of this conversation
 */
export function questionsElsewhere({ otherConversations, questions }, here) {
  const ids = new Set([here, ...questions.map(({ call }) => call.subAgent?.conversationId)]);
  return otherConversations.flatMap(({ askedIn }) => askedIn).filter((place) => !ids.has(place)).length;
}
