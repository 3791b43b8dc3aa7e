// A list of any length with few elements: only the rows near the window are in the document.
//
// All rows are equally high (the style says how high, in --row), so row n stands at n * height in a body that
// is as tall as all of them. The window scrolls, as on any page. A row that leaves is used again for another
// item; a row whose item stays is left alone, so focus stays on it while others come and go around it. The
// row that has the focus is kept even far outside the window.

const MARGIN = 8; // rows kept above and below what is seen

export class Rows {
  /**
   * @param {HTMLElement} body holds the rows
   * @param {() => HTMLElement} make makes an empty row
   * @param {(row: HTMLElement, item: object, index: number) => void} draw writes an item into a row
   */
  constructor(body, make, draw) {
    this.body = body;
    this.make = make;
    this.draw = draw;
    this.items = [];
    this.live = new Map(); // item -> row
    this.free = [];
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
  }

  /** Brings the rows near the window up to date; true if other rows are there than before. */
  render() {
    const focused = document.activeElement?.closest?.("tr");
    const wanted = this.wanted(focused?.item);
    let changed = this.retire(wanted);
    for (const [item, index] of wanted) changed = this.place(item, index) || changed;
    this.arrange(wanted);
    // Whatever is moved within the document loses the focus.
    if (focused?.isConnected && !focused.contains(document.activeElement)) focused.focus({ preventScroll: true });
    return changed;
  }

  wanted(focused) {
    const [first, last] = this.range();
    const kept = this.live.has(focused) ? this.items.indexOf(focused) : -1;
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

  retire(wanted) {
    let changed = false;
    for (const [item, row] of this.live) {
      if (wanted.has(item)) continue;
      this.live.delete(item);
      row.remove();
      if (this.free.length < 50) this.free.push(row);
      changed = true;
    }
    return changed;
  }

  place(item, index) {
    let row = this.live.get(item);
    const fresh = row === undefined;
    if (fresh) {
      row = this.free.pop() ?? this.make();
      row.item = item;
      row.place = row.drawn = -1;
      this.live.set(item, row);
    }
    if (row.place !== index) {
      row.place = index;
      row.style.transform = `translateY(${index * this.height}px)`;
      row.setAttribute("aria-rowindex", index + 2); // the header is the first
    }
    if (row.drawn !== item.drawn) {
      row.drawn = item.drawn;
      this.draw(row, item, index);
    }
    return fresh;
  }

  // Whoever reads the document, and does not look, gets the rows in the same order.
  arrange(wanted) {
    let next = this.body.firstChild;
    for (const item of wanted.keys()) {
      const row = this.live.get(item);
      if (row === next) next = next.nextSibling;
      else this.body.insertBefore(row, next);
    }
  }

  /** Scrolls just so far that row `index` is seen below `covered` pixels of the window. */
  reveal(index, covered) {
    const top = this.body.getBoundingClientRect().top + index * this.height;
    if (top < covered) scrollBy(0, top - covered);
    else if (top + this.height > innerHeight) scrollBy(0, top + this.height - innerHeight);
    this.render();
  }
}
