/** What sub-agents do for this conversation while nothing in it waits for them (`overview`). */

import { visible, visibleTitle } from "./hidden_characters.js";
import { updateCall } from "./turns.js";

/** @typedef {import("./types.js").Clock} Clock */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Work} Work */

/** What was asked to end here and has not ended yet stays so. @param {import("../net/wire.js").BackgroundWork} wire @param {State} state @param {Clock} clock @returns {Work} */
export function workFrom(wire, state, clock) {
  const known = state.background.find(({ turnId }) => turnId === wire.turn_id);
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
    stoppingAt: known?.stoppingAt ?? (wire.status === "cancelling" ? clock.now : null),
  };
}

/** Show the work on the cards of the calls that have led to it. @param {State} state @returns {State} */
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
 * Mark what a cancel means: a sub-agent by its own turn, or all that a turn of this conversation has set to work.
 * @param {State} state
 * @param {string|undefined} turnId
 * @param {number|null} stoppingAt null = it goes on
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

/** Who has ended as it was asked to. @param {State} before @param {State} after @returns {Array<string>} */
export function endedAgents(before, after) {
  const left = new Set(after.background.map(({ turnId }) => turnId));
  const ended = before.background.filter(({ turnId, stoppingAt }) => stoppingAt !== null && !left.has(turnId));
  return ended.map(({ agent }) => agent);
}
