// Questions and orders to the dashboard's server. An error is one clear line, whatever went wrong.

import { store } from "./store.js";

/** What the server refused, with its status; 0 if it did not answer. */
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Asks for JSON. */
export function ask(path) {
  return request(path, { cache: "no-store" });
}

/** Orders something; the CSRF token goes along. */
export function order(path, body) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": store.hello.csrf ?? "" };
  return request(path, { method: "POST", headers, body: JSON.stringify(body) });
}

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused("the dashboard does not answer", 0);
  }
  const told = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(told?.error ?? `the dashboard answered ${answer.status}`, answer.status);
  return told;
}
