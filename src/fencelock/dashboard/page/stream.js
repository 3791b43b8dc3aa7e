// The stream of frames, and how it comes back.
//
// The browser's EventSource tries again by itself after a network error. It gives up when the answer is not
// a stream (logged out, a proxy's error page); then we ask who we are, go to the login page if nobody, and
// else try again, each time a little later. Each poll sends a frame. If none has come for long, the backends
// are slow or the way to the dashboard is cut: it is asked, and if it does not answer the stream is opened
// anew.
//
// A browser has six connections for a host, and each stream takes one. So a page that was left, and one that
// nobody has seen for a while, gives its own back, and opens the stream again when somebody returns.

import { apply, pause, setConnected } from "./store.js";

const KINDS = ["hello", "picture", "change", "checkup", "jobs", "audit"];
const SILENCE = 20_000;
const PATIENCE = 5_000;
const LATEST = 10_000;
const UNSEEN = 30_000;

let source = null;
let silence = 0;
let unseen = 0;
let retry = 0;
let wait = 500;

addEventListener("pagehide", close);
addEventListener("pageshow", (event) => event.persisted && open());
document.addEventListener("visibilitychange", () => {
  clearTimeout(unseen);
  if (document.hidden) unseen = setTimeout(close, UNSEEN);
  else if (source === null) open();
});

function close() {
  clearTimeout(silence);
  clearTimeout(retry);
  source?.close();
  source = null;
  pause();
}

/** Opens the stream and keeps it open. */
export function open() {
  source?.close();
  source = new EventSource("api/stream");
  for (const kind of KINDS) source.addEventListener(kind, (event) => take(kind, event.data));
  source.addEventListener("error", lost);
  listenForSilence();
}

function take(kind, data) {
  wait = 500;
  listenForSilence();
  apply(kind, JSON.parse(data));
}

function lost() {
  setConnected(false);
  if (source.readyState === EventSource.CLOSED) again();
}

function listenForSilence() {
  clearTimeout(silence);
  silence = setTimeout(async () => {
    const there = await answers();
    if (source === null) return;
    if (there) return listenForSilence();
    setConnected(false);
    open();
  }, SILENCE);
}

function again() {
  clearTimeout(silence);
  retry = setTimeout(async () => {
    if (await loggedOut()) location.assign("login");
    else if (source !== null) open();
  }, wait);
  wait = Math.min(2 * wait, LATEST);
}

async function answers() {
  try {
    return (await fetch("healthz", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) })).ok;
  } catch {
    return false;
  }
}

async function loggedOut() {
  try {
    return (await fetch("api/audit", { cache: "no-store" })).status === 401;
  } catch {
    return false; // away, not refused
  }
}
