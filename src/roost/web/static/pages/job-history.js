// What became of a job: its timeline, its events, its job file.

import { html } from "../vendor/lit-html.js";
import { get, post } from "../core/api.js";
import { Resource, seldom } from "../core/resource.js";
import { copyButton } from "../parts/copy.js";
import { absolute, clock, plain, plural } from "../parts/format.js";
import { spanTable, spansView } from "../parts/spans.js";
import { empty, shown } from "../parts/shown.js";
import { since } from "../parts/times.js";

/** A tab that is asked for when it opens, and again when the job changed. */
function asked(load, draw, lines) {
  const found = new Resource(load);
  const again = seldom(2000, () => found.reload());
  found.reload();
  return {
    view: () => shown(found, draw, { lines }),
    changed: again,
    close() {
      again.stop();
      found.close();
    },
  };
}

export function timelineTab(_job, path) {
  return asked((signal) => get(`${path}/timeline`, {}, signal), timeline, 5);
}

function timeline(told) {
  if (!told.spans.length) return empty("Nothing happened yet");
  return html`<section class="card" aria-label="Timeline">${spansView(told)}${spanTable(told)}</section>
    <section class="card" aria-labelledby="attempts-h">
      <h2 id="attempts-h">Attempts</h2>
      ${told.attempts.length ? attempts(told.attempts) : empty("It never started")}
    </section>`;
}

function attempts(each) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Attempts">
    <table>
      <thead>
        <tr>
          <th scope="col">Attempt</th>
          <th scope="col">Started</th>
          <th scope="col">Ended</th>
          <th scope="col">Outcome</th>
          <th scope="col">Why</th>
        </tr>
      </thead>
      <tbody>
        ${each.toReversed().map(
          (one) =>
            html`<tr>
              <th scope="row">${one.attempt}</th>
              <td>${since(one.started_at)}</td>
              <td>${since(one.ended_at)}</td>
              <td>${plain(one.outcome || "goes on")}</td>
              <td>${plain(one.text)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

export function eventsTab(_job, path) {
  return asked((signal) => get(`${path}/events`, { limit: 200 }, signal), events, 8);
}

function events({ items, total }) {
  if (!items.length) return empty("Nothing happened yet");
  return html`<section class="card flush" aria-label="Events">
    ${eventTable(items.toReversed())}
    ${total > items.length ? html`<p class="hint pad">${plural(total - items.length, "other event")}: <code>roost events</code> has all.</p>` : ""}
  </section>`;
}

export function eventTable(items) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Events">
    <table>
      <thead>
        <tr>
          <th scope="col">When</th>
          <th scope="col">What</th>
          <th scope="col">By</th>
          <th scope="col">In words</th>
        </tr>
      </thead>
      <tbody>
        ${items.map(
          (event) =>
            html`<tr>
              <td><time title=${absolute(event.time)}>${clock(event.time)}</time></td>
              <td>${plain(event.kind)}</td>
              <td>${plain(event.actor)}</td>
              <td>${plain(event.text || [event.old, event.new].filter(Boolean).join(" → "))}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

export function specTab(_job, path) {
  const load = async (signal) => {
    const job = await get(`${path}/file`, {}, signal);
    const { text } = await post("/specs:render", { job: job.job ?? job }, { signal });
    return text;
  };
  return asked(
    load,
    (text) =>
      html`<section class="card" aria-label="Job file">
        <div class="card-head">
          <h2>Job file</h2>
          ${copyButton(text, "Copy the job file")}
        </div>
        <pre class="spec" tabindex="0">${text}</pre>
      </section>`,
    6,
  );
}
