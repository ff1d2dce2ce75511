// All jobs: filtered, sorted and paged on the server, with everything in the address.

import { html, nothing } from "../vendor/lit-html.js";
import { live } from "../vendor/directives/live.js";
import { address, get } from "../core/api.js";
import { Resource, seldom } from "../core/resource.js";
import { place, setQuery } from "../core/router.js";
import { redraw } from "../core/redraw.js";
import { who } from "../core/session.js";
import { cluster, listen } from "../core/store.js";
import { quoted, sameAs } from "../parts/copy.js";
import { plain, plural } from "../parts/format.js";
import { ACTIONS, actOn, mayAct } from "../parts/job-actions.js";
import { jobTable } from "../parts/job-table.js";
import { announce, notifyFault } from "../parts/notices.js";
import { empty, fault, skeleton } from "../parts/shown.js";
import { STATES } from "../parts/states.js";
import { pager } from "../parts/tables.js";

const LIMIT = 50;
const COLUMNS = ["state", "job", "user", "queue", "gpus", "workers", "nodes", "wait", "progress", "use", "submitted"];

export function open() {
  const picked = new Map();
  let typing = null;
  /** @type {Resource<import("../types.js").JobPage>} */
  const list = new Resource(async (signal) => {
    const found = await get("/jobs", question(), signal);
    announce(`${plural(found.total, "job")} found`);
    return found;
  });
  const counts = new Resource((signal) => get("/jobs/counts", filters({ state: [] }), signal));
  const again = seldom(2000, () => {
    list.reload();
    counts.reload();
  });
  const stop = listen((named, kind) => {
    replaceRows(list, named);
    if (kind === "snapshot" || named.length) again();
  });
  list.reload();
  counts.reload();

  const pick = (ids, on) => {
    for (const id of ids) {
      if (on)
        picked.set(
          id,
          list.value.items.find((job) => job.id === id),
        );
      else picked.delete(id);
    }
    redraw();
  };
  const act = async (action) => {
    const chosen = [...picked.values()].map((job) => cluster.jobs.get(job.id) ?? job);
    try {
      if (!(await actOn(action, chosen))) return;
      picked.clear();
      list.reload();
    } catch (error) {
      notifyFault(error);
    }
  };
  const search = (event) => {
    clearTimeout(typing);
    const text = event.target.value;
    typing = setTimeout(() => setQuery({ q: text, offset: "" }, { replace: true }), 250);
  };

  return {
    title: () => "Jobs",
    moved() {
      list.clear();
      list.reload();
      counts.reload();
    },
    view: () =>
      html`<div class="page-head">
          <h1>Jobs</h1>
          ${sameAs(asLines())}
        </div>
        ${filterBar(search, counts.value)} ${picked.size ? bulkBar(picked, act) : nothing}
        <section aria-label="Jobs found" class="card flush">${listView(list, picked, pick)}</section>`,
    close() {
      stop();
      again.stop();
      clearTimeout(typing);
      list.close();
      counts.close();
    },
  };
}

export const keyOf = () => "/jobs";

/** The filters of the address. */
function filters(changes = {}) {
  const { query } = place;
  return {
    q: query.get("q") ?? "",
    state: query.getAll("state"),
    user: query.getAll("user"),
    queue: query.getAll("queue"),
    label: query.getAll("label"),
    ...changes,
  };
}

function question() {
  const sort = place.query.get("sort") ?? "-submitted_at";
  const offset = Math.max(0, Number.parseInt(place.query.get("offset") ?? "0", 10) || 0);
  return { ...filters(), sort, offset, limit: LIMIT };
}

function asLines() {
  const { q, state, user, queue, label } = filters();
  const words = ["roost list"];
  if (state.length) words.push(`-s ${state.join(",")}`);
  words.push(...(user.length ? user.map((name) => `--user ${quoted(name)}`) : ["-A"]));
  words.push(...queue.map((name) => `-q ${quoted(name)}`), ...label.map((pair) => `--label ${quoted(pair)}`));
  if (q) words.push(`--name ${quoted(q)}`);
  const path = address("/api/v1/jobs", question());
  return { cli: words.join(" "), api: `curl '${location.origin}${path}' -H "Authorization: Bearer $TOKEN"` };
}

/** Rows of which the live stream tells are shown as they are now. */
function replaceRows(list, named) {
  if (!list.value) return;
  const news = new Set(named);
  list.value.items = list.value.items.map((job) => {
    const fresh = news.has(job.id) ? cluster.jobs.get(job.id) : null;
    return fresh && fresh.rev >= job.rev ? fresh : job;
  });
}

function filterBar(search, counts) {
  const { q, state, user, queue, label } = filters();
  const toggle = (name) => {
    const rest = state.filter((one) => one !== name);
    setQuery({ state: rest.length === state.length ? [...state, name] : rest, offset: "" });
  };
  const own = who().user;
  const mine = user.length === 1 && user[0] === own;
  return html`<search class="filters" aria-label="Filters">
    <input
      type="search"
      data-filter
      placeholder="Name, id, user, queue, label"
      aria-label="Words in name, id, user, queue or label"
      .value=${live(typed() ?? q)}
      @input=${search}
    />
    <div class="chips" role="group" aria-label="States">
      ${STATES.map(
        (name) =>
          html`<button type="button" class="chip" aria-pressed=${state.includes(name)} @click=${() => toggle(name)}>
            ${name}${counts ? html` <span class="count">${counts.states[name] ?? 0}</span>` : nothing}
          </button>`,
      )}
    </div>
    <button
      type="button"
      class="chip"
      aria-pressed=${mine}
      @click=${() => setQuery({ user: mine ? "" : own, offset: "" })}
    >
      only mine
    </button>
    ${mine ? nothing : user.map((name) => gone("user", name, user))} ${queue.map((name) => gone("queue", name, queue))}
    ${label.map((pair) => gone("label", pair, label))} ${queuePicker(counts, queue)}
  </search>`;
}

/** What is being typed; null while nobody does. */
function typed() {
  const field = document.activeElement;
  return field instanceof HTMLInputElement && field.matches("[data-filter]") ? field.value : null;
}

function gone(name, value, all) {
  const rest = all.filter((one) => one !== value);
  return html`<button
    type="button"
    class="chip"
    aria-pressed="true"
    aria-label=${`Remove the filter ${name} ${plain(value)}`}
    @click=${() => setQuery({ [name]: rest, offset: "" })}
  >
    ${name}: ${plain(value)} ×
  </button>`;
}

function queuePicker(counts, chosen) {
  const names = Object.keys(counts?.queues ?? {}).filter((name) => !chosen.includes(name));
  if (names.length < 1 || chosen.length) return nothing;
  return html`<select
    aria-label="Queue"
    @change=${(event) => event.target.value && setQuery({ queue: event.target.value, offset: "" })}
  >
    <option value="">all queues</option>
    ${names.sort().map((name) => html`<option value=${name}>${plain(name)} (${counts.queues[name]})</option>`)}
  </select>`;
}

function bulkBar(picked, act) {
  return html`<div class="bulk" role="toolbar" aria-label="Chosen jobs">
    <strong>${plural(picked.size, "job")} chosen</strong>
    ${Object.entries(ACTIONS).map(
      ([name, { word, danger }]) =>
        html`<button type="button" class=${danger ? "danger" : ""} @click=${() => act(name)}>${word}</button>`,
    )}
    <button
      type="button"
      class="plain"
      @click=${() => {
        picked.clear();
        redraw();
      }}
    >
      Choose none
    </button>
  </div>`;
}

function listView(list, picked, pick) {
  if (list.value === undefined) return list.error ? fault(list) : skeleton(10);
  const { items, total, offset } = list.value;
  const sort = place.query.get("sort") ?? "-submitted_at";
  const choose = (field) => setQuery({ sort: field, offset: "" });
  const filtered = Object.values(filters()).some((value) => value.length);
  return html`${list.error ? fault(list) : nothing}
  ${
    items.length
      ? jobTable(items, { columns: COLUMNS, sort, choose, ...(mayAct() ? { picked, pick } : {}) })
      : filtered
        ? empty("No job matches these filters", html`<a class="button" href="/jobs">Clear the filters</a>`)
        : empty("No jobs yet", html`<a class="button" href="/submit">Submit one</a>`)
  }
  ${pager({ offset, limit: LIMIT, total }, (to) => setQuery({ offset: to || "" }))}`;
}
