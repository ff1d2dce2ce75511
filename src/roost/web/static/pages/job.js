// One job: its state with the reason, who is ahead and when; then all that is known of it, by tabs.

import { html, nothing } from "../vendor/lit-html.js";
import { get, part } from "../core/api.js";
import { Resource, seldom } from "../core/resource.js";
import { go, place } from "../core/router.js";
import { cluster, listen, now } from "../core/store.js";
import { sameAs } from "../parts/copy.js";
import { absolute, amount, clock, decimal, duration, mebibytes, percent, plain, plural } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { ACTIONS, actOn, mayAct } from "../parts/job-actions.js";
import { scaleJob } from "../parts/job-scale.js";
import { workersText } from "../parts/job-table.js";
import { announce, notifyFault } from "../parts/notices.js";
import { placementText } from "../parts/spans.js";
import { empty, fault, shown, skeleton } from "../parts/shown.js";
import { isOver, jobLink, stateMark } from "../parts/states.js";
import { bar, facts } from "../parts/tables.js";
import { tabBar } from "../parts/tabs.js";
import { since } from "../parts/times.js";
import { curvesTab } from "./job-curves.js";
import { eventsTab, specTab, timelineTab } from "./job-history.js";
import { logsTab } from "./job-logs.js";

/** Each tab: its word, and what opens it. */
const TABS = {
  overview: ["Overview", curvesTab],
  logs: ["Logs", logsTab],
  timeline: ["Timeline", timelineTab],
  events: ["Events", eventsTab],
  spec: ["Job file", specTab],
};

export const keyOf = ({ path }) => path;

export function open({ names }) {
  const id = names.job;
  const path = `/jobs/${part(id)}`;
  /** @type {Resource<import("../types.js").JobView>} */
  const job = new Resource((signal) => get(path, {}, signal));
  /** @type {Resource<import("../types.js").ExplanationView>} */
  const why = new Resource((signal) => get(`${path}/explain`, {}, signal));
  const later = seldom(2000, () => job.reload());
  const explainAgain = seldom(5000, () => why.reload());
  let tab = null;
  let tabName = "";

  const stop = listen((named, kind) => {
    const fresh = cluster.jobs.get(job.value?.id ?? id);
    if (named.includes(fresh?.id) && job.value && fresh.rev >= job.value.rev) changed(job.value, fresh);
    else if (kind === "snapshot" || named.includes(job.value?.id ?? id)) later();
  });

  function changed(before, fresh) {
    job.value = fresh;
    if (before.state !== fresh.state) announce(`${plain(fresh.id)} is ${fresh.state}`);
    // Of jobs that wait only: the answer is dear, and of no use elsewhere.
    const news = before.reason !== fresh.reason || before.state !== fresh.state;
    if (fresh.state === "queued" && news) explainAgain();
    if (before.rev !== fresh.rev) tab?.changed?.(fresh);
  }

  function showTab() {
    const wanted = place.query.get("tab") ?? "overview";
    const name = wanted in TABS ? wanted : "overview";
    if (name === tabName) return;
    tab?.close?.();
    tabName = name;
    tab = TABS[name][1](job, path);
  }

  job.reload().then(() => job.value?.state === "queued" && why.reload());
  showTab();

  return {
    title: () => (job.value ? `${job.value.state}: ${job.value.id}` : id),
    moved: showTab,
    view() {
      if (job.value === undefined) {
        if (job.error?.status === 404)
          return html`<h1>${plain(id)}</h1>
            ${empty(plain(job.error.message), html`<a class="button" href="/jobs">All jobs</a>`)}`;
        return html`<h1>${plain(id)}</h1>
          ${job.error ? fault(job) : skeleton(8)}`;
      }
      return html`${job.error ? fault(job) : nothing}${headView(job)} ${whyView(job.value, why)}
        ${tabBar(TABS, tabName, "About this job")}
        <div role="tabpanel" id="tab-panel" aria-labelledby="tab-${tabName}">${tab.view()}</div>`;
    },
    close() {
      stop();
      tab?.close?.();
      later.stop();
      explainAgain.stop();
      job.close();
      why.close();
    },
  };
}

function headView(resource) {
  const job = resource.value;
  const act = async (action) => {
    try {
      const items = await actOn(action, [job]);
      const made = items && items[0]?.made;
      if (made) go(`/jobs/${part(made)}`);
      else if (items && action === "delete" && items[0].ok) go("/jobs");
      else if (items) resource.reload();
    } catch (error) {
      notifyFault(error);
    }
  };
  const id = job.id;
  return html`<div class="page-head">
      <div>
        <h1>${plain(id)}</h1>
        <p class="sub">
          ${stateMark(job.state)} ${job.cancelling ? html`<span class="muted">is being cancelled</span>` : nothing}
          <span>attempt ${job.attempt || "–"}</span> <span>of ${plain(job.user)}</span>
          <span>in <a href="/jobs?queue=${encodeURIComponent(job.queue)}">${plain(job.queue)}</a></span>
          <span>submitted ${since(job.submitted_at)}</span>
        </p>
      </div>
      <div class="buttons">
        ${
          mayAct()
            ? html`${Object.entries(ACTIONS)
                  .filter(([, action]) => action.allows(job))
                  .map(
                    ([name, { word, danger }]) =>
                      html`<button type="button" class=${danger ? "danger" : ""} @click=${() => act(name)}>
                        ${word}
                      </button>`,
                  )}
                ${isOver(job) ? nothing : html`<button type="button" @click=${() => scaleJob(job, resource)}>Scale</button>`}
                <a class="button" href="/submit?from=${encodeURIComponent(id)}">Clone</a>`
            : nothing
        }
        ${sameAs({ cli: `roost get ${id}`, api: `curl ${location.origin}/api/v1/jobs/${id} -H "Authorization: Bearer $TOKEN"` })}
      </div>
    </div>
    ${figures(job)}`;
}

/** @param {import("../types.js").JobView} job */
function figures(job) {
  const end = job.finished_at ?? now();
  return html`<section class="card" aria-label="In figures">
    ${facts([
      ["Workers", workersText(job)],
      ["GPUs", job.gpus_held ? `${amount(job.gpus_held)} held` : `${amount(job.gpus)} asked`],
      ["Share of each GPU", job.share < 1 ? `${percent(job.share)} ${job.way} ${job.qos}` : null],
      ["Where", job.placement.length ? placementText(job.placement) : null],
      ["Goes to", job.target ? placementText(job.target) : null],
      ["Progress", job.progress === null ? html`<span class="muted">not reported</span>` : bar(job.progress, "done")],
      ["Loss", job.loss === null ? null : decimal(job.loss)],
      ["Use of its GPUs", isOver(job) || !job.placement.length ? null : bar(job.busy, "busy")],
      ["Memory", job.memory_mib === null ? null : mebibytes(job.memory_mib)],
      ["Ran", duration(job.ran_s + (job.running_since ? end - job.running_since : 0))],
      ["GPU time", duration(job.gpu_s)],
      ["Priority", amount(job.priority)],
      [
        "Failures",
        job.failures || job.platform_failures
          ? `${job.failures}${job.platform_failures ? `, and ${job.platform_failures} of the platform` : ""}`
          : null,
      ],
      ["Preempted", job.preemptions ? plural(job.preemptions, "time") : null],
      ["Resized", job.resizes ? plural(job.resizes, "time") : null],
      ["Labels", labels(job.labels)],
      ["Clone of", job.clone_of || null],
      ["Runs again", job.rerun_of ? jobLink(job.rerun_of) : null],
      ["Cancelled by", job.cancelled_by || null],
    ])}
  </section>`;
}

function labels(pairs) {
  const each = Object.entries(pairs);
  if (!each.length) return null;
  return each.map(
    ([key, value]) =>
      html`<a class="label" href="/jobs?label=${encodeURIComponent(`${key}=${value}`)}"
        >${plain(key)}=${plain(value)}</a
      > `,
  );
}

/** Why it is where it is: the sentence first, then who is ahead, what would help, what went wrong. */
function whyView(job, why) {
  const { verdict } = job;
  const told = why.value;
  const notes = [job.note, job.restraint].filter(Boolean);
  if (isOver(job) && !verdict) return notes.length ? notesView(notes) : nothing;
  if (!verdict && !job.reason && !notes.length && job.state === "running") return nothing;
  return html`<section class="card why-card" aria-labelledby="why-h">
    <h2 id="why-h">${verdict ? "What went wrong" : `Why it is ${job.state}`}</h2>
    ${verdict ? verdictView(verdict) : html`<p class="why-sentence">${plain(job.reason || told?.reason || "")}</p>`}
    ${notesView(notes)} ${isOver(job) || job.state !== "queued" ? nothing : waitView(job, why)}
  </section>`;
}

const notesView = (notes) => notes.map((note) => html`<p class="note">${icon("warning")} ${plain(note)}</p>`);

/** @param {import("../types.js").VerdictView} verdict */
function verdictView(verdict) {
  return html`<p class="why-sentence">${plain(verdict.sentence || verdict.phrase)}</p>
    ${verdict.advice && !verdict.sentence.includes(verdict.advice) ? html`<p>${plain(verdict.advice)}</p>` : nothing}
    ${verdict.evidence ? html`<pre class="evidence" tabindex="0">${plain(verdict.evidence)}</pre>` : nothing}
    ${facts([
      ["Worker", verdict.worker],
      ["Exit code", verdict.code],
      ["Signal", verdict.signal],
      ["Whose", verdict.whose],
      ["A retry", verdict.retry],
    ])}`;
}

function waitView(job, why) {
  const soonest =
    job.not_before && job.not_before > now() ? html`<p>Not before ${absolute(job.not_before)}.</p>` : nothing;
  return html`${soonest}${shown(
    why,
    (told) =>
      html` ${whenView(told)}
      ${
        told.ahead_count
          ? html`<h3>Ahead of it: ${plural(told.ahead_count, "job")}</h3>
              <ul class="names">
                ${told.ahead.map((one) => html`<li>${one.job ? jobLink(one.job) : "another job"} <span class="muted">${one.user ? `${plain(one.user)}, ` : ""}${plural(one.gpus, "GPU")}</span></li>`)}
              </ul>`
          : html`<p>Nobody is ahead of it.</p>`
      }
      ${
        told.held_by.length
          ? html`<h3>What it needs is held by</h3>
              <ul class="names">
                ${told.held_by.map((one) => html`<li>${one.job ? jobLink(one.job) : "another job"} <span class="muted">${plural(one.gpus, "GPU")}${one.ends_at ? `, until about ${clock(one.ends_at)}` : ""}</span></li>`)}
              </ul>`
          : nothing
      }
      ${
        told.remedies.length
          ? html`<h3>It would start now</h3>
              <ul class="names">
                ${told.remedies.map((one) => html`<li>${plain(one.change)}</li>`)}
              </ul>`
          : nothing
      }
      ${
        told.assumptions.length
          ? html`<details>
              <summary>What this estimate assumes</summary>
              <ul>
                ${told.assumptions.map((one) => html`<li>${plain(one)}</li>`)}
              </ul>
            </details>`
          : nothing
      }`,
  )}`;
}

/** @param {import("../types.js").ExplanationView} told */
function whenView(told) {
  if (told.starts_at === null || told.starts_at === undefined)
    return html`<p>
      When it starts cannot be said${told.cause === "impossible" ? ": it cannot start as it is" : " yet"}.
    </p>`;
  const [early, late] = told.starts_between ?? [];
  const range = early && late && late - early > 60 ? `, between ${clock(early)} and ${clock(late)}` : "";
  return html`<p class="when">
    Starts <strong>${since(told.starts_at)}</strong> (about ${clock(told.starts_at)}${range})
  </p>`;
}
