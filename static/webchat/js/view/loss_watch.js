/** Says aloud that the connection is lost, once it has been for a moment, and that it is back. */

/** @typedef {import("../state/types.js").State} State */
/** @typedef {import("./tool_call.js").View} View */

const LOST_AFTER_MS = 5_000;
const LIVE = new Set(["new", "online", "slow", "resuming", "connecting"]);

export class LossWatch {
  #announcer;
  #isSaid = false;

  /** @param {import("./announcer.js").Announcer} announcer */
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
