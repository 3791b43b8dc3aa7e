// Breaking a lock: a dialog that shows exactly who will lose it, and demands a reason.
//
// The holders are asked for when the dialog opens, and only those shown are broken, by their owner ids:
// whoever takes the lock meanwhile keeps it. Where several hold it, each can be left out.

import { Refused, ask, order } from "./api.js";
import { age } from "./bars.js";
import { el, fill, say } from "./dom.js";
import { store } from "./store.js";
import { brief, counted, shown } from "./text.js";

const dialog = document.getElementById("break-dialog");
const form = dialog.querySelector("form");
const reason = document.getElementById("break-reason");
const confirm = document.getElementById("break-confirm");
const holders = document.getElementById("break-holders");
const error = document.getElementById("break-error");

let target = null; // {backend, name, several}

/** Asks whether, whom and why; nothing happens in read-only mode. */
export async function breakLock(backend, name) {
  if (!backend || !store.hello || store.hello.read_only) return;
  let detail;
  try {
    detail = await ask(`api/lock?${new URLSearchParams({ backend: backend.id, name })}`);
  } catch (failure) {
    notice(failure.status === 404 ? "Nobody holds it any more." : failure.message, "warning");
    return;
  }
  if (!detail.holders.length) notice("Nobody holds it: there is nothing to break.", "warning");
  else if (!dialog.open) show(backend, name, detail);
}

function show(backend, name, detail) {
  target = { backend, name, several: detail.holders.length > 1 };
  fill(document.getElementById("break-name"), shown(name));
  fill(document.getElementById("break-backend"), brief(backend.label));
  holders.replaceChildren(...detail.holders.map((entry) => holder(entry, backend)));
  reason.value = "";
  complain("");
  check();
  dialog.showModal();
  reason.focus();
}

function holder(entry, backend) {
  const box = target.several && el("input", { type: "checkbox", checked: true, onchange: check, value: entry.owner });
  return el("li", { "data-key": entry.owner },
    el("label", {}, box, el("span", {},
      el("strong", {}, el("bdi", {}, brief(whoOf(entry), 200))), el("br"),
      el("span.muted", {}, `token ${entry.token}, held for `, age(entry.since, backend), `, owner ${brief(entry.owner, 80)}`))));
}

/** Returns program, host and process of a holder or waiter, as they called themselves. */
export function whoOf(entry) {
  return `${entry.client} ${entry.host}:${entry.pid}`;
}

function owners() {
  const all = [...holders.children].map((item) => item.dataset.key);
  if (!target.several) return all;
  const chosen = new Set([...holders.querySelectorAll(":checked")].map((box) => box.value));
  return all.filter((owner) => chosen.has(owner));
}

function check() {
  const count = owners().length;
  confirm.disabled = reason.value.trim() === "" || count === 0;
  confirm.textContent = target.several ? `Break ${counted(count, "lease")}` : "Break the lock";
}

function complain(text) {
  error.textContent = text;
  error.hidden = text === "";
}

async function submit(event) {
  event.preventDefault();
  if (confirm.disabled) return;
  confirm.disabled = true;
  complain("");
  const { backend, name } = target;
  try {
    const { broken } = await order("api/break", { backend: backend.id, name, owners: owners(), reason: reason.value.trim() });
    dialog.close();
    notice(`Broken: ${brief(name, 80)}, held by ${broken.map((entry) => brief(whoOf(entry), 80)).join(", ")}.`, "ok");
  } catch (failure) {
    if (!(failure instanceof Refused)) throw failure;
    complain(shown(failure.message));
    check();
  }
}

/** Says what came of something, above the view, until the next view. */
export function notice(text, severity) {
  const place = document.getElementById("notice");
  fill(place, text && el("p", { "data-state": severity }, text));
  if (text) say(text);
}

form.addEventListener("submit", submit);
reason.addEventListener("input", check);
document.getElementById("break-cancel").addEventListener("click", () => dialog.close());
