// Which locks are shown, and in which order. No drawing.
//
// The choice is {q, only, kind, backend, sort}: words that all must occur in name or holder; a set of filters
// that all must hold; one kind; one backend; a column, with "-" before it for downwards. Locks that have
// nothing in that column come last either way, equal ones by name.

import { endsSoon } from "./bars.js";

/** Whether somebody waits for a lock; a candidate that stands by to lead is where it should be. */
export function isContended(lock) {
  return lock.waiting > 0 && lock.kind !== "leader";
}

/** The filters by their word in the address. */
export const FILTERS = {
  held: { label: "Held", hint: "Somebody holds it", holds: (lock) => lock.held > 0 },
  contended: { label: "Contended", hint: "Somebody waits for it", holds: isContended },
  soon: { label: "Ends soon", hint: "Its lease is in its last quarter: not renewed, or not yet", holds: endsSoon },
};

/** The columns by their word in the address; `down` is how they are sorted at the first click. */
export const COLUMNS = {
  name: { label: "Name", of: (lock) => lock.name },
  kind: { label: "Kind", of: (lock) => lock.kind },
  backend: { label: "Backend", of: (lock) => lock.backend.label },
  who: { label: "Holder", of: (lock) => lock.who || null },
  since: { label: "Held for", of: (lock) => lock.since },
  expires: { label: "Lease", of: (lock) => lock.expires },
  waiting: { label: "Waiting", of: (lock) => lock.waiting, down: true },
  token: { label: "Token", of: (lock) => lock.token, down: true },
};

export const KINDS = ["lock", "leader", "semaphore", "readers", "job", "schedule", "flight"];
export const DEFAULT_SORT = "-waiting";

/** Returns the locks that are meant, in order. */
export function chosen(locks, choice) {
  const words = choice.q.toLowerCase().split(/\s+/).filter(Boolean);
  const filters = [...choice.only].map((word) => FILTERS[word].holds);
  const found = locks.filter(
    (lock) =>
      (choice.kind === "" || lock.kind === choice.kind) &&
      (choice.backend === "" || lock.backend.id === choice.backend) &&
      words.every((word) => lock.sought.includes(word)) &&
      filters.every((holds) => holds(lock)),
  );
  return found.sort(order(choice.sort));
}

function order(sort) {
  const [column, down] = sortOf(sort);
  const { of } = COLUMNS[column];
  const sign = down ? -1 : 1;
  return (one, two) => {
    const a = of(one);
    const b = of(two);
    if (a === b) return one.name < two.name ? -1 : one.name > two.name ? 1 : one.id - two.id;
    if (a === null) return 1;
    if (b === null) return -1;
    return a < b ? -sign : sign;
  };
}

/** Returns the column of "-column", and whether downwards. */
export function sortOf(sort) {
  return sort.startsWith("-") ? [sort.slice(1), true] : [sort, false];
}

/** Whether time alone changes which locks are meant. */
export function hangsOnTime(choice) {
  return choice.only.has("soon");
}

/** Whether a choice leaves anything out. */
export function narrows(choice) {
  return Boolean(choice.q || choice.only.size || choice.kind || choice.backend);
}

/** Reads a choice from the address; what makes no sense there is left out. */
export function fromParams(params) {
  const kind = params.get("kind") ?? "";
  const sort = params.get("sort") ?? DEFAULT_SORT;
  return {
    q: params.get("q") ?? "",
    only: new Set((params.get("only") ?? "").split(",").filter((word) => Object.hasOwn(FILTERS, word))),
    kind: KINDS.includes(kind) ? kind : "",
    backend: params.get("backend") ?? "",
    sort: Object.hasOwn(COLUMNS, sortOf(sort)[0]) ? sort : DEFAULT_SORT,
  };
}

/** Returns the address of a choice. */
export function toHash(choice) {
  const params = new URLSearchParams();
  if (choice.q) params.set("q", choice.q);
  if (choice.only.size) params.set("only", [...choice.only].join(","));
  if (choice.kind) params.set("kind", choice.kind);
  if (choice.backend) params.set("backend", choice.backend);
  if (choice.sort !== DEFAULT_SORT) params.set("sort", choice.sort);
  const query = params.toString();
  return query ? `#/?${query}` : "#/";
}
