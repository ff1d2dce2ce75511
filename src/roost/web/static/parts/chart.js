// Curves over time: drawn by uPlot, with the same numbers as a table.

import { html, render } from "../vendor/lit-html.js";
import uPlot from "../vendor/uplot.js";
import { absolute, decimal, duration, percent, plain, whole } from "./format.js";

const HEIGHT = 190;
/** A table has so many rows at most; more are left out evenly. */
const ROWS = 60;
/** Steps of an axis that counts. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

/**
 * A chart: `<roost-chart .plot=${{label, unit, series: [{name, points}], stepped, along}}>`.
 *
 * Points are [time in seconds, value or null]; null is a gap. `along` says what the times are: moments
 * unless given, or "time" since a beginning, or "length" on a scale by powers of ten.
 */
class RoostChart extends HTMLElement {
  #plot = null;
  #chart = null;
  #table = false;
  #width = 0;
  #sizes = new ResizeObserver(() => this.#fit());
  #theme = () => this.#draw();

  set plot(plot) {
    const before = this.#plot;
    this.#plot = plot;
    if (!this.isConnected || before?.series === plot.series) return;
    this.#frame();
    if (this.#chart && sameLines(before, plot)) this.#chart.setData(columns(plot));
    else this.#draw();
  }

  connectedCallback() {
    document.addEventListener("roost-theme", this.#theme);
    this.#frame();
    this.#sizes.observe(this);
    this.#draw();
  }

  disconnectedCallback() {
    document.removeEventListener("roost-theme", this.#theme);
    this.#sizes.disconnect();
    this.#chart?.destroy();
    this.#chart = null;
  }

  /** What is around the curves: the title, the switch, and the table. */
  #frame() {
    const { label, unit = "" } = this.#plot;
    const flip = () => {
      this.#table = !this.#table;
      this.#frame();
      if (!this.#table) this.#draw();
    };
    render(
      html`<div class="chart-head">
          <h3>${plain(label)}${unit && unit !== "fraction" ? html` <span class="muted">${plain(unit)}</span>` : ""}</h3>
          <button type="button" class="plain" aria-pressed=${this.#table} @click=${flip}>Table</button>
        </div>
        <div class="chart-canvas" ?hidden=${this.#table} role="img" aria-label=${this.#inWords()}></div>
        ${this.#table ? this.#numbers() : ""}`,
      this,
    );
  }

  #inWords() {
    const { label, series } = this.#plot;
    const told = series.map(({ name, points }) => {
      const known = points.filter((point) => point[1] !== null).map((point) => point[1]);
      if (!known.length) return `${name}: nothing reported`;
      return `${name}: ${this.#write(Math.min(...known))} to ${this.#write(Math.max(...known))}, last ${this.#write(known.at(-1))}`;
    });
    return plain(`Chart of ${label}. ${told.join("; ")}`);
  }

  #write(value) {
    if (value === null || value === undefined) return "–";
    if (this.#plot.unit === "fraction") return percent(value, value < 0.1 && value > 0 ? 1 : 0);
    return Number.isInteger(value) ? whole(value) : decimal(value);
  }

  #numbers() {
    const [times, ...values] = columns(this.#plot);
    const step = Math.ceil(times.length / ROWS) || 1;
    const rows = times.map((_, index) => index).filter((index) => index % step === 0);
    return html`<div class="scroll chart-table" tabindex="0" role="region" aria-label=${plain(this.#plot.label)}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            ${this.#plot.series.map((one) => html`<th scope="col" class="number">${plain(one.name)}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            (row) =>
              html`<tr>
                <th scope="row">${this.#plot.along ? duration(times[row]) : absolute(times[row])}</th>
                ${values.map((column) => html`<td class="number">${this.#write(column[row])}</td>`)}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>`;
  }

  #draw() {
    const host = /** @type {HTMLElement | null} */ (this.querySelector(".chart-canvas"));
    if (!host || this.#table) return;
    this.#chart?.destroy();
    this.#width = Math.max(220, Math.floor(this.clientWidth));
    const colour = (name) => colourOf(this, name);
    const axis = {
      stroke: colour("--chart-text"),
      grid: { stroke: colour("--grid"), width: 1 },
      ticks: { show: false },
    };
    const { series, stepped, along } = this.#plot;
    this.#chart = new uPlot(
      {
        width: this.#width,
        height: HEIGHT,
        legend: { live: true },
        cursor: { drag: { x: true, y: false } },
        scales: {
          x: { time: !along, distr: along === "length" ? 3 : 1 },
          y: { range: (_, low, high) => bounds(low, high, this.#plot) },
        },
        axes: [
          {
            ...axis,
            space: 70,
            values: (_, ticks) => (along ? ticks.map((tick) => (tick === null ? "" : duration(tick))) : times(ticks)),
          },
          {
            ...axis,
            size: 56,
            incrs: stepped && !this.#plot.unit ? WHOLE : undefined,
            values: (_, ticks) => ticks.map((tick) => this.#write(tick)),
          },
        ],
        series: [
          {
            label: along ?? "time",
            value: (_, value) => (value === null ? "–" : along ? duration(value) : absolute(value)),
          },
          ...series.map((one, index) => ({
            label: plain(one.name),
            stroke: colour(`--line-${index % 8}`),
            width: 2,
            dash: DASHES[Math.floor(index / 8) % DASHES.length],
            spanGaps: false,
            paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
            points: { show: one.points.length < 3 },
            value: (_, value) => this.#write(value),
          })),
        ],
      },
      columns(this.#plot),
      host,
    );
  }

  #fit() {
    const width = Math.max(220, Math.floor(this.clientWidth));
    if (!this.#chart || Math.abs(width - this.#width) < 2) return;
    this.#width = width;
    this.#chart.setSize({ width, height: HEIGHT });
  }
}

customElements.define("roost-chart", RoostChart);

const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const HOUR = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** How the times of an axis are written: as exactly as they are apart. */
function times(ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  const long = ticks.length > 1 && ticks.at(-1) - ticks[0] > 86400;
  const form = long ? DAY : step < 60 ? CLOCK : HOUR;
  return ticks.map((tick) => form.format(tick * 1000));
}

/** Parts go from nothing to all, counts from nothing; the rest has some air around it. */
/** @returns {[number, number]} */
function bounds(low, high, { unit, stepped }) {
  if (low === null || high === null) return [0, 1];
  if (unit === "fraction") return [0, Math.max(1, high)];
  if (stepped) return [0, Math.max(1, high * 1.15)];
  const air = (high - low || Math.abs(high) || 1) * 0.08;
  return [low >= 0 ? Math.max(0, low - air) : low - air, high + air];
}

/** A canvas knows no variables and no light-dark(): it is told what they come to here. */
function colourOf(element, name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function sameLines(before, plot) {
  const names = (one) => one.series.map((each) => each.name).join("\n");
  return before && names(before) === names(plot) && before.unit === plot.unit;
}

/** The series over all times that any of them has. */
function columns({ series }) {
  const times = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  const values = series.map((one) => {
    const known = new Map(one.points);
    // What is null is a gap; undefined: only other series have that time.
    return times.map((time) => known.get(time));
  });
  return [times, ...values];
}
