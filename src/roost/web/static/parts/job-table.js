// Jobs as rows: the same columns wherever jobs are listed.

import { html, nothing } from "../vendor/lit-html.js";
import { repeat } from "../vendor/directives/repeat.js";
import { now } from "../core/store.js";
import { amount, decimal, duration, percent, plain } from "./format.js";
import { gpusText, isOver, nodesOf, stateMark } from "./states.js";
import { sortHead } from "./tables.js";
import { since } from "./times.js";

/**
 * Each column: its head, the field it sorts by, its kind, and its cell.
 *
 * @type {Record<string, [string, string, string, (job: import("../types.js").JobView) => any]>}
 */
const COLUMNS = {
  state: ["State", "state", "", (job) => stateMark(job.state)],
  job: ["Job", "name", "", nameCell],
  user: ["User", "user", "", (job) => plain(job.user)],
  queue: ["Queue", "queue", "", (job) => plain(job.queue)],
  gpus: ["GPUs", "gpus", "number", gpusText],
  workers: ["Workers", "", "number", (job) => workersText(job)],
  nodes: ["Nodes", "", "", (job) => nodesText(job)],
  progress: ["Progress", "", "number", (job) => progressText(job)],
  use: ["Use", "", "number", (job) => (isOver(job) || job.busy === null ? "–" : percent(job.busy))],
  wait: ["Waited", "", "number", (job) => duration((job.started_at ?? job.finished_at ?? now()) - job.submitted_at)],
  priority: ["Priority", "priority", "number", (job) => amount(job.priority)],
  submitted: ["Submitted", "submitted_at", "", (job) => since(job.submitted_at)],
};

function nameCell(job) {
  const why = job.state === "queued" || job.state === "suspended" ? job.reason : job.verdict?.phrase || job.note;
  return html`<a class="job-link" href="/jobs/${encodeURIComponent(job.id)}" data-row>${plain(job.id)}</a>
    ${why ? html`<span class="why">${plain(why)}</span>` : nothing}`;
}

export function workersText(job) {
  const { min, max, now: have } = job.workers;
  const range = min === max ? amount(max) : `${min}–${max}`;
  return isOver(job) || !have ? range : `${have} (${range})`;
}

function nodesText(job) {
  const nodes = nodesOf(job);
  if (!nodes.length) return "–";
  return nodes.length > 2 ? `${plain(nodes[0])} and ${nodes.length - 1} more` : nodes.map(plain).join(", ");
}

function progressText(job) {
  if (job.progress === null || job.progress === undefined) return html`<span class="muted">not reported</span>`;
  return job.progress <= 1 ? percent(job.progress) : decimal(job.progress);
}

/**
 * A table of jobs; with `sort` and `choose` its heads sort, with `picked` rows can be chosen.
 *
 * @param {import("../types.js").JobView[]} jobs
 * @param {{columns: string[], sort?: string, choose?: (sort: string) => void,
 *   picked?: Set<string>, pick?: (ids: string[], on: boolean) => void}} options
 */
export function jobTable(jobs, { columns, sort = "", choose, picked, pick }) {
  const ids = jobs.map((job) => job.id);
  const all = picked && ids.length > 0 && ids.every((id) => picked.has(id));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Jobs">
    <table class="jobs">
      <thead>
        <tr>
          ${
            picked
              ? html`<th scope="col" class="pick">
                  <input
                    type="checkbox"
                    aria-label="Choose all on this page"
                    .checked=${all}
                    @change=${(event) => pick(ids, event.target.checked)}
                  />
                </th>`
              : nothing
          }
          ${columns.map((column) => head(column, sort, choose))}
        </tr>
      </thead>
      <tbody>
        ${repeat(
          jobs,
          (job) => job.id,
          (job) =>
            html`<tr class=${picked?.has(job.id) ? "picked" : ""}>
              ${
                picked
                  ? html`<td class="pick">
                      <input
                        type="checkbox"
                        aria-label=${`Choose ${plain(job.id)}`}
                        .checked=${picked.has(job.id)}
                        @change=${(event) => pick([job.id], event.target.checked)}
                      />
                    </td>`
                  : nothing
              }
              ${columns.map((column) => html`<td class="${COLUMNS[column][2]} col-${column}">${COLUMNS[column][3](job)}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function head(column, sort, choose) {
  const [label, field, kind] = COLUMNS[column];
  if (field && choose) return sortHead(label, field, sort, choose, kind);
  return html`<th scope="col" class=${kind}>${label}</th>`;
}
