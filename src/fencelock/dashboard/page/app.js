// The page: which view is shown, when it is drawn, and what stands around it.
//
// The address says which view. A frame of the stream changes the store; the view is drawn at the next
// animation frame, once for however many came. The title and the banner follow each frame at once, since a
// window in the background is not drawn.

import { audit } from "./audit.js";
import { backends } from "./backends.js";
import { animate } from "./bars.js";
import { notice } from "./break.js";
import { say } from "./dom.js";
import { jobs } from "./jobs.js";
import { leaders, semaphores } from "./kinds.js";
import { listenToKeys } from "./keys.js";
import { list } from "./list.js";
import { lock } from "./lock.js";
import { plots } from "./plots.js";
import { parsed, trail } from "./route.js";
import { listen, store, totals, wall } from "./store.js";
import { open } from "./stream.js";
import { brief, clock, number, shown } from "./text.js";

const VIEWS = { locks: list, lock, plots, leaders, semaphores, jobs, backends, audit };

const main = document.getElementById("main");
let view = null;
let page = null;
let pending = null; // what frames have touched since the view was last drawn

function show() {
  const route = parsed(location.hash);
  if (!Object.hasOwn(VIEWS, route.page)) return location.replace("#/");
  const first = view === null;
  view?.leave?.();
  page = route.page;
  animate(null);
  main.replaceChildren();
  main.dataset.view = page;
  if (page !== "locks") scrollTo(0, 0);
  view = VIEWS[page](main, route);
  mark();
  notice("");
  retitle();
  // Whoever listens hears where they are; the list puts the focus where it was.
  if (!first && !main.contains(document.activeElement)) main.querySelector("h1")?.focus({ preventScroll: true });
}

function mark() {
  const here = page === "lock" ? "locks" : page;
  for (const link of document.querySelectorAll("nav a")) {
    if (parsed(link.hash).page === here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function retitle() {
  const sum = totals();
  const counts = `${number(sum.held)} held, ${number(sum.waiting)} waiting`;
  const sign = store.paused ? "paused: " : troubles().length > 0 ? "⚠ " : "";
  document.title = `${sign}${view?.title() ?? "Locks"} · ${counts} · fencelock`;
}

function troubles() {
  if (!store.connected) {
    if (store.lostAt === null) return [];
    return [`The dashboard has not answered since ${clock(store.lostAt)}. What you see is from then; this page keeps trying.`];
  }
  return [...store.backends.values()].filter((backend) => backend.trouble !== null)
    .map((backend) => `${brief(backend.label, 100)}: ${shown(backend.trouble)}. ${since(backend)}`);
}

function since(backend) {
  return backend.locks.size ? `What you see of it is from ${clock(wall(backend.at))}.` : "Nothing is known of its locks.";
}

function banner() {
  const place = document.getElementById("trouble");
  const text = troubles().join("\n");
  if (place.textContent === text) return;
  if (text === "") say("All backends answer again.");
  place.textContent = text;
  place.hidden = text === "";
  retitle();
}

function around() {
  document.body.dataset.connected = store.connected;
  document.getElementById("connection").textContent = state();
  document.getElementById("logout").hidden = !store.hello?.user;
  document.getElementById("read-only").hidden = !store.hello?.read_only;
  document.getElementById("version").textContent = store.hello ? `fencelock ${store.hello.version}` : "";
  for (const field of document.querySelectorAll("input[name=csrf]")) field.value = store.hello?.csrf ?? "";
  banner();
  retitle();
}

function state() {
  if (store.connected) return "live";
  if (store.paused) return "paused";
  return store.lostAt === null ? "connecting" : "away";
}

function heard(touched) {
  if (touched.what !== "change" || touched.members) around();
  else banner();
  if (touched.line) say(`Broken: ${brief(touched.line.name)}. Reason: ${brief(touched.line.reason, 500)}`);
  if (pending === null) {
    pending = { what: new Set(), members: false, renewed: false };
    requestAnimationFrame(draw);
  }
  pending.what.add(touched.what);
  pending.members ||= Boolean(touched.members);
  pending.renewed ||= Boolean(touched.renewed);
}

function draw() {
  const news = pending;
  pending = null;
  view?.draw(news);
}

function back() {
  if (page !== "locks") location.hash = trail.list;
  else document.activeElement?.blur();
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.querySelector("h1, #search")?.focus();
});
document.getElementById("help-open").addEventListener("click", () => document.getElementById("help").showModal());
document.getElementById("help-close").addEventListener("click", () => document.getElementById("help").close());

history.scrollRestoration = "manual";
addEventListener("hashchange", show);
listen(heard);
listenToKeys((event) => view?.key?.(event) ?? false, back);
show();
open();
