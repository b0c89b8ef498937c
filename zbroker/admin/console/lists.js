// The sections that are tables: processes, subscriptions, links, distributed transactions, topics,
// clients, actions.

import { element, say } from "./dom.js";
import { Table } from "./table.js";
import { clock, count, duration, moment, name, NONE, size, visible } from "./text.js";

const ACTIONS_MAX = 20;
const WAITS = new Set(["no credit", "paused"]); // somebody has to do something

const label = (head, of, more = {}) => ({ head, text: (row) => name(of(row)), ...more });
const number = (head, of, more = {}) => ({
  head, kind: "number", text: (row) => count(of(row)), by: (row) => of(row) ?? -1, ...more,
});
const bytes = (head, of) => number(head, of, { text: (row) => size(of(row)) });
const span = (head, of) => number(head, of, { text: (row) => duration(of(row)) });
const time = (head, of) => ({
  head, kind: "time", text: (row) => clock(moment(of(row))), title: (row) => name(of(row)),
  by: (row) => moment(of(row))?.getTime() ?? 0,
});
/** A label by which its table can be sorted. */
const sorted = (head, of, more = {}) =>
  label(head, of, { by: (row) => String(of(row) ?? ""), ...more });

export function processes() {
  return new Table("Processes", [
    label("Process", (row) => row.room),
    label("State", (row) => row.state, { tone: (row) => (row.state === "ready" ? "" : "warn") }),
    { head: "Pid", kind: "number", text: (row) => (row.pid ? String(row.pid) : NONE) },
    number("Restarts", (row) => row.restarts,
      { by: undefined, tone: (row) => (row.restarts > 0 ? "warn" : "") }),
    { head: "Uptime", kind: "number", text: (row) => duration(row.uptime_s) },
    label("Doing", (row) => row.progress),
  ], (row) => row.room, "No process has reported anything yet.");
}

export function subscriptions() {
  return new Table("Subscriptions, farthest behind first", [
    sorted("Client", (row) => row.client),
    sorted("Topic", (row) => row.topic, { text: topicOf, kind: "wide" }),
    label("Filter", (row) => row.filter, { kind: "wide" }),
    sorted("State", (row) => row.state, { tone: (row) => (WAITS.has(row.state) ? "warn" : "") }),
    number("Lag, messages", (row) => row.lag),
    number("Lag, s", (row) => row.lag_s, { text: (row) => seconds(row.lag_s) }),
    number("In hand", (row) => row.in_hand),
    number("Position", (row) => row.position),
    bytes("Credit", (row) => row.credit),
    number("Sent", (row) => row.sent_messages),
    label("Worker", (row) => row.worker),
  ], (row) => `${row.worker} ${row.client} ${row.sid}`, "No client is subscribed.");
}

/** Tells a regular expression from a topic with the same characters. */
function topicOf(row) {
  return row.regex ? `/${name(row.topic)}/` : name(row.topic);
}

function seconds(value) {
  return typeof value === "number" && value < 10 ? value.toFixed(1) : count(value);
}

/** Links to other instances, and from them; those have no numbers here. */
export function links() {
  const stopped = (row) => Object.entries(row.stopped ?? {}).map((one) => one.join(" "));
  return new Table("Links to other instances and from them", [
    sorted("Instance", (row) => row.name, { kind: "wide" }),
    sorted("Direction", (row) => (row.direction === "out" ? "to" : "from")),
    sorted("State", (row) => row.state, { tone: toneOfLink }),
    label("Mode", modeOf, { text: modeOf, tone: (row) => (row.downgraded ? "warn" : "") }),
    label("Topics", (row) => (row.topics ?? []).join(", ") || "all", { kind: "wide" }),
    label("Filter", (row) => row.filter || NONE, { kind: "wide" }),
    number("Lag, positions", (row) => row.lag),
    number("Mark", (row) => row.mark),
    bytes("On the way", (row) => row.on_the_way_bytes),
    bytes("Log kept", (row) => row.log_bytes),
    label("Stopped origins", (row) => stopped(row).join(", ") || NONE,
      { kind: "wide", tone: (row) => (stopped(row).length ? "bad" : "") }),
    label("Problem", (row) => row.problem || NONE,
      { kind: "wide", tone: (row) => (row.problem ? "bad" : "") }),
  ], (row) => `${row.direction} ${row.name}`, "No link.");
}

function toneOfLink(row) {
  if (row.paused) return "warn";
  return row.state === "down" || row.state === "greeting" ? "bad" : "";
}

function modeOf(row) {
  if (!row.mode) return NONE;
  const how = row.by_hand ? ", downgraded by hand" : row.downgraded ? ", downgraded" : "";
  return name(row.mode) + how;
}

/** Distributed transactions that are prepared, or decided by hand and not forgotten. */
export function transactions() {
  return new Table("Distributed transactions", [
    sorted("Principal", (row) => row.principal, { text: (row) => name(row.principal) || NONE }),
    sorted("Xid", (row) => row.xid, { kind: "wide" }),
    sorted("State", (row) => row.state, {
      text: (row) => name(row.state).replace("_", " "),
      tone: (row) => (row.state === "prepared" ? "warn" : ""),
    }),
    span("Age", (row) => row.age_s),
    sorted("Prepared on", (row) => (row.here ? "here" : row.instance)),
    number("Messages", (row) => row.messages),
    number("Locked", (row) => row.locked),
    label("Queues", (row) => (row.queues ?? []).join(", ") || NONE, { kind: "wide" }),
    sorted("Session", (row) => row.session),
  ], (row) => JSON.stringify([row.principal, row.xid, row.instance]), "No transaction.");
}

export function topics() {
  return new Table("Topics", [
    sorted("Topic", (row) => row.topic, { kind: "wide" }),
    label("Recorded", (row) => (row.recorded ? "yes" : "no")),
    number("Messages", (row) => row.messages),
    bytes("Size", (row) => row.bytes),
    time("First", (row) => row.first_time),
    time("Last", (row) => row.last_time),
    number("Last position", (row) => row.last_position),
    number("Subscriptions", (row) => row.subscriptions),
  ], (row) => row.topic, "No topic.");
}

export function clients() {
  return new Table("Clients", [
    sorted("Client", (row) => row.client),
    sorted("Listener", (row) => row.room || row.door),
    sorted("Principal", (row) => row.principal, { text: (row) => name(row.principal) || NONE }),
    label("Address", (row) => row.address || NONE),
    span("Connected", (row) => row.connected_s),
    number("Messages", (row) => row.messages),
    bytes("Window", (row) => (row.door === "ingest" ? row.window_bytes : null)),
    number("Subscriptions", (row) => row.subscriptions),
    span("Heartbeat", (row) => row.heartbeat_s),
  ], (row) => `${row.room} ${row.client} ${row.session}`, "No client is connected.");
}

function resultOf(row) {
  return visible(row.reason ? `${row.result}: ${row.reason}` : row.result);
}

function toneOf(row) {
  return row.result === "failed" || row.result === "refused" ? "bad" : "";
}

/** What is under way, with how far it is, and what was done lately. */
export class Actions {
  #running = element("div", { class: "running", hidden: "" });
  #what = element("span", { id: "running-what" });
  #bar = element("progress", { "aria-labelledby": "running-what" });
  #table = new Table("Actions, newest first", [
    label("Id", (row) => row.id),
    { ...time("Asked", (row) => row.time), by: undefined },
    label("Action", (row) => row.action),
    label("Segments", (row) => serials(row.serials)),
    label("By", (row) => row.by),
    label("Why", (row) => row.why, { text: (row) => visible(row.why), kind: "wide" }),
    label("Result", (row) => row.result, { text: resultOf, tone: toneOf, kind: "wide" }),
    { head: "Size", kind: "number", text: (row) => size(row.bytes) },
    { head: "Took", kind: "number", text: (row) => duration(row.took_s) },
  ], (row) => String(row.id), "Nothing was done to segments yet.");

  constructor() {
    this.#running.append(this.#what, this.#bar);
    this.nodes = [this.#running, ...this.#table.nodes];
  }

  /** The document of GET /actions. */
  show({ running, actions }) {
    this.#running.hidden = !running;
    if (running) this.#progress(running);
    this.#table.show(actions.slice(0, ACTIONS_MAX), Math.max(0, actions.length - ACTIONS_MAX));
  }

  #progress(entry) {
    const { done, total } = entry.progress;
    this.#bar.max = Math.max(total, 1);
    this.#bar.value = done;
    const far = total ? `, ${Math.floor((done * 100) / total)} %` : "";
    say(this.#what, `${name(entry.action)} of segment ${serials(entry.serials)}${far}`);
  }
}

/** `4`, `4 to 9`, `4, 7, 9`, and how many more. */
function serials(all) {
  const [first, last] = [all[0], all.at(-1)];
  if (all.length > 2 && last - first === all.length - 1) return `${first} to ${last}`;
  const more = all.length > 5 ? ` and ${count(all.length - 5)} more` : "";
  return all.slice(0, 5).join(", ") + more;
}
