// The segments of the log: a strip that shows where each one is, and a table of the newest.

import { element, mark, say } from "./dom.js";
import { Table } from "./table.js";
import { clock, count, many, moment, NONE, size } from "./text.js";

const STRIP_MAX = 150; // a narrower piece could not be seen
const TABLE_MAX = 10;

const LEGEND = [
  ["journal", "journal directory"],
  ["archive", "archive directory"],
  ["packed", "packed"],
  ["open", "open: written to"],
];

const COLUMNS = [
  { head: "Segment", text: (row) => String(row.serial) },
  { head: "Where", text: (row) => row.place },
  { head: "Form", text: form },
  { head: "Positions", kind: "number", text: positions },
  { head: "First", kind: "time", text: (row) => clock(moment(row.first_time)) },
  { head: "Last", kind: "time", text: (row) => clock(moment(row.last_time)) },
  { head: "On disk", kind: "number", text: (row) => size(row.bytes) },
  { head: "Raw", kind: "number", text: (row) => size(row.size) },
];

function form(row) {
  return row.open ? "open" : row.packed ? "packed" : "raw";
}

/** From its first to its last: `end` is the one after it. */
function positions(row) {
  if (row.end === null) return `from ${count(row.first)}`;
  return `${count(row.first)} to ${count(row.end - 1)}`;
}

export class Segments {
  #summary = element("p", { class: "summary" });
  #strip = element("div", { class: "strip", role: "img" });
  #table = new Table("Segments, newest first", COLUMNS, (row) => `${row.serial}`, "No segment.");
  #drawn = ""; // what the strip shows, as text: it is drawn again only when that changes

  constructor() {
    const keys = LEGEND.map(([kind, text]) =>
      element("li", {}, element("span", { class: `piece ${kind}` }), text));
    const legend = element("ul", { class: "legend" }, ...keys);
    this.nodes = [this.#summary, this.#strip, legend, ...this.#table.nodes];
  }

  /** The document of GET /journal. */
  show(journal) {
    const segments = journal.segments;
    const free = `${size(journal.free_bytes)} free on the journal's disk`;
    const text = `${many(segments.length, "segment")}, ${size(journal.bytes)}; ${free}`;
    say(this.#summary, text);
    mark(this.#strip, "aria-label", `${text}; ${places(segments)}`);
    this.#draw(segments);
    const newest = segments.slice(-TABLE_MAX).reverse();
    this.#table.show(newest, segments.length - newest.length);
  }

  #draw(segments) {
    const shown = JSON.stringify(segments.slice(-STRIP_MAX - 1));
    if (shown !== this.#drawn) this.#strip.replaceChildren(...pieces(segments));
    this.#drawn = shown;
  }
}

/** `3 archive packed, 8 journal raw, 1 journal open`. */
function places(segments) {
  const found = new Map();
  for (const row of segments) {
    const key = `${row.place} ${form(row)}`;
    found.set(key, (found.get(key) ?? 0) + 1);
  }
  return [...found].map(([key, number]) => `${count(number)} ${key}`).join(", ");
}

function pieces(segments) {
  const shown = segments.slice(-STRIP_MAX);
  const earlier = segments.length - shown.length;
  const first = earlier ? [element("span", { class: "earlier" }, `${count(earlier)} earlier`)] : [];
  return [...first, ...shown.map(piece)];
}

function piece(row) {
  const kinds = [row.place, row.packed ? "packed" : "", row.open ? "open" : ""].join(" ").trim();
  const node = element("span", { class: `piece ${kinds}`, title: titleOf(row) });
  node.style.flexGrow = String(Math.max(row.size, 1));
  return node;
}

function titleOf(row) {
  const last = row.open ? "now" : clock(moment(row.last_time));
  const times = `${clock(moment(row.first_time))} to ${last}`;
  return `segment ${row.serial}: ${row.place}, ${form(row)}, ${size(row.bytes)}
positions ${positions(row)}
${row.first_time === null ? NONE : times}`;
}
