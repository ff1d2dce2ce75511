// What is mine, what needs me, and where there is room.

import { html, nothing } from "../vendor/lit-html.js";
import { get, post } from "../core/api.js";
import { Resource, seldom } from "../core/resource.js";
import { go } from "../core/router.js";
import { may, who } from "../core/session.js";
import { listen } from "../core/store.js";
import { amount, duration, plain, plural } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { notifyFault } from "../parts/notices.js";
import { empty, shown } from "../parts/shown.js";
import { STATES, stateMark } from "../parts/states.js";
import { bar } from "../parts/tables.js";
import { since } from "../parts/times.js";
import { jobTable } from "../parts/job-table.js";

const SAMPLE = {
  name: "sample",
  run: 'for step in 1 2 3 4 5; do echo "step $step of 5"; sleep 1; done; echo done',
  gpus: 0,
  labels: { sample: "yes" },
};

export function open() {
  const summary = new Resource((signal) => get("/summary", {}, signal));
  const again = seldom(2000, () => summary.reload());
  const stop = listen(again);
  const timer = setInterval(again, 15000);
  summary.reload();
  return {
    title: () => "Home",
    view: () =>
      html`<h1>Home</h1>
        ${shown(summary, home, { lines: 8 })}`,
    close() {
      stop();
      clearInterval(timer);
      again.stop();
      summary.close();
    },
  };
}

function home(told) {
  const own = Object.values(told.mine).reduce((sum, count) => sum + count, 0);
  return html`${own || told.recent.length ? mine(told) : beginning()}
    ${told.attention.length ? attention(told.attention) : nothing}
    <div class="columns">
      <section class="card" aria-labelledby="free-h">
        <h2 id="free-h">Free now</h2>
        ${free(told.free)}
      </section>
      <section class="card" aria-labelledby="share-h">
        <h2 id="share-h">Queues you may use</h2>
        ${queues(told.queues)} ${bounds(told)}
      </section>
    </div>
    ${
      told.recent.length
        ? html`<section class="card" aria-labelledby="recent-h">
            <div class="card-head">
              <h2 id="recent-h">Your newest jobs</h2>
              <a href="/jobs?user=${encodeURIComponent(told.user)}">All of them</a>
            </div>
            ${jobTable(told.recent, { columns: ["state", "job", "gpus", "queue", "progress", "submitted"] })}
          </section>`
        : nothing
    }`;
}

function mine(told) {
  return html`<section aria-label="Your jobs by state">
    <ul class="tiles">
      ${STATES.map((state) => {
        const count = told.mine[state] ?? 0;
        return html`<li class="tile ${count ? "" : "tile-none"}">
          <a href="/jobs?user=${encodeURIComponent(told.user)}&state=${state}">
            ${stateMark(state)}<span class="tile-value">${count}</span></a
          >
        </li>`;
      })}
    </ul>
    <p class="hint">Jobs that are over: of the last 7 days.</p>
  </section>`;
}

function beginning() {
  const submit = async () => {
    try {
      const job = await post("/jobs", { job: SAMPLE }, { key: crypto.randomUUID?.() ?? String(Math.random()) });
      go(`/jobs/${encodeURIComponent(job.id)}`);
    } catch (error) {
      notifyFault(error);
    }
  };
  return empty(
    "No jobs yet",
    may("jobs:write")
      ? html`<p>Hand in the sample: it counts to five, needs no GPU, and shows where everything is.</p>
          <p>
            <button type="button" class="primary" @click=${submit}>Submit the sample</button>
            <a class="button" href="/submit">Write a job of your own</a>
          </p>
          <p class="hint">Or in a terminal: <code>roost submit -- python train.py</code></p>`
      : html`<p>${plain(who().user)} has a role that looks on: <a href="/jobs">the jobs of all</a>.</p>`,
  );
}

function attention(items) {
  return html`<section class="card attention" aria-labelledby="attention-h">
    <h2 id="attention-h">${icon("warning")} Needs you</h2>
    <ul class="rows">
      ${items.map(
        (item) =>
          html`<li>
            ${stateMark(item.state)}
            <a href="/jobs/${encodeURIComponent(item.job)}" data-row>${plain(item.name || item.job)}</a>
            ${item.what === item.state ? nothing : html`<span class="what">${item.what.replaceAll("-", " ")}</span>`}
            <span class="text">${plain(item.text)}</span>
            ${since(item.since)}
          </li>`,
      )}
    </ul>
  </section>`;
}

function free(kinds) {
  if (!kinds.length) return empty("No node has joined yet");
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Free GPUs by kind">
    <table>
      <thead>
        <tr>
          <th scope="col">Kind</th>
          <th scope="col" class="number">Free</th>
          <th scope="col" class="number">Whole</th>
          <th scope="col" class="number">Most on one node</th>
          <th scope="col">Held</th>
        </tr>
      </thead>
      <tbody>
        ${kinds.map(
          (kind) =>
            html`<tr>
              <th scope="row">${plain(kind.kind || "any")}</th>
              <td class="number"><strong>${amount(kind.free)}</strong> of ${amount(kind.gpus)}</td>
              <td class="number">${amount(kind.whole)}</td>
              <td class="number">${amount(kind.largest)}</td>
              <td>
                ${bar(kind.gpus ? 1 - kind.free / kind.gpus : 0, "held")}
                ${kind.failed ? html`<span class="bad">${amount(kind.failed)} failed</span>` : nothing}
                ${kind.out ? html`<span class="muted">${amount(kind.out)} out of service</span>` : nothing}
              </td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function queues(items) {
  if (!items.length) return empty("No queue yet: the first job makes one");
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Your queues">
    <table>
      <thead>
        <tr>
          <th scope="col">Queue</th>
          <th scope="col" class="number">GPUs held</th>
          <th scope="col" class="number">Waiting</th>
          <th scope="col" class="number">Oldest wait</th>
        </tr>
      </thead>
      <tbody>
        ${items.map(
          (queue) =>
            html`<tr>
              <th scope="row"><a href="/jobs?queue=${encodeURIComponent(queue.id)}">${plain(queue.id)}</a></th>
              <td class="number">
                ${amount(queue.used)}${queue.quota === null ? nothing : html` of ${amount(queue.quota)} promised`}
              </td>
              <td class="number">
                ${amount(queue.waiting)}${queue.own_waiting ? html`, ${queue.own_waiting} yours` : nothing}
              </td>
              <td class="number">${queue.waiting ? duration(queue.oldest_s) : "–"}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function bounds({ bounds: most, use }) {
  if (!most || !use) return nothing;
  return html`<p class="hint">
    You have ${plural(use.jobs, "job")} that ${use.jobs === 1 ? "is" : "are"} not over, of ${amount(most.jobs)} at most.
  </p>`;
}
