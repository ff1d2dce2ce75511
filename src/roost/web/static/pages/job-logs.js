// What the workers of a job print: followed live, searched, from any worker and attempt.

import { html, nothing } from "../vendor/lit-html.js";
import { address, get } from "../core/api.js";
import { Resource } from "../core/resource.js";
import { redraw } from "../core/redraw.js";
import { place, setQuery } from "../core/router.js";
import { plain } from "../parts/format.js";
import { notify, notifyFault } from "../parts/notices.js";
import { empty, shown } from "../parts/shown.js";
import { isOver } from "../parts/states.js";
import "../parts/log-view.js";

export function logsTab(job, path) {
  const workers = new Resource((signal) => get(`${path}/workers`, { attempt: attempt() }, signal));
  let found = null;
  let searching = false;
  workers.reload();

  const worker = () => place.query.get("worker") ?? workers.value?.items[0] ?? "";

  async function search(query, after = 0) {
    searching = true;
    redraw();
    try {
      const more = await get(`${path}/logs/search`, {
        ...query,
        worker: worker(),
        attempt: attempt(),
        after,
        limit: 200,
      });
      found = { query, items: after ? [...found.items, ...more.items] : more.items, next: more.next };
      if (!more.items.length && !after) notify("Nothing found");
    } catch (error) {
      notifyFault(error);
    }
    searching = false;
    redraw();
  }

  const submit = (event) => {
    event.preventDefault();
    const text = event.target.elements.namedItem("q").value;
    if (text) search({ q: text });
    else found = null;
    redraw();
  };

  return {
    view: () =>
      shown(workers, (told) => {
        if (!told.items.length)
          return empty(
            job.value?.attempt ? "No worker has printed anything yet" : "It has not started: there is no log yet",
          );
        const query = { worker: worker(), attempt: attempt() };
        return html`<section class="card flush logs" aria-label="Logs">
          <div class="log-bar">
            ${pickers(told, job.value, worker())}
            <form class="log-search" role="search" @submit=${submit}>
              <input
                name="q"
                type="search"
                data-filter
                placeholder="Search the whole log"
                aria-label="Search the whole log"
              />
              <button type="submit" ?disabled=${searching}>Search</button>
            </form>
            <button type="button" ?disabled=${searching} @click=${() => search({ errors: true })}>Find errors</button>
            <a class="button" download href=${address(`/api/v1${path}/logs`, { ...query, download: true })}>Download</a>
          </div>
          ${
            found
              ? hits(
                  found,
                  (next) => search(found.query, next),
                  () => {
                    found = null;
                    redraw();
                  },
                )
              : nothing
          }
          <log-view .log=${logOf(path, query)}></log-view>
        </section>`;
      }),
    changed(fresh) {
      if (!place.query.get("attempt") && (workers.value?.attempt ?? 0) !== fresh.attempt) workers.reload();
      else if (!workers.value?.items.length || isOver(fresh)) workers.reload();
    },
    close: () => workers.close(),
  };
}

const attempt = () => place.query.get("attempt") ?? "";

/** The same object for the same log, so that it is opened once. */
let last = { key: "", log: null };

function logOf(path, query) {
  const key = address(path, query);
  if (last.key !== key) last = { key, log: { path, query } };
  return last.log;
}

function pickers(told, job, worker) {
  const attempts = Array.from({ length: job?.attempt ?? 1 }, (_, index) => job.attempt - index);
  return html`<label
      >Worker
      <select @change=${(event) => setQuery({ worker: event.target.value }, { replace: true })}>
        ${told.items.map((name) => html`<option value=${name} ?selected=${name === worker}>${plain(name)}</option>`)}
      </select></label
    >
    ${
      attempts.length > 1
        ? html`<label
            >Attempt
            <select @change=${(event) => setQuery({ attempt: event.target.value, worker: "" }, { replace: true })}>
              ${attempts.slice(0, 100).map((number) => html`<option value=${number} ?selected=${String(number) === attempt()}>${number}</option>`)}
            </select></label
          >`
        : nothing
    }`;
}

function hits(found, more, close) {
  const show = (hit) => /** @type {any} */ (document.querySelector("log-view"))?.showAt(hit.offset);
  return html`<div class="hits" role="region" aria-label="Found lines" tabindex="0">
    <div class="hits-head">
      <strong>${found.items.length}${found.next === null ? "" : " or more"} lines</strong>
      <button type="button" class="plain" @click=${close}>Close</button>
    </div>
    <ol>
      ${found.items.map(
        (hit) =>
          html`<li>
            <button type="button" class="hit" @click=${() => show(hit)}>
              <span class="line-number">${hit.line}</span><span>${plain(hit.text)}</span>
            </button>
          </li>`,
      )}
    </ol>
    ${found.next === null ? nothing : html`<button type="button" @click=${() => more(found.next)}>Search on</button>`}
  </div>`;
}
