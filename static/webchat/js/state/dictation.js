/** Inserts dictated words with the right spaces into a text. This module does not need a browser. */

/** No space is inserted after a space, an opening bracket or quote, or a character of a script that uses no spaces. */
const NEEDS_NONE_AFTER = /[\s\p{Ps}\p{Pi}\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\u3000-\u303f\uff00-\uffef]$/u;
/** No space is inserted before a space, closing punctuation, or a character of a script that uses no spaces. */
const NEEDS_NONE_BEFORE = /^[\s.,;:!?…\p{Pe}\p{Pf}\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\u3000-\u303f\uff00-\uffef]/u;

/**
 * Return a text with the spaces that it needs between two other texts.
 * @param {string} text @param {{before: string, after: string}} around
 */
export const spaced = (text, { before, after }) => `${blank(before, text)}${text}${blank(text, after)}`;

/** Return the space between two texts, or "" if they need none. @param {string} left @param {string} right */
const blank = (left, right) =>
  left === "" || right === "" || NEEDS_NONE_AFTER.test(left) || NEEDS_NONE_BEFORE.test(right) ? "" : " ";
