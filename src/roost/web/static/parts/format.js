// Numbers and times as people read them. Times come in seconds.

import { now } from "../core/store.js";

export const NONE = "–";
const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

/** A number with about three significant digits. */
export function decimal(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return whole(value);
  if (size < 0.001) return value.toExponential(2);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 4;
  return value.toFixed(digits);
}

export function whole(value) {
  return Math.round(value).toLocaleString("en-GB");
}

/** A count that is mostly whole, such as GPUs. */
export function amount(value) {
  if (value === null || value === undefined) return NONE;
  return Number.isInteger(value) ? whole(value) : String(Number(value.toFixed(2)));
}

export function percent(value, digits = 0) {
  return value === null || value === undefined ? NONE : `${(value * 100).toFixed(digits)} %`;
}

export function plural(count, noun) {
  return `${amount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** @type {[number, string, number, string][]} */
const AMOUNTS = [
  [DAY, "d", HOUR, "h"],
  [HOUR, "h", MINUTE, "min"],
  [MINUTE, "min", 1, "s"],
];

/** A length of time in one or two units: 3 d 4 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  const length = Math.max(0, Math.round(seconds));
  for (const [large, name, small, smaller] of AMOUNTS) {
    if (length < large) continue;
    const rest = Math.floor((length % large) / small);
    return rest ? `${Math.floor(length / large)} ${name} ${rest} ${smaller}` : `${Math.floor(length / large)} ${name}`;
  }
  return seconds >= 0.05 && seconds < 1 ? `${seconds.toFixed(1)} s` : `${length} s`;
}

/** How long ago, or in how long. */
export function relative(time) {
  if (time === null || time === undefined) return NONE;
  const ago = now() - time;
  if (Math.abs(ago) < 2) return "now";
  return ago > 0 ? `${duration(coarse(ago))} ago` : `in ${duration(coarse(-ago))}`;
}

/** One unit is enough for what is long ago. */
function coarse(seconds) {
  if (seconds > 2 * DAY) return Math.round(seconds / DAY) * DAY;
  if (seconds > 6 * HOUR) return Math.round(seconds / HOUR) * HOUR;
  if (seconds > 10 * MINUTE) return Math.round(seconds / MINUTE) * MINUTE;
  return seconds;
}

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const TIME = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const SHORT = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

/** The whole date and time, with the time zone. */
export function absolute(time) {
  return time === null || time === undefined ? NONE : `${FULL.format(time * 1000)} (${ZONE})`;
}

/** The time of a moment today; with its day otherwise. */
export function clock(time) {
  const today = new Date(time * 1000).toDateString() === new Date().toDateString();
  return (today ? TIME : SHORT).format(time * 1000);
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit ? decimal(size) : size} ${units[unit]}`;
}

export const mebibytes = (value) => (value === null || value === undefined ? NONE : bytes(value * 2 ** 20));

/** Hostile texts stay on one line, and cannot turn the reading direction of what follows. */
export function plain(text) {
  return String(text ?? "").replace(/[\u0000-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}
