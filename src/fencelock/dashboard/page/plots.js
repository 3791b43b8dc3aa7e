// Plots of each backend, and the names that are waited for most.

import { age, animate, settle } from "./bars.js";
import { Chart } from "./chart.js";
import { el, fill } from "./dom.js";
import { lockHash } from "./route.js";
import { isContended } from "./select.js";
import { locks, nowOf, store } from "./store.js";
import { brief, number, span } from "./text.js";

const MOST = 10;
const whole = (value) => (Number.isInteger(value) ? number(value) : value.toFixed(1));
const seconds = (value) => (value === 0 ? "0" : span(value).replace(".0s", "s"));

/** Shows the plots. */
export function plots(root) {
  const title = el("h1", { tabindex: -1 }, "Plots");
  const sections = el("div");
  const names = el("section", { "aria-labelledby": "contended" });
  let charts = [];
  fill(root, title, sections, names);
  build();
  draw();
  addEventListener("resize", draw);

  function build() {
    charts = [...store.backends.values()].flatMap((backend) => chartsOf(backend).map((chart) => ({ backend, chart })));
    sections.replaceChildren(...[...store.backends.values()].map((backend) =>
      el("section", { "aria-label": brief(backend.label) },
        el("h2", {}, el("bdi", {}, brief(backend.label))),
        el("div.charts", {}, charts.filter((each) => each.backend === backend).map(({ chart }) => chart.element)))));
    if (!charts.length) sections.replaceChildren(el("p.empty", {}, "Looking …"));
  }

  function draw() {
    for (const { backend, chart } of charts) chart.draw(backend.series, nowOf(backend));
    fill(names, contended());
    animate(names);
    settle();
  }

  return {
    draw(news) {
      if (news.what.has("hello")) build();
      draw();
    },
    leave: () => removeEventListener("resize", draw),
    title: () => "Plots",
  };
}

function chartsOf() {
  return [
    new Chart("Waiting", [{ field: 2, label: "waiters", style: "one" }, { field: 3, label: "contended locks", style: "two" }], whole),
    new Chart("Wait time of those whose turn came", [{ field: 5, label: "median", style: "one dots" }, { field: 6, label: "95th percentile", style: "two dots" }], seconds),
    new Chart("Locks held", [{ field: 1, label: "held", style: "one" }], whole),
    new Chart("Locks granted each second", [{ field: 4, label: "grants", style: "one" }], whole),
  ];
}

function contended() {
  const found = locks().filter((lock) => isContended(lock) || (lock.kind !== "leader" && lock.backend.queued.has(lock.name)));
  const queued = (lock) => lock.backend.queued.get(lock.name) ?? 0;
  found.sort((one, two) => two.waiting - one.waiting || queued(two) - queued(one));
  const head = el("h2", { id: "contended" }, "Most contended names");
  if (!found.length) return [head, el("p.muted", {}, "Nobody waits, and nobody has begun to since this page was opened.")];
  const heads = ["Name", "Waiting now", "The first for", "Began to wait since opened"];
  return [head, el("table.plain-table.stacks", { "aria-labelledby": "contended" },
    el("thead", {}, el("tr", {}, heads.map((word) => el("th", { scope: "col" }, word)))),
    el("tbody", {}, found.slice(0, MOST).map((lock) => row(lock, found[0].waiting, queued(lock), heads))))];
}

function row(lock, most, queued, heads) {
  return el("tr", { "data-key": `${lock.backend.id} ${lock.id}` },
    el("td.breaks", { "data-label": heads[0] }, el("a.mono", { href: lockHash(lock) }, el("bdi", {}, brief(lock.name)))),
    el("td", { "data-label": heads[1] }, el("span.figure", {}, number(lock.waiting)), el("progress.wait", { max: Math.max(1, most), value: lock.waiting, "aria-hidden": "true" })),
    el("td", { "data-label": heads[2] }, age(lock.waited, lock.backend)),
    el("td", { "data-label": heads[3] }, number(queued)));
}
