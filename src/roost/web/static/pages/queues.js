// Queues: what each was promised, has, borrows, and who waits in it.

import { html, nothing } from "../vendor/lit-html.js";
import { get, part, put, remove } from "../core/api.js";
import { Resource, seldom } from "../core/resource.js";
import { may } from "../core/session.js";
import { listen, now } from "../core/store.js";
import { quoted, sameAs } from "../parts/copy.js";
import { ask, openDialog } from "../parts/dialog.js";
import { amount, duration, plain, plural } from "../parts/format.js";
import { notify, notifyFault } from "../parts/notices.js";
import { empty, shown } from "../parts/shown.js";

export function open() {
  /** @type {Resource<{items: import("../types.js").QueueView[]}>} */
  const list = new Resource((signal) => get("/queues", {}, signal));
  const again = seldom(2000, () => list.reload());
  const stop = listen(again);
  list.reload();
  return {
    title: () => "Queues",
    view: () =>
      html`<div class="page-head">
          <h1>Queues</h1>
          <div class="buttons">
            ${may("cluster:write") ? html`<button type="button" @click=${() => edit(null, list)}>Make a queue</button>` : nothing}
            ${sameAs({ cli: "roost queues", api: `curl ${location.origin}/api/v1/queues -H "Authorization: Bearer $TOKEN"` })}
          </div>
        </div>
        ${shown(list, ({ items }) => queuesView(items, list), { lines: 8 })}`,
    close() {
      stop();
      again.stop();
      list.close();
    },
  };
}

function queuesView(items, list) {
  if (!items.length)
    return empty(
      "No queue yet",
      html`<p>A job that names none goes to <code>default</code>. Without promises it is first come, first served.</p>`,
    );
  const promised = items.some((queue) => queue.quota !== null || queue.cells.length);
  const most = Math.max(1, ...items.map((queue) => Math.max(queue.gpus_used, queue.quota ?? 0, queue.limit ?? 0)));
  return html`${promised ? nothing : html`<p class="hint">No queue was promised anything: all share what there is by weight.</p>`}
    <div class="queue-cards">${items.map((queue) => card(queue, most, list))}</div>`;
}

/** @param {import("../types.js").QueueView} queue */
function card(queue, most, list) {
  return html`<section class="card" aria-labelledby="q-${queue.id}">
    <div class="card-head">
      <h2 id="q-${queue.id}">${plain(queue.id)}</h2>
      ${
        may("cluster:write")
          ? html`<div class="buttons">
              <button type="button" class="plain" @click=${() => edit(queue, list)}>Edit</button>
              <button type="button" class="plain" @click=${() => drop(queue, list)}>Delete</button>
            </div>`
          : nothing
      }
    </div>
    ${useBar(queue, most)}
    <dl class="facts">
      <div>
        <dt>GPUs held</dt>
        <dd>${amount(queue.gpus_used)}</dd>
      </div>
      <div>
        <dt>Promised</dt>
        <dd>${queue.quota === null ? "nothing" : plural(queue.quota, "GPU")}</dd>
      </div>
      <div>
        <dt>Borrowed</dt>
        <dd>${amount(queue.borrowed ?? Math.max(0, queue.gpus_used - (queue.quota ?? 0)))}</dd>
      </div>
      <div>
        <dt>At most</dt>
        <dd>${queue.limit === null ? "no bound" : amount(queue.limit)}</dd>
      </div>
      <div>
        <dt>Waiting</dt>
        <dd><a href="/jobs?queue=${encodeURIComponent(queue.id)}&state=queued">${amount(queue.waiting)}</a></dd>
      </div>
      <div>
        <dt>Oldest wait</dt>
        <dd>${queue.oldest_at ? duration(now() - queue.oldest_at) : "–"}</dd>
      </div>
      ${
        queue.running === null
          ? nothing
          : html`<div>
              <dt>Running</dt>
              <dd><a href="/jobs?queue=${encodeURIComponent(queue.id)}&state=running">${amount(queue.running)}</a></dd>
            </div>`
      }
      <div>
        <dt>Weight, priority</dt>
        <dd>${amount(queue.weight)}, ${amount(queue.priority)}</dd>
      </div>
      <div>
        <dt>May submit</dt>
        <dd>${queue.submitters.includes("*") ? "everybody" : queue.submitters.map(plain).join(", ") || "nobody"}</dd>
      </div>
    </dl>
    ${
      queue.standing.length
        ? html`<h3>Promised cells</h3>
            <ul class="names">
              ${queue.standing.map((cell) => html`<li><code>${plain(cell.promise)}</code> ${cell.used} in use${cell.broken ? html`, <span class="bad">${cell.broken} cannot be had now</span>` : nothing}</li>`)}
            </ul>`
        : nothing
    }
  </section>`;
}

/** What is held, against the promise and the bound. */
function useBar(queue, most) {
  const wide = (value) => (value / most) * 100;
  const own = Math.min(queue.gpus_used, queue.quota ?? queue.gpus_used);
  return html`<svg
    class="use-bar"
    viewBox="0 0 100 6"
    preserveAspectRatio="none"
    role="img"
    aria-label=${`${amount(queue.gpus_used)} GPUs held${queue.quota === null ? "" : ` of ${amount(queue.quota)} promised`}`}
  >
    <rect class="use-back" width="100" height="6"></rect>
    <rect class="use-own" width=${wide(own)} height="6"></rect>
    <rect class="use-borrowed" x=${wide(own)} width=${wide(Math.max(0, queue.gpus_used - own))} height="6"></rect>
  </svg>`;
}

async function drop(queue, list) {
  const yes = await ask({
    title: `Delete the queue ${plain(queue.id)}`,
    action: "Delete",
    danger: true,
    body: html`<p>Its promise goes. Jobs in it have to be over first.</p>`,
  });
  if (!yes) return;
  try {
    await remove(`/queues/${part(queue.id)}`);
    notify("Deleted");
    list.reload();
  } catch (error) {
    notifyFault(error);
  }
}

const FIELDS = [
  ["quota", "Promised GPUs", "Empty: nothing is promised"],
  ["limit", "At most", "Empty: no bound"],
  ["weight", "Weight", "A part of what is left over, beside the others"],
  ["priority", "Priority", "Higher goes first"],
  ["submitters", "Who may submit", "Names with commas; * is everybody"],
  ["cells", "Promised cells", "Such as 2xnode:A100, with commas"],
];

async function edit(queue, list) {
  const found = await openDialog(queue ? `Edit ${queue.id}` : "Make a queue", (close) => {
    const submit = (event) => {
      event.preventDefault();
      close(Object.fromEntries(new FormData(event.target)));
    };
    return html`<form @submit=${submit}>
      <h2>${queue ? html`Edit ${plain(queue.id)}` : "Make a queue"}</h2>
      ${queue ? nothing : html`<label class="field">Name <input name="id" required autocomplete="off" /></label>`}
      ${FIELDS.map(
        ([name, label, hint]) =>
          html`<label class="field"
            >${label} <input name=${name} autocomplete="off" .value=${fieldText(queue, name)} /><span class="hint"
              >${hint}</span
            ></label
          >`,
      )}
      <label class="check"
        ><input type="checkbox" name="overflows" .checked=${queue?.overflows ?? true} /> Its jobs may also run beyond
        the promised places</label
      >
      <div class="dialog-buttons">
        <button type="button" @click=${() => close(null)}>Back</button
        ><button type="submit" class="primary">Save</button>
      </div>
    </form>`;
  });
  if (!found) return;
  const id = queue?.id ?? found.id;
  try {
    await put(`/queues/${part(id)}`, bodyOf(found));
    notify(`Saved; as a command: roost queues set ${quoted(id)}`);
    list.reload();
  } catch (error) {
    notifyFault(error);
  }
}

function fieldText(queue, name) {
  const value = queue?.[name] ?? { weight: 1, priority: 0, submitters: ["*"] }[name] ?? "";
  return Array.isArray(value) ? value.join(", ") : String(value);
}

function bodyOf(found) {
  const milli = (text) => (text.trim() === "" ? null : Math.round(Number(text) * 1000));
  const names = (text) =>
    text
      .split(",")
      .map((name) => name.trim())
      .filter(Boolean);
  return {
    quota_milli: milli(found.quota),
    limit_milli: milli(found.limit),
    weight: Number(found.weight),
    priority: Number(found.priority),
    submitters: names(found.submitters),
    cells: names(found.cells),
    overflows: found.overflows === "on",
  };
}
