// The keyboard: each key works wherever nobody is writing. Views get a key first; then come the keys of the
// whole page. "g" and a letter within a second go to a view.

const VIEWS = { l: "#/", p: "#/plots", e: "#/leaders", s: "#/semaphores", j: "#/jobs", b: "#/backends", a: "#/audit" };

let going = -Infinity; // when "g" was pressed, if it was the last key

/**
 * Listens to the keyboard.
 * @param {(event: KeyboardEvent) => boolean} viewKey what the view does with a key; true if it took it
 * @param {() => void} back what Esc does when the view has no use for it
 */
export function listenToKeys(viewKey, back) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (document.querySelector("dialog[open]")) return;
    if (writing(event.target)) {
      if (event.key === "Escape" || (event.key === "ArrowDown" && event.target.type === "search")) event.target.blur();
      else return;
    }
    if (go(event) || viewKey(event) || pageKey(event, back)) event.preventDefault();
  });
}

function writing(target) {
  return target.matches?.("input, textarea, select, [contenteditable]");
}

function go(event) {
  if (event.key === "g") {
    going = event.timeStamp;
    return true;
  }
  const view = event.timeStamp - going < 1000 ? VIEWS[event.key] : undefined;
  going = -Infinity;
  if (view) location.hash = view;
  return view !== undefined;
}

function pageKey(event, back) {
  if (event.key === "?") document.getElementById("help").showModal();
  else if (event.key === "/") location.hash = "#/";
  else if (event.key === "Escape") back();
  else return false;
  return true;
}
