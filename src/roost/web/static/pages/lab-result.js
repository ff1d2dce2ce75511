// What came out of a what-if: a table that compares, distributions, and what happened when.

import { html, nothing } from "../vendor/lit-html.js";
import { get, part, remove } from "../core/api.js";
import { Resource } from "../core/resource.js";
import { may } from "../core/session.js";
import { copy } from "../parts/copy.js";
import { amount, decimal, duration, percent, plain } from "../parts/format.js";
import { notifyFault } from "../parts/notices.js";
import { empty, shown, skeleton } from "../parts/shown.js";
import { since } from "../parts/times.js";
import { inWords, labMark } from "./lab.js";
import "../parts/chart.js";

/**
 * Figures of the table: their words, how they are written, and whether more is better.
 *
 * @type {[string, string, (value: number) => string, boolean][]}
 */
const FIGURES = [
  ["jct_mean", "Mean completion", duration, false],
  ["jct_median", "Median completion", duration, false],
  ["jct_p99", "99th percentile", duration, false],
  ["delay_mean", "Mean wait", duration, false],
  ["makespan", "Makespan", duration, false],
  ["gpu_useful", "GPUs at useful work", (value) => percent(value, 1), true],
  ["preemptions", "Preemptions", decimal, false],
  ["lost_gpu_h", "Work lost (GPU hours)", decimal, false],
  ["unfair_fraction", "Unfair", (value) => percent(value, 1), false],
];
const OVER = new Set(["done", "failed", "cancelled"]);

export const keyOf = ({ path }) => path;

export function open({ names }) {
  const path = `/lab/${part(names.lab)}`;
  /** @type {Resource<any>} */
  const found = new Resource((signal) => get(path, {}, signal));
  const timer = setInterval(
    () => (found.value && OVER.has(found.value.state)) || document.hidden || found.reload(),
    1000,
  );
  found.reload();
  const end = async () => {
    try {
      await remove(path);
      found.reload();
    } catch (error) {
      notifyFault(error);
    }
  };
  return {
    title: () => "What if",
    view: () =>
      html`<div class="page-head">
          <h1>What if</h1>
          <div class="buttons">
            <button type="button" @click=${() => copy(location.href)}>Copy the link</button>
            <button type="button" @click=${() => print()}>Print</button>
            ${found.value && !OVER.has(found.value.state) && may("jobs:write") ? html`<button type="button" class="danger" @click=${end}>End it</button>` : nothing}
            <a class="button" href="/lab">Ask something else</a>
          </div>
        </div>
        ${shown(found, lab, { lines: 8 })}`,
    close() {
      clearInterval(timer);
      found.close();
    },
  };
}

function lab(told) {
  return html`<p class="sub">
      ${labMark(told.state)} <span>${inWords(told.ask)}</span>
      <span>asked ${since(told.made_at)} by ${plain(told.user)}</span>
    </p>
    ${told.problem ? html`<p class="banner banner-bad" role="alert">${plain(told.problem)}</p>` : nothing}
    ${told.result ? result(told.result) : OVER.has(told.state) ? empty("There is no result") : skeleton(6)}`;
}

function result(found) {
  return html`<section class="card flush" aria-labelledby="table-h">
      <h2 id="table-h" class="pad">Compared</h2>
      <p class="hint pad">
        ${plain(found.workload)}: ${amount(found.jobs)} jobs on ${amount(found.nodes)} nodes with ${amount(found.gpus)}
        GPUs. Bold is the best; behind it the difference to ${plain(found.table[0].policy)}.
      </p>
      ${compared(found.table)}
    </section>
    <div class="charts">
      ${chart(plotsOf(found).jct)} ${chart(plotsOf(found).wait)} ${chart(plotsOf(found).held)}
      ${chart(plotsOf(found).queued)}
    </div>
    ${notes(found.runs)}`;
}

const chart = (plot) => html`<section class="card chart-card"><roost-chart .plot=${plot}></roost-chart></section>`;

function compared(table) {
  const best = (name, more) => {
    const means = table.map((row) => row.figures[name]?.mean).filter((mean) => mean !== null && mean !== undefined);
    return more ? Math.max(...means) : Math.min(...means);
  };
  const cell = (row, [name, , write, more]) => {
    const figure = row.figures[name];
    if (!figure) return html`<td class="number">–</td>`;
    const width =
      figure.n > 1 && figure.half_width ? html` <span class="muted">± ${write(figure.half_width)}</span>` : nothing;
    const text = figure.mean === best(name, more) ? html`<strong>${write(figure.mean)}</strong>` : write(figure.mean);
    return html`<td class="number">${text}${width}${difference(row, table[0], name)}</td>`;
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Comparison">
    <table>
      <thead>
        <tr>
          <th scope="col">Policy</th>
          ${FIGURES.map(([, word]) => html`<th scope="col" class="number">${word}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${table.map(
          (row) =>
            html`<tr>
              <th scope="row">${plain(row.policy)}</th>
              ${FIGURES.map((figure) => cell(row, figure))}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function difference(row, first, name) {
  const base = first.figures[name]?.mean;
  if (row === first || !base) return nothing;
  const part_ = row.figures[name].mean / base - 1;
  const size = Math.abs(part_ * 100);
  if (size < 0.05) return nothing;
  return html` <span class="hint">${part_ < 0 ? "−" : "+"}${size < 10 ? size.toFixed(1) : Math.round(size)} %</span>`;
}

const plots = new WeakMap();

/** The charts of a result, made once: of each policy its first seed. */
function plotsOf(found) {
  if (plots.has(found)) return plots.get(found);
  const first = found.runs.filter(
    (run, index) => found.runs.findIndex((other) => other.policy === run.policy) === index,
  );
  const pairs = (xs, ys) => xs.map((x, index) => [Math.max(1, x), ys[index]]);
  const distribution = (name) => first.map((run) => ({ name: run.policy, points: pairs(run[name].x, run[name].y) }));
  const over = (name) =>
    first.map((run) => ({
      name: run.policy,
      points: run.series.time.map((time, index) => [time, run.series[name].v[index]]),
    }));
  const made = {
    jct: {
      label: "Jobs done within a time of their submission",
      unit: "fraction",
      along: "length",
      series: distribution("jct"),
    },
    wait: { label: "Jobs that waited no longer", unit: "fraction", along: "length", series: distribution("wait") },
    held: { label: "GPUs held", unit: "", along: "time", stepped: true, series: over("allocated") },
    queued: { label: "Jobs waiting", unit: "", along: "time", stepped: true, series: over("queued") },
  };
  plots.set(found, made);
  return made;
}

function notes(runs) {
  const said = [...new Set(runs.flatMap((run) => run.notes))];
  if (!said.length) return nothing;
  return html`<section class="card" aria-label="Notes">
    <ul>
      ${said.map((note) => html`<li>${plain(note)}</li>`)}
    </ul>
  </section>`;
}
