/** Joins dictated words to the text around them, without a browser. */

/** No blank follows a blank, an opening bracket or quote, or a script that has no blanks. */
const NEEDS_NONE_AFTER = /[\s\p{Ps}\p{Pi}\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\u3000-\u303f\uff00-\uffef]$/u;
/** No blank precedes a blank, a mark that closes something, or such a script. */
const NEEDS_NONE_BEFORE = /^[\s.,;:!?…\p{Pe}\p{Pf}\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\u3000-\u303f\uff00-\uffef]/u;

/**
 * The text with the blanks that it needs between these two texts.
 * @param {string} text @param {{before: string, after: string}} around
 */
export const spaced = (text, { before, after }) => `${blank(before, text)}${text}${blank(text, after)}`;

/** The blank between two texts, if they need one. @param {string} left @param {string} right */
const blank = (left, right) =>
  left === "" || right === "" || NEEDS_NONE_AFTER.test(left) || NEEDS_NONE_BEFORE.test(right) ? "" : " ";
