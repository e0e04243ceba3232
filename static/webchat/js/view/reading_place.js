/** Where a person reads in the transcript: at its end, in the turn at hand, or at a place of their own. */

/** How near to the end counts as reading the newest line. */
const STICK_PX = 80;
/** The share of the screen that a long message keeps. The rest goes out of sight, so that its answer is in sight. */
const MESSAGE_SHARE = 0.5;

/** @typedef {"end"|"turn"|"own"} Place */

/** Keeps the place while lines are added. A turn at hand goes to the top, and its answer grows below it. */
export class ReadingPlace {
  #scroller;
  /** @type {Place} */
  #place = "end";
  #lastTop = 0;
  /** The turn at hand. @type {HTMLElement|null} */
  #turn = null;

  /** @param {HTMLElement} scroller */
  constructor(scroller) {
    this.#scroller = scroller;
  }

  get isOwn() {
    return this.#place === "own";
  }

  /** Whether lines stand below the screen that nobody follows. */
  get hasMore() {
    const last = this.#turn?.lastElementChild;
    return this.#place !== "end" && last != null && edges(last).bottom > edges(this.#scroller).bottom + 1;
  }

  /** Go to the newest line and stay with it, until the person scrolls away from it. */
  toEnd() {
    this.#place = "end";
    this.#scroll();
  }

  /** The turn at hand is the one to read, from its top. */
  toTurn() {
    this.#place = "turn";
    if (this.#turn) this.#giveRoom(this.#turn);
  }

  /** Keep the place after lines have come; `isNew`: the turn has begun while the page was open. @param {HTMLElement|null} turn @param {boolean} isNew */
  settle(turn, isNew) {
    if (turn !== this.#turn) {
      this.#turn?.classList.remove("has-room");
      this.#turn = turn;
      if (isNew && this.#place !== "own") this.#place = "turn";
      if (turn && this.#place === "turn") this.#giveRoom(turn);
    }
    this.keep();
  }

  /** Stay where the person reads, whatever has changed in height. */
  keep() {
    if (this.#place !== "own") this.#scroll();
  }

  /** Only a move of the person is a wish to read elsewhere: new lines, too, change the distance from the end. */
  moved() {
    const { scrollTop } = this.#scroller;
    const distance = scrollTop - this.#lastTop;
    if (Math.abs(distance) < 1) return;
    this.#lastTop = scrollTop;
    const left = this.#end - scrollTop;
    if (left < STICK_PX && (distance > 0 || this.#place !== "turn")) this.#place = this.#isTurnShort ? "turn" : "end";
    else if (left > 1) this.#place = "own";
  }

  /** Below a turn there is room for a screen of its answer. @param {HTMLElement} turn */
  #giveRoom(turn) {
    turn.classList.add("has-room");
  }

  get #end() {
    return this.#scroller.scrollHeight - this.#scroller.clientHeight;
  }

  /** Whether the turn with its room ends where the screen does. */
  get #isTurnShort() {
    return this.#turn?.classList.contains("has-room") === true && this.#topOfTurn(this.#turn) > this.#end - STICK_PX;
  }

  #scroll() {
    const wanted = this.#place === "turn" && this.#turn ? this.#topOfTurn(this.#turn) : this.#end;
    this.#scroller.scrollTop = Math.min(wanted, this.#end);
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
