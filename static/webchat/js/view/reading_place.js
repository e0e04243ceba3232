/** Tracks the reading position in the transcript, and determines which turns around it have elements. */

/** @typedef {import("../state/types.js").Turn} Turn */

/** The maximum distance from the end at which a person is reading the newest line. */
const STICK_PX = 80;
/**
 * The share of the screen that a long message fills. The rest of it is scrolled out of view, so that the answer is
 * visible.
 */
const MESSAGE_SHARE = 0.5;

/** @typedef {"end"|"turn"|"own"} Place */

/** Keeps the reading position while lines are added. A new turn moves to the top, and its answer grows below it. */
export class ReadingPlace {
  #scroller;
  /** @type {Place} */
  #place = "end";
  #lastTop = 0;
  /** The current turn. @type {HTMLElement|null} */
  #turn = null;

  /** @param {HTMLElement} scroller */
  constructor(scroller) {
    this.#scroller = scroller;
  }

  get isOwn() {
    return this.#place === "own";
  }

  /** Whether the current turn has lines below the screen that the person has not reached. */
  get hasMore() {
    const last = this.#turn?.lastElementChild;
    return this.#place !== "end" && last != null && edges(last).bottom > edges(this.#scroller).bottom + 1;
  }

  /** Follow the newest line until the person scrolls away. */
  toEnd() {
    this.#place = "end";
    this.#scroll();
  }

  /** Show the current turn from its top. */
  toTurn() {
    this.#place = "turn";
    if (this.#turn) this.#giveRoom(this.#turn);
  }

  /**
   * Keep the position after lines were added. `isNew` says that the turn began while the page was open.
   * @param {HTMLElement|null} turn
   * @param {boolean} isNew
   */
  settle(turn, isNew) {
    if (turn !== this.#turn) {
      this.#turn?.classList.remove("has-room");
      this.#turn = turn;
      if (isNew && this.#place !== "own") this.#place = "turn";
      if (turn && this.#place === "turn") this.#giveRoom(turn);
    }
    this.keep();
  }

  /** Restore the reading position after a change of height. */
  keep() {
    if (this.#place !== "own") this.#scroll();
  }

  /**
   * Update the position after the person has scrolled. Without scrolling it stays the same, even if new lines change
   * the distance to the end.
   */
  moved() {
    const { scrollTop } = this.#scroller;
    const distance = scrollTop - this.#lastTop;
    if (Math.abs(distance) < 1) return;
    this.#lastTop = scrollTop;
    const rest = this.#end - scrollTop;
    if (rest < STICK_PX && (distance > 0 || this.#place !== "turn")) this.#place = this.#isTurnShort ? "turn" : "end";
    else if (rest > 1) this.#place = "own";
  }

  /** Reserve the height of a screen for the turn, so that its answer has room. @param {HTMLElement} turn */
  #giveRoom(turn) {
    turn.classList.add("has-room");
  }

  get #end() {
    return this.#scroller.scrollHeight - this.#scroller.clientHeight;
  }

  /** Whether the turn and its answer fit into the space that is reserved for them. */
  get #isTurnShort() {
    return this.#turn?.classList.contains("has-room") === true && this.#topOfTurn(this.#turn) > this.#end - STICK_PX;
  }

  #scroll() {
    const target = this.#place === "turn" && this.#turn ? this.#topOfTurn(this.#turn) : this.#end;
    this.#scroller.scrollTop = Math.min(target, this.#end);
    this.#lastTop = this.#scroller.scrollTop;
  }

  /** @param {HTMLElement} turn */
  #topOfTurn(turn) {
    const scroller = this.#scroller;
    const message = turn.querySelector(".message-user");
    const hidden = message ? Math.max(0, edges(message).height - scroller.clientHeight * MESSAGE_SHARE) : 0;
    const padding = Number.parseFloat(getComputedStyle(scroller).paddingTop);
    return scroller.scrollTop + edges(turn).top - edges(scroller).top - padding + hidden;
  }
}

/** @param {Element} part */
const edges = (part) => part.getBoundingClientRect();

/** @typedef {Readonly<{from: number, to: number}>} Range The range excludes `to`. */

/** The maximum total weight of the turns that have elements. Each turn and each of its items weigh one. */
export const MAX_WEIGHT = 120;
/** The estimated height of a turn that was never drawn is that of its header plus that of each of its items. */
const HEAD_PX = 60;
const ROW_PX = 90;

/** @param {Turn} turn */
const weightOf = (turn) => 1 + turn.items.length;

/**
 * Return the range of turns on both sides of a turn, as large as the weight allows. If one side reaches its end, the
 * other side gets the rest.
 * @param {ReadonlyArray<Turn>} turns
 * @param {number} centre
 * @returns {Range}
 */
export function rangeAround(turns, centre) {
  const middle = turns[centre];
  if (!middle) return { from: 0, to: 0 };
  let [from, to, weight] = [centre, centre + 1, weightOf(middle)];
  for (let hasGrown = true; hasGrown; ) {
    hasGrown = false;
    for (const isAbove of [true, false]) {
      const next = isAbove ? turns[from - 1] : turns[to];
      if (!next || weight + weightOf(next) > MAX_WEIGHT) continue;
      weight += weightOf(next);
      if (isAbove) from -= 1;
      else to += 1;
      hasGrown = true;
    }
  }
  return { from, to };
}

/** The last measured heights of the turns. */
export class TurnHeights {
  /** @type {Map<string, number>} */
  #heights = new Map();

  /** @param {string} id @param {number} height including the gap to the next turn */
  note(id, height) {
    this.#heights.set(id, height);
  }

  /** @param {ReadonlyArray<Turn>} turns @param {number} from @param {number} to */
  sum(turns, from, to) {
    let height = 0;
    for (let place = from; place < to; place += 1) height += this.#of(/** @type {Turn} */ (turns[place]));
    return height;
  }

  /**
   * Return the position of the turn at this distance from the top.
   * @param {ReadonlyArray<Turn>} turns
   * @param {number} distance
   */
  at(turns, distance) {
    let height = 0;
    const place = turns.findIndex((turn) => {
      height += this.#of(turn);
      return height > distance;
    });
    return place === -1 ? turns.length - 1 : place;
  }

  /** @param {Turn} turn */
  #of(turn) {
    return this.#heights.get(turn.id) ?? HEAD_PX + ROW_PX * turn.items.length;
  }
}
