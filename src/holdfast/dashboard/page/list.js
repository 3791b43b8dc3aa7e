// All locks: search, filters, order, and the table of which only the visible rows exist.
//
// What is chosen lives in the address, so a link keeps it. Typing answers at once, in the same event: the
// locks are filtered and sorted anew, which takes a few milliseconds for 10,000. Frames of the stream do so
// only if locks came, changed or went, or if what is chosen hangs on time; renewals just move the bars.

import { animate, settle } from "./bars.js";
import { breakLock } from "./break.js";
import { el, fill, say } from "./dom.js";
import { lockHash, trail } from "./route.js";
import { drawRow, makeHead, makeRow } from "./row.js";
import { Rows } from "./rows.js";
import { COLUMNS, FILTERS, KINDS, chosen, fromParams, hangsOnTime, sortOf, toHash } from "./select.js";
import { lockNamed, locks, store } from "./store.js";
import { summary } from "./summary.js";
import { brief, counted, number, shown } from "./text.js";

/** Where the user was when they left: backend and name of the row, and how far the window had scrolled. */
const left = { backend: null, name: null, scroll: 0 };

/** Shows the list; the choice comes from the route. */
export function list(root, route) {
  const choice = fromParams(route.params);
  const several = () => store.backends.size > 1;
  const parts = skeleton();
  let found = [];
  let counting = 0;
  let timed = hangsOnTime(choice) ? setInterval(refresh, 1000) : 0;

  fill(root, ...parts.all);
  const rows = new Rows(parts.body, row, drawRow);
  parts.search.value = choice.q;
  trail.list = toHash(choice);
  addEventListener("scroll", onScroll, { passive: true });
  addEventListener("resize", onResize);
  refresh();
  comeBack();

  function skeleton() {
    const search = el("input", {
      id: "search", type: "search", placeholder: "Search names and holders", "aria-label": "Search names and holders",
      autocomplete: "off", spellcheck: "false", oninput: () => change({ q: search.value }), onkeydown: enter,
    });
    const filters = el("div.chips", { role: "group", "aria-label": "Filters" },
      Object.entries(FILTERS).map(([word, { label, hint }]) =>
        el("button.chip", { type: "button", "data-filter": word, title: hint, onclick: () => toggle(word) }, label)));
    const kind = picker("kind", "Kind", ["", ...KINDS], (word) => word || "Any kind");
    const backend = picker("backend", "Backend", [""], (word) => word);
    const count = el("span", { id: "count" });
    const heads = makeHead(sortBy);
    const body = el("tbody", { role: "rowgroup" });
    const table = el("table.locks", { role: "grid", "aria-label": "Locks" },
      el("thead", { role: "rowgroup" }, heads), body);
    const order = picker("order", "Order", Object.keys(COLUMNS), (word) => `By ${COLUMNS[word].label.toLowerCase()}`);
    const empty = el("div.empty", { hidden: true });
    const head = el("div.tiles");
    const toolbar = el("div.toolbar", { role: "search" }, search, filters, el("div.picks", {}, kind, backend, order), count);
    const all = [el("h1.unseen", { tabindex: -1 }, "Locks"), head, toolbar, table, empty];
    return { all, head, toolbar, search, filters, kind, backend, order, count, heads, body, table, empty };
  }

  function picker(id, label, words, text) {
    const made = el("select", {
      id, "aria-label": label, onchange: () => (id === "order" ? sortBy(made.value) : change({ [id]: made.value })),
    });
    made.append(...words.map((word) => el("option", { value: word }, text(word))));
    return made;
  }

  // What is chosen ------------------------------------------------------------------------------

  function change(news) {
    Object.assign(choice, news);
    clearInterval(timed);
    timed = hangsOnTime(choice) ? setInterval(refresh, 1000) : 0;
    trail.list = toHash(choice);
    history.replaceState(null, "", trail.list);
    if (scrollY > top()) scrollTo(0, top());
    refresh();
    clearTimeout(counting);
    counting = setTimeout(() => say(parts.count.textContent), 700);
  }

  function toggle(word) {
    const only = new Set(choice.only);
    if (!only.delete(word)) only.add(word);
    change({ only });
  }

  function sortBy(word) {
    const [column, down] = sortOf(choice.sort);
    const next = column === word ? !down : Boolean(COLUMNS[word].down);
    change({ sort: (next ? "-" : "") + word });
  }

  function clear() {
    parts.search.value = "";
    change({ q: "", only: new Set(), kind: "", backend: "" });
    parts.search.focus();
  }

  // Drawing -------------------------------------------------------------------------------------

  function refresh() {
    found = chosen(locks(), choice);
    drawControls();
    rows.show(found);
    drawn();
  }

  function drawn() {
    markCurrent();
    animate(parts.body);
    settle();
  }

  function drawControls() {
    const all = locks().length;
    fill(parts.head, summary());
    parts.count.textContent = found.length === all ? counted(all, "lock") : `${number(found.length)} of ${counted(all, "lock")}`;
    parts.table.setAttribute("aria-rowcount", found.length + 1);
    parts.table.classList.toggle("several", several());
    for (const button of parts.filters.children) button.setAttribute("aria-pressed", choice.only.has(button.dataset.filter));
    drawPickers();
    drawHeads();
    drawEmpty(all);
  }

  function drawPickers() {
    const { backend, kind, order } = parts;
    backend.hidden = !several();
    if (backend.length !== store.backends.size + 1) {
      fill(backend, el("option", { value: "" }, "Any backend"),
        [...store.backends.values()].map(({ id, label }) => el("option", { value: id }, brief(label, 40))));
    }
    [backend.value, kind.value, order.value] = [choice.backend, choice.kind, sortOf(choice.sort)[0]];
  }

  function drawHeads() {
    const [column, down] = sortOf(choice.sort);
    for (const head of parts.heads.children) {
      const sorted = head.firstChild.dataset.sort === column;
      head.setAttribute("aria-sort", sorted ? (down ? "descending" : "ascending") : "none");
    }
  }

  function drawEmpty(all) {
    parts.empty.hidden = found.length > 0;
    parts.table.hidden = found.length === 0;
    if (found.length > 0) return;
    const known = store.connected && [...store.backends.values()].every((backend) => backend.known);
    if (!known) fill(parts.empty, el("p", {}, "Looking …"));
    else if (all === 0) fill(parts.empty, el("p", {}, "Nobody holds a lock, nobody waits."), el("p.muted", {}, "A lock appears here as soon as somebody takes it."));
    else fill(parts.empty, el("p", {}, "No lock is like that."), el("button", { type: "button", onclick: clear }, "Show all locks"));
  }

  function row() {
    const made = makeRow();
    made.onclick = open;
    made.onfocus = () => makeCurrent(made);
    return made;
  }

  // Moving about --------------------------------------------------------------------------------

  // Enter in the search opens what was found if it is one lock, and else goes to the first.
  function enter(event) {
    if (event.key !== "Enter" || event.isComposing) return;
    if (found.length === 1) location.hash = lockHash(found[0]);
    else move(0);
  }

  function open(event) {
    if (event.target.closest("a") || event.ctrlKey || event.metaKey || !getSelection().isCollapsed) return;
    location.hash = lockHash(event.currentTarget.item);
  }

  function makeCurrent(row) {
    [left.backend, left.name] = [row.item.backend.id, row.item.name];
    markCurrent();
  }

  // The Tab key reaches one row: the current one, or the first.
  function markCurrent() {
    const current = rows.live.get(lockNamed(left.backend, left.name)) ?? parts.body.firstChild;
    for (const row of rows.live.values()) {
      const index = row === current ? 0 : -1;
      if (row.tabIndex !== index) row.tabIndex = index;
    }
  }

  function currentIndex() {
    const lock = left.name === null ? undefined : lockNamed(left.backend, left.name);
    return lock ? found.indexOf(lock) : -1;
  }

  function move(to) {
    if (!found.length) return;
    const index = Math.max(0, Math.min(found.length - 1, to));
    rows.reveal(index, parts.table.tHead.getBoundingClientRect().height + parts.toolbar.getBoundingClientRect().height);
    rows.live.get(found[index])?.focus({ preventScroll: true });
    drawn();
  }

  function comeBack() {
    if (!left.scroll && left.name === null) return;
    scrollTo(0, left.scroll);
    const index = currentIndex();
    if (index >= 0) move(index);
  }

  function top() {
    return parts.toolbar.previousSibling.getBoundingClientRect().bottom + scrollY;
  }

  function onScroll() {
    if (rows.render()) drawn();
  }

  function onResize() {
    rows.measure();
    rows.render();
    drawn();
  }

  const page = () => Math.max(1, Math.floor(innerHeight / rows.height) - 3);
  const moves = {
    j: () => currentIndex() + 1, ArrowDown: () => currentIndex() + 1,
    k: () => currentIndex() - 1, ArrowUp: () => currentIndex() - 1,
    PageDown: () => currentIndex() + page(), PageUp: () => currentIndex() - page(),
    Home: () => 0, End: () => found.length - 1,
  };

  return {
    draw(touched) {
      const focused = document.activeElement?.closest?.("tr");
      const place = focused ? focused.place : -1;
      if (touched.members || touched.what.has("hello") || touched.what.has("connection")) refresh();
      else {
        fill(parts.head, summary());
        settle();
      }
      // Its lock is gone: the focus goes to the one that took its place.
      if (focused?.item && !focused.isConnected && document.activeElement === document.body) move(place);
    },
    key(event) {
      const onRow = document.activeElement?.closest?.("tbody tr");
      if (event.key === "/") parts.search.focus();
      else if (event.key === "b" && onRow) breakLock(onRow.item.backend, onRow.item.name);
      else if (event.key === "Enter" && onRow) location.hash = lockHash(onRow.item);
      else if (event.key === "Escape" && toHash(choice) !== "#/") clear();
      else if (event.key.length === 1 ? moves[event.key] : moves[event.key] && (onRow || event.key === "ArrowDown")) move(moves[event.key]());
      else return false;
      return true;
    },
    leave() {
      left.scroll = scrollY;
      rows.close();
      clearInterval(timed);
      clearTimeout(counting);
      removeEventListener("scroll", onScroll);
      removeEventListener("resize", onResize);
    },
    title: () => (choice.q ? shown(choice.q) : "Locks"),
  };
}
