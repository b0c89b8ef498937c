// Tables whose rows stay where they are while their numbers change, so that a selection, the focus
// and a scrolled place survive each answer.
//
// columns: [{head, text(row), kind?, title?(row), tone?(row), by?(row), act?(row)}]; kind is
// "number", "time" or "wide"; `by` makes a column sortable, `act` its cells buttons

import { element, mark, say } from "./dom.js";
import { count } from "./text.js";

const ROWS_MAX = 100; // shown at once; a browser with thousands of rows is no console
const NAMES = new Intl.Collator("en", { numeric: true });

export class Table {
  #columns;
  #key;
  #rows = [];
  #leftOut = 0;
  #lines = new Map();
  #sorted = null; // {column, down}
  #body = element("tbody");
  #heads;
  #more = element("p", { class: "more" });
  #empty;

  /** key(row): the same for the same row of the next answer; empty: what is said of no rows. */
  constructor(label, columns, key, empty) {
    this.#columns = columns;
    this.#key = key;
    this.#empty = empty;
    this.#heads = columns.map((column) => this.#head(column));
    const head = element("thead", {}, element("tr", {}, ...this.#heads));
    const table = element("table", {}, head, this.#body);
    const attributes = { class: "scroll", tabindex: "0", role: "region", "aria-label": label };
    this.frame = element("div", attributes, table);
    this.nodes = [this.frame, this.#more];
  }

  #head(column) {
    const head = element("th", { scope: "col", class: column.kind ?? "" });
    if (!column.by) {
      head.append(column.head);
      return head;
    }
    const button = element("button", { type: "button", class: "sort" }, column.head);
    button.addEventListener("click", () => this.sort(column));
    head.append(button);
    return head;
  }

  /** By this column: numbers largest first, names from A, and the other way the next time. */
  sort(column) {
    const same = this.#sorted?.column === column;
    this.#sorted = { column, down: same ? !this.#sorted.down : column.kind === "number" };
    this.#columns.forEach((one, i) => {
      const order = this.#sorted.down ? "descending" : "ascending";
      mark(this.#heads[i], "aria-sort", one === column ? order : "");
    });
    this.#draw();
  }

  /** leftOut: how many more there are than `rows`. */
  show(rows, leftOut = 0) {
    this.#rows = rows;
    this.#leftOut = leftOut;
    this.#draw();
  }

  #draw() {
    const shown = this.#ordered().slice(0, ROWS_MAX);
    const before = this.#lines;
    this.#lines = new Map();
    shown.forEach((row, i) => this.#place(this.#line(row, before), i));
    for (const [key, line] of before) if (!this.#lines.has(key)) line.node.remove();
    this.frame.hidden = shown.length === 0;
    this.#tellMore(shown.length);
  }

  #tellMore(shown) {
    const more = this.#rows.length - shown + this.#leftOut;
    say(this.#more, shown === 0 ? this.#empty : more > 0 ? `and ${count(more)} more` : "");
    this.#more.hidden = this.#more.textContent === "";
  }

  #ordered() {
    if (!this.#sorted) return this.#rows;
    const { column, down } = this.#sorted;
    const sign = down ? -1 : 1;
    return [...this.#rows].sort((a, b) => sign * compare(column.by(a), column.by(b)));
  }

  #line(row, before) {
    let key = this.#key(row);
    while (this.#lines.has(key)) key += "+"; // two that are called the same are two rows
    const line = before.get(key) ?? this.#newLine();
    line.row = row;
    this.#lines.set(key, line);
    this.#columns.forEach((column, i) => fill(line.cells[i], column, row));
    return line;
  }

  #newLine() {
    const cells = this.#columns.map((one) => element("td", { class: one.kind ?? "" }));
    const line = { cells, node: element("tr", {}, ...cells), row: null };
    this.#columns.forEach((one, i) => one.act && cells[i].append(button(() => one.act(line.row))));
    return line;
  }

  #place(line, i) {
    const there = this.#body.children[i] ?? null;
    if (there !== line.node) this.#body.insertBefore(line.node, there);
  }
}

function button(act) {
  const made = element("button", { type: "button", class: "act" });
  made.addEventListener("click", act);
  return made;
}

function fill(cell, column, row) {
  say(column.act ? cell.firstElementChild : cell, column.text(row));
  mark(cell, "title", column.title?.(row) ?? "");
  mark(cell, "data-tone", column.tone?.(row) ?? "");
}

function compare(a, b) {
  if (typeof a === "string" || typeof b === "string") return NAMES.compare(a, b);
  return (a ?? -1) - (b ?? -1);
}
