// The stream of frames, and how it comes back.
//
// The browser's EventSource tries again by itself after a network error. It gives up when the answer is not
// a stream (logged out, a proxy's error page); then we ask who we are, go to the login page if nobody, and
// else try again, each time a little later. Each poll sends a frame. If none has come for long, the backends
// are slow or the way to the dashboard is cut: it is asked, and if it does not answer the stream is opened
// anew.

import { apply, setConnected } from "./store.js";

const KINDS = ["hello", "picture", "change", "checkup", "jobs", "audit"];
const SILENCE = 20_000;
const PATIENCE = 5_000;
const LATEST = 10_000;

let source = null;
let silence = 0;
let wait = 500;

// A page that was left may be kept for the way back, with its connection; a browser has six for a host.
addEventListener("pagehide", close);
addEventListener("pageshow", (event) => event.persisted && open());

function close() {
  clearTimeout(silence);
  source?.close();
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
    if (await answers()) return listenForSilence();
    setConnected(false);
    open();
  }, SILENCE);
}

function again() {
  clearTimeout(silence);
  setTimeout(async () => {
    if (await loggedOut()) location.assign("login");
    else open();
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
