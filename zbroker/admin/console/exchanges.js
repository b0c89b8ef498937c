// The exchanges: a table, and of the one that is chosen the queues that are bound to it.

import { element, say } from "./dom.js";
import { Table } from "./table.js";
import { count, name, NONE, visible } from "./text.js";

const label = (head, of, more = {}) => ({
  head, text: (row) => name(of(row)) || NONE, by: (row) => String(of(row) ?? ""), ...more,
});
const flags = (row) =>
  [["auto_delete", "auto-delete"], ["internal", "internal"], ["predeclared", "predeclared"]]
    .filter(([key]) => row[key]).map(([, shown]) => shown).join(", ");

/** Arguments of a headers exchange. */
function argumentsOf(row) {
  return Object.entries(row.arguments).map(([key, value]) => `${key}=${valueOf(value)}`).join(", ");
}

/** Only a binary value is an object. */
function valueOf(value) {
  if (value !== null && typeof value === "object") return `base64 ${value.base64}`;
  return JSON.stringify(value);
}

export class Exchanges {
  #chosen = "";
  #head = element("h3");
  #note = element("p", { class: "note", hidden: "" });
  #close = element("button", { type: "button" }, "Close");
  #panel;
  #table;
  #bindings;
  #changed;

  /** changed(): another exchange is chosen, or none. */
  constructor(changed) {
    this.#changed = changed;
    this.#table = new Table("Exchanges", [
      {
        ...label("Exchange", (row) => row.name), kind: "wide",
        act: (row) => this.#choose(row.name),
      },
      label("Kind", (row) => row.kind),
      label("Alternate", (row) => row.alternate, { kind: "wide" }),
      label("More", flags),
      {
        head: "Bindings", kind: "number", text: (row) => count(row.bindings),
        by: (row) => row.bindings,
      },
    ], (row) => row.name, "No exchange.");
    this.#bindings = new Table("Bindings", [
      label("Queue", (row) => row.queue, { kind: "wide" }),
      label("Key", (row) => row.key, { kind: "wide" }),
      label("Arguments", argumentsOf, { kind: "wide" }),
      label("Instance", (row) => (row.here ? "" : row.instance)),
    ], (row) => JSON.stringify([row.queue, row.key, row.arguments, row.instance]),
    "Nothing is bound to it.");
    this.#close.addEventListener("click", () => this.#choose(""));
    const attributes = { class: "explained", role: "status", hidden: "" };
    this.#panel = element(
      "div", attributes, this.#head, this.#close, this.#note, ...this.#bindings.nodes,
    );
    this.nodes = [...this.#table.nodes, this.#panel];
  }

  /** The exchange whose bindings are shown; "" is none. */
  get chosen() {
    return this.#chosen;
  }

  /** The document of GET /exchanges. */
  show({ exchanges }) {
    this.#table.show(exchanges);
  }

  /** What came of GET /bindings for the exchange `of`, which may not be chosen any more. */
  bound(of, found) {
    if (of !== this.#chosen || of === "") return;
    if (found.kind === "reported") {
      this.#bindings.show(found.document.bindings, found.document.left_out);
      this.#tell("");
    } else {
      this.#tell(visible(found.reason ?? "") || "No answer.");
    }
  }

  #choose(exchange) {
    const same = exchange === this.#chosen;
    this.#chosen = same ? "" : exchange;
    this.#panel.hidden = this.#chosen === "";
    say(this.#head, `${name(this.#chosen)}: what is bound to it`);
    this.#bindings.show([]);
    this.#tell("Asking.");
    this.#changed();
  }

  #tell(text) {
    say(this.#note, text);
    this.#note.hidden = text === "";
  }
}
