// The audit log: who broke what, and why. Asked for when opened, and again when somebody breaks something.

import { ask } from "./api.js";
import { whoOf } from "./break.js";
import { el, fill } from "./dom.js";
import { clock, shown } from "./text.js";

/** Shows the log. */
export function audit(root) {
  const page = { lines: null, failed: null };
  draw();
  load();

  async function load() {
    try {
      page.lines = await ask("api/audit");
      page.failed = null;
    } catch (failure) {
      page.failed = failure.message;
    }
    draw();
  }

  function draw() {
    const { lines, failed } = page;
    fill(root, el("h1", { tabindex: -1, "data-key": "title" }, "Audit"),
      el("p.muted", { "data-key": "what" }, "Whatever was broken, through this dashboard or by fencelock break with the same audit log, newest first."),
      failed && el("p.empty", { "data-key": "failed" }, failed),
      lines?.length === 0 && el("p.empty", { "data-key": "none" }, "Nobody has broken anything."),
      lines?.length > 0 && table(lines));
  }

  return { draw: (news) => (news.what.has("audit") || news.what.has("hello") ? load() : null), title: () => "Audit" };
}

function table(lines) {
  const heads = ["When", "Lock", "Held by", "Broken by", "Reason"].map((word) => el("th", { scope: "col" }, word));
  return el("table.plain-table.stacks", { "data-key": "table", "aria-label": "Audit log" },
    el("thead", {}, el("tr", {}, heads)), el("tbody", {}, lines.map(row)));
}

function row(line) {
  const cell = (label, ...inside) => el("td.breaks", { "data-label": label }, inside);
  return el("tr", {},
    cell("When", typeof line.wall === "number" ? clock(line.wall) : "–"),
    cell("Lock", el("div", {}, el("bdi.mono", {}, text(line.name)), el("div.muted.small", {}, text(line.backend)))),
    cell("Held by", el("div", {}, (line.broken ?? []).map(holder))),
    cell("Broken by", el("div", {}, el("bdi", {}, line.user ? text(line.user) : "nobody logged in"), el("div.muted.small", {}, `from ${text(line.address)}`))),
    cell("Reason", el("bdi", {}, text(line.reason))));
}

// The file may hold lines of other versions: whatever is there is shown.
function text(value) {
  return value === null || value === undefined ? "–" : shown(String(value));
}

function holder(entry) {
  return el("div", {}, el("bdi", {}, shown(whoOf(entry))), el("div.muted.small", {}, `token ${text(entry.token)}`));
}
