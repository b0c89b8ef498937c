// The queues: a table, and of the one that is chosen what holds it back.

import { element, say } from "./dom.js";
import { Table } from "./table.js";
import { count, duration, name, rate, size, visible } from "./text.js";

const number = (head, of, more = {}) => ({
  head, kind: "number", text: (row) => count(of(row)), by: (row) => of(row) ?? -1, ...more,
});
const perSecond = (head, key) =>
  number(head, (row) => row.rates?.[key], { text: (row) => rate(row.rates?.[key]) });
const label = (head, of) => ({
  head, text: (row) => name(of(row)), by: (row) => String(of(row) ?? ""),
});

/** Tells a pattern from a topic with the same characters. */
function topicOf(row) {
  return row.regex ? `/${name(row.topic)}/` : name(row.topic);
}

/** A queue that is full refuses what is published to it. */
function stateOf(row) {
  return row.full ? `${row.state}, full` : row.state;
}

/** Messages that a consumer could take, and no consumer that does. */
function toneOfConsumers(row) {
  return row.consumers === 0 && row.depth > 0 ? "warn" : "";
}

export class Queues {
  #chosen = "";
  #head = element("h3");
  #lines = element("ul");
  #close = element("button", { type: "button" }, "Close");
  #panel;
  #table;
  #changed;

  /** changed(): another queue is chosen, or none. */
  constructor(changed) {
    this.#changed = changed;
    this.#table = new Table("Queues", [
      { ...label("Queue", (row) => row.name), kind: "wide", act: (row) => this.#choose(row.name) },
      label("Kind", (row) => row.kind),
      { ...label("Topic", (row) => row.topic), text: topicOf, kind: "wide" },
      { ...label("State", stateOf), tone: (row) => (row.full ? "warn" : "") },
      number("Depth", (row) => row.depth),
      number("Ready", (row) => row.ready),
      number("Leased", (row) => row.leased),
      number("Delayed", (row) => row.delayed),
      number("Elsewhere", (row) => row.elsewhere),
      number("Oldest", (row) => row.oldest_s, { text: (row) => duration(row.oldest_s) }),
      number("Consumers", (row) => row.consumers, { tone: toneOfConsumers }),
      perSecond("In /s", "entered_s"),
      perSecond("Out /s", "delivered_s"),
      perSecond("Acked /s", "acked_s"),
      number("Dead letters", (row) => row.dead, { tone: (row) => (row.dead > 0 ? "warn" : "") }),
      number("Log kept", (row) => row.bytes, { text: (row) => size(row.bytes) }),
    ], (row) => row.name, "No queue.");
    this.#close.addEventListener("click", () => this.#choose(""));
    const attributes = { class: "explained", role: "status", hidden: "" };
    this.#panel = element("div", attributes, this.#head, this.#close, this.#lines);
    this.nodes = [...this.#table.nodes, this.#panel];
  }

  /** The queue that is explained; "" is none. */
  get chosen() {
    return this.#chosen;
  }

  /** The document of GET /queues. */
  show({ queues }) {
    this.#table.show(queues);
  }

  /** What came of GET /queues/NAME/explain for the queue `of`, which may not be chosen any more. */
  explained(of, found) {
    if (of !== this.#chosen || of === "") return;
    if (found.kind === "reported") this.#tell(found.document.lines.map(visible));
    else if (found.kind === "absent") this.#tell(["There is no such queue any more."]);
    else this.#tell([visible(found.reason) || "No answer."]);
  }

  #choose(queue) {
    const same = queue === this.#chosen;
    this.#chosen = same ? "" : queue;
    this.#panel.hidden = this.#chosen === "";
    say(this.#head, `${name(this.#chosen)}: what holds it back`);
    this.#tell(["Asking."]);
    this.#changed();
  }

  #tell(lines) {
    while (this.#lines.children.length > lines.length) this.#lines.lastElementChild.remove();
    while (this.#lines.children.length < lines.length) this.#lines.append(element("li"));
    lines.forEach((line, i) => say(this.#lines.children[i], line));
  }
}
