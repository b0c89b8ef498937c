// Asking the admin: one request of each document at a time, none while the page is hidden.
//
// What comes of a request is one of
//   {kind: "reported", document}   {kind: "absent"}           this broker has no such document
//   {kind: "locked", reason, with}                        `with` that token it is not shown
//   {kind: "refused", reason}                             it cannot be reported now
//   {kind: "lost", reason}     there was no answer

const PATIENCE_MS = 5000; // a broker that takes longer is lost; it is asked again
const ABSENT_MS = 60000; // until what is not there is asked for again
const TOKEN = "zbroker.token"; // in the session storage: gone with the tab

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (text) => sessionStorage.setItem(TOKEN, text),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** Asks once; never throws. */
export async function ask(path) {
  const known = token.get();
  try {
    return await outcome(await request(path, known), known);
  } catch (error) {
    const slow = error.name === "TimeoutError";
    return { kind: "lost", reason: slow ? `nothing within ${PATIENCE_MS / 1000} s` : "" };
  }
}

function request(path, known) {
  return fetch(path, {
    headers: known ? { Authorization: `Bearer ${known}` } : {},
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
}

async function outcome(response, known) {
  if (response.status === 404) return { kind: "absent" };
  const text = await response.text();
  const document = parsed(text);
  if (response.ok && document !== null) return { kind: "reported", document };
  const reason = document?.reason ?? `HTTP status ${response.status}`;
  const locked = response.status === 401 || document?.code === "not_entitled";
  return locked ? { kind: "locked", reason, with: known } : { kind: "refused", reason };
}

/** The object that `text` is; null if it is something else, as of a proxy in between. */
function parsed(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

/** One document, asked for again `everyMs` after each answer, while `may()`. */
export class Feed {
  #path;
  #everyMs;
  #may;
  #take;
  #timer = 0;
  #busy = false;
  #again = false;

  /** path(): what to ask for; may(): whether; take(outcome): what came of it. */
  constructor({ path, everyMs, may, take }) {
    this.#path = path;
    this.#everyMs = everyMs;
    this.#may = may;
    this.#take = take;
  }

  /** Asks now, or as soon as the request under way has ended. */
  wake() {
    this.#again = this.#busy;
    if (!this.#busy) this.#turn();
  }

  async #turn() {
    clearTimeout(this.#timer);
    if (!this.#may()) return; // whoever changes that wakes it
    this.#busy = true;
    const found = await ask(this.#path());
    this.#busy = false;
    try {
      this.#take(found);
    } finally {
      const waitMs = this.#again ? 0 : found.kind === "absent" ? ABSENT_MS : this.#everyMs;
      this.#again = false;
      this.#timer = setTimeout(() => this.#turn(), waitMs);
    }
  }
}
