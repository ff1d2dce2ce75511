// Numbers and times as people read them. Times come in seconds.

const NONE = "–";
const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

/** Write a number with about three significant digits. */
function decimal(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-GB");
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3;
  return value.toFixed(digits);
}

/** Write a count that is mostly whole, such as GPUs. */
function amount(value) {
  return Number.isInteger(value) ? whole(value) : decimal(value);
}

function whole(value) {
  return Math.round(value).toLocaleString("en-GB");
}

function percent(value, digits = 1) {
  return `${(value * 100).toFixed(digits)} %`;
}

/** The unit that suits a length of time. */
function timeUnit(seconds) {
  const size = Math.abs(seconds);
  if (size < 2 * MINUTE) return { name: "s", size: 1 };
  if (size < 2 * HOUR) return { name: "min", size: MINUTE };
  if (size < 3 * DAY) return { name: "h", size: HOUR };
  return { name: "d", size: DAY };
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  const unit = timeUnit(seconds);
  return `${decimal(seconds / unit.size)} ${unit.name}`;
}

/** A moment on the time axis, in one or two units: 3 d 4 h. */
function moment(seconds) {
  const parts = [
    [Math.floor(seconds / DAY), "d"],
    [Math.floor((seconds % DAY) / HOUR), "h"],
    [Math.floor((seconds % HOUR) / MINUTE), "min"],
    [Math.floor(seconds % MINUTE), "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return `${decimal(seconds)} s`;
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, name]) => `${count} ${name}`)
    .join(" ");
}

/** One formatter for all values of a figure, so that a column has one unit. */
function columnFormat(unit, values) {
  const known = values
    .filter((value) => value !== null)
    .map(Math.abs)
    .sort((a, b) => a - b);
  if (unit === "s") {
    const time = timeUnit(known[Math.floor(known.length / 2)] ?? 0);
    return { suffix: time.name, write: (value) => decimal(value / time.size) };
  }
  if (unit === "fraction") return { suffix: "%", write: (value) => (value * 100).toFixed(1) };
  if (unit === "gpu_h") return { suffix: "GPU h", write: decimal };
  if (unit === "ratio")
    return {
      suffix: "",
      write: (value) => (Math.abs(value) >= 100 ? decimal(value) : value.toFixed(2)),
    };
  const exact = known.every(Number.isInteger);
  return { suffix: "", write: exact ? whole : decimal };
}

/** A single value of a figure with its unit. */
function figureText(unit, value) {
  if (value === null) return NONE;
  const { suffix, write } = columnFormat(unit, [value]);
  return suffix ? `${write(value)} ${suffix}` : write(value);
}

/** A relative change, signed: −43 %. */
function change(value, base) {
  if (value === null || !base) return null;
  const part = value / base - 1;
  const size = Math.abs(part * 100);
  const text = size >= 1000 ? whole(size) : size >= 9.95 ? size.toFixed(0) : size.toFixed(1);
  if (Number(text) === 0) return "±0 %";
  return `${part < 0 ? "−" : "+"}${text} %`;
}

/** Steps of about count on a linear axis. */
function linearTicks(max, count) {
  if (!(max > 0)) return [0, 1];
  const rough = max / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const ticks = [];
  for (let i = 0; i * step <= max * 1.0001; i += 1) ticks.push(i * step);
  return ticks;
}

const TIME_STEPS = [
  ...[0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((count) => count * MINUTE),
  ...[1, 2, 3, 6, 12].map((count) => count * HOUR),
  ...[1, 2, 5, 7, 14, 30, 60, 90, 180, 365, 730].map((count) => count * DAY),
];

/** Round moments between two times, about count of them, and how to write them. */
function timeTicks(from, to, count) {
  const rough = (to - from) / count;
  const step = TIME_STEPS.find((size) => size >= rough) ?? rough;
  const ticks = [];
  for (let at = Math.ceil(from / step - 1e-9) * step; at <= to * 1.000001; at += step)
    ticks.push(at);
  return {
    ticks,
    write: (seconds) =>
      step >= DAY ? `${Math.round(seconds / DAY)} d` : moment(Math.round(seconds * 1000) / 1000),
  };
}

/** Times for a logarithmic axis, those that matter most first. */
const LOG_MARKS = [
  ...[1, MINUTE, HOUR, DAY, 0.001, 0.01, 0.1, 10],
  ...[10 * MINUTE, 10 * HOUR, 10 * DAY, 100 * DAY, 1000 * DAY],
  ...[30, 30 * MINUTE, 3 * HOUR, 3 * DAY, 30 * DAY, 300 * DAY, 3, 3 * MINUTE],
];

/** Times to mark on a logarithmic axis, as many as have room; pixel tells where a time comes. */
function logTicks(from, to, pixel) {
  const chosen = [];
  for (const mark of LOG_MARKS) {
    const inside = mark >= from * 0.999 && mark <= to * 1.001;
    if (inside && chosen.every((other) => Math.abs(pixel(other) - pixel(mark)) > 62))
      chosen.push(mark);
  }
  return chosen;
}

/** "2-4" as a range with a proper dash, "Mean rho" with the letter itself. */
function pretty(text) {
  return text.replace(/(\d)-(\d)/g, "$1–$2").replace(/\brho\b/g, "ρ");
}

function plural(count, noun) {
  return `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
}
