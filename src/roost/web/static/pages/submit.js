// A new job: a form and the job file beside it, one always saying what the other says; and what
// would become of it. The server reads and writes the file: there is one truth about what is valid.

import { html, nothing } from "../vendor/lit-html.js";
import { get, part, post, put } from "../core/api.js";
import { seldom } from "../core/resource.js";
import { redraw } from "../core/redraw.js";
import { go, place } from "../core/router.js";
import { cluster, listen } from "../core/store.js";
import { sameAs } from "../parts/copy.js";
import { ask } from "../parts/dialog.js";
import { clock, plain } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { notify, notifyFault } from "../parts/notices.js";
import { placementText } from "../parts/spans.js";
import { skeleton } from "../parts/shown.js";
import { since } from "../parts/times.js";
import { FIELDS, readField, writeField } from "./submit-fields.js";

const FIRST = "name: my-job\nrun: python train.py\nresources:\n  gpu: 1\n";
const PARSE_MS = 250;
const PLAN_MS = 500;

export const keyOf = ({ path, query }) => `${path}?${query}`;

/** A key for one submission: a click twice is one job. */
function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function open() {
  const draft = new Draft();
  const stop = listen((_, kind) => kind === "snapshot" && draft.plan());
  draft.begin();
  return {
    title: () => "Submit",
    view: () =>
      draft.text === null
        ? html`<h1>Submit</h1>
            ${draft.problem ? banner(draft.problem) : skeleton(10)}`
        : page(draft),
    close() {
      stop();
      draft.close();
    },
  };
}

/** What is being written: the text, what the server reads in it, and what would become of it. */
class Draft {
  text = null;
  job = {};
  faults = [];
  notes = [];
  comments = false;
  /** @type {import("../types.js").PlanView | null} */
  planned = null;
  problem = null;
  busy = false;
  parsed = false;
  secrets = {};
  #key = newKey();
  #turn = 0;
  #last = "";
  parse = seldom(PARSE_MS, () => this.#parse());
  plan = seldom(PLAN_MS, () => this.#plan());

  /** From a job that there was, from a template, or from the beginning. */
  async begin() {
    try {
      this.text = await this.#origin();
      await this.#parse();
    } catch (error) {
      this.problem = error;
      redraw();
    }
  }

  async #origin() {
    const { query } = place;
    if (query.get("from")) {
      const job = await get(`/jobs/${part(query.get("from"))}/file`);
      return (await post("/specs:render", { job: job.job ?? job })).text;
    }
    if (query.get("template")) {
      const given = [...query].filter(([name]) => name.startsWith("fill."));
      const values = Object.fromEntries(given.map(([name, value]) => [name.slice(5), value]));
      return (await post(`/templates/${part(query.get("template"))}/fill`, { values })).text;
    }
    return FIRST;
  }

  type(text) {
    this.text = text;
    this.parse();
  }

  /** A field of the form changed: the file is written anew. */
  async change(field, text) {
    writeField(this.job, field, text);
    const turn = ++this.#turn;
    try {
      const told = await post("/specs:render", { job: this.job });
      if (turn !== this.#turn) return;
      if (told.text) this.text = told.text;
      this.faults = told.errors ?? [];
      await this.#parse();
    } catch (error) {
      this.problem = error;
      redraw();
    }
  }

  async #parse() {
    const turn = ++this.#turn;
    try {
      const told = await post("/specs:parse", { text: this.text, name: "job.yaml" });
      if (turn !== this.#turn) return;
      this.problem = null;
      this.faults = told.errors;
      this.notes = told.notes ?? [];
      this.comments = Boolean(told.comments);
      this.parsed = told.ok;
      if (told.ok) {
        this.job = told.job;
        this.plan();
      } else this.planned = null;
    } catch (error) {
      if (turn !== this.#turn) return;
      this.problem = error;
    }
    redraw();
  }

  async #plan() {
    if (!this.parsed || this.faults.length) return;
    const asked = JSON.stringify(this.job);
    this.#last = asked;
    try {
      const planned = await post("/jobs/plan", { job: this.job });
      if (this.#last === asked) this.planned = planned;
    } catch (error) {
      if (this.#last !== asked) return;
      this.planned = null;
      this.faults = error.faults?.length ? error.faults : [{ message: error.message }];
    }
    redraw();
  }

  async submit() {
    this.busy = true;
    redraw();
    try {
      const job = await post("/jobs", { job: this.job, secrets: this.secrets }, { key: this.#key });
      this.#key = newKey();
      go(`/jobs/${part(job.id)}`);
    } catch (error) {
      if (error.faults?.length) this.faults = error.faults;
      notifyFault(error);
    }
    this.busy = false;
    redraw();
  }

  close() {
    this.parse.stop();
    this.plan.stop();
    this.#turn += 1;
  }
}

const banner = (error) =>
  html`<div class="banner banner-bad" role="alert">
    ${icon("warning")}
    <div>
      <strong>${plain(error.message)}</strong>
      <div class="hint">${plain(error.hint ?? "")}</div>
    </div>
  </div>`;

function page(draft) {
  const from = place.query.get("from");
  const ready = !draft.faults.length && !draft.problem && !draft.busy;
  return html`<div class="page-head">
      <h1>Submit</h1>
      <div class="buttons">
        <a class="button" href="/templates">From a template</a>
        <button type="button" @click=${() => keepAsTemplate(draft.text)}>Keep as a template</button>
        ${sameAs({
          cli: "roost submit job.yaml",
          api: `curl ${location.origin}/api/v1/jobs -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" -d '${JSON.stringify({ job: draft.job })}'`,
        })}
      </div>
    </div>
    ${from ? html`<p class="hint">A copy of the job file of <a href="/jobs/${encodeURIComponent(from)}">${plain(from)}</a>.</p>` : nothing}
    ${draft.problem ? banner(draft.problem) : nothing}
    <div class="submit">
      <section class="card" aria-labelledby="form-h">
        <h2 id="form-h">Form</h2>
        ${form(draft)}
      </section>
      <section class="card" aria-labelledby="file-h">
        <h2 id="file-h">Job file</h2>
        ${editor(draft)}${faultsView(draft)} ${draft.notes.map((note) => html`<p class="note">${plain(note)}</p>`)}
        ${draft.comments ? html`<p class="hint">The file has comments. A change in the form writes it anew, without them.</p>` : nothing}
      </section>
      <section class="card plan" aria-labelledby="plan-h">
        <h2 id="plan-h">What would become of it</h2>
        <div aria-live="polite">${planView(draft)}</div>
        <button type="button" class="primary" ?disabled=${!ready} @click=${() => draft.submit()}>
          ${draft.busy ? "Submitting" : "Submit"}
        </button>
      </section>
    </div>`;
}

/** The job file under a name, for the whole team. */
async function keepAsTemplate(text) {
  const name = await ask({
    title: "Keep as a template",
    action: "Keep it",
    field: { label: "Name", hint: "Lower-case letters, digits and dashes; all users can read it" },
  });
  if (!name) return;
  try {
    await put(`/templates/${part(name.trim())}`, { text });
    notify("Kept");
  } catch (error) {
    notifyFault(error);
  }
}

function form(draft) {
  const queues = [...cluster.queues.keys()].sort();
  const wrong = new Map(draft.faults.map((fault) => [fault.field?.split(".")[0], fault.message]));
  return html`<div class="form">
    ${FIELDS.map((field) => {
      const fault = wrong.get(field.name) ?? wrong.get(field.alias);
      const told = fault ? `fault-${field.name}` : nothing;
      const change = (event) => draft.change(field, event.target.value);
      const value = readField(draft.job, field);
      return html`<label class="field ${field.wide ? "wide" : ""}"
        >${field.label}
        ${
          field.many
            ? html`<textarea
                rows="3"
                spellcheck="false"
                .value=${value}
                aria-invalid=${Boolean(fault)}
                aria-describedby=${told}
                @change=${change}
              ></textarea>`
            : html`<input
                .value=${value}
                placeholder=${field.hint}
                list=${field.name === "queue" ? "queues" : nothing}
                aria-invalid=${Boolean(fault)}
                aria-describedby=${told}
                autocomplete="off"
                @change=${change}
              />`
        }
        ${fault ? html`<span class="bad" id="fault-${field.name}">${plain(fault)}</span>` : nothing}
      </label>`;
    })}
    <datalist id="queues">${queues.map((name) => html`<option value=${name}></option>`)}</datalist>
    ${(draft.job.secrets ?? []).map(
      (name) =>
        html`<label class="field"
          >Secret ${plain(name)}
          <input type="password" autocomplete="off" @change=${(event) => (draft.secrets[name] = event.target.value)}
        /></label>`,
    )}
  </div>`;
}

function editor(draft) {
  const lines = draft.text.split("\n");
  const bad = new Set(draft.faults.map((fault) => fault.line));
  const scroll = (event) => (event.target.previousElementSibling.scrollTop = event.target.scrollTop);
  return html`<div class="editor">
    <div class="gutter" aria-hidden="true">
      ${lines.map((_, index) => html`<div class=${bad.has(index + 1) ? "gutter-bad" : ""}>${index + 1}</div>`)}
    </div>
    <textarea
      id="file"
      spellcheck="false"
      wrap="off"
      autocapitalize="off"
      aria-label="Job file as YAML"
      aria-describedby="file-faults"
      rows=${Math.max(14, Math.min(30, lines.length + 1))}
      .value=${draft.text}
      @input=${(event) => draft.type(event.target.value)}
      @scroll=${scroll}
    ></textarea>
  </div>`;
}

function faultsView(draft) {
  return html`<ul id="file-faults" class="faults" role="status">
    ${draft.faults.map(
      (fault) =>
        html`<li>
          ${fault.line ? html`<button type="button" class="plain" @click=${() => toLine(fault.line)}>line ${fault.line}</button>` : nothing}
          ${plain(fault.message)}
        </li>`,
    )}
  </ul>`;
}

function toLine(number) {
  const area = /** @type {HTMLTextAreaElement} */ (document.getElementById("file"));
  const before = area.value
    .split("\n")
    .slice(0, number - 1)
    .join("\n");
  const start = before.length + (number > 1 ? 1 : 0);
  const end = area.value.indexOf("\n", start);
  area.focus();
  area.setSelectionRange(start, end < 0 ? area.value.length : end);
}

function planView(draft) {
  const { planned } = draft;
  if (draft.faults.length) return html`<p>Once the job file is in order, it is said here.</p>`;
  if (!planned) return html`<p class="muted">Asking the scheduler</p>`;
  const [mark, words] = planned.never
    ? ["failed", "Never: it cannot start as it is"]
    : planned.fits
      ? ["running", "It would start now"]
      : ["queued", "It would wait"];
  return html`<p class="state state-${mark} plan-state">${icon(mark)}${words}</p>
    ${planned.reason && !planned.fits ? html`<p class="why-sentence">${plain(planned.reason)}</p>` : nothing}
    ${planned.starts_at && !planned.fits ? html`<p>It would start ${since(planned.starts_at)} (about ${clock(planned.starts_at)}).</p>` : nothing}
    ${planned.placement.length ? html`<p>On ${placementText(planned.placement)}</p>` : nothing}
    ${[...(planned.notes ?? [])].map((note) => html`<p class="note">${plain(note)}</p>`)}
    ${
      planned.assumptions.length
        ? html`<details>
            <summary>What this assumes</summary>
            <ul>
              ${planned.assumptions.map((one) => html`<li>${plain(one)}</li>`)}
            </ul>
          </details>`
        : nothing
    }`;
}
