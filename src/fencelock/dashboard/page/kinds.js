// Leaders, and semaphores with their slots: locks of one kind, as cards.

import { age, animate, bar, rest, settle } from "./bars.js";
import { el, fill } from "./dom.js";
import { lockHash } from "./route.js";
import { toHash } from "./select.js";
import { slots } from "./slots.js";
import { locks, store } from "./store.js";
import { brief, counted, number } from "./text.js";

const MOST = 200;

const WORDS = {
  leader: { title: "Leaders", none: "Nobody campaigns to lead anything.", hint: "Elections appear here: locks.election(name)." },
  semaphore: { title: "Semaphores", none: "No slot of a semaphore is held or waited for.", hint: "They appear here: locks.semaphore(name, limit)." },
};

export const leaders = (root) => kinds(root, "leader", leader);
export const semaphores = (root) => kinds(root, "semaphore", semaphore);

function kinds(root, kind, card) {
  const { title, none, hint } = WORDS[kind];

  function draw() {
    const found = locks().filter((lock) => lock.kind === kind).sort((one, two) => (one.name < two.name ? -1 : 1));
    const more = found.length - MOST;
    const all = toHash({ q: "", only: new Set(), kind, backend: "", sort: "name" });
    fill(root, el("h1", { tabindex: -1, "data-key": "title" }, title),
      found.length === 0 && el("div.empty", { "data-key": "none" }, el("p", {}, none), el("p.muted", {}, hint)),
      el("ul.plain.cards", { "data-key": "cards" }, found.slice(0, MOST).map(card)),
      more > 0 && el("p", { "data-key": "more" }, el("a", { href: all }, `and ${number(more)} more: all in the list`)));
    animate(root);
    settle();
  }

  draw();
  return { draw, title: () => title };
}

function head(lock) {
  return [
    el("h2.card-name", {}, el("a", { href: lockHash(lock) }, el("bdi", {}, brief(lock.name)))),
    store.backends.size > 1 && el("p.muted.small", {}, brief(lock.backend.label, 60)),
  ];
}

function leader(lock) {
  const candidates = lock.waiting ? `${counted(lock.waiting, "candidate")} waiting` : "no other candidate";
  return el("li.card", { "data-key": `${lock.backend.id} ${lock.id}`, "data-lock": lock.name }, head(lock),
    lock.held === 0 ? el("p.nobody", {}, "Nobody leads.") : [
      el("p.who", {}, el("bdi", {}, brief(lock.who, 200))),
      el("div.lease", {}, bar(lock), rest(lock)),
      el("p.small", {}, "leads for ", age(lock.since, lock.backend), el("span.muted", {}, `, token ${lock.token}`)),
    ],
    el("p.muted.small", {}, candidates));
}

function semaphore(lock) {
  return el("li.card", { "data-key": `${lock.backend.id} ${lock.id}`, "data-lock": lock.name }, head(lock),
    slots(lock.held, lock.limit),
    el("p.small", {}, `${number(lock.held)} of ${number(lock.limit)} slots held`, lock.waiting > 0 && `, ${number(lock.waiting)} waiting`),
    lock.held > 0 && el("div.lease", {}, bar(lock), el("span.muted.small", {}, "the first ends in ", rest(lock))));
}
