// Whatever runs by itself between two frames of the stream: bars that fall, ages that grow.
//
// A bar is an element with a `lease` ({expires, full, backend}); an age has `since`, a rest has `until`. After
// drawing, a view gives its root to `animate`. Twenty times a second, in an animation frame, we look only at
// what is on the screen, and write only what looks different: a bar has 400 steps, with their styles made
// beforehand, so a frame allocates nothing and writes little. A bar is so long that it moves by about a pixel
// each time: more often would cost more and show no more. Ages change once a second. With reduced motion bars
// do, too.

import { el, write } from "./dom.js";
import { isFresh, nowOf } from "./store.js";
import { ticking } from "./text.js";

const STEPS = 400;
const PAUSE = 45; // milliseconds: every third frame of sixty a second
const SCALES = Array.from({ length: STEPS + 1 }, (_, step) => `scaleX(${step / STEPS})`);
const PERCENT = Array.from({ length: STEPS + 1 }, (_, step) => String(Math.round((100 * step) / STEPS)));
const LOW = STEPS / 4;
const LATE = STEPS / 10;

const calm = matchMedia("(prefers-reduced-motion: reduce)");
let bars = [];
let ages = [];
let second = 0;
let last = 0;

/** Makes the bar of a lease; null where a lease has no end. */
export function bar(lease) {
  const made = el("span.bar", {
    role: "meter", "aria-label": "Rest of the lease", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": 0,
  }, el("span.fill"));
  if (lease) fall(setLease(made, lease));
  return made;
}

/** Gives a bar another lease. */
export function setLease(made, lease) {
  made.lease = lease;
  made.hidden = lease.expires === null;
  return made;
}

/** Makes text that says how long ago `at` was. */
export function age(at, backend) {
  return el("span", { "data-ticks": true, since: { at, backend } }, at === null ? "–" : ticking(nowOf(backend) - at));
}

/** Makes text that says how long a lease still is. */
export function rest(lease) {
  return el("span.rest", { "data-ticks": true, until: lease }, remaining(lease));
}

function remaining(lease) {
  return lease.expires === null ? "no ttl" : ticking(lease.expires - nowOf(lease.backend));
}

/** Whether a lease is in its last quarter: it was not renewed, or not yet. */
export function endsSoon(lease) {
  return lease.expires !== null && lease.expires - nowOf(lease.backend) < lease.full / 4;
}

/** From now on what is in `root` is what runs; null for nothing. */
export function animate(root) {
  bars = root ? [...root.querySelectorAll(".bar")] : [];
  ages = root ? [...root.querySelectorAll("[data-ticks]")] : [];
}

/** Writes what is on the screen, at once. */
export function settle() {
  bars.forEach(fall);
  ages.forEach(grow);
}

function fall(made) {
  const { lease } = made;
  if (!lease || lease.expires === null) return;
  const share = (lease.expires - nowOf(lease.backend)) / lease.full;
  const step = share >= 1 ? STEPS : share > 0 ? Math.round(share * STEPS) : 0; // not a number: 0
  const level = !isFresh(lease.backend) ? "unknown" : step < LATE ? "late" : step < LOW ? "low" : "well";
  if (made.level !== level) made.dataset.level = made.level = level;
  if (made.step === step) return;
  made.step = step;
  made.firstChild.style.transform = SCALES[step];
  made.setAttribute("aria-valuenow", PERCENT[step]);
}

function grow(made) {
  const { since, until } = made;
  let text = "–";
  if (until) text = remaining(until);
  else if (since && since.at !== null) text = ticking(nowOf(since.backend) - since.at);
  write(made, text);
}

function frame(at) {
  requestAnimationFrame(frame);
  if (at - last < PAUSE) return;
  last = at;
  const whole = Math.floor(at / 1000);
  if (whole === second && calm.matches) return;
  for (let index = 0; index < bars.length; index += 1) fall(bars[index]);
  if (whole === second) return;
  second = whole;
  for (let index = 0; index < ages.length; index += 1) grow(ages[index]);
}

requestAnimationFrame(frame);
