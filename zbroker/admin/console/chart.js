// A small chart: one series over time, its newest value, its highest one, and, where the pointer
// is, the value there.

import { drawn, element, mark, say } from "./dom.js";
import { clock, duration, moment, NONE } from "./text.js";

const WIDTH = 300;
const HEIGHT = 56;
const TOP = 3; // so that the line of the highest value is not cut in half

export class Chart {
  #title;
  #text;
  #times = [];
  #values = [];
  #high = 0; // the largest value
  #now; // of this moment
  #pointed = null; // the index of the sample under the pointer
  #value = element("strong", { class: "value" }, NONE);
  #caption = element("p", { class: "caption" });
  #area = drawn("path", { class: "area" });
  #line = drawn("path", { class: "line" });
  #cursor = drawn("path", { class: "cursor" });
  #svg;

  /** text(value): how a value is shown, with its unit. */
  constructor(title, text) {
    this.#title = title;
    this.#text = text;
    const box = `0 0 ${WIDTH} ${HEIGHT}`;
    const attributes = { viewBox: box, preserveAspectRatio: "none", role: "img", class: "chart" };
    this.#svg = drawn("svg", attributes, this.#area, this.#line, this.#cursor);
    this.#svg.addEventListener("pointermove", (event) => this.#point(event));
    this.#svg.addEventListener("pointerleave", () => this.#leave());
    const head = element("h3", {}, title);
    this.node = element("div", { class: "card" }, head, this.#value, this.#svg, this.#caption);
  }

  /** The value of this moment, which may be newer than the series; undefined: its newest. */
  now(value) {
    this.#now = value;
    this.#tell();
  }

  /** times: seconds since 1970, ascending; values: as many, null where nothing is known. */
  show(times, values) {
    this.#times = times;
    this.#values = values;
    this.#high = values.reduce((high, value) => Math.max(high, value ?? 0), 0);
    const runs = this.#runs();
    mark(this.#line, "d", runs.map(line).join(""));
    mark(this.#area, "d", runs.map(area).join(""));
    this.#tell();
  }

  /** Stretches without holes, as points of the drawing. */
  #runs() {
    const runs = [[]];
    this.#values.forEach((value, i) => {
      if (isKnown(value)) runs.at(-1).push([this.#x(i), this.#y(value)]);
      else runs.push([]);
    });
    return runs.filter((run) => run.length > 0);
  }

  #x(i) {
    const first = this.#times[0];
    const span = this.#times.at(-1) - first || 1;
    return ((this.#times[i] - first) / span) * WIDTH;
  }

  #y(value) {
    return HEIGHT - (this.#high ? value / this.#high : 0) * (HEIGHT - TOP);
  }

  #point(event) {
    const box = this.#svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    const far = (i) => Math.abs(this.#x(i) - x);
    this.#pointed = this.#times.reduce((best, _, i) => (far(i) < far(best) ? i : best), 0);
    this.#tell();
  }

  #leave() {
    this.#pointed = null;
    this.#tell();
  }

  #tell() {
    say(this.#value, this.#text(this.#now ?? this.#values.at(-1)));
    const at = this.#pointed;
    const there = at !== null && at < this.#times.length;
    mark(this.#cursor, "d", there ? `M${this.#x(at).toFixed(1)} 0V${HEIGHT}` : "");
    const time = there ? clock(moment(this.#times[at])) : "";
    say(this.#caption, there ? `${time}: ${this.#text(this.#values[at])}` : this.#span());
    mark(this.#svg, "aria-label", `${this.#title}: ${this.#span()}`);
  }

  #span() {
    if (!this.#values.some(isKnown)) return "not reported yet";
    const seconds = this.#times.at(-1) - this.#times[0];
    return `at most ${this.#text(this.#high)} in ${duration(seconds)}`;
  }
}

function isKnown(value) {
  return value !== null && value !== undefined;
}

function line(points) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

function area(points) {
  const [first, last] = [points[0][0].toFixed(1), points.at(-1)[0].toFixed(1)];
  return `${line(points)}L${last} ${HEIGHT}L${first} ${HEIGHT}Z`;
}
