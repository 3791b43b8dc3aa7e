// Text for people: escaped, short, with spans of time they can read.
//
// Names, metadata, hosts and client names come from whoever takes a lock. Whatever is not printable (control
// characters, also those of Unicode that reverse or hide text) is shown escaped, and so is the backslash, so
// that no two names look alike: the same rule as in the terminal. What is made here becomes text nodes and
// attributes, never markup.

const UNSEEN = /[\p{C}\p{Z}\\]/u;
const EVERY_UNSEEN = /[\p{C}\p{Z}\\]/gu;
const SHORT = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", " ": " " };

/** Returns `text` as it may be shown. */
export function shown(text) {
  return UNSEEN.test(text) ? text.replace(EVERY_UNSEEN, escaped) : text;
}

function escaped(char) {
  const short = SHORT[char];
  if (short !== undefined) return short;
  const code = char.codePointAt(0);
  if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
  if (code < 0x10000) return "\\u" + code.toString(16).padStart(4, "0");
  return "\\U" + code.toString(16).padStart(8, "0");
}

/** Returns `text` as it may be shown in little space. */
export function brief(text, most = 120) {
  // Escaping makes it longer, so what is cut first is never too short.
  const safe = shown(text.length > most ? text.slice(0, most + 1) : text);
  return safe.length > most ? safe.slice(0, most - 1) + "…" : safe;
}

/** Returns metadata as text over several lines. */
export function shownMetadata(metadata) {
  if (typeof metadata === "string") return shown(metadata);
  // JSON has escaped controls and doubled backslashes already, but not what hides in Unicode.
  return JSON.stringify(metadata, null, 2).replace(/[\p{C}\p{Z}]/gu, (char) => (char === "\n" ? char : escaped(char)));
}

/** Returns a span of time as people say it: 250ms, 12.3s, 1m15s, 2h01m, 2d07h. */
export function span(seconds) {
  if (seconds < 0.0995) return `${Number((seconds * 1000).toPrecision(2))}ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)}s`;
  return long(Math.round(seconds));
}

/** Returns a span that is counted up or down before somebody's eyes: no fractions. */
export function ticking(seconds) {
  return seconds < 60 ? `${Math.max(0, Math.floor(seconds))}s` : long(Math.floor(seconds));
}

function long(whole) {
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor((whole % 86400) / 3600))}h`;
}

function two(number) {
  return String(number).padStart(2, "0");
}

const GROUPED = new Intl.NumberFormat("en");

/** Returns a number with its thousands kept apart. */
export function number(value) {
  return GROUPED.format(value);
}

/** Returns "1 lock", "2 locks". */
export function counted(count, word, many = word + "s") {
  return `${number(count)} ${count === 1 ? word : many}`;
}

/** Returns the time of day, on this machine's clock, of `wall` seconds since 1970; with the date if not today. */
export function clock(wall) {
  const then = new Date(wall * 1000);
  const time = [then.getHours(), then.getMinutes(), then.getSeconds()].map(two).join(":");
  if (then.toDateString() === new Date().toDateString()) return time;
  return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${time}`;
}
