// The first glance: how much is held and waited for, and whether the set-ups can be relied on.

import { el } from "./dom.js";
import { store, totals } from "./store.js";
import { brief, number } from "./text.js";

const WORDS = { critical: "critical", warning: "has warnings", notice: "well, with notices", ok: "well" };
const SEVERITIES = ["critical", "warning", "notice", "ok"];

/** Makes the tiles. */
export function summary() {
  const sum = totals();
  return [
    tile("Held", number(sum.held), "#/?only=held", false),
    tile("Waiting", number(sum.waiting), "#/?only=contended", sum.contended > 0),
    tile("Contended", number(sum.contended), "#/?only=contended", sum.contended > 0),
    tile("Changes/s", sum.rate < 10 ? sum.rate.toFixed(1) : number(Math.round(sum.rate)), "#/plots", false),
    el("ul.health", { "aria-label": "Backends" }, [...store.backends.values()].map(health)),
  ];
}

function tile(label, value, href, alert) {
  return el(alert ? "a.tile.alert" : "a.tile", { "data-key": label, href }, el("span.value", {}, value), " ", el("span.label", {}, label));
}

function health(backend) {
  const state = stateOf(backend);
  const label = brief(backend.label, 48);
  return el("li", { "data-key": backend.id },
    el("a", { href: "#/backends", title: label }, el("span.dot", { "data-state": state.severity, "aria-hidden": "true" }),
      el("bdi", {}, label), el("span.word", {}, state.word)));
}

/** Returns how a backend is, as a severity and in words. */
export function stateOf(backend) {
  if (backend.trouble !== null) return { severity: "critical", word: "away" };
  if (!backend.checkup) return { severity: "unknown", word: "being examined" };
  if (backend.checkup.error) return { severity: "unknown", word: "not examined" };
  const found = backend.checkup.findings.map((finding) => finding.severity);
  const severity = SEVERITIES.find((word) => found.includes(word)) ?? "ok";
  return { severity, word: WORDS[severity] };
}
