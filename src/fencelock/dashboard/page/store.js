// What the dashboard knows: the backends, their locks, their plots. No drawing, no requests.
//
// Frames of the stream come in through `apply`; each replaces or changes what is here and then calls the
// listeners with what it touched. After a `hello` everything begins anew, so a reconnect doubles nothing.
//
// Time. All instants are seconds on the dashboard's own line. A frame says what is "now" on it; between
// frames `now()` goes on with the browser's monotonic clock. Of the last frames the one that was least
// delayed on its way counts, so that bars do not jitter. What belongs to a backend that is away stands still:
// nobody knows whether its leases were renewed.

import { shown } from "./text.js";

const POINTS = 900;
const NAMES = 2000; // so many names are remembered for "most contended"
const TRUSTED = 30; // seconds for which the least delayed frame counts

export const store = {
  hello: null,
  connected: false,
  /** Whether the stream was closed on purpose, because nobody looks. */
  paused: false,
  /** When the stream was lost, as the browser's wall clock has it in seconds. */
  lostAt: null,
  /** @type {Map<string, object>} */
  backends: new Map(),
  listeners: new Set(),
};

let ahead = 0; // the line minus performance.now()
let aheadSince = -Infinity;
let flat = null;

/** Seconds on the dashboard's line. */
export function now() {
  return performance.now() / 1000 + ahead;
}

/** Whether what is shown of a backend is true now. */
export function isFresh(backend) {
  return store.connected && backend.trouble === null;
}

/** The instant for which what is shown of a backend is true. */
export function nowOf(backend) {
  return isFresh(backend) ? now() : backend.at;
}

/** Wall time, seconds since 1970, of an instant on the line. */
export function wall(at) {
  return store.hello.wall + (at - store.hello.at);
}

/** All locks of all backends, in no order. */
export function locks() {
  if (flat === null) {
    flat = [];
    for (const backend of store.backends.values()) for (const lock of backend.locks.values()) flat.push(lock);
  }
  return flat;
}

/** The lock of that name; undefined if nobody holds it or waits for it. */
export function lockNamed(backend, name) {
  return store.backends.get(backend)?.names.get(name);
}

/** Sums of all backends. */
export function totals() {
  const sum = { locks: 0, held: 0, waiting: 0, contended: 0, rate: 0 };
  for (const { totals } of store.backends.values()) for (const key in sum) sum[key] += totals?.[key] ?? 0;
  return sum;
}

/** Calls `listener(touched)` after each frame; returns how to stop. */
export function listen(listener) {
  store.listeners.add(listener);
  return () => store.listeners.delete(listener);
}

/** Notes whether the stream is there. */
export function setConnected(connected) {
  if (store.connected === connected && (connected || store.lostAt !== null)) return;
  store.connected = connected;
  store.paused = false;
  store.lostAt = connected ? null : Date.now() / 1000;
  tell({ what: "connection" });
}

/** Notes that the stream was closed on purpose. */
export function pause() {
  Object.assign(store, { connected: false, paused: true, lostAt: null });
  tell({ what: "connection" });
}

/** Takes in a frame. */
export function apply(kind, frame) {
  if (kind === "hello") begin(frame);
  const backend = frame.b === undefined ? null : store.backends.get(frame.b);
  if (frame.b !== undefined && !backend) return;
  if (frame.at !== undefined) tick(frame.at);
  const touched = TAKE[kind]?.(frame, backend) ?? {};
  tell({ what: kind, backend, ...touched });
}

function tell(touched) {
  for (const listener of store.listeners) listener(touched);
}

function tick(at) {
  const found = at - performance.now() / 1000;
  const old = performance.now() / 1000 - aheadSince > TRUSTED;
  if (!old && found <= ahead) return;
  ahead = found;
  aheadSince = performance.now() / 1000;
}

function begin(frame) {
  aheadSince = -Infinity;
  flat = null;
  store.hello = frame;
  store.backends = new Map(frame.backends.map((told) => [told.id, emptyBackend(told, frame.at)]));
  setConnected(true);
}

function emptyBackend(told, at) {
  return {
    ...told, at, trouble: null, known: false, locks: new Map(), names: new Map(), totals: null, series: [],
    checkup: null, jobs: null, queued: new Map(),
  };
}

const TAKE = {
  picture(frame, backend) {
    const staying = new Set(frame.locks.map((lock) => lock.id));
    for (const id of [...backend.locks.keys()]) if (!staying.has(id)) drop(backend, id);
    backend.known = true;
    backend.series = frame.series ?? [];
    settle(backend, frame);
    for (const lock of frame.locks) put(backend, lock);
    flat = null;
    return { members: true, renewed: true };
  },

  change(frame, backend) {
    settle(backend, frame);
    for (const id of frame.gone) drop(backend, id);
    for (const lock of frame.put) put(backend, lock);
    for (const [id, expires, full] of frame.renewed) {
      const lock = backend.locks.get(id);
      if (lock) [lock.expires, lock.full] = [expires, full];
    }
    if (frame.point) remember(backend.series, frame.point);
    for (const [kind, name] of frame.events) if (kind === "queued") countQueued(backend.queued, name);
    const members = frame.gone.length > 0 || frame.put.length > 0;
    if (members) flat = null;
    return { members, renewed: frame.renewed.length > 0, frame };
  },

  checkup(frame, backend) {
    backend.checkup = frame;
  },

  jobs(frame, backend) {
    backend.jobs = frame;
  },

  audit: (line) => ({ line }),
};

function settle(backend, frame) {
  backend.trouble = frame.trouble ?? null;
  if (backend.trouble === null) backend.at = frame.at; // else what is shown is as old as it was
  backend.totals = frame.totals ?? backend.totals;
}

// A lock stays the same object as long as it has the same id: rows and focus hang on it.
function put(backend, told) {
  const lock = Object.assign(backend.locks.get(told.id) ?? { backend, drawn: 0 }, told);
  const safe = shown(lock.name);
  lock.sought = `${lock.name}\n${safe === lock.name ? "" : safe}\n${lock.who ?? ""}`.toLowerCase();
  lock.drawn += 1; // which drawing of it is the newest
  backend.locks.set(lock.id, lock);
  backend.names.set(lock.name, lock);
}

function drop(backend, id) {
  const lock = backend.locks.get(id);
  backend.locks.delete(id);
  // A name that came back has a new id: whichever of the two frames' lists came first, that one stays.
  if (lock && backend.names.get(lock.name) === lock) backend.names.delete(lock.name);
}

function remember(series, point) {
  series.push(point);
  if (series.length > POINTS) series.shift();
}

function countQueued(queued, name) {
  const count = (queued.get(name) ?? 0) + 1;
  queued.delete(name); // the name moves to the end: the one not heard of for longest is forgotten
  queued.set(name, count);
  if (queued.size > NAMES) queued.delete(queued.keys().next().value);
}
