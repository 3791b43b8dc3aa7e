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
import { COLUMNS, chosen, fromParams, hangsOnTime, narrows, sortOf, toHash } from "./select.js";
import { lockNamed, locks, store } from "./store.js";
import { summary } from "./summary.js";
import { shown } from "./text.js";
import { toolbar } from "./toolbar.js";

/** Where the user was when they left: backend and name of the row, and how far the window had scrolled. */
const left = { backend: null, name: null, scroll: 0 };

/** Shows the list; the choice comes from the route. */
export function list(root, route) {
  const choice = fromParams(route.params);
  const returning = toHash(choice) === trail.list;
  const bar = toolbar(choice, change, sortBy);
  const head = el("div.tiles");
  const heads = makeHead(sortBy);
  const body = el("tbody", { role: "rowgroup" });
  const table = el("table.locks", { role: "grid", "aria-label": "Locks" }, el("thead", { role: "rowgroup" }, heads), body);
  const empty = el("div.empty");
  fill(root, el("h1.unseen", { tabindex: -1 }, "Locks"), head, bar.element, table, empty);
  const rows = new Rows(body, row, drawRow);
  let found = [];
  let counting = 0;
  const timed = setInterval(() => hangsOnTime(choice) && refresh(), 1000);

  trail.list = toHash(choice);
  bar.search.addEventListener("keydown", enter);
  addEventListener("scroll", onScroll, { passive: true });
  addEventListener("resize", onResize);
  refresh();
  if (returning) comeBack();

  // What is chosen ------------------------------------------------------------------------------

  function change(news) {
    Object.assign(choice, news);
    trail.list = toHash(choice);
    history.replaceState(null, "", trail.list);
    const top = head.getBoundingClientRect().bottom;
    if (top < 0) scrollBy(0, top);
    refresh();
    clearTimeout(counting);
    counting = setTimeout(() => say(bar.count.textContent), 700);
  }

  function sortBy(column) {
    const [current, down] = sortOf(choice.sort);
    const next = current === column ? !down : Boolean(COLUMNS[column].down);
    change({ sort: (next ? "-" : "") + column });
  }

  function clear() {
    bar.search.value = "";
    change({ q: "", only: new Set(), kind: "", backend: "" });
    bar.search.focus();
  }

  // Drawing -------------------------------------------------------------------------------------

  function refresh() {
    const all = locks();
    found = chosen(all, choice);
    fill(head, summary());
    bar.draw(found.length, all.length);
    drawTable();
    drawEmpty(all.length);
    rows.show(found);
    drawn();
  }

  function drawn() {
    markCurrent();
    animate(body);
    settle();
  }

  function drawTable() {
    const [column, down] = sortOf(choice.sort);
    for (const each of heads.children) {
      const sorted = each.firstChild.dataset.sort === column;
      each.setAttribute("aria-sort", sorted ? (down ? "descending" : "ascending") : "none");
    }
    table.hidden = found.length === 0;
    table.setAttribute("aria-rowcount", found.length + 1);
    table.classList.toggle("several", store.backends.size > 1);
  }

  function drawEmpty(all) {
    empty.hidden = found.length > 0;
    if (found.length > 0) return;
    const known = store.connected && [...store.backends.values()].every((backend) => backend.known);
    if (!known) fill(empty, el("p", {}, "Looking …"));
    else if (all === 0) fill(empty, el("p", {}, "Nobody holds a lock, nobody waits."), el("p.muted", {}, "A lock appears here as soon as somebody takes it."));
    else fill(empty, el("p", {}, "No lock is like that."), el("button", { type: "button", onclick: clear }, "Show all locks"));
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
    const current = rows.live.get(lockNamed(left.backend, left.name)) ?? body.firstChild;
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
    rows.reveal(index, table.tHead.offsetHeight + bar.element.offsetHeight);
    rows.live.get(found[index])?.focus({ preventScroll: true });
    drawn();
  }

  function comeBack() {
    scrollTo(0, left.scroll);
    const index = currentIndex();
    if (index >= 0) move(index);
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
        fill(head, summary());
        settle();
      }
      // Its lock is gone: the focus goes to the one that took its place.
      if (focused?.item && !focused.isConnected && document.activeElement === document.body) move(place);
    },
    key(event) {
      const onRow = document.activeElement?.closest?.("tbody tr");
      if (event.key === "/") bar.search.focus();
      else if (event.key === "b" && onRow) breakLock(onRow.item.backend, onRow.item.name);
      else if (event.key === "Enter" && onRow) location.hash = lockHash(onRow.item);
      else if (event.key === "Escape" && narrows(choice)) clear();
      else if (event.key in moves && (onRow || "jk".includes(event.key) || event.key === "ArrowDown")) move(moves[event.key]());
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
