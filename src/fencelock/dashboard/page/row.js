// One row of the list. It is made once and written again for whichever lock comes to stand there.

import { age, bar, rest, setLease } from "./bars.js";
import { el, write } from "./dom.js";
import { lockHash } from "./route.js";
import { COLUMNS, isContended } from "./select.js";
import { brief, number } from "./text.js";

/** Makes an empty row. */
export function makeRow() {
  const parts = {
    link: el("a", { tabindex: -1 }, el("bdi")), kind: el("span.kind"), backend: el("span"), who: el("bdi"), more: el("span.more"),
    since: age(null, null), bar: bar(null), rest: rest({ expires: null }), waiting: el("span.waiting"), waited: age(null, null), token: el("span"),
  };
  const cell = (column, ...inside) => el("td", { role: "gridcell", class: `c-${column}` }, inside);
  const row = el("tr", { role: "row", tabindex: -1 },
    cell("name", parts.link), cell("kind", parts.kind), cell("backend", parts.backend), cell("who", parts.who, parts.more),
    cell("since", parts.since), cell("expires", parts.bar, parts.rest), cell("waiting", parts.waiting, parts.waited), cell("token", parts.token));
  row.parts = parts;
  return row;
}

/** Makes the row of headings; `sortBy` is called with the column's word. */
export function makeHead(sortBy) {
  return el("tr", { role: "row", "aria-rowindex": 1 }, Object.entries(COLUMNS).map(([column, { label }]) =>
    el("th", { role: "columnheader", scope: "col", class: `c-${column}` },
      el("button", { type: "button", "data-sort": column, onclick: () => sortBy(column) }, label))));
}

/** Writes a lock into a row. */
export function drawRow(row, lock) {
  const { parts } = row;
  row.dataset.lock = lock.name;
  row.classList.toggle("has-waiters", lock.waiting > 0);
  row.classList.toggle("contended", isContended(lock));
  parts.link.href = lockHash(lock);
  parts.link.title = brief(lock.name, 1000);
  write(parts.link.firstChild, brief(lock.name));
  write(parts.kind, lock.kind);
  parts.kind.dataset.kind = lock.kind;
  write(parts.backend, brief(lock.backend.label, 60));
  write(parts.who, lock.who ? brief(lock.who, 60) : "nobody yet");
  write(parts.more, more(lock));
  parts.since.since = { at: lock.since, backend: lock.backend };
  setLease(parts.bar, lock);
  parts.rest.until = lock;
  write(parts.waiting, lock.waiting ? number(lock.waiting) : "–");
  parts.waited.hidden = lock.waiting === 0;
  parts.waited.since = { at: lock.waited, backend: lock.backend };
  write(parts.token, lock.token === null ? "–" : String(lock.token));
}

function more(lock) {
  if (lock.kind === "semaphore") return `${number(lock.held)} of ${number(lock.limit)}`;
  return lock.held > 1 ? `+${number(lock.held - 1)}` : "";
}
