// Templates: job files with blanks; pick one, fill it, submit it.

import { html, nothing } from "../vendor/lit-html.js";
import { address, get, part, remove } from "../core/api.js";
import { Resource } from "../core/resource.js";
import { go } from "../core/router.js";
import { may, who } from "../core/session.js";
import { sameAs } from "../parts/copy.js";
import { ask, openDialog } from "../parts/dialog.js";
import { plain, plural } from "../parts/format.js";
import { notify, notifyFault } from "../parts/notices.js";
import { empty, shown } from "../parts/shown.js";
import { since } from "../parts/times.js";

export function open() {
  /** @type {Resource<{items: import("../types.js").TemplateView[]}>} */
  const list = new Resource((signal) => get("/templates", {}, signal));
  list.reload();
  return {
    title: () => "Templates",
    view: () =>
      html`<div class="page-head">
          <h1>Templates</h1>
          ${sameAs({ cli: "roost templates", api: `curl ${location.origin}/api/v1/templates -H "Authorization: Bearer $TOKEN"` })}
        </div>
        <p class="hint">
          A job file becomes a template on the page where jobs are written: <a href="/submit">Submit</a>.
        </p>
        ${shown(list, ({ items }) => (items.length ? html`<div class="queue-cards">${items.map((one) => card(one, list))}</div>` : empty("No templates")), { lines: 8 })}`,
    close: () => list.close(),
  };
}

function card(template, list) {
  const own = !template.shipped && (template.author === who()?.user || may("cluster:write"));
  return html`<section class="card" aria-labelledby="t-${template.name}">
    <div class="card-head">
      <h2 id="t-${template.name}">${plain(template.title || template.name)}</h2>
      <div class="buttons">
        ${may("jobs:write") ? html`<button type="button" class="primary" @click=${() => use(template)}>Use</button>` : nothing}
        ${own ? html`<button type="button" class="danger" @click=${() => drop(template, list)}>Delete</button>` : nothing}
      </div>
    </div>
    <p>${plain(template.description)}</p>
    <p class="hint">
      ${template.shipped ? "comes with Roost" : html`by ${plain(template.author)}${template.changed_at ? html`, changed ${since(template.changed_at)}` : nothing}`};
      ${template.jobs ? html`<a href="/jobs?label=${encodeURIComponent(`template=${template.name}`)}">${plural(template.jobs, "job")}</a>, ${template.succeeded_at ? html`last success ${since(template.succeeded_at)}` : "none succeeded yet"}` : "no jobs yet"}
    </p>
    <details>
      <summary>Job file</summary>
      <pre class="spec" tabindex="0">${template.text}</pre>
    </details>
  </section>`;
}

/** Ask for the blanks; the page that writes jobs goes on with the filled file. */
async function use(template) {
  const open_ = (values) => go(address("/submit", { template: template.name, ...values }));
  if (!template.blanks.length) {
    open_({});
    return;
  }
  const found = await openDialog(`Use ${template.name}`, (close) => {
    const submit = (event) => {
      event.preventDefault();
      close(Object.fromEntries(new FormData(event.target)));
    };
    return html`<form @submit=${submit}>
      <h2>${plain(template.title || template.name)}</h2>
      ${template.blanks.map((blank) => html`<label class="field">${plain(blank.label || blank.name)}<input name=${`fill.${blank.name}`} .value=${blank.default} autocomplete="off" /></label>`)}
      <div class="dialog-buttons">
        <button type="button" @click=${() => close(null)}>Back</button
        ><button type="submit" class="primary">Fill it</button>
      </div>
    </form>`;
  });
  if (found) open_(found);
}

async function drop(template, list) {
  if (
    !(await ask({
      title: `Delete the template ${plain(template.name)}`,
      action: "Delete",
      danger: true,
      body: html`<p>Jobs that were made from it stay.</p>`,
    }))
  )
    return;
  try {
    await remove(`/templates/${part(template.name)}`);
    notify("Deleted");
    list.reload();
  } catch (error) {
    notifyFault(error);
  }
}
