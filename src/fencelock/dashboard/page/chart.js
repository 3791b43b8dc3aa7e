// A plot of the last minutes, at most fifteen: lines over time, axes with units, a read-out, a table.
//
// Points are arrays whose first field is the time. A line does not cross a gap in which nobody watched. What
// is there only now and then (a field may be null) is drawn as dots, not as a line that would join them. The pointer or the arrow keys choose an instant, and the line below the plot
// says what was then. Who does not see the plot gets the same as a slider, and as a table with a row for each
// minute.

import { el, fill, svg } from "./dom.js";
import { wall } from "./store.js";
import { clock } from "./text.js";

/** How many seconds are shown, and how far apart labels are: the smallest that holds all points is taken. */
const WINDOWS = [[60, 15], [120, 30], [300, 60], [900, 180]];
const NARROW = 420;
const GAP = 10;
const HEIGHT = 180;
const EDGE = { left: 56, right: 12, top: 10, bottom: 24 };

export class Chart {
  /**
   * @param {string} title
   * @param {{field: number, label: string, style: string}[]} lines a style is "one", "two", or with " dots"
   * @param {(value: number) => string} format writes a value with its unit
   */
  constructor(title, lines, format) {
    Object.assign(this, { title, lines, format, points: [], now: 0, chosen: null });
    this.drawing = svg("svg", { "aria-hidden": "true", height: HEIGHT, width: "100%" });
    this.slider = el("div.plot", { role: "slider", tabindex: 0, "aria-label": `${title}: read out`, "aria-valuemin": 0, "aria-valuemax": 0 }, this.drawing);
    this.told = el("p.readout", { "aria-hidden": "true" });
    this.table = el("tbody");
    this.slider.addEventListener("pointermove", (event) => this.point(event));
    this.slider.addEventListener("pointerleave", () => this.choose(null));
    this.slider.addEventListener("blur", () => this.choose(null));
    this.slider.addEventListener("keydown", (event) => this.step(event));
    this.element = el("figure.chart", {}, el("figcaption", {}, el("h3", {}, title), this.legend()), this.slider, this.told, this.details());
  }

  legend() {
    return el("ul.legend", {}, this.lines.map(({ label, style }) =>
      el("li", {}, svg("svg", { width: 24, height: 10, "aria-hidden": "true" }, svg("path", { d: style.endsWith("dots") ? "M4 5l0 0M12 5l0 0M20 5l0 0" : "M1 5H23", class: `line ${style}` })), label)));
  }

  details() {
    const heads = ["Minutes ago", ...this.lines.map(({ label }) => `${label}, most`)];
    return el("details", {}, el("summary", {}, "As a table"),
      el("div.scrolls", {}, el("table.plain-table", { "aria-label": this.title },
        el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), this.table)));
  }

  /** Draws these points; `now` is at the right edge. */
  draw(points, now) {
    Object.assign(this, { points, now, width: Math.max(200, this.slider.clientWidth) });
    this.top = this.highest();
    [this.window, this.spacing] = WINDOWS.find(([seconds]) => points.length && now - points[0][0] <= seconds) ?? WINDOWS.at(-1);
    fill(this.drawing, this.axes(), this.lines.map((line) => this.path(line)), this.cursor());
    fill(this.table, this.minutes());
    this.tell();
  }

  highest() {
    let most = 0;
    for (const point of this.points) for (const { field } of this.lines) most = Math.max(most, point[field] ?? 0);
    return nice(most);
  }

  x(at) {
    return EDGE.left + ((at - this.now + this.window) / this.window) * (this.width - EDGE.left - EDGE.right);
  }

  y(value) {
    return HEIGHT - EDGE.bottom - (value / this.top) * (HEIGHT - EDGE.top - EDGE.bottom);
  }

  axes() {
    const across = [0, 0.5, 1].map((share) => {
      const y = this.y(share * this.top);
      return [
        svg("line", { x1: EDGE.left, x2: this.width - EDGE.right, y1: y, y2: y, class: "grid" }),
        svg("text", { x: EDGE.left - 8, y: y + 4, "text-anchor": "end" }, this.format(share * this.top)),
      ];
    });
    const step = this.width >= NARROW ? this.spacing : this.window === 900 ? 300 : 2 * this.spacing;
    const along = [];
    for (let ago = 0; ago <= this.window; ago += step) {
      const anchor = ago === 0 ? "end" : ago === this.window ? "start" : "middle";
      const text = ago === 0 ? "now" : this.window < 300 ? `−${ago} s` : `−${ago / 60} min`;
      along.push(svg("text", { x: this.x(this.now - ago), y: HEIGHT - 6, "text-anchor": anchor }, text));
    }
    return svg("g", { class: "axes" }, across, along);
  }

  path({ field, style }) {
    let path = "";
    let last = -Infinity;
    for (const point of this.points) {
      const [at, value] = [point[0], point[field]];
      if (value === null || at < this.now - this.window) continue;
      const to = `${this.x(at).toFixed(1)} ${this.y(value).toFixed(1)}`;
      path += at - last > GAP || style.endsWith("dots") ? `M${to}l0 0` : `L${to}`;
      last = at;
    }
    return svg("path", { d: path || "M0 0", class: `line ${style}` });
  }

  // Reading out ---------------------------------------------------------------------------------

  cursor() {
    const point = this.chosen;
    if (!point || point[0] < this.now - this.window) return null;
    const x = this.x(point[0]);
    return svg("g", { class: "cursor" },
      svg("line", { x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }),
      this.lines.filter(({ field }) => point[field] !== null).map(({ field, style }) =>
        svg("circle", { cx: x, cy: this.y(point[field]), r: 4, class: style })));
  }

  tell() {
    const point = this.chosen ?? this.points.at(-1);
    const text = point ? `${clock(wall(point[0]))}: ${this.values(point)}` : "nothing yet";
    this.told.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    this.slider.setAttribute("aria-valuenow", point ? Math.max(0, Math.round(this.window + point[0] - this.now)) : 0);
    this.slider.setAttribute("aria-valuemax", this.window);
  }

  values(point) {
    return this.lines.map(({ field, label }) => `${label} ${point[field] === null ? "–" : this.format(point[field])}`).join(", ");
  }

  choose(point) {
    this.chosen = point;
    this.draw(this.points, this.now);
  }

  point(event) {
    const inner = this.width - EDGE.left - EDGE.right;
    const at = this.now - this.window + ((event.clientX - this.slider.getBoundingClientRect().left - EDGE.left) / inner) * this.window;
    let nearest = null;
    for (const point of this.points) if (!nearest || Math.abs(point[0] - at) < Math.abs(nearest[0] - at)) nearest = point;
    this.choose(nearest);
  }

  step(event) {
    const index = this.chosen ? this.points.indexOf(this.chosen) : this.points.length - 1;
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -60, PageDown: 60, Home: -Infinity, End: Infinity };
    if (!this.points.length || !(event.key in steps)) return;
    event.preventDefault();
    this.choose(this.points[Math.max(0, Math.min(this.points.length - 1, index + steps[event.key]))]);
  }

  minutes() {
    const most = new Map();
    for (const point of this.points) {
      const minute = Math.floor((this.now - point[0]) / 60);
      const row = most.get(minute) ?? this.lines.map(() => null);
      this.lines.forEach(({ field }, at) => {
        if (point[field] !== null) row[at] = Math.max(row[at] ?? 0, point[field]);
      });
      most.set(minute, row);
    }
    const rows = [...most].filter(([minute]) => minute < 15).sort(([one], [two]) => one - two);
    return rows.map(([minute, row]) => el("tr", {},
      el("th", { scope: "row" }, String(Math.max(0, minute))), row.map((value) => el("td", {}, value === null ? "–" : this.format(value)))));
  }
}

/** Returns the next number that is pleasant at the top of an axis. */
export function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((step) => step * power >= value * 0.999) * power;
}
