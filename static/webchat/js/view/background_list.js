/** Who works in the background for this conversation, in the dock: what it does, since when, *Open* and *Stop*. */

import { elapsedOf, isStopUnderWay } from "../state/status.js";
import { byId, element, focusedBeside, placeAfter, setText } from "./dom.js";
import { workLabel } from "./labels.js";
import { linkTo } from "./sub_agents.js";

/** @typedef {import("./dom.js").Root} Root */
/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("../state/types.js").Work} Work */
/** @typedef {import("./tool_call.js").View} View */
/** @typedef {Readonly<{row: HTMLElement, doing: HTMLElement, time: HTMLElement, link: HTMLAnchorElement, stop: HTMLButtonElement}>} Row */
/** @typedef {Readonly<{stop: (turnId: string) => void, leave: () => void}>} Actions */

export class BackgroundList {
  #section;
  #list;
  #actions;
  /** @type {Map<string, Row>} */
  #known = new Map();

  /** @param {Root} root @param {Actions} actions */
  constructor(root, actions) {
    this.#section = byId(root, "background", HTMLElement);
    this.#list = byId(root, "background-list", HTMLElement);
    this.#actions = actions;
  }

  /** @param {State} state @param {View} view */
  render({ background }, view) {
    const focused = focusedBeside(this.#list);
    const hadFocus = this.#list.contains(focused);
    this.#section.hidden = background.length === 0;
    const wanted = new Set(background.map(({ turnId }) => turnId));
    for (const [turnId, { row }] of this.#known) {
      if (wanted.has(turnId)) continue;
      row.remove();
      this.#known.delete(turnId);
    }
    /** @type {HTMLElement|null} */
    let previous = null;
    for (const work of background) {
      const row = this.#known.get(work.turnId) ?? this.#made(work, view);
      this.#known.set(work.turnId, row);
      show(row, work, view);
      placeAfter(this.#list, row.row, previous);
      previous = row.row;
    }
    const isLost =
      !this.#list.contains(focusedBeside(this.#list)) || (focused instanceof HTMLButtonElement && focused.disabled);
    if (hadFocus && isLost) this.#actions.leave();
  }

  /** @param {Work} work @param {View} view @returns {Row} */
  #made({ turnId, agent }, { i18n }) {
    const doing = element("span", { class: "background-doing" });
    const time = element("span", { class: "background-time", role: "timer", "aria-live": "off" });
    const link = element("a", { class: "background-open" });
    const stop = element("button", { class: "button background-stop", type: "button", text: i18n.text("stop_work") });
    stop.setAttribute("aria-label", i18n.text("stop_agent", { agent }));
    stop.addEventListener("click", () => this.#actions.stop(turnId));
    const row = element(
      "li",
      { class: "background-row" },
      element("span", { class: "dot dot-running" }),
      doing,
      time,
      link,
      stop,
    );
    return { row, doing, time, link, stop };
  }
}

/** @param {Row} row @param {Work} work @param {View} view */
function show({ doing, time, link, stop }, work, view) {
  setText(doing, workLabel(view.i18n, work, view));
  setText(time, view.i18n.wholeClock(elapsedOf(work, view.now, view.frozenAt)));
  linkTo(link, work, view);
  stop.disabled = isStopUnderWay(work, view);
}
