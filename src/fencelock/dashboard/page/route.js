// The address after "#": which view, and what it shows.

/** Where the list was left: the way back. */
export const trail = { list: "#/" };

/** Returns {page, parts, params} of an address such as #/lock/b0/NAME or #/?q=invoice. */
export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [page, ...parts] = path.split("/").map(decoded);
  return { page: page || "locks", parts, params: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // somebody wrote it by hand
  }
}

/** Returns the address of a lock's own page. */
export function lockHash(lock) {
  return `#/lock/${lock.backend.id}/${encodeURIComponent(lock.name.replace(/\p{Cs}/gu, "\ufffd"))}`;
}
