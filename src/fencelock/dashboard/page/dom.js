// Elements, made from text and never from markup; and how a view is drawn again without disturbing anybody.
//
// A view makes its whole tree anew whenever something changed and gives it to `fill`, which changes only what
// differs in the tree that is there: focus, selection, scroll positions and open <details> stay. Children
// with a `data-key` are followed when they move; others are matched by their place.

const PROPERTIES = new Set(["lease", "since", "until"]);
const KEPT = new Set(["style", "open"]); // those belong to the animation and to the user

/**
 * Makes an element: el("td.name", {title: "…", onclick: f}, "text", child, …).
 * Attributes that are null, undefined or false are left out, and so are such children.
 */
export function el(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  return dressed(made, attributes, children);
}

/** Makes an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dressed(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") || PROPERTIES.has(name)) made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...present(children));
  return made;
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Makes the children of `parent` equal to `children`. */
export function fill(parent, ...children) {
  match(parent, present(children).map((child) => (child instanceof Node ? child : new Text(child))));
}

function match(parent, fresh) {
  const wanted = new Set(fresh.map(keyOf));
  const known = new Map();
  for (const child of [...parent.childNodes]) {
    const key = keyOf(child);
    if (key === undefined) continue;
    if (wanted.has(key)) known.set(key, child);
    else child.remove();
  }
  let next = parent.firstChild;
  for (const node of fresh) {
    const key = keyOf(node);
    const old = key === undefined ? next : known.get(key);
    if (!old || old.nodeName !== node.nodeName || keyOf(old) !== key) parent.insertBefore(node, next);
    else {
      if (old === next) next = next.nextSibling;
      else parent.insertBefore(old, next);
      patch(old, node);
    }
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function keyOf(node) {
  return node.dataset?.key;
}

function patch(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!KEPT.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of PROPERTIES) if (fresh[name] !== undefined) old[name] = fresh[name];
  old.onclick = fresh.onclick;
  match(old, [...fresh.childNodes]);
}

/** Changes the text of an element that holds nothing else; the same text node stays, which is much cheaper. */
export function write(element, text) {
  if (!element.firstChild) element.append(text);
  else if (element.firstChild.data !== text) element.firstChild.data = text;
}

/** Tells those who listen rather than look; not for what happens every second. */
export function say(text) {
  document.getElementById("live").textContent = text;
}
