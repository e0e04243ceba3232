/** Which turns of a long conversation have elements: those around what is read, so that no length makes the page slow. */

/** @typedef {import("../state/types.js").Turn} Turn */
/** @typedef {Readonly<{from: number, to: number}>} Range `to` is behind the last one. */

/** What the turns with elements may weigh together; a message and a call weigh one each. */
export const MAX_WEIGHT = 120;
/** What a turn is taken for that was never drawn: its head, and each of its rows. */
const HEAD_PX = 60;
const ROW_PX = 90;

/** @param {Turn} turn */
const weightOf = (turn) => 1 + turn.items.length;

/** The turns around one of them, on both sides as far as the weight allows. At an end the other side gets the rest. @param {ReadonlyArray<Turn>} turns @param {number} centre @returns {Range} */
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

/** The heights of turns, as they were when they last had elements. */
export class TurnHeights {
  /** @type {Map<string, number>} */
  #known = new Map();

  /** @param {string} id @param {number} height with the gap to the next one */
  note(id, height) {
    this.#known.set(id, height);
  }

  /** @param {ReadonlyArray<Turn>} turns @param {number} from @param {number} to */
  sum(turns, from, to) {
    let height = 0;
    for (let place = from; place < to; place += 1) height += this.#of(/** @type {Turn} */ (turns[place]));
    return height;
  }

  /** Which turn stands so far below the top. @param {ReadonlyArray<Turn>} turns @param {number} distance */
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
    return this.#known.get(turn.id) ?? HEAD_PX + ROW_PX * turn.items.length;
  }
}
