// The slots of a semaphore: filled ones are held, empty ones are free.

import { el } from "./dom.js";
import { number } from "./text.js";

const MOST = 64; // more slots than that are drawn as one bar

/** Draws the slots. */
export function slots(held, limit) {
  const label = `${number(held)} of ${number(limit)} slots held`;
  if (limit > MOST) return el("div.slots", { role: "img", "aria-label": label }, el("progress", { max: limit, value: held, "aria-hidden": "true" }));
  const squares = Array.from({ length: limit }, (_, index) => el(index < held ? "span.slot.held" : "span.slot"));
  return el("div.slots", { role: "img", "aria-label": label }, squares);
}
