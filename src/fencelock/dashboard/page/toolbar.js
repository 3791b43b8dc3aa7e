// What stands above the list: search, filters, choices, and how many were found.

import { el, fill } from "./dom.js";
import { COLUMNS, FILTERS, KINDS, sortOf } from "./select.js";
import { store } from "./store.js";
import { brief, counted, number } from "./text.js";

/**
 * Makes the toolbar.
 * @param {object} choice what is chosen, see select.js; it is read, never changed
 * @param {(news: object) => void} change is given what is to be chosen from now on
 * @param {(column: string) => void} sortBy
 */
export function toolbar(choice, change, sortBy) {
  const search = el("input", {
    id: "search", type: "search", placeholder: "Search names and holders", "aria-label": "Search names and holders",
    autocomplete: "off", spellcheck: "false", oninput: () => change({ q: search.value }),
  });
  const filters = el("div.chips", { role: "group", "aria-label": "Filters" },
    Object.entries(FILTERS).map(([word, { label, hint }]) =>
      el("button.chip", { type: "button", "data-filter": word, title: hint, onclick: () => change({ only: toggled(choice.only, word) }) }, label)));
  const kind = picker("kind", "Kind", (word) => change({ kind: word }));
  const backend = picker("backend", "Backend", (word) => change({ backend: word }));
  const order = picker("order", "Order", sortBy);
  const count = el("span", { id: "count" });
  fill(kind, options([["", "Any kind"], ...KINDS.map((word) => [word, word])]));
  fill(order, options(Object.entries(COLUMNS).map(([word, { label }]) => [word, `By ${label.toLowerCase()}`])));
  search.value = choice.q;

  /** Shows what is chosen, and that `found` of `all` locks are like that. */
  function draw(found, all) {
    count.textContent = found === all ? counted(all, "lock") : `${number(found)} of ${counted(all, "lock")}`;
    for (const button of filters.children) button.setAttribute("aria-pressed", choice.only.has(button.dataset.filter));
    const backends = [...store.backends.values()];
    backend.hidden = backends.length < 2;
    fill(backend, options([["", "Any backend"], ...backends.map(({ id, label }) => [id, brief(label, 40)])]));
    [backend.value, kind.value, order.value] = [choice.backend, choice.kind, sortOf(choice.sort)[0]];
  }

  const element = el("div.toolbar", { role: "search" }, search, filters, el("div.picks", {}, kind, backend, order), count);
  return { element, search, count, draw };
}

function picker(id, label, chosen) {
  return el("select", { id, "aria-label": label, onchange: (event) => chosen(event.target.value) });
}

function options(pairs) {
  return pairs.map(([value, text]) => el("option", { value }, text));
}

function toggled(words, word) {
  const other = new Set(words);
  if (!other.delete(word)) other.add(word);
  return other;
}
