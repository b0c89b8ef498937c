// The console: asks for each document, hands it to its section, and says so where there is no answer.
//
//   connecting --status--> shown --no answer--> lost --status--> shown
//        any of them --401--> locked --a token is given--> connecting
//
// While the tab is hidden, or a token is missing, nothing is asked; while the broker is lost, only
// its status is.

import { byId, say } from "./dom.js";
import { Exchanges } from "./exchanges.js";
import * as lists from "./lists.js";
import { Rates, showAlarms, showHead, showLog, showNoState } from "./overview.js";
import { Queues } from "./queues.js";
import { Segments } from "./segments.js";
import { Feed, token } from "./source.js";
import { clock, name, sentence } from "./text.js";

const ROWS = 100; // asked for of each list; a table shows as many
const TOPICS = 1000; // more, so that sorting means something
const SEARCH_MS = 300; // a pause in typing

const YOUNG_S = 600; // so far back the history has every second
const ZONE = `Times are of the zone ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`;

const page = {
  locked: false, lost: false, answered: null, seconds: 3600, young: false, branches: false,
};
const feeds = [];

// -- sections -------------------------------------------------------------------------------------

function section(id, part) {
  byId(id).querySelector(".body").append(...part.nodes);
  return part;
}

const processes = section("processes", lists.processes());
const subscriptions = section("subscriptions", lists.subscriptions());
const queues = section("queues", new Queues(() => explainFeed.wake()));
const exchanges = section("exchanges", new Exchanges(() => bindingsFeed.wake()));
const transactions = section("transactions", lists.transactions());
const links = section("replication", lists.links());
const topics = section("topics", lists.topics());
const clients = section("clients", lists.clients());
const segments = section("segments", new Segments());
const actions = section("actions", new lists.Actions());
const rates = new Rates(byId("rates").querySelector(".body"));

function showStatus(status) {
  page.young = status.processes.some((one) => one.room === "supervisor" && one.uptime_s < YOUNG_S);
  showHead(status);
  showAlarms(byId("alarms"), status);
  showLog(byId("log").querySelector(".body"), status);
  rates.now(status);
  processes.show(status.processes);
  noteBranches(status.journal);
}

/** They are asked for, and shown, while there are any: the status counts them. */
function noteBranches(journal) {
  const were = page.branches;
  page.branches = (journal.branches_prepared ?? 0) + (journal.branches_decided ?? 0) > 0;
  if (!page.branches) byId("transactions").hidden = true;
  else if (!were) transactionsFeed.wake();
}

/** What a document leaves out because somebody did not answer. */
function silence(document) {
  const silent = document.silent ?? [];
  return silent.length ? `No answer of ${silent.map(name).join(", ")}: theirs are missing.` : "";
}

function showSubscriptions(document) {
  subscriptions.show(document.subscriptions, document.left_out);
  return silence(document);
}

/** Only an instance with links has this section. */
function showLinks(document) {
  byId("replication").hidden = document.links.length === 0;
  links.show(document.links);
}

function showTransactions(document) {
  byId("transactions").hidden = !page.branches || document.transactions.length === 0;
  transactions.show(document.transactions, document.left_out);
}

/** Only an instance with exchanges beside those that are always there has this section. */
function showExchanges(document) {
  byId("exchanges").hidden = !document.exchanges.some((row) => row.bindings || !row.predeclared);
  exchanges.show(document);
}

function showClients(document) {
  clients.show(document.clients, document.left_out);
  return silence(document);
}

function showTopics(document) {
  topics.show(document.topics, document.left_out);
  return document.complete === false ? "The log is still being read: numbers may grow." : "";
}

// -- what comes of a request ----------------------------------------------------------------------

function note(id, text) {
  const node = byId(id).querySelector(".note");
  say(node, text);
  node.hidden = text === "";
}

/** A section whose document is not reported says so; the others go on. */
function tell(id, show, found) {
  if (found.kind === "locked") return lock(found);
  const absent = found.kind === "absent";
  byId(id).querySelector(".body").hidden = absent && id !== "rates"; // the status has rates too
  if (found.kind === "reported") return note(id, show(found.document) ?? "");
  if (absent) return note(id, "This version of the broker does not tell this.");
  const what = found.kind === "refused" ? "Not reported now." : "No answer.";
  const all = [what, sentence(found.reason), "What is shown was reported before."].filter(Boolean);
  return note(id, all.join(" "));
}

function takeStatus(found) {
  if (found.kind === "locked") return lock(found);
  if (found.kind === "reported") {
    const was = page.lost || byId("content").hidden;
    Object.assign(page, { lost: false, answered: new Date() });
    byId("content").hidden = false;
    byId("token").hidden = true;
    showStatus(found.document);
    if (was) wake();
  } else {
    page.lost = true;
  }
  return showLost(found);
}

function showLost(found) {
  const since = page.answered ? `No answer since ${clock(page.answered)}.` : "No answer yet.";
  const shown = page.answered ? "What is shown was reported before." : "";
  const all = [since, sentence(found.reason), shown, "It is asked again."].filter(Boolean);
  say(byId("lost"), page.lost ? all.join(" ") : "");
  byId("lost").hidden = !page.lost;
  if (page.lost) showNoState("no answer");
  byId("content").classList.toggle("stale", page.lost);
  say(byId("answered"), page.answered ? `Last answer ${clock(page.answered)}. ${ZONE}` : "");
  byId("forget").hidden = token.get() === "";
}

// -- the token ------------------------------------------------------------------------------------

function lock(found) {
  if (page.locked || found.with !== token.get()) return; // of an older request
  const refused = found.with ? "The token was not accepted. " : "";
  say(byId("token-why"), refused + sentence(found.reason));
  showNoState("locked");
  token.forget();
  page.locked = true;
  byId("content").hidden = true;
  byId("lost").hidden = true;
  byId("forget").hidden = true;
  byId("token").hidden = false;
  byId("token-text").focus();
}

byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(byId("token-text").value.trim());
  byId("token-text").value = "";
  page.locked = false;
  wake();
});

byId("forget").addEventListener("click", () => {
  token.forget();
  wake();
});

// -- asking ---------------------------------------------------------------------------------------

function wake() {
  for (const feed of feeds) feed.wake();
}

function feed(path, everyMs, take, may) {
  const made = new Feed({ path, everyMs, take, may });
  feeds.push(made);
  return made;
}

function mayList() {
  return !document.hidden && !page.locked && !page.lost && !byId("content").hidden;
}

function listFeed(path, everyMs, id, show) {
  return feed(path, everyMs, (found) => tell(id, show, found), mayList);
}

const asked = { queue: "", exchange: "" }; // whose explanation or bindings are under way

function explainPath() {
  asked.queue = queues.chosen;
  return `/queues/${encodeURIComponent(asked.queue)}/explain`;
}

function takeWhy(found) {
  if (found.kind === "locked") lock(found);
  else queues.explained(asked.queue, found);
}

function bindingsPath() {
  asked.exchange = exchanges.chosen;
  return `/bindings?exchange=${encodeURIComponent(asked.exchange)}&limit=${ROWS}`;
}

function takeBindings(found) {
  if (found.kind === "locked") lock(found);
  else exchanges.bound(asked.exchange, found);
}

const search = byId("topics-search");

/** A search without `*` finds its text anywhere in a topic. */
function topicsPath() {
  const text = search.value.trim();
  const pattern = text.includes("*") ? text : `*${text}*`;
  return `/topics?limit=${TOPICS}${text ? `&match=${encodeURIComponent(pattern)}` : ""}`;
}

feed(() => "/status", 1000, takeStatus, () => !document.hidden && !page.locked);
listFeed(() => `/subscriptions?limit=${ROWS}`, 1000, "subscriptions", showSubscriptions);
listFeed(() => `/clients?limit=${ROWS}`, 1000, "clients", showClients);
listFeed(() => "/queues", 1000, "queues", (document) => queues.show(document));
listFeed(() => "/exchanges", 2000, "exchanges", showExchanges);
listFeed(() => "/replication", 1000, "replication", showLinks);
listFeed(() => "/actions", 1000, "actions", (document) => actions.show(document));
listFeed(() => "/journal", 5000, "segments", (document) => segments.show(document));
const transactionsFeed = feed(
  () => `/transactions?limit=${ROWS}`, 2000,
  (found) => tell("transactions", showTransactions, found), () => mayList() && page.branches,
);
const explainFeed = feed(explainPath, 2000, takeWhy, () => mayList() && queues.chosen !== "");
const bindingsFeed = feed(bindingsPath, 2000, takeBindings,
  () => mayList() && exchanges.chosen !== "");
const topicsFeed = listFeed(topicsPath, 5000, "topics", showTopics);
/** Who is younger than the shorter history has all of it there, and finer. */
function historyPath() {
  return `/history?seconds=${page.young ? YOUNG_S : page.seconds}`;
}

const historyFeed = listFeed(historyPath, 2000, "rates", (document) => rates.course(document));

let typed = 0;
search.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => topicsFeed.wake(), SEARCH_MS);
});

for (const button of byId("rates").querySelectorAll("button[data-seconds]")) {
  button.addEventListener("click", () => {
    page.seconds = Number(button.dataset.seconds);
    for (const one of byId("rates").querySelectorAll("button[data-seconds]")) {
      one.setAttribute("aria-pressed", String(one === button));
    }
    historyFeed.wake();
  });
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) wake();
});

wake();
