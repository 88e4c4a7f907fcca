// How wide text is and where lines end. Pure. The same rules as streaming/wire/lines.py, held to the same
// vectors (tests/vectors/lines.json).

// East Asian wide and full-width characters, and emoji: two columns.
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\u3247\u3250-\u4dbf\u4e00-\ua4c6\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6b\uff01-\uff60\uffe0-\uffe6\u{1b000}-\u{1b2fb}\u{1f300}-\u{1f64f}\u{1f900}-\u{1f9ff}\u{20000}-\u{3fffd}]/u;
// Marks that sit on the character before them, and what is not seen at all.
const NONE = /[\p{Mn}\p{Me}\p{Cf}]/u;

const CLOSING = /^[.,!?:;…%)\]}”’»、。，．！？：；）】〉》」』〕〗｝ー々]+$/u;
const OPENING = /^[(\[{“‘«（【〈《「『〔〖｛]+$/u;
const HANGING = 4;

/** Width on a screen, in columns. */
export function columns(text) {
  let width = 0;
  for (const character of text) width += NONE.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
  return width;
}

/** Whether a space stands before a word of the protocol. */
export function spaced(word) {
  return word.space !== false;
}

/** How words read, without outer space. */
export function joined(words) {
  return words.map((word) => (spaced(word) ? ` ${word.text}` : word.text)).join("").trim();
}

/**
 * Whether `word` goes on a line that has `used` of `limit` columns. Where no space stands before it, closing
 * punctuation may hang over the end, for no line begins with it, and an opening bracket wants company.
 */
export function fits(word, used, limit) {
  if (used === 0) return true;
  const width = columns(word.text);
  if (spaced(word)) return used + 1 + width <= limit;
  if (CLOSING.test(word.text)) return used + width <= limit + HANGING;
  return used + width + (OPENING.test(word.text) ? 2 : 0) <= limit;
}

/** The columns of a line with `word` behind the `used` ones. */
export function after(word, used) {
  return used + columns(word.text) + (used > 0 && spaced(word) ? 1 : 0);
}

/**
 * Words as lines of at most `limit` columns, each filled before the next begins: words that come later never
 * move those that came before. A word that is longer has a line to itself.
 */
export function fill(words, limit) {
  const lines = [];
  let used = 0;
  for (const word of words) {
    if (lines.length === 0 || !fits(word, used, limit)) {
      lines.push([]);
      used = 0;
    }
    lines.at(-1).push(word);
    used = after(word, used);
  }
  return lines.map(joined);
}
