/** Text in which nothing hides and nothing poses as something else: what a person reads before it is allowed (D2). */

/** What shows nothing, looks like a space, reorders its neighbours, or is drawn as each font likes. Marks of emoji, too. */
const HIDDEN = /(?![\n\t ])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\u{13441}\u{13442}\u{16FE4}\u{1D159}]/gu;
/** Marks beyond the fourth on one letter (UTS #39, 5.4): no language needs them, and piled up they cover other lines. */
const PILED = /(?<=\p{Mn}{4})\p{M}/gu;
const TITLE_LENGTH = 100;
const PLAIN = /^[\n\t\x20-\x7e]*$/;
const WORD = /[\p{L}\p{M}\p{N}]+/gu;
const NOT_ASCII = /\P{ASCII}/gu;

/** The scripts in everyday use (UAX #31, table 5). */
const SCRIPTS =
  "Latn Cyrl Grek Arab Armn Beng Bopo Deva Ethi Geor Gujr Guru Hang Hani Hebr Hira Kana Khmr Knda Laoo Mlym Mymr Orya Sinh Taml Telu Thaa Thai Tibt".split(
    " ",
  );
/** Those that are written together (UTS #39, "highly restrictive"): Japanese, Korean, Chinese with Bopomofo. */
const TOGETHER = ["Latn Hani Hira Kana", "Latn Hani Hang", "Latn Hani Bopo"].map((names) => names.split(" "));
const ONE_OF_THEM = new RegExp(`[${classes(SCRIPTS)}]`, "u");
const UNMIXED = [...SCRIPTS.map((name) => [name]), ...TOGETHER].map(
  (names) => new RegExp(`^[${classes([...names, "Zyyy", "Zinh"])}]+$`, "u"),
);

/**
 * The text with every character written out as \u{…} that cannot be seen. So are those beyond ASCII in words of mixed
 * scripts: "pаypal" with a Cyrillic letter, but neither "файл" nor "déjà".
 * @param {string} text
 */
export function visible(text) {
  if (PLAIN.test(text)) return text;
  return text
    .replace(WORD, (word) => (isMixed(word) ? word.replace(NOT_ASCII, writtenOut) : word))
    .replace(PILED, writtenOut)
    .replace(HIDDEN, writtenOut);
}

/** The title that a server has given its tool. Written out it may be long, and leaves room for what stands beside it. @param {string} title */
export function visibleTitle(title) {
  const seen = visible(title);
  return seen.length > TITLE_LENGTH ? `${seen.slice(0, TITLE_LENGTH - 1)}…` : seen;
}

/** @param {string} word */
const isMixed = (word) => ONE_OF_THEM.test(word) && !UNMIXED.some((script) => script.test(word));

/** @param {string} character */
const writtenOut = (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}}`;

/** @param {ReadonlyArray<string>} names */
function classes(names) {
  return names.map((name) => `\\p{Script_Extensions=${name}}`).join("");
}
