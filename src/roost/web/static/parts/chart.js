// Curves over time: drawn by uPlot, with the same numbers as a table.

import { html, render } from "../vendor/lit-html.js";
import uPlot from "../vendor/uplot.js";
import { absolute, decimal, percent, plain } from "./format.js";

const HEIGHT = 190;
/** A table has so many rows at most; more are left out evenly. */
const ROWS = 60;
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

/**
 * A chart: `<roost-chart .plot=${{label, unit, series: [{name, points}], stepped}}>`.
 *
 * Points are [time in seconds, value or null]; null is a gap.
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
    if (this.#chart && sameLines(before, plot)) this.#chart.setData(columns(plot));
    else this.#draw();
    if (this.#table) this.#frame();
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
          <h3>${plain(label)}${unit ? html` <span class="muted">${plain(unit)}</span>` : ""}</h3>
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
    return this.#plot.unit === "fraction" ? percent(value, 1) : decimal(value);
  }

  #numbers() {
    const [times, ...values] = columns(this.#plot);
    const step = Math.ceil(times.length / ROWS) || 1;
    const rows = times.map((_, index) => index).filter((index) => index % step === 0);
    return html`<div class="scroll chart-table" tabindex="0" role="region" aria-label=${plain(this.#plot.label)}><table>
      <thead><tr><th scope="col">Time</th>${this.#plot.series.map((one) => html`<th scope="col" class="number">${plain(one.name)}</th>`)}</tr></thead>
      <tbody>${rows.map(
        (row) => html`<tr><th scope="row">${absolute(times[row])}</th>${values.map((column) => html`<td class="number">${this.#write(column[row])}</td>`)}</tr>`,
      )}</tbody></table></div>`;
  }

  #draw() {
    const host = this.querySelector(".chart-canvas");
    if (!host || this.#table) return;
    this.#chart?.destroy();
    this.#width = Math.max(220, Math.floor(this.clientWidth));
    const style = getComputedStyle(this);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--chart-text"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    const { series, stepped } = this.#plot;
    this.#chart = new uPlot(
      {
        width: this.#width,
        height: HEIGHT,
        legend: { show: series.length > 1 || !("ontouchstart" in window), live: true },
        cursor: { drag: { x: true, y: false } },
        axes: [axis, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => this.#write(tick)) }],
        series: [
          { label: "time" },
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

function sameLines(before, plot) {
  const names = (one) => one.series.map((each) => each.name).join("\n");
  return before && names(before) === names(plot) && before.unit === plot.unit;
}

/** The series over all times that any of them has. */
function columns({ series }) {
  const times = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  const values = series.map((one) => {
    const known = new Map(one.points);
    return times.map((time) => known.get(time) ?? null);
  });
  return [times, ...values];
}
