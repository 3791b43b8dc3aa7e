// Each backend: what it promises as it is set up, what is wrong with it, how far away it is.

import { Refused, order } from "./api.js";
import { el, fill } from "./dom.js";
import { store, wall } from "./store.js";
import { stateOf } from "./summary.js";
import { brief, clock, counted, shown, span } from "./text.js";

const SEVERITIES = ["critical", "warning", "notice", "ok"];
const GUARANTEES = {
  use_for: "Good for", scope: "Scope", fencing: "Fencing", crash_release: "After a crash, freed by",
  fairness: "Fairness", wakeup: "Wake-up", min_ttl: "Smallest ttl", max_ttl: "Largest ttl",
  clock: "A clock jump breaks", failover: "A failover breaks", restart: "A restart breaks",
};

/** Shows the backends. */
export function backends(root) {
  const said = new Map(); // backend id -> what came of the last order

  async function examine(backend) {
    tell(backend, "Examining …");
    try {
      const { begun } = await order("api/examine", { backend: backend.id });
      if (!begun) tell(backend, "It was examined just now: wait ten seconds.");
    } catch (failure) {
      if (!(failure instanceof Refused)) throw failure;
      tell(backend, failure.message);
    }
  }

  function tell(backend, text) {
    said.set(backend.id, text);
    draw();
  }

  function draw(news) {
    if (news?.what.has("checkup") || news?.what.has("hello")) said.clear();
    const all = [...store.backends.values()];
    fill(root, el("h1", { tabindex: -1, "data-key": "title" }, "Backends"),
      all.length === 0 && el("p.empty", { "data-key": "none" }, "Looking …"),
      all.map((backend) => section(backend, said.get(backend.id), () => examine(backend))));
  }

  draw();
  return { draw, title: () => "Backends" };
}

function section(backend, said, examine) {
  const { checkup } = backend;
  const state = stateOf(backend);
  return el("section.backend", { "data-key": backend.id, "aria-label": brief(backend.label) },
    el("header", {},
      el("h2", {}, el("span.dot", { "data-state": state.severity, "aria-hidden": "true" }), el("bdi", {}, brief(backend.label, 200))),
      el("p.muted", {}, [state.word, backend.namespace && `namespace ${shown(backend.namespace)}`, polled(backend)].filter(Boolean).join(" · ")),
      el("button", { type: "button", "data-examine": backend.id, onclick: examine }, "Examine again"),
      said && el("p", { role: "status" }, shown(said))),
    backend.trouble !== null && el("p.finding", { "data-state": "critical" }, shown(backend.trouble)),
    checkup ? examined(checkup) : el("p.muted", {}, "It is being examined …"));
}

function polled({ totals }) {
  return totals?.poll !== undefined && `${counted(totals.locks, "lock")} listed in ${span(totals.poll)}`;
}

function examined(checkup) {
  if (checkup.error) return el("p.finding", { "data-state": "critical" }, shown(checkup.error));
  return [
    el("blockquote.promise", {}, shown(checkup.promise)),
    el("p.muted.small", {}, `Examined at ${clock(wall(checkup.at))}.`),
    el("div.columns", {}, findings(checkup.findings), el("div", {}, guarantees(checkup.guarantees), latency(checkup.trips), clocks(checkup.clocks))),
  ];
}

function findings(found) {
  const sorted = [...found].sort((one, two) => SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(two.severity));
  return el("section", {}, el("h3", {}, "Findings"),
    sorted.length === 0 && el("p.muted", {}, "Nothing to say."),
    el("ul.plain", {}, sorted.map(finding)));
}

function finding({ severity, subject, setting, detail, advice }) {
  const head = [el("strong.severity", {}, severity), " ", el("strong", {}, shown(subject))];
  if (severity === "ok") return el("li.finding", { "data-state": "ok" }, head, " ", shown(detail));
  return el("li.finding", { "data-state": severity },
    el("p", {}, head, setting && [" ", el("code", {}, shown(setting))]),
    el("p", {}, shown(detail)),
    advice && el("p.advice", {}, shown(advice)));
}

function guarantees(told) {
  const value = (key) => (key.endsWith("_ttl") ? span(told[key]) : shown(String(told[key])));
  return el("section", {}, el("h3", {}, "Guarantees"),
    el("dl.pairs", {}, Object.entries(GUARANTEES).filter(([key]) => told[key] !== undefined)
      .map(([key, label]) => [el("dt", {}, label), el("dd", {}, value(key))])),
    told.caveats?.length > 0 && el("ul.caveats", {}, told.caveats.map((caveat) => el("li", {}, shown(caveat)))));
}

function latency(trips) {
  if (!trips || !trips.rounds) return null;
  return el("section", {}, el("h3", {}, "A round trip"),
    el("dl.pairs", {}, [["median", "Median"], ["p95", "One in 20"], ["p99", "One in 100"], ["min", "Quickest"]]
      .map(([key, label]) => [el("dt", {}, label), el("dd", {}, milliseconds(trips[key]))])));
}

function milliseconds(seconds) {
  return seconds < 1 ? `${(seconds * 1000).toFixed(2)} ms` : span(seconds);
}

function clocks(told) {
  if (!told?.length) return null;
  return el("section", {}, el("h3", {}, "Clocks, beside the dashboard's"),
    el("dl.pairs", {}, told.map((each) => [el("dt.breaks", {}, shown(each.server)), el("dd", {}, offset(each))])));
}

function offset(each) {
  return `${each.offset < 0 ? "−" : "+"}${milliseconds(Math.abs(each.offset))} ± ${milliseconds(each.uncertainty)}`;
}
