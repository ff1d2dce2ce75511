// How a job does: every metric that it reported, as curves.

import { html } from "../vendor/lit-html.js";
import { repeat } from "../vendor/directives/repeat.js";
import { get } from "../core/api.js";
import { Resource, seldom } from "../core/resource.js";
import { isOver } from "../parts/states.js";
import { empty, shown } from "../parts/shown.js";
import "../parts/chart.js";

const EVERY_MS = 10000;
/** Which come first; all others follow by name. */
const FIRST = ["loss", "workers", "gpus", "busy", "progress", "samples_per_s", "step_s", "memory_mib"];
const LABELS = {
  loss: ["Loss", ""],
  workers: ["Workers", ""],
  gpus: ["GPUs held", ""],
  busy: ["Use of its GPUs", "fraction"],
  progress: ["Progress", ""],
  samples_per_s: ["Samples per second", ""],
  step_s: ["Time of a step", "s"],
  step: ["Step", ""],
  batch: ["Batch", "samples"],
  noise: ["Gradient noise scale", "samples"],
  memory_mib: ["Memory of a worker", "MiB"],
};
const STEPPED = new Set(["workers", "gpus", "batch"]);

export function curvesTab(job, path) {
  const metrics = new Resource((signal) => get(`${path}/metrics`, { points: 400 }, signal));
  const again = seldom(EVERY_MS, () => metrics.reload());
  const timer = setInterval(() => job.value && !isOver(job.value) && !document.hidden && again(), EVERY_MS);
  metrics.reload();
  return {
    view: () => shown(metrics, curves, { lines: 6 }),
    changed: again,
    close() {
      clearInterval(timer);
      again.stop();
      metrics.close();
    },
  };
}

function curves({ series }) {
  const known = series.filter((one) => one.points.length);
  if (!known.length)
    return empty(
      "No metric was reported",
      html`<p class="hint">Programs report with <code>roost.train</code>; see docs/training.md.</p>`,
    );
  const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  const sorted = known.toSorted((a, b) => rank(a.name) - rank(b.name) || a.name.localeCompare(b.name));
  return html`<div class="charts">
    ${repeat(
      sorted,
      (one) => one.name,
      (one) => {
        const [label, unit] = LABELS[one.name] ?? [one.name, one.unit ?? ""];
        return html`<section class="card chart-card">
          <roost-chart .plot=${plotOf(one, label, unit)}></roost-chart>
        </section>`;
      },
    )}
  </div>`;
}

/** The same object for the same points, so that a chart is drawn when something is new only. */
const plots = new WeakMap();

function plotOf(one, label, unit) {
  if (!plots.has(one))
    plots.set(one, { label, unit, series: [{ ...one, name: label }], stepped: STEPPED.has(one.name) });
  return plots.get(one);
}
