/** Escapes hidden and deceptive characters in the texts that people read before they approve a call (D2). */

/** Characters that are invisible, look like a space, reorder their neighbours, or depend on the font. */
const HIDDEN = /(?![\n\t ])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\u{13441}\u{13442}\u{16FE4}\u{1D159}]/gu;
/** Marks after the fourth one on a letter (UTS #39, 5.4). No language needs so many, and they can cover other lines. */
const PILED = /(?<=\p{Mn}{4})\p{M}/gu;
const TITLE_LENGTH = 100;
const PLAIN = /^[\n\t\x20-\x7e]*$/;
const WORD = /[\p{L}\p{M}\p{N}]+/gu;
const NOT_ASCII = /\P{ASCII}/gu;

/** The scripts in everyday use (UAX #31, Table 5). */
const SCRIPTS =
  "Latn Cyrl Grek Arab Armn Beng Bopo Deva Ethi Geor Gujr Guru Hang Hani Hebr Hira Kana Khmr Knda Laoo Mlym Mymr Orya Sinh Taml Telu Thaa Thai Tibt".split(
    " ",
  );
/**
 * The scripts that may be mixed in a word (UTS #39, "Highly Restrictive"): those of Japanese, Korean, and Chinese with
 * Bopomofo.
 */
const TOGETHER = ["Latn Hani Hira Kana", "Latn Hani Hang", "Latn Hani Bopo"].map((names) => names.split(" "));
const ONE_OF_THEM = new RegExp(`[${classes(SCRIPTS)}]`, "u");
const UNMIXED = [...SCRIPTS.map((name) => [name]), ...TOGETHER].map(
  (names) => new RegExp(`^[${classes([...names, "Zyyy", "Zinh"])}]+$`, "u"),
);

/**
 * Return the text with every hidden character escaped as \u{…}. Non-ASCII letters in words that mix scripts are escaped
 * too, for example in "pаypal" with a Cyrillic letter, but not in "файл" or "déjà".
 * @param {string} text
 */
export function visible(text) {
  if (PLAIN.test(text)) return text;
  return text
    .replace(WORD, (word) => (isMixed(word) ? word.replace(NOT_ASCII, writtenOut) : word))
    .replace(PILED, writtenOut)
    .replace(HIDDEN, writtenOut);
}

/**
 * Return a server's title for its tool with hidden characters escaped. It is shortened, because escapes can make it
 * long.
 * @param {string} title
 */
export function visibleTitle(title) {
  const text = visible(title);
  return text.length > TITLE_LENGTH ? `${text.slice(0, TITLE_LENGTH - 1)}…` : text;
}

/** @param {string} word */
const isMixed = (word) => ONE_OF_THEM.test(word) && !UNMIXED.some((script) => script.test(word));

/** @param {string} character */
const writtenOut = (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}}`;

/** @param {ReadonlyArray<string>} names */
function classes(names) {
  return names.map((name) => `\\p{Script_Extensions=${name}}`).join("");
}
