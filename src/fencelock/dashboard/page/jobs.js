// Jobs and schedules, where a backend has them: the last runs of each schedule; how many jobs there are of
// each status, and those that may need somebody.

import { el, fill } from "./dom.js";
import { nowOf, store } from "./store.js";
import { brief, clock, number, shown, span, ticking } from "./text.js";

/** Shows jobs and schedules. */
export function jobs(root) {
  function draw() {
    const all = [...store.backends.values()].filter(({ jobs }) => jobs && (jobs.counts || jobs.error || jobs.schedules?.length));
    fill(root, el("h1", { tabindex: -1, "data-key": "title" }, "Jobs and schedules"),
      all.length === 0 && el("div.empty", { "data-key": "none" },
        el("p", {}, "No backend has jobs or schedules."),
        el("p.muted", {}, "A table of jobs in another database is named with --jobs URL.")),
      all.map(section));
  }

  draw();
  return { draw, title: () => "Jobs" };
}

function section(backend) {
  return [
    backend.jobs.schedules?.length > 0 && el("section", { "data-key": `${backend.id} schedules` },
      el("h2", {}, "Schedules: ", el("bdi", {}, brief(backend.label, 200))),
      el("ul.plain.cards", {}, backend.jobs.schedules.map(schedule))),
    (backend.jobs.counts || backend.jobs.error) && table(backend),
  ];
}

function table(backend) {
  const { counts, rows, error, source, at } = backend.jobs;
  return el("section", { "data-key": `${backend.id} jobs` },
    el("h2", {}, "Jobs: ", el("bdi", {}, brief(source ?? backend.label, 200))),
    error && el("p.finding", { "data-state": "critical" }, shown(error)),
    counts && el("div.tiles", {}, Object.entries(counts).map(([status, count]) => tile(status, count))),
    rows.length > 0 && jobTable(rows, nowOf(backend) - at));
}

function tile(status, count) {
  return el(status === "dead" && count > 0 ? "div.tile.alert" : "div.tile", { "data-key": status },
    el("span.value", {}, number(count)), " ", el("span.label", {}, shown(status)));
}

const JOB = {
  Id: (job) => el("span.mono", {}, shown(String(job.id))),
  Kind: (job) => shown(String(job.kind ?? "")),
  Status: (job) => el("span.status", { "data-status": job.status }, shown(job.status)),
  Attempts: (job) => number(job.attempts ?? 0),
  Due: (job, passed) => due(job, passed),
  Worker: (job) => shown(job.worker ?? "–"),
  Reason: (job) => brief(job.reason ?? "", 200),
};

function jobTable(rows, passed) {
  return el("table.plain-table.stacks", { "aria-label": "Jobs" },
    el("thead", {}, el("tr", {}, Object.keys(JOB).map((label) => el("th", { scope: "col" }, label)))),
    el("tbody", {}, rows.map((job) => el("tr", { "data-key": String(job.id) },
      Object.entries(JOB).map(([label, cell]) => el("td.breaks", { "data-label": label }, cell(job, passed)))))));
}

function due(job, passed) {
  if (typeof job.due_in !== "number") return "–";
  const left = job.due_in - passed;
  if (job.status === "pending") return left > 0 ? `in ${ticking(left)}` : `for ${ticking(-left)}`;
  if (job.status === "running") return left > 0 ? `given up in ${ticking(left)}` : "overdue";
  return `${ticking(Math.max(0, -left))} ago`;
}

function schedule({ name, runs }) {
  const [last] = runs;
  const took = last && last.ended !== null && last.ended !== undefined ? `, took ${span(Math.max(0, last.ended - last.started))}` : "";
  return el("li.card", { "data-key": name },
    el("h3.card-name", {}, el("bdi", {}, brief(name))),
    el("ol.runs", { "aria-label": "Last runs, newest first" }, runs.map((run) =>
      el("li", { "data-status": run.state, title: `${clock(run.tick)}: ${shown(run.state)}` }, el("span.unseen", {}, `${clock(run.tick)}: ${shown(run.state)}`)))),
    last ? el("p.small", {}, `${clock(last.tick)}: ${shown(last.state)}${took}`, el("br"), el("bdi.muted", {}, brief(last.host ?? "")))
      : el("p.small.muted", {}, "It has not run yet."),
    last?.detail && el("p.small.breaks", {}, brief(last.detail, 300)));
}
