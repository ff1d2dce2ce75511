// The lab: ask what would have become of jobs under other policies, or on other machines.

import { html, nothing } from "../vendor/lit-html.js";
import { get, part, post } from "../core/api.js";
import { Resource } from "../core/resource.js";
import { go } from "../core/router.js";
import { may } from "../core/session.js";
import { sameAs } from "../parts/copy.js";
import { plain } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { notifyFault } from "../parts/notices.js";
import { empty, shown } from "../parts/shown.js";
import { since } from "../parts/times.js";

const POLICIES = [
  "roost",
  "fifo",
  "backfill",
  "srtf",
  "sjf",
  "las",
  "tiresias",
  "gandiva",
  "themis",
  "optimus",
  "pollux",
  "gavel",
];

export function open() {
  /** @type {Resource<{items: import("../types.js").LabView[]}>} */
  const list = new Resource((signal) => get("/lab", {}, signal));
  list.reload();
  const timer = setInterval(() => document.hidden || list.reload(), 5000);
  return {
    title: () => "Lab",
    view: () =>
      html`<div class="page-head">
          <h1>Lab</h1>
          ${sameAs({ cli: "roost compare --policies roost,fifo,srtf", api: `curl ${location.origin}/api/v1/lab -H "Authorization: Bearer $TOKEN"` })}
        </div>
        ${may("jobs:write") ? question() : nothing}
        <section class="card" aria-labelledby="asked-h">
          <h2 id="asked-h">What you asked</h2>
          ${shown(list, ({ items }) => asked(items))}
        </section>`,
    close() {
      clearInterval(timer);
      list.close();
    },
  };
}

function question() {
  const submit = async (event) => {
    event.preventDefault();
    try {
      const made = await post("/lab", bodyOf(new FormData(event.target)));
      go(`/lab/${part(made.id)}`);
    } catch (error) {
      notifyFault(error);
    }
  };
  return html`<form class="card" aria-labelledby="ask-h" @submit=${submit}>
    <h2 id="ask-h">What if</h2>
    <div class="lab-form">
      <label class="field"
        >Policies <input name="policies" value="roost, fifo, srtf" list="policies" autocomplete="off" /><span
          class="hint"
          >Up to 6, with commas; the others are compared with the first</span
        ></label
      >
      <datalist id="policies">${POLICIES.map((name) => html`<option value=${name}></option>`)}</datalist>
      <label class="field"
        >Jobs
        <select name="kind">
          <option value="history">those of the last days, as they ran</option>
          <option value="synthetic">made up</option>
        </select></label
      >
      <label class="field"
        >Days back <input name="days" type="number" min="1" max="90" value="7" /><span class="hint"
          >For jobs of the last days</span
        ></label
      >
      <label class="field"
        >How many <input name="jobs" type="number" min="1" max="5000" value="300" /><span class="hint"
          >For made-up jobs</span
        ></label
      >
      <label class="field"
        >Load <input name="load" type="number" min="0.1" max="5" step="0.1" value="1" /><span class="hint"
          >For made-up jobs; 1 keeps every GPU busy</span
        ></label
      >
      <label class="field"
        >Nodes <input name="count" type="number" min="1" max="2000" placeholder="as there are"
      /></label>
      <label class="field">GPUs of each <input name="gpus" type="number" min="1" max="64" value="8" /></label>
      <label class="field">Kind of GPU <input name="gpu_kind" placeholder="gpu" autocomplete="off" /></label>
      <label class="field">Seed <input name="seed" type="number" min="0" value="0" /></label>
      <label class="field"
        >Seeds <input name="seeds" type="number" min="1" max="5" value="1" /><span class="hint"
          >More seeds give an interval</span
        ></label
      >
    </div>
    <p>
      <button type="submit" class="primary">Simulate</button>
      <span class="hint">It runs beside the scheduler, in bounds, and changes nothing.</span>
    </p>
  </form>`;
}

function bodyOf(form) {
  const number = (name) => Number(form.get(name));
  const names = String(form.get("policies"))
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
  const workload =
    form.get("kind") === "history"
      ? { kind: "history", days: number("days") }
      : { kind: "synthetic", jobs: number("jobs"), load: number("load") };
  const nodes = form.get("count")
    ? { count: number("count"), gpus: number("gpus"), ...(form.get("gpu_kind") ? { kind: form.get("gpu_kind") } : {}) }
    : undefined;
  return { policies: names, workload, seed: number("seed"), seeds: number("seeds"), ...(nodes ? { nodes } : {}) };
}

const MARKS = { queued: "queued", running: "running", done: "succeeded", failed: "failed", cancelled: "cancelled" };

/** How a what-if stands, as a mark. */
export function labMark(state) {
  return html`<span class="state state-${MARKS[state]}">${icon(MARKS[state])}${state}</span>`;
}

/** A question in words. */
export function inWords({ policies, workload, nodes, seed, seeds }) {
  const jobs =
    workload?.kind === "history"
      ? `jobs of the last ${workload.days} days`
      : `${workload?.jobs} made-up jobs at load ${workload?.load}`;
  const where = nodes ? `${nodes.count} nodes with ${nodes.gpus} GPUs` : "the machines that there are";
  return plain(
    `${policies?.join(", ") || "the present policy"}; ${jobs}; ${where}; seed ${seed}${seeds > 1 ? `, ${seeds} seeds` : ""}`,
  );
}

function asked(items) {
  if (!items.length) return empty("Nothing yet");
  return html`<ul class="rows">
    ${items.map(
      (one) =>
        html`<li>
          ${labMark(one.state)} <a href="/lab/${encodeURIComponent(one.id)}" data-row>${inWords(one.ask)}</a>
          <span class="muted">${plain(one.user)}</span> ${since(one.made_at)}
        </li>`,
    )}
  </ul>`;
}
