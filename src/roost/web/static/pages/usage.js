// Who held how much of the cluster, how much of it was at work, what was lost, and what it cost.

import { html, nothing } from "../vendor/lit-html.js";
import { address, get } from "../core/api.js";
import { Resource } from "../core/resource.js";
import { place, setQuery } from "../core/router.js";
import { now } from "../core/store.js";
import { sameAs } from "../parts/copy.js";
import { amount, decimal, percent, plain, plural } from "../parts/format.js";
import { empty, shown } from "../parts/shown.js";
import "../parts/chart.js";

const DAY = 86400;
const TIMES = [
  [1, "a day"],
  [7, "7 days"],
  [30, "30 days"],
  [90, "90 days"],
];
const KEYS = ["user", "queue", "application", "label", "node", "job", "day"];
/** Micro-GPU-seconds in a GPU hour. */
const HOUR = 3600e6;

export const keyOf = () => "/usage";

const days = () => Number(place.query.get("days") ?? 7) || 7;
const by = () => (KEYS.includes(place.query.get("by") ?? "") ? place.query.get("by") : "user");
const question = (key) => ({ by: key, since: Math.floor(now() - days() * DAY) });

export function open() {
  const table = new Resource((signal) => get("/usage", question(by()), signal));
  const daily = new Resource((signal) => get("/usage", question("day"), signal));
  const reload = () => {
    table.reload();
    daily.reload();
  };
  reload();
  return {
    title: () => "Usage",
    moved() {
      table.clear();
      reload();
    },
    view: () =>
      html`<div class="page-head">
          <h1>Usage</h1>
          ${sameAs({ cli: `roost usage --by ${by()}`, api: `curl '${location.origin}${address("/api/v1/usage", question(by()))}' -H "Authorization: Bearer $TOKEN"` })}
        </div>
        <search class="filters" aria-label="What is counted">
          <div class="chips" role="group" aria-label="How long">
            ${TIMES.map(([count, word]) => html`<button type="button" class="chip" aria-pressed=${count === days()} @click=${() => setQuery({ days: count === 7 ? "" : count })}>${word}</button>`)}
          </div>
          <label class="inline"
            >By
            <select @change=${(event) => setQuery({ by: event.target.value })}>
              ${KEYS.map((key) => html`<option ?selected=${key === by()}>${key}</option>`)}
            </select></label
          >
        </search>
        ${shown(table, (told) => page(told, daily.value), { lines: 10 })}`,
    close() {
      table.close();
      daily.close();
    },
  };
}

const hours = (value) => (value === null || value === undefined ? null : value / HOUR);

function page(told, daily) {
  const rows = told.rows.toSorted((a, b) => b.held - a.held);
  return html`${told.cluster ? clusterView(told) : nothing}
    ${told.old_prices.length ? html`<p class="note">Prices of ${told.old_prices.map(plain).join(", ")} are older than 90 days.</p>` : nothing}
    ${daily?.rows.length > 1 ? html`<section class="card"><roost-chart .plot=${plotOf(daily)}></roost-chart></section>` : nothing}
    <section class="card flush" aria-label="Usage">
      ${rows.length ? usageTable(rows, told) : empty("Nothing was used in this time")}
    </section>`;
}

function clusterView({ cluster, currency }) {
  const figure = (label, value) =>
    html`<li class="figure">
      <span class="muted">${label}</span><span class="tile-value">${decimal(hours(value))}</span>
      <span class="hint">GPU hours${cluster.capacity ? `, ${percent(value / cluster.capacity)}` : ""}</span>
    </li>`;
  return html`<ul class="tiles figures" aria-label="The cluster">
    ${figure("Capacity", cluster.capacity)} ${figure("Held", cluster.held)} ${figure("Idle", cluster.idle)}
    ${figure("Out of service", cluster.out_of_service)}
    ${cluster.idle_cost === null ? nothing : html`<li class="figure"><span class="muted">Cost of what was idle</span><span class="tile-value">${decimal(cluster.idle_cost)}</span><span class="hint">${plain(currency)}</span></li>`}
  </ul>`;
}

function usageTable(rows, { by: keys, total, currency }) {
  const line = (row, name) =>
    html`<tr>
      <th scope="row">${name}</th>
      <td class="number">${amount(row.jobs)}</td>
      <td class="number"><strong>${decimal(hours(row.held))}</strong></td>
      <td class="number">
        ${row.busy === null ? html`<span class="muted">not measured</span>` : percent(row.busy / Math.max(1, row.held - row.unmeasured))}
      </td>
      <td class="number">${row.wasted === null ? "–" : decimal(hours(row.wasted))}</td>
      <td class="number">${decimal(hours(Object.values(row.lost).reduce((sum, one) => sum + one, 0)))}</td>
      <td class="number">${decimal(hours(row.waiting))}</td>
      <td class="number">
        ${row.cost === null ? html`<span class="muted">no price</span>` : `${decimal(row.cost)}${row.unpriced ? " or more" : ""}`}
      </td>
    </tr>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Usage as a table">
    <table>
      <thead>
        <tr>
          <th scope="col">${keys.map(plain).join(", ")}</th>
          <th scope="col" class="number">Jobs</th>
          <th scope="col" class="number">GPU hours held</th>
          <th scope="col" class="number">At work</th>
          <th scope="col" class="number">Not at work</th>
          <th scope="col" class="number">Done again</th>
          <th scope="col" class="number">Waited for</th>
          <th scope="col" class="number">Cost${currency ? ` (${plain(currency)})` : ""}</th>
        </tr>
      </thead>
      <tbody>
        ${rows.map((row) =>
          line(
            row,
            keys.map((key) => nameOf(key, row.keys[key])),
          ),
        )}
      </tbody>
      ${
        total
          ? html`<tfoot>
              ${line(total, plural(rows.length, "row"))}
            </tfoot>`
          : nothing
      }
    </table>
  </div>`;
}

function nameOf(key, value) {
  const filter = { user: "user", queue: "queue" }[key];
  if (key === "job") return html`<a href="/jobs/${encodeURIComponent(value)}">${plain(value)}</a> `;
  if (key === "node") return html`<a href="/nodes/${encodeURIComponent(value)}">${plain(value)}</a> `;
  return filter
    ? html`<a href="/jobs?${filter}=${encodeURIComponent(value)}">${plain(value)}</a> `
    : html`${plain(value)} `;
}

const plots = new WeakMap();

/** GPU hours of each day, held and at work. */
function plotOf(daily) {
  if (!plots.has(daily)) {
    const rows = daily.rows.toSorted((a, b) => a.keys.day.localeCompare(b.keys.day));
    const series = (name, value) => ({
      name,
      points: rows.map((row) => [Date.parse(row.keys.day) / 1000, hours(value(row))]),
    });
    plots.set(daily, {
      label: "Each day",
      unit: "GPU hours",
      stepped: true,
      series: [series("Held", (row) => row.held), series("At work", (row) => row.busy)],
    });
  }
  return plots.get(daily);
}
