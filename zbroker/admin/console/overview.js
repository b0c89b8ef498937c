// What GET /status and GET /history tell: who this is, what is wrong, rates, the log.

import { Chart } from "./chart.js";
import { byId, describe, element, mark, say } from "./dom.js";
import { clock, count, duration, many, moment, name, NONE, rate, size, visible } from "./text.js";

const known = (value, text) => (value === undefined || value === null ? NONE : text(value));
const perSecond = (value) => known(value, (it) => `${rate(it)}/s`);
const bytesPerSecond = (value) => known(value, (it) => `${size(Math.round(it))}/s`);
const rated = (key) => (status) => status.rates?.[key];
const milliseconds = (value) => known(value, (it) => `${rate(it)} ms`);

/** Title, how a value is shown, its series in /history, its value in /status; true: of queues. */
const CHARTS = [
  ["Messages in", perSecond, "messages_in_s", (status) => status.rates?.messages_in_s],
  ["Messages out", perSecond, "messages_out_s", (status) => status.rates?.messages_out_s],
  ["Written to the log", bytesPerSecond, "bytes_s", (status) => status.rates?.bytes_in_s],
  ["Sent", bytesPerSecond, "bytes_out_s", (status) => status.rates?.bytes_out_s],
  ["Largest lag, messages", count, "lag_max", () => undefined],
  ["Clients", count, "clients", (status) => status.clients],
  ["Subscriptions", count, "subscriptions", (status) => status.subscriptions],
  ["Sync", milliseconds, "fsync_ms", (status) => status.journal.sync_ms],
  ["Queued messages", count, "queue_depth", (status) => status.queues?.depth, true],
  ["Into queues", perSecond, "queue_in_s", rated("queue_in_s"), true],
  ["To consumers", perSecond, "queue_delivered_s", rated("queue_delivered_s"), true],
  ["Acknowledged", perSecond, "queue_acked_s", rated("queue_acked_s"), true],
];

/** The head of the page. */
export function showHead(status) {
  const alarms = status.alarms.length;
  document.title = `${alarms ? `(${alarms}) ` : ""}${name(status.name)}: ${name(status.state)}`;
  say(byId("name"), name(status.name) || "zbroker");
  const wrong = alarms ? `, ${many(alarms, "alarm")}` : "";
  say(byId("state"), name(status.state) + wrong);
  mark(byId("state"), "data-tone", alarms ? "bad" : status.state === "ready" ? "good" : "warn");
  const supervisor = status.processes.find((one) => one.room === "supervisor");
  describe(byId("about"), [
    ["url", name(status.url)],
    ["version", name(status.version)],
    ["up", duration(supervisor?.uptime_s), `since ${clock(moment(status.started))}`],
    ["data", name(status.data_dir)],
    ...security(status.security),
  ]);
}

/** In place of the state, while it is not reported. */
export function showNoState(text) {
  say(byId("state"), text);
  mark(byId("state"), "data-tone", "bad");
  document.title = `${text}: ${byId("name").textContent}`;
}

function security(settings) {
  if (!settings) return [];
  if (!settings.on) return [["security", "off"]];
  return [["security", `on, access file ${count(settings.access_version)}`, name(settings.problem)]];
}

/** What is wrong, each with its means and next; and a broken access file, which is no alarm. */
export function showAlarms(section, status) {
  const found = [...status.alarms];
  if (status.security?.problem) found.push(broken(status.security.problem));
  const list = section.querySelector(".body");
  while (list.children.length > found.length) list.lastElementChild.remove();
  found.forEach((alarm, i) => fillAlarm(list.children[i] ?? addAlarm(list), alarm));
  section.hidden = found.length === 0;
}

function broken(problem) {
  return {
    code: "access_file",
    what: problem,
    means: "the rules that were read before it stay in force",
    next: "mend the file; it is read again by itself",
  };
}

function addAlarm(list) {
  const node = element("div", { class: "alarm" }, element("h3"), element("dl"));
  list.append(node);
  return node;
}

function fillAlarm(node, alarm) {
  say(node.firstElementChild, name(alarm.code));
  const since = alarm.since ? [["since", clock(moment(alarm.since)), name(alarm.since)]] : [];
  const rows = ["what", "means", "next"].map((key) => [key, visible(alarm[key])]).concat(since);
  describe(node.lastElementChild, rows);
}

/** The charts: newest values of the status, courses of the history. */
export class Rates {
  #queues = false; // whether there are any: without, their charts are left out
  #charts = CHARTS.map(([title, text]) => new Chart(title, text));

  constructor(body) {
    body.append(...this.#charts.map((chart) => chart.node));
  }

  /** Of the document of GET /status. */
  now(status) {
    this.#queues = status.queues?.count > 0;
    CHARTS.forEach(([, , , of], i) => this.#charts[i].now(of(status)));
  }

  /** Of the document of GET /history. */
  course({ times, series }) {
    CHARTS.forEach(([, , key, , ofQueues], i) => {
      this.#charts[i].node.hidden = !series[key] || (ofQueues === true && !this.#queues);
      if (series[key]) this.#charts[i].show(times, series[key]);
    });
  }
}

/** Marks of the log, what makes a message durable, and the disk. */
export function showLog(list, { journal }) {
  const open = journal.written - journal.persisted;
  const waiting = open > 0 ? `${count(open)} are written and not durable yet` : "";
  describe(list, [
    ["First kept", count(journal.first_position)],
    ["Written", count(journal.written)],
    ["Persisted", count(journal.persisted), waiting],
    ["Durability", name(journal.durability)],
    ["Messages", count(journal.messages)],
    ["Publishers", count(journal.publishers)],
    ["Duplicates dropped", count(journal.duplicates)],
    ["Conflicts", count(journal.conflicts)],
    ["Log on disk", `${size(journal.bytes)} in ${many(journal.segments, "segment")}`],
    ["Disk", `${size(journal.free_bytes)} free, ${count(journal.disk_used_percent)} % used`],
  ]);
}
