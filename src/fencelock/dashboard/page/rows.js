// A list of any length with few elements: only the rows near the window are in the document.
//
// All rows are equally high (the style says how high, in --row), so row n stands at n * height in a body that
// is as tall as all of them. The window scrolls, as on any page. A row whose item stays is left alone, so the
// focus stays on it while others come and go. A row whose item goes is written again, where it is, for an
// item that comes: moving it in the document would cost far more. So while somebody scrolls the document has
// the rows in another order than the eye; it is put right at once when the list changes, and else when the
// scrolling pauses. The row that has the focus is kept even far outside the window, and never written again
// for another item: the focus must not come to stand on something else unnoticed.

const MARGIN = 4; // rows kept above and below what is seen
const PAUSE = 150;

export class Rows {
  /**
   * @param {HTMLElement} body holds the rows; it is in the document
   * @param {() => HTMLElement} make makes an empty row
   * @param {(row: HTMLElement, item: object) => void} draw writes an item into a row; items have `drawn`, a
   *   number that changes when they are to be written again
   */
  constructor(body, make, draw) {
    Object.assign(this, { body, make, draw, items: [], live: new Map(), free: [], pause: 0 });
    this.measure();
  }

  /** Takes the height of a row from the style; to be called when the window changed. */
  measure() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.height = rem * parseFloat(getComputedStyle(this.body).getPropertyValue("--row"));
    this.body.style.height = `${this.items.length * this.height}px`;
    for (const row of this.live.values()) row.place = -1;
  }

  /** Shows these items from now on. */
  show(items) {
    this.items = items;
    this.body.style.height = `${items.length * this.height}px`;
    this.render();
    this.arrange();
  }

  /** Brings the rows near the window up to date; true if other rows are there than before. */
  render() {
    const focused = this.focused();
    const wanted = this.wanted(focused?.item);
    const spare = this.retired(wanted, focused);
    let changed = spare.length > 0;
    for (const [item, index] of wanted) changed = this.place(item, index, spare) || changed;
    for (const row of spare) this.shelve(row);
    clearTimeout(this.pause);
    if (changed) this.pause = setTimeout(() => this.arrange(), PAUSE);
    return changed;
  }

  focused() {
    const row = document.activeElement?.closest?.("tr");
    return row && this.live.get(row.item) === row ? row : null;
  }

  wanted(focused) {
    const [first, last] = this.range();
    const kept = focused === undefined ? -1 : this.items.indexOf(focused);
    const wanted = new Map();
    if (kept >= 0 && kept < first) wanted.set(focused, kept);
    for (let index = first; index < last; index += 1) wanted.set(this.items[index], index);
    if (kept >= last) wanted.set(focused, kept);
    return wanted;
  }

  range() {
    const above = -this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(above / this.height) - MARGIN);
    const last = Math.min(this.items.length, Math.ceil((above + innerHeight) / this.height) + MARGIN);
    return [first, Math.max(first, last)];
  }

  retired(wanted, focused) {
    const spare = [];
    for (const [item, row] of this.live) {
      if (wanted.has(item)) continue;
      this.live.delete(item);
      if (row === focused) this.shelve(row);
      else spare.push(row);
    }
    return spare;
  }

  shelve(row) {
    row.remove();
    if (this.free.length < 50) this.free.push(row);
  }

  place(item, index, spare) {
    let row = this.live.get(item);
    const fresh = row === undefined;
    if (fresh) {
      row = spare.pop() ?? this.free.pop() ?? this.make();
      row.item = item;
      row.place = row.drawn = -1;
      this.live.set(item, row);
      if (!row.isConnected) this.body.append(row);
    }
    if (row.place !== index) {
      row.place = index;
      row.style.transform = `translateY(${index * this.height}px)`;
      row.setAttribute("aria-rowindex", index + 2); // the header is the first
    }
    if (row.drawn !== item.drawn) {
      row.drawn = item.drawn;
      this.draw(row, item);
    }
    return fresh;
  }

  // Whoever reads the document, and does not look, gets the rows in the same order.
  arrange() {
    clearTimeout(this.pause);
    const focused = this.focused();
    const rows = [...this.live.values()].sort((one, two) => one.place - two.place);
    let next = this.body.firstChild;
    for (const row of rows) {
      if (row === next) next = next.nextSibling;
      else this.body.insertBefore(row, next);
    }
    // Whatever is moved within the document loses the focus.
    if (focused && !focused.contains(document.activeElement)) focused.focus({ preventScroll: true });
  }

  /** Scrolls just so far that row `index` is seen below `covered` pixels of the window. */
  reveal(index, covered) {
    const top = this.body.getBoundingClientRect().top + index * this.height;
    if (top < covered) scrollBy(0, top - covered);
    else if (top + this.height > innerHeight) scrollBy(0, top + this.height - innerHeight);
    this.render();
  }

  /** Leaves nothing behind. */
  close() {
    clearTimeout(this.pause);
  }
}
