// A lock's own page: who holds it, who waits in which order and since when, and what has happened to it.
//
// The frames of the stream carry only a line for each lock. When one touches this lock the whole of it is
// asked for, at most twice a second; the answer comes from the server's last picture and costs the backend
// nothing.

import { ask } from "./api.js";
import { age, animate, bar, rest, settle } from "./bars.js";
import { breakLock, whoOf } from "./break.js";
import { el, fill } from "./dom.js";
import { trail } from "./route.js";
import { slots } from "./slots.js";
import { listen, lockNamed, nowOf, store, wall } from "./store.js";
import { brief, clock, number, shown, shownMetadata } from "./text.js";

const PAUSE = 500;
const LONGEST = 3000; // also without news: other leases than the one that ends first may have been renewed
const WORDS = {
  taken: "took it", released: "released it", queued: "began to wait", left: "stopped waiting", broken: "was broken",
};

/** Shows the page of a lock. */
export function lock(root, route) {
  const [id, name] = [route.parts[0], route.parts.slice(1).join("/")];
  const page = { detail: null, failed: null, asked: -Infinity, turn: 0, answered: 0, mark: null, timer: 0, gone: false };
  const stop = listen(({ backend, frame }) => {
    if (backend?.id === id && (touched(frame) || performance.now() - page.asked > LONGEST)) soon();
  });
  draw();
  load();

  function touched(frame) {
    const known = lockNamed(id, name);
    const mark = known ? `${known.id} ${known.drawn} ${known.expires}` : "";
    const changed = mark !== page.mark || frame?.events.some((event) => event[1] === name);
    page.mark = mark;
    return changed;
  }

  function soon() {
    if (page.timer) return;
    page.timer = setTimeout(load, Math.max(0, page.asked + PAUSE - performance.now()));
  }

  async function load() {
    page.asked = performance.now();
    page.timer = 0;
    if (store.connected && !store.backends.has(id)) return draw();
    const turn = (page.turn += 1);
    const answer = await asked();
    if (page.gone || turn < page.answered) return; // a later question was answered before
    Object.assign(page, answer, { answered: turn });
    draw();
  }

  async function asked() {
    try {
      return { detail: await ask(`api/lock?${new URLSearchParams({ backend: id, name })}`), failed: null };
    } catch (failure) {
      if (failure.status !== 404) return { failed: failure.message };
      return { detail: { history: [], holders: [], waiters: [], waiting: 0 }, failed: null };
    }
  }

  function draw() {
    const backend = store.backends.get(id);
    fill(root, head(backend), body(backend));
    animate(root);
    settle();
  }

  function head(backend) {
    const detail = page.detail;
    const known = lockNamed(id, name);
    const may = backend && detail?.holders.length > 0 && store.hello && !store.hello.read_only;
    return el("header.lock-head", { "data-key": "head" },
      el("p.crumb", {}, el("a", { href: trail.list }, "← Locks")),
      el("h1.lock-name", { tabindex: -1 }, el("bdi", {}, shown(name))),
      el("div.facts", {},
        known && el("span.kind", { "data-kind": known.kind }, known.kind),
        backend && el("bdi.muted", {}, brief(backend.label)),
        may && el("button.danger", { type: "button", "data-break": true, onclick: () => breakLock(backend, name) }, "Break …")));
  }

  function body(backend) {
    if (page.failed && !page.detail) return el("p.empty", { "data-key": "failed" }, page.failed);
    if (!backend && store.connected) return el("p.empty", { "data-key": "none" }, "This dashboard has no such backend.");
    if (!backend || !page.detail) return el("p.empty", { "data-key": "looking" }, "Looking …");
    return el("div.lock-body", { "data-key": "body" },
      holders(page.detail, backend), el("div", {}, waiters(page.detail, backend), history(page.detail)));
  }

  return {
    draw: (news) => (news.what.has("hello") ? load() : draw()),
    key(event) {
      if (event.key !== "b" || !page.detail) return false;
      breakLock(store.backends.get(id), name);
      return true;
    },
    leave() {
      page.gone = true;
      clearTimeout(page.timer);
      stop();
    },
    title: () => brief(name, 60),
  };
}

function holders(detail, backend) {
  const { holders } = detail;
  const limit = holders[0]?.limit ?? 1;
  return el("section.holding", { "aria-labelledby": "holding" },
    el("h2", { id: "holding" }, holders.length > 1 ? `${number(holders.length)} hold it` : "Holds it"),
    limit > 1 && slots(holders.length, limit),
    holders.length === 0 && el("p.nobody", {}, "Nobody."),
    el("ul.plain", {}, holders.map((entry) => holder(entry, backend))));
}

function holder(entry, backend) {
  const lease = { expires: entry.expires, full: entry.full, backend };
  return el("li.card.holder", { "data-key": entry.owner },
    el("p.who", {}, el("bdi", {}, brief(whoOf(entry), 300))),
    el("div.lease", {}, bar(lease), rest(lease)),
    el("dl.pairs", {},
      pair("Token", el("span.mono", {}, String(entry.token))),
      pair("Mode", mode(entry)),
      pair("Held for", age(entry.since, backend), el("span.muted", {}, `, since ${clock(wall(entry.since))}`)),
      pair("Owner", el("span.mono.breaks", {}, shown(entry.owner)))),
    entry.metadata !== null && el("pre.metadata", { tabindex: 0, "aria-label": "Metadata" }, shownMetadata(entry.metadata)));
}

function pair(term, ...told) {
  return [el("dt", {}, term), el("dd", {}, told)];
}

function mode(entry) {
  return entry.mode === "permit" ? `permit, 1 of ${entry.limit} slots` : entry.mode;
}

function waiters(detail, backend) {
  const longest = Math.max(1, ...detail.waiters.map((entry) => nowOf(backend) - entry.since));
  const more = detail.waiting - detail.waiters.length;
  return el("section.waits", { "aria-labelledby": "waits" },
    el("h2", { id: "waits" }, queueTitle(detail.waiting)),
    detail.waiters.length > 0 && el("ol.plain.waiters", { tabindex: 0, "aria-labelledby": "waits" },
      detail.waiters.map((entry, index) => waiter(entry, index, backend, longest, detail.kind === "readers"))),
    more > 0 && el("p.muted", {}, `and ${number(more)} more`));
}

function queueTitle(waiting) {
  if (waiting === 0) return "Nobody waits";
  return waiting === 1 ? "1 waits" : `${number(waiting)} wait, in this order`;
}

function waiter(entry, index, backend, longest, mixed) {
  const share = Math.round((100 * (nowOf(backend) - entry.since)) / longest);
  return el("li", { "data-key": entry.owner },
    el("span.turn", { "aria-hidden": "true" }, String(index + 1)),
    el("span.who", {}, el("bdi", {}, brief(whoOf(entry), 200)), mixed && el("span.muted", {}, ` ${entry.mode}`)),
    el("progress.wait", { max: 100, value: Math.max(1, share), "aria-hidden": "true" }),
    el("span.waited", {}, age(entry.since, backend)));
}

function history(detail) {
  const past = [...detail.history].reverse();
  return el("section", { "aria-labelledby": "history" },
    el("h2", { id: "history" }, "What has happened"),
    past.length === 0
      ? el("p.muted", {}, "Nothing since the dashboard has been watching.")
      : el("div.scrolls", {}, el("table.plain-table", { "aria-labelledby": "history" },
          el("thead", {}, el("tr", {}, ["When", "Who", "What", "Token"].map((word) => el("th", { scope: "col" }, word)))),
          el("tbody", {}, past.map(happened)))));
}

function happened([kind, who, token, at, owner]) {
  return el("tr", { "data-key": `${kind} ${owner} ${at}`, "data-event": kind },
    el("td.nowrap", {}, clock(wall(at))),
    el("td.breaks", {}, el("bdi", {}, brief(who, 200))),
    el("td.nowrap", {}, WORDS[kind] ?? kind),
    el("td.mono", {}, token === null ? "–" : String(token)));
}
