// Numbers, sizes, times and names as people read them. Nothing here touches the page.

export const NONE = "–";

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const BYTES = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
const SECONDS = [["d", 86400], ["h", 3600], ["min", 60]];
const NAME_MAX = 200; // characters: a topic may have a thousand

// what is not seen, or turns the order of what is: written as an escape, or a name could lie
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;
// 20260314T150926[.535897]Z, as the broker writes times
const BASIC = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(\.\d+)?Z$/;

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** `12,345`. */
export function count(value) {
  return isNumber(value) ? GROUPED.format(value) : NONE;
}

/** One digit after the point below ten, none above or where it is 0. */
function short(value) {
  return value < 10 ? value.toFixed(1).replace(/\.0$/, "") : GROUPED.format(value);
}

/** What happens per second; less than one in ten seconds is not called nothing. */
export function rate(value) {
  if (!isNumber(value)) return NONE;
  return value > 0 && value < 0.05 ? "< 0.1" : short(value);
}

/** `1.5 GiB`, `800 MiB`, `12 bytes`. */
export function size(bytes) {
  if (!isNumber(bytes)) return NONE;
  const unit = BYTES.find(([, step]) => bytes >= step);
  return unit ? `${short(bytes / unit[1])} ${unit[0]}` : `${GROUPED.format(bytes)} bytes`;
}

/** `8 d`, `1.5 h`, `0.2 s`, from seconds. */
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  const unit = SECONDS.find(([, step]) => seconds >= step);
  return unit ? `${short(seconds / unit[1])} ${unit[0]}` : `${rate(seconds)} s`;
}

/** The date in either text form, or of seconds since 1970; null if it is none. */
export function moment(value) {
  if (isNumber(value)) return new Date(value * 1000);
  if (typeof value !== "string") return null;
  const date = new Date(value.replace(BASIC, "$1-$2-$3T$4:$5:$6$7Z"));
  return Number.isNaN(date.getTime()) ? null : date;
}

/** Local time: of today without its date. */
export function clock(date, now = new Date()) {
  if (!date) return NONE;
  const two = (number) => String(number).padStart(2, "0");
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  if (date.toDateString() === now.toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

/** A text from outside: what cannot be seen stands there as an escape. */
export function visible(value) {
  if (value === null || value === undefined) return "";
  return String(value).replace(UNSEEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
}

/** The same, and not longer than a cell bears. */
export function name(value) {
  const text = visible(value);
  return text.length > NAME_MAX ? `${text.slice(0, NAME_MAX)}…` : text;
}

/** A reason as a sentence of its own. */
export function sentence(reason) {
  const text = visible(reason).replace(/\.$/, "");
  return text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "";
}

/** `1 segment`, `2 segments`. */
export function many(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
